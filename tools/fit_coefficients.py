"""Derive the constants in infiniop_cy/kernels/coefficients.h.

    python tools/fit_coefficients.py > infiniop_cy/kernels/coefficients.h

Five functions, for float and double and less precisely for float results to be rounded to 16 bits, by Chebyshev
interpolation in 60-digit arithmetic (within a factor of about two of minimax, which the last rounding of the
coefficients costs anyway):

  exp2_curve  ((2^r - 1) / r - ln 2) / r for |r| <= 0.56, in powers of r
  gelu_tail   with P(a) = exp(a^2/2) * erfc(a/sqrt 2)/2 - a/sqrt(2 pi), a0 > 0 its only zero, n/d the best rational
              approximation to a0 of representable numbers, Q(a) = P(a)/(d a - n):
              (Q(a) - q) / r for a >= 0, in powers of r = k/(a + k), with q = Q(inf).
              Factoring the zero out keeps relative accuracy around it; r keeps it for large a.
  normal_tail n(a), normal_tail_rest m(a) and normal_tail_slope s, in powers of a: R(a) = n / (s a n + m) with R(a) =
              exp(a^2/2) * erfc(a/sqrt 2)/2, for a >= 0. s is near sqrt(2 pi), the slope of 1/R for large a; the nodes
              are those of Chebyshev in k/(a + k); m(0) = 3/2, since just above 1 a rounding weighs most
  log1p_curve (log(1 + z) - 2 s) / s^3 for 0 <= z <= 1, in powers of s^2, s = z/(2 + z)

And exponents of 2 for exp(-a^2/2) and for exp(-y), y = c1 a + c3 a^3 with c1 = 2 sqrt(2/pi) and c3 = 0.044715 c1, the
argument of gelu's tanh form. A pair hi, lo is a constant to twice the precision; tanh_coarse, when added and
subtracted, rounds to multiples of its ulp, of which tanh_exponent1_hi is one.
"""
import mpmath as mp

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


def rational_interpolant(f, k, a_max, degree):
    """Ascending coefficients n of a numerator of that degree, and d, d[0] = 1, of a denominator of one more."""
    count, lowest = 2 * degree + 2, k / (a_max + k)
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for row in range(count):
        u = ((1 - lowest) * mp.cos(mp.pi * (row + mp.mpf(1) / 2) / count) + 1 + lowest) / 2
        a = k / u - k
        right[row] = f(a)
        for i in range(degree + 1):
            matrix[row, i], matrix[row, degree + 1 + i] = a**i, -right[row] * a**(i + 1)
    solved = list(mp.lu_solve(matrix, right))
    return solved[:degree + 1], [mp.mpf(1), *solved[degree + 1:]]


def tail(a):
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2 - a / mp.sqrt(2 * mp.pi)


def normal_tail(a):
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2


ZERO = mp.findroot(tail, 0.75)
C1 = 2 * mp.sqrt(2 / mp.pi)
C3 = mp.mpf("0.044715") * C1
LOG2E = 1 / mp.log(2)


def rational(value, limit):
    """The last continued-fraction convergent of value with both parts below limit."""
    before, last, rest = (0, 1), (1, 0), value
    while True:
        whole = int(mp.floor(rest))
        new = tuple(whole * b + a for a, b in zip(before, last))
        if max(new) >= limit:
            return last
        before, last, rest = last, new, 1 / (rest - whole)


def rounded(value, bits):
    """To that many significant bits."""
    scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(value), 2)))
    return mp.nint(value * scale) / scale


def pair(name, value, bits):
    hi = rounded(value, bits)
    return (f"{name}_hi", hi), (f"{name}_lo", value - hi)


def constants(bits, coarse):
    """(name, value) for one type; bits: of its significand, coarse: the ulp that tanh_coarse rounds to."""
    numerator, denominator = rational(ZERO, 2**bits)
    yield "round_magic", 3 * mp.mpf(2) ** (bits - 2)
    yield "ln2", mp.log(2)
    yield from pair("log2e", LOG2E, bits)
    yield from pair("gelu_exponent", -LOG2E / 2, bits)
    yield "tanh_coarse", 3 * mp.mpf(2) ** (bits - 2) * coarse
    yield "tanh_exponent1_hi", mp.nint(-C1 * LOG2E / coarse) * coarse
    yield "tanh_exponent1_lo", -C1 * LOG2E - mp.nint(-C1 * LOG2E / coarse) * coarse
    yield from pair("tanh_exponent3", -C3 * LOG2E, bits)
    yield "gelu_zero_numerator", mp.mpf(numerator)
    yield "gelu_zero_denominator", mp.mpf(denominator)
    yield "gelu_tail_limit", -1 / mp.sqrt(2 * mp.pi) / denominator  # of P(a)/(d a - n)


