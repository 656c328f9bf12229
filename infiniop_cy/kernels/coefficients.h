// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.
#pragma once

template <class S> struct coefficients;

template <> struct coefficients<float> {
    static constexpr float mills_k = 3.0f;
    static constexpr int exp_tail_degree = 4;
    static constexpr float exp_tail[] = {
        5.0e-1f,
        1.666657699e-1f,
        4.166655462e-2f,
        8.363179053e-3f,
        1.392618359e-3f,
    };
    static constexpr int mills_degree = 8;
    static constexpr float mills[] = {
        -3.784860579e-1f,
        1.720834614e-1f,
        -4.885811759e-2f,
        2.64448885e-3f,
        3.484622637e-3f,
        -5.794282883e-4f,
        -3.948728753e-4f,
        5.808067369e-5f,
        4.761695903e-5f,
    };
};

template <> struct coefficients<double> {
    static constexpr double mills_k = 5.0;
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
    static constexpr int mills_degree = 21;
    static constexpr double mills[] = {
        -4.230806950249937025e-1,
        2.796231397609817348e-1,
        -1.635543278749789364e-1,
        8.267045061085097462e-2,
        -3.48150983266561317e-2,
        1.140119783898692433e-2,
        -2.409827288879685751e-3,
        3.098293173651315288e-5,
        1.885678106522584871e-4,
        -5.429096243854432103e-5,
        -6.136547261096250702e-6,
        7.097823168579562689e-6,
        -4.533107287960608326e-7,
        -8.166501240578557359e-7,
        1.413864864442056304e-7,
        1.016888717164946396e-7,
        -2.43746093327661186e-8,
        -1.440590492625104207e-8,
        3.323672815077606384e-9,
        2.059324964614522831e-9,
        -2.738700036194823682e-10,
        -1.930383536886128572e-10,
    };
};

