"""Assertions for tests of gradient operators, this library's or others: errors in ulp, gradients, invariance."""
import warnings

import numpy as np

from infiniop_cy.testing.cases import LAYOUTS, arrange
from infiniop_cy.testing.reference import FORMATS, same_bits, ulp_of


def ulp_error(actual, exact):
    """``|actual - exact|`` in units in the last place of actual's dtype at exact.

    Equal infinities and two NaN are 0 apart; any other pair with one of them inf.

    Parameters
    ----------
    actual : array_like
        Of float16, bfloat16, float32 or float64.
    exact : array_like
        Of the same shape: its truth in float64, or wider than actual.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    TypeError
        For other dtypes, and for a truth in the precision of what it judges.
    ValueError
        For other shapes.

    References
    ----------
    Muller et al., Handbook of Floating-Point Arithmetic (2018), section 2.3.
    """
    actual, exact = np.asarray(actual), np.asarray(exact)
    dtype = actual.dtype
    if dtype.name not in FORMATS:
        raise TypeError(f"ulp_error: actual has dtype {dtype}, expected one of {', '.join(FORMATS)}")
    if exact.dtype.kind not in "iu" and exact.dtype != np.float64 and (
            not np.can_cast(dtype, exact.dtype) or exact.dtype.kind == "c" or exact.dtype == dtype):
        raise TypeError(f"ulp_error: exact has dtype {exact.dtype}, expected float64, or wider than actual's {dtype}")
    if actual.shape != exact.shape:
        raise ValueError(f"ulp_error: exact has shape {exact.shape}, expected {actual.shape} to match actual")
    got, truth = (a.astype(np.float64) for a in (actual, exact))
    with np.errstate(all="ignore"):
        rounded = truth.astype(dtype).astype(np.float64)
        same = (got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(truth)
        error = np.abs(got - truth) / ulp_of(np.where(np.isfinite(truth), truth, 1.0), dtype.name)
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def assert_ulp(actual, exact, limit):
    """Raise AssertionError, naming the worst element with its bits, where ulp_error(actual, exact) exceeds limit.

    Parameters
    ----------
    actual, exact : array_like
        As for ulp_error.
    limit : float
        In ulp, at least 0.

    Raises
    ------
    AssertionError
        Where an element is farther off.
    TypeError, ValueError
        As ulp_error does.
    """
    if not limit >= 0:
        raise ValueError(f"assert_ulp: limit is {limit}, expected a number of at least 0")
    errors = ulp_error(actual, exact)
    if not errors.size or not (errors > limit).any():
        return
    at = np.unravel_index(np.argmax(errors), errors.shape)
    got, truth = np.asarray(actual)[at], float(np.asarray(exact)[at])
    raise AssertionError(
        f"{int((errors > limit).sum())} of {errors.size} elements are more than {limit} ulp off; worst at "
        f"{tuple(map(int, at))}: {float(got)!r} (0x{got.tobytes()[::-1].hex()}) instead of {truth!r}, "
        f"{errors[at]:.3g} ulp")


def _complex_step(forward, x, step=1e-30):
    """The derivative by one imaginary step, which nothing cancels in; None where forward takes no complex numbers."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)  # of what drops the imaginary part
            value = np.asarray(forward(x + 1j * step))
    except (TypeError, np.exceptions.ComplexWarning):
        return None
    return value.imag / step if np.iscomplexobj(value) else None


def gradcheck(forward, backward, x, grad_output=None, *, rtol=1e-6, atol=1e-8, h=1e-5):
    """Assert that backward(grad_output, x) is the gradient of ``sum(grad_output * forward(x))``, in float64.

    Parameters
    ----------
    forward : callable
        f(x) of float64 arrays, elementwise; differentiated by a complex step where it takes complex numbers (to
        rounding), and else by central differences (to ``h**2`` and ``eps/h``, so rtol and atol are not below 1e-9).
    backward : callable
        f(grad_output, x), elementwise.
    x : array_like of float64
        Any shape. Choose x more than h away from kinks.
    grad_output : array_like of float64, optional
        Of that shape; None: ones.
    rtol, atol : float, optional
        Relative and absolute tolerance.
    h : float, optional
        The step of central differences.

    Raises
    ------
    AssertionError
        With the worst element.
    ValueError
        Where shapes differ.
    """
    x = np.asarray(x, np.float64)
    g = np.ones_like(x) if grad_output is None else np.asarray(grad_output, np.float64)
    if g.shape != x.shape:
        raise ValueError(f"gradcheck: grad_output has shape {g.shape}, expected {x.shape} to match x")
    slope = _complex_step(forward, x)
    if slope is None:
        slope = (np.asarray(forward(x + h)) - np.asarray(forward(x - h))) / (2 * h)
    np.testing.assert_allclose(backward(g, x), g * slope, rtol=rtol, atol=atol,
                               err_msg="backward is not the derivative of forward")


def assert_invariant(f, arrays, *, threads=(), layouts=tuple(LAYOUTS), batch_cuts=()):
    """Assert that ``f(*arrays)`` has the same bits however it is called.

    Parameters
    ----------
    f : callable
        Of arrays of one shape, which its result has too.
    arrays : sequence of array_like
        What it is called with.
    threads : sequence of int, optional
        Numbers to call ``f(*arrays, num_threads=n)`` with.
    layouts : sequence of str, optional
        Names of LAYOUTS that the arrays are copied to.
    batch_cuts : sequence of int, optional
        Places along axis 0; the results of both parts, joined, must be those of the whole.

    Raises
    ------
    AssertionError
        Saying which call differs.
    ValueError
        For shapes that differ, a layout that is none and a cut that leaves one part empty.
    """
    arrays = [np.asarray(a) for a in arrays]
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        raise ValueError(f"assert_invariant: arrays have shapes {[a.shape for a in arrays]}, expected one shape")
    for layout in set(layouts) - LAYOUTS.keys():
        raise ValueError(f"assert_invariant: layouts has {layout!r}, expected names of {', '.join(LAYOUTS)}")
    for cut in batch_cuts:
        if not shape or not 0 < cut < shape[0]:
            raise ValueError(f"assert_invariant: batch_cuts has {cut}, expected places inside axis 0 of shape {shape}")
    expected = np.array(f(*arrays))

    def compare(result, what):
        if not same_bits(np.array(result), expected):
            raise AssertionError(f"{what}: other bits than of the whole, contiguous and by itself")
    for n in threads:
        compare(f(*arrays, num_threads=n), f"{n} threads")
    for layout in layouts:
        compare(f(*(arrange(a, layout) for a in arrays)), layout)
    for cut in batch_cuts:
        parts = [np.array(f(*(a[part] for a in arrays))) for part in (slice(None, cut), slice(cut, None))]
        compare(np.concatenate(parts), f"a batch cut at {cut}")