def polynomials(bits, k, a_max, exp_degree, tail_degree, normal, log_degree):
    """(name, number or ascending coefficients) for one type."""
    _, denominator = rational(ZERO, 2**bits)

    def exp2_curve(r):
        return mp.log(2) ** 2 * mp.hyp1f1(1, 3, r * mp.log(2)) / 2  # free of cancellation at 0

    def gelu_tail(r):
        a = k / r - k
        return (tail(a) / ((a - ZERO) * denominator) + 1 / mp.sqrt(2 * mp.pi) / denominator) / r

    def log1p_curve(t):
        s = mp.sqrt(t)
        return 2 * mp.hyp2f1(1, mp.mpf(3) / 2, mp.mpf(5) / 2, t) / 3 if s < 0.01 else (2 * mp.atanh(s) - 2 * s) / s**3

    yield "gelu_tail_k", k
    yield "exp2_curve", chebyshev_monomials(exp2_curve, -REST, REST, exp_degree)
    yield "gelu_tail", chebyshev_monomials(gelu_tail, k / (a_max + k), mp.mpf(1), tail_degree)
    n, d = rational_interpolant(normal_tail, mp.mpf(normal[0]), a_max, normal[1])
    slope = rounded(d[-1] / n[-1], bits)
    yield "normal_tail_slope", slope
    rest = [mp.mpf(1), *(b - slope * a for a, b in zip(n, d[1:-1]))]
    yield "normal_tail", [c * 3 / 2 for c in n]
    yield "normal_tail_rest", [c * 3 / 2 for c in rest]
    yield "log1p_curve", chebyshev_monomials(log1p_curve, mp.mpf(0), mp.mpf(1) / 9, log_degree)


REST = mp.mpf("0.56")  # largest remainder of an exponent
# C type, bits, ulp of the coarse slope, largest a with a result other than 0 for gradients of about 1,
# (degree of exp2_curve, k, degree of gelu_tail, k and degree of normal_tail, degree of log1p_curve) by `narrow`
FITS = (("float", 24, mp.mpf(2) ** -8, 16,
         {"false": (4, mp.mpf("4.5"), 7, ("2.8", 4), 3), "true": (3, mp.mpf("3.5"), 5, ("2.7", 3), 2)}),
        ("double", 53, mp.mpf(2) ** -20, 40, {"false": (9, mp.mpf(6), 19, (4, 10), 9)}))


def main():
    print("// Written by tools/fit_coefficients.py, which says what they are. Ascending powers.\n#pragma once\n")
    print("template <class S> struct coefficients;")
    print("template <class S, bool narrow> struct polynomial_coefficients;\n")
    for ctype, bits, coarse, a_max, fits in FITS:
        suffix, digits = ("f", 10) if ctype == "float" else ("", 19)

        def show(name, value, ctype=ctype, suffix=suffix, digits=digits):
            values = [mp.nstr(v, digits, min_fixed=1, max_fixed=0) + suffix
                      for v in (value if isinstance(value, list) else [value])]
            if not isinstance(value, list):
                print(f"    static constexpr {ctype} {name} = {values[0]};")
                return
            print(f"    static constexpr int {name}_degree = {len(values) - 1};")
            print(f"    static constexpr {ctype} {name}[] = {{\n        " + ",\n        ".join(values) + ",\n    };")
        print(f"template <> struct coefficients<{ctype}> {{")
        for name, value in constants(bits, coarse):
            show(name, value)
        print("};\n")
        for narrow, (exp_degree, k, *degrees) in fits.items():
            print(f"template <> struct polynomial_coefficients<{ctype}, {narrow}> {{")
            for name, value in polynomials(bits, k, a_max, exp_degree, *degrees):
                show(name, value)
            print("};\n")


if __name__ == "__main__":
    main()
