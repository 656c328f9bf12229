// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.
#pragma once

template <class S> struct coefficients;

template <> struct coefficients<float> {
    static constexpr float gelu_tail_k = 3.0f;
    static constexpr float gelu_tail_zero_hi = 7.517915368e-1f;
    static constexpr float gelu_tail_zero_lo = -1.211444946e-8f;
    static constexpr float gelu_tail_at_0 = 6.650779951e-1f;
    static constexpr int exp_tail_degree = 4;
    static constexpr float exp_tail[] = {
        5.0e-1f,
        1.666657699e-1f,
        4.166655462e-2f,
        8.363179053e-3f,
        1.392618359e-3f,
    };
    static constexpr int gelu_tail_degree = 8;
    static constexpr float gelu_tail[] = {
        -1.867803209e-1f,
        6.680489547e-2f,
        -1.320857403e-2f,
        -8.660638409e-4f,
        1.068079599e-3f,
        2.47965172e-5f,
        -1.125420344e-4f,
        -8.641654072e-6f,
        8.173879971e-6f,
    };
};

template <> struct coefficients<double> {
    static constexpr double gelu_tail_k = 5.0;
    static constexpr double gelu_tail_zero_hi = 7.517915246935644724e-1;
    static constexpr double gelu_tail_zero_lo = -1.495675917700988327e-17;
    static constexpr double gelu_tail_at_0 = 6.65077995131434258e-1;
    static constexpr int exp_tail_degree = 10;
    static constexpr double exp_tail[] = {
        5.0e-1,
        1.666666666666667099e-1,
        4.166666666666666975e-2,
        8.333333333326135126e-3,
        1.38888888888837483e-3,
        1.984126987482062527e-4,
        2.480158732554774122e-5,
        2.755725540020642443e-6,
        2.755727364311029533e-7,
        2.510521700472074516e-8,
        2.091468696808687723e-9,
    };
    static constexpr int gelu_tail_degree = 20;
    static constexpr double gelu_tail[] = {
        -2.136424998680288491e-1,
        1.238459195982249823e-1,
        -6.335810604435480388e-2,
        2.782298457521175869e-2,
        -1.001515301828861965e-2,
        2.680842088956589122e-3,
        -3.786583661736764729e-4,
        -6.187225491017895548e-5,
        4.667648852603784215e-5,
        -6.029520538636726273e-6,
        -3.171690690772769929e-6,
        1.178964699005867745e-6,
        1.813618987392866777e-7,
        -1.599478313166890106e-7,
        -9.209002635607975724e-9,
        2.157327012181962615e-8,
        7.773132243362671222e-10,
        -2.995754463652363018e-9,
        -2.856575290551683686e-10,
        3.2995810437994675e-10,
        8.051207210421322967e-11,
    };
};

