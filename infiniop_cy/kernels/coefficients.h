// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.
#pragma once

template <class S> struct coefficients;
template <class S, bool narrow> struct polynomial_coefficients;

template <> struct coefficients<float> {
    static constexpr float round_magic = 1.2582912e+7f;
    static constexpr float ln2 = 6.931471806e-1f;
    static constexpr float log2e_hi = 1.442695022f;
    static constexpr float log2e_lo = 1.925962991e-8f;
    static constexpr float gelu_exponent_hi = -7.213475108e-1f;
    static constexpr float gelu_exponent_lo = -9.629814956e-9f;
    static constexpr float normal_density = 3.989422804e-1f;
    static constexpr float tanh_coarse = 4.9152e+4f;
    static constexpr float tanh_exponent1_hi = -2.30078125f;
    static constexpr float tanh_exponent1_lo = -1.426948144e-3f;
    static constexpr float tanh_exponent3_hi = -1.029432416e-1f;
    static constexpr float tanh_exponent3_lo = 2.016198436e-9f;
    static constexpr float gelu_zero_numerator = 2.272129e+6f;
    static constexpr float gelu_zero_denominator = 3.022286e+6f;
    static constexpr float gelu_tail_limit = -1.320001748e-7f;
};

template <> struct polynomial_coefficients<float, false> {
    static constexpr float gelu_tail_k = 4.5f;
    static constexpr int exp2_curve_degree = 4;
    static constexpr float exp2_curve[] = {
        2.40226507e-1f,
        5.550363868e-2f,
        9.618088408e-3f,
        1.339347414e-3f,
        1.545542192e-4f,
    };
    static constexpr int gelu_tail_degree = 7;
    static constexpr float gelu_tail[] = {
        -2.206384628e-8f,
        -1.901830314e-8f,
        -1.740657617e-8f,
        -6.209083636e-9f,
        -2.41346939e-8f,
        1.725198973e-8f,
        -2.3110088e-8f,
        6.632850431e-9f,
    };
    static constexpr int normal_tail_degree = 10;
    static constexpr float normal_tail[] = {
        8.865110695e-2f,
        8.870759478e-2f,
        8.385113574e-2f,
        7.711235959e-2f,
        6.139577977e-2f,
        3.791787117e-2f,
        8.280703829e-2f,
        -9.115147988e-2f,
        1.413942143e-1f,
        -8.924157428e-2f,
        1.855595394e-2f,
    };
    static constexpr int log1p_curve_degree = 3;
    static constexpr float log1p_curve[] = {
        6.666664034e-1f,
        4.000756064e-1f,
        2.823661981e-1f,
        2.685149802e-1f,
    };
};

template <> struct polynomial_coefficients<float, true> {
    static constexpr float gelu_tail_k = 3.5f;
    static constexpr int exp2_curve_degree = 3;
    static constexpr float exp2_curve[] = {
        2.402246083e-1f,
        5.550392077e-2f,
        9.666548464e-3f,
        1.338147841e-3f,
    };
    static constexpr int gelu_tail_degree = 5;
    static constexpr float gelu_tail[] = {
        -2.839030545e-8f,
        -2.311545135e-8f,
        -2.119916233e-8f,
        -2.528019882e-9f,
        -2.071295159e-8f,
        7.888244248e-9f,
    };
    static constexpr int normal_tail_degree = 6;
    static constexpr float normal_tail[] = {
        1.141224511e-1f,
        1.119082759e-1f,
        1.162951733e-1f,
        5.661966531e-2f,
        8.797943354e-2f,
        4.854931194e-2f,
        -3.547538529e-2f,
    };
    static constexpr int log1p_curve_degree = 2;
    static constexpr float log1p_curve[] = {
        6.666776439e-1f,
        3.982307064e-1f,
        3.269394946e-1f,
    };
};

