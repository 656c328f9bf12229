"""Derive the polynomial coefficients in infiniop_cy/kernels/coefficients.h.

    python tools/fit_coefficients.py > infiniop_cy/kernels/coefficients.h

Two functions, each for float and double, by Chebyshev interpolation in 60-digit arithmetic (within a
factor of about two of minimax, which the last rounding of the coefficients costs anyway):

  exp_tail   (e^r - 1 - r) / r^2           for |r| <= ln(2)/2, in powers of r
  gelu_tail  with P(a) = exp(a^2/2) * erfc(a/sqrt 2)/2 - a/sqrt(2 pi), a0 > 0 its only zero and Q(a) = P(a)/(a0 - a):
             (Q(a) - q) / (1 - s) for a >= 0, in powers of s = (a - k)/(a + k), with q = Q(inf) = 1/sqrt(2 pi).
             Factoring the zero out keeps relative accuracy around it; 1 - s keeps it for large a.
"""
import mpmath as mp
import numpy

mp.mp.dps = 60


def chebyshev_monomials(f, lo, hi, degree):
    """Coefficients c[i] of s^i for the Chebyshev interpolant of f on [lo, hi], ascending."""
    n = degree + 1
    nodes = [mp.cos(mp.pi * (j + mp.mpf(1) / 2) / n) for j in range(n)]
    values = [f((hi - lo) / 2 * u + (hi + lo) / 2) for u in nodes]
    cheb = [2 * mp.fsum(v * mp.cos(i * mp.pi * (j + mp.mpf(1) / 2) / n) for j, v in enumerate(values)) / n
            for i in range(n)]
    cheb[0] /= 2
    # Chebyshev to monomial in u, then u = (2 s - hi - lo) / (hi - lo) to monomial in s.
    t = [[mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]]
    for _ in range(2, n):
        shifted = [mp.mpf(0)] + [2 * c for c in t[-1]]
        t.append([a - (t[-2][j] if j < len(t[-2]) else 0) for j, a in enumerate(shifted)])
    mono_u = [mp.fsum(cheb[i] * t[i][j] for i in range(n) if j < len(t[i])) for j in range(n)]
    slope, shift = 2 / (hi - lo), -(hi + lo) / (hi - lo)
    result = [mp.mpf(0)] * n
    power = [mp.mpf(1)]
    for c in mono_u:
        for j, p in enumerate(power):
            result[j] += c * p
        power = [(power[j] * shift if j < len(power) else 0) + (power[j - 1] * slope if j else 0)
                 for j in range(len(power) + 1)]
    return result


def exp_tail(r):
    return mp.hyp1f1(1, 3, r) / 2  # free of cancellation at 0


def tail(a):
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2 - a / mp.sqrt(2 * mp.pi)


ZERO = mp.findroot(tail, 0.75)
LIMIT = 1 / mp.sqrt(2 * mp.pi)


def gelu_tail_at(k):
    def f(s):
        a = k * (1 + s) / (1 - s)
        return (tail(a) / (ZERO - a) - LIMIT) / (1 - s)
    return f


#         C type, exp degree, tail degree, k of the map, largest a with a result other than 0
FITS = (("float", 4, 8, mp.mpf("3.5"), 16), ("double", 10, 20, mp.mpf(4), 40))


def main():
    print("// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.\n#pragma once\n")
    print("template <class S> struct coefficients;\n")
    for ctype, exp_degree, tail_degree, k, a_max in FITS:
        half = mp.log(2) / 2 * mp.mpf("1.0001")
        exp = chebyshev_monomials(exp_tail, -half, half, exp_degree)
        bound = (a_max - k) / (a_max + k)
        gelu_tail = chebyshev_monomials(gelu_tail_at(k), mp.mpf(-1), bound, tail_degree)
        suffix = "f" if ctype == "float" else ""
        digits = 10 if ctype == "float" else 19
        numpy_type = "float32" if ctype == "float" else "float64"
        print(f"template <> struct coefficients<{ctype}> {{")
        zero_hi = mp.mpf(float(numpy.dtype(numpy_type).type(ZERO)))
        for name, value in (("k", k), ("zero_hi", zero_hi), ("zero_lo", ZERO - zero_hi), ("limit", LIMIT)):
            text = mp.nstr(value, digits, min_fixed=1, max_fixed=0)
            print(f"    static constexpr {ctype} gelu_tail_{name} = {text}{suffix};")
        for name, values in (("exp_tail", exp), ("gelu_tail", gelu_tail)):
            print(f"    static constexpr int {name}_degree = {len(values) - 1};")
            print(f"    static constexpr {ctype} {name}[] = {{")
            for v in values:
                print(f"        {mp.nstr(v, digits, min_fixed=1, max_fixed=0)}{suffix},")
            print("    };")
        print("};\n")


if __name__ == "__main__":
    main()
