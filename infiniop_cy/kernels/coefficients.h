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
        -1.867803205e-1f,
        6.680489907e-2f,
        -1.320858905e-2f,
        -8.661355683e-4f,
        1.068155435e-3f,
        2.515882287e-5f,
        -1.125229225e-4f,
        -9.164540317e-6f,
        7.864608917e-6f,
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
        -2.136424998680288492e-1,
        1.23845919598224984e-1,
        -6.335810604435476511e-2,
        2.782298457521163993e-2,
        -1.001515301829040226e-2,
        2.680842088958691205e-3,
        -3.786583661422078645e-4,
        -6.187225492017503898e-5,
        4.667648824954228541e-5,
        -6.029520593161304833e-6,
        -3.171689343114233396e-6,
        1.178965452160997864e-6,
        1.813581346317299214e-7,
        -1.59951060962160762e-7,
        -9.20321001466782299e-9,
        2.158011360247756244e-8,
        7.732977840729188742e-10,
        -3.003016154344101672e-9,
        -2.857415784150781784e-10,
        3.330394811728802111e-10,
        8.160630153929067038e-11,
    };
};