template <> struct coefficients<double> {
    static constexpr double round_magic = 6.755399441055744e+15;
    static constexpr double ln2 = 6.931471805599453094e-1;
    static constexpr double log2e_hi = 1.442695040888963387;
    static constexpr double log2e_lo = 2.035527374093103205e-17;
    static constexpr double gelu_exponent_hi = -7.213475204444816935e-1;
    static constexpr double gelu_exponent_lo = -1.017763687046551602e-17;
    static constexpr double normal_density = 3.989422804014326779e-1;
    static constexpr double tanh_coarse = 6.442450944e+9;
    static constexpr double tanh_exponent1_hi = -2.30220794677734375;
    static constexpr double tanh_exponent1_lo = -2.513669811391338948e-7;
    static constexpr double tanh_exponent3_hi = -1.029432395800234934e-1;
    static constexpr double tanh_exponent3_lo = 5.978177400718744372e-18;
    static constexpr double gelu_zero_numerator = 2.90881491707827e+14;
    static constexpr double gelu_zero_denominator = 3.86917758651765e+14;
    static constexpr double gelu_tail_limit = -1.031077719956736408e-15;
};

template <> struct polynomial_coefficients<double, false> {
    static constexpr double gelu_tail_k = 6.0;
    static constexpr int exp2_curve_degree = 9;
    static constexpr double exp2_curve[] = {
        2.402265069591008648e-1,
        5.550410866482158808e-2,
        9.618129107604173906e-3,
        1.333355814641548871e-3,
        1.540353045537432561e-4,
        1.525273383710508158e-5,
        1.321543145013725333e-6,
        1.017805650947211954e-7,
        7.075070620322878275e-9,
        4.456284923380999969e-10,
    };
    static constexpr int gelu_tail_degree = 19;
    static constexpr double gelu_tail[] = {
        -1.291925819854828184e-16,
        -1.167391752668673918e-16,
        -1.027255609335134803e-16,
        -8.774862569887852192e-17,
        -7.251999483762968123e-17,
        -5.742704428697983414e-17,
        -4.50912398717669866e-17,
        -2.606441148018766723e-17,
        -4.109283009473245462e-17,
        4.146560152311782263e-17,
        -1.287576295406668589e-16,
        2.092504015173342202e-16,
        -2.942809449614335483e-16,
        3.128875619544164104e-16,
        -2.510666672758864978e-16,
        1.458277784677262807e-16,
        -5.52767154270632788e-17,
        1.159005152031180279e-17,
        -8.033979086271824505e-19,
        -6.993261510661460646e-20,
    };
    static constexpr int normal_tail_degree = 21;
    static constexpr double normal_tail[] = {
        6.649038005580635396e-2,
        6.649038071620399117e-2,
        6.464340755965029657e-2,
        6.094980390355459462e-2,
        5.555929721143702554e-2,
        4.881722266108100232e-2,
        4.090786470343883278e-2,
        3.37217625556293629e-2,
        2.213459560641406882e-2,
        2.535478291759611783e-2,
        -3.839694420673243541e-3,
        2.460321072187936889e-2,
        5.055275396500833628e-3,
        -6.493183298189619534e-2,
        1.694845900639690127e-1,
        -2.682387507811921481e-1,
        2.959031771640570644e-1,
        -2.355623245587478938e-1,
        1.308360803048291184e-1,
        -4.754838205867979844e-2,
        1.013013535362381205e-2,
        -9.609820944815815671e-4,
    };
    static constexpr int log1p_curve_degree = 9;
    static constexpr double log1p_curve[] = {
        6.666666666666665856e-1,
        4.000000000001458267e-1,
        2.857142856710875716e-1,
        2.222222271742786299e-1,
        1.818178943613285817e-1,
        1.53855700649586231e-1,
        1.331414420965493615e-1,
        1.200107280959071254e-1,
        8.800738486144673882e-2,
        1.616404561194353222e-1,
    };
};

