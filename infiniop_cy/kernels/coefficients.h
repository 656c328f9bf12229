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
    static constexpr float gelu_tail_k = 3.5f;
    static constexpr float gelu_tail_limit = -1.320001748e-7f;
};

template <> struct polynomial_coefficients<float, false> {
    static constexpr int exp2_curve_degree = 4;
    static constexpr float exp2_curve[] = {
        2.40226507e-1f,
        5.550363868e-2f,
        9.618088408e-3f,
        1.339347414e-3f,
        1.545542192e-4f,
    };
    static constexpr int gelu_tail_degree = 8;
    static constexpr float gelu_tail[] = {
        -2.330595312e-8f,
        1.352594899e-8f,
        -5.773690594e-9f,
        1.511356754e-9f,
        -4.201306746e-11f,
        -1.221873085e-10f,
        2.005313442e-11f,
        1.179721454e-11f,
        -3.582389386e-13f,
    };
};

template <> struct polynomial_coefficients<float, true> {
    static constexpr int exp2_curve_degree = 3;
    static constexpr float exp2_curve[] = {
        2.402246083e-1f,
        5.550392077e-2f,
        9.666548464e-3f,
        1.338147841e-3f,
    };
    static constexpr int gelu_tail_degree = 6;
    static constexpr float gelu_tail[] = {
        -2.330590429e-8f,
        1.352596197e-8f,
        -5.775537353e-9f,
        1.510732205e-9f,
        -3.148484013e-11f,
        -1.163026725e-10f,
        4.488820348e-12f,
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
    static constexpr double gelu_tail_k = 4.0;
    static constexpr double gelu_tail_limit = -1.031077719956736408e-15;
};

template <> struct polynomial_coefficients<double, false> {
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
    static constexpr int gelu_tail_degree = 20;
    static constexpr double gelu_tail[] = {
        -1.635204439015841559e-16,
        1.03631673597857216e-16,
        -5.263651367413532861e-17,
        1.994573235901740675e-17,
        -4.620083405310241843e-18,
        1.727046561709411294e-21,
        4.013295653627786949e-19,
        -7.881322197904782516e-20,
        -3.364281883100746999e-20,
        1.296893381013190105e-20,
        3.822320265602949707e-21,
        -1.906646001495192628e-21,
        -6.339009297537914118e-22,
        2.683886508905442687e-22,
        1.314639348780289709e-22,
        -3.095679703692595491e-23,
        -2.699400475224973383e-23,
        1.255285910131653035e-24,
        4.077251738819437765e-24,
        3.49053382069824101e-25,
        -2.27518813962921603e-25,
    };
};

