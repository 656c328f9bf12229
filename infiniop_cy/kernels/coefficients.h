// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.
#pragma once

template <class S> struct coefficients;

template <> struct coefficients<float> {
    static constexpr float gelu_tail_k = 3.5f;
    static constexpr float gelu_tail_zero_hi = 7.517915368e-1f;
    static constexpr float gelu_tail_zero_lo = -1.211444946e-8f;
    static constexpr float gelu_tail_limit = 3.989422804e-1f;
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
        7.043725582e-2f,
        -4.087928627e-2f,
        1.744974425e-2f,
        -4.56775236e-3f,
        1.269755056e-4f,
        3.69284992e-4f,
        -6.060630743e-5f,
        -3.565455633e-5f,
        1.082700529e-6f,
    };
};

template <> struct coefficients<double> {
    static constexpr double gelu_tail_k = 4.0;
    static constexpr double gelu_tail_zero_hi = 7.517915246935644724e-1;
    static constexpr double gelu_tail_zero_lo = -1.495675917700988327e-17;
    static constexpr double gelu_tail_limit = 3.989422804014326779e-1;
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
        6.326896364814261635e-2,
        -4.009693487381420537e-2,
        2.036600189403942127e-2,
        -7.717358059018996355e-3,
        1.787592315966852729e-3,
        -6.682249847438425676e-7,
        -1.552815359108533535e-4,
        3.049423520025720711e-5,
        1.301700405682080298e-5,
        -5.017910801919329982e-6,
        -1.478923590016312387e-6,
        7.377151974408697104e-7,
        2.452675269476069045e-7,
        -1.038443352501404209e-7,
        -5.086573102654856439e-8,
        1.197773452456499051e-8,
        1.044445981577555998e-8,
        -4.856924108152800982e-10,
        -1.577561104243028406e-9,
        -1.350549522402745182e-10,
        8.803106954964152155e-11,
    };
};

