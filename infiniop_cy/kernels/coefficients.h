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
};

