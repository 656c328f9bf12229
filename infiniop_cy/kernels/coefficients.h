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
    static constexpr float normal_tail_slope = 2.506602287f;
    static constexpr int normal_tail_degree = 4;
    static constexpr float normal_tail[] = {
        7.500000027e-1f,
        6.576298922e-1f,
        2.748577554e-1f,
        6.091336411e-2f,
        6.158585612e-3f,
    };
    static constexpr int normal_tail_rest_degree = 4;
    static constexpr float normal_tail_rest[] = {
        1.5f,
        6.321353396e-1f,
        1.556488688e-1f,
        1.522907079e-2f,
        1.057916482e-5f,
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
    static constexpr float normal_tail_slope = 2.50685811f;
    static constexpr int normal_tail_degree = 3;
    static constexpr float normal_tail[] = {
        7.499997471e-1f,
        5.471650608e-1f,
        1.816496564e-1f,
        2.610256264e-2f,
    };
    static constexpr int normal_tail_rest_degree = 3;
    static constexpr float normal_tail_rest[] = {
        1.5f,
        4.109866706e-1f,
        6.99188587e-2f,
        -3.034168619e-4f,
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
    static constexpr double normal_tail_slope = 2.506628274630478437;
    static constexpr int normal_tail_degree = 10;
    static constexpr double normal_tail[] = {
        7.500000000000000002e-1,
        1.240773904004853933,
        1.017587702876493886,
        5.345454102035966825e-1,
        1.973160566084237093e-1,
        5.323410064476898107e-2,
        1.061602587070782297e-2,
        1.547038644969573947e-3,
        1.582546253759759077e-4,
        1.033260670657020723e-5,
        3.309212413230349483e-7,
    };
    static constexpr int normal_tail_rest_degree = 10;
    static constexpr double normal_tail_rest[] = {
        1.5,
        1.7984034432411472,
        1.109934797007283575,
        4.45279314294377962e-1,
        1.25941610012853103e-1,
        2.582534384672269915e-2,
        3.826051229448143237e-3,
        3.950265124137864178e-4,
        2.590000441341316852e-5,
        8.294965358219996982e-7,
        4.642693535909056567e-17,
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

