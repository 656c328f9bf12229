# Do two strided views share a byte? The question is whether a sum of bounded multiples hits a number
# (a bounded linear Diophantine equation); a depth-first search with bounds and a gcd test decides it at
# once for every layout met in practice and gives up, answering yes, after OVERLAP_WORK steps.
from libcpp.numeric cimport gcd

cdef enum:
    OVERLAP_WORK = 100000
    MAX_TERMS = 2 * MAX_NDIM + 2


ctypedef struct Equation:
    int terms
    int64_t coefficient[MAX_TERMS]  # positive, descending once prepared
    int64_t bound[MAX_TERMS]        # 0 <= x <= bound
    int64_t reach[MAX_TERMS + 1]    # the largest sum of the terms from here on
    int64_t divisor[MAX_TERMS + 1]  # their greatest common divisor
    int64_t target
    int64_t work
    bint overflowed  # some sum does not fit: the answer is yes, to be safe


cdef void move_target(Equation *e, int64_t coefficient, int64_t count) noexcept nogil:
    """Add coefficient * count to the target, and note where that does not fit."""
    cdef int64_t step
    e.overflowed |= mul_overflows(coefficient, count, &step) or add_overflows(e.target, step, &e.target)


cdef void add_term(Equation *e, int64_t coefficient, int64_t bound) noexcept nogil:
    """Add coefficient * x, 0 <= x <= bound; a negative coefficient is reflected, moving the target."""
    cdef int i, j
    if coefficient == 0 or bound <= 0:
        return
    if coefficient < 0:
        coefficient = -coefficient
        move_target(e, coefficient, bound)
    i = 0
    while i < e.terms and e.coefficient[i] > coefficient:
        i += 1
    if i < e.terms and e.coefficient[i] == coefficient:
        e.bound[i] += bound
        return
    for j in range(e.terms, i, -1):
        e.coefficient[j] = e.coefficient[j - 1]
        e.bound[j] = e.bound[j - 1]
    e.coefficient[i] = coefficient
    e.bound[i] = bound
    e.terms += 1


cdef bint search(Equation *e, int i, int64_t target) noexcept nogil:
    """Tell whether the terms from the i-th on can sum to the target; True, to be safe, once e.work is used up."""
    cdef int64_t a, x, x_high
    if target < 0 or target > e.reach[i]:
        return False
    if target == 0:
        return True
    if i == e.terms or target % e.divisor[i]:
        return False
    if i == e.terms - 1:
        return True  # the divisor is the coefficient, the reach its bound
    a = e.coefficient[i]
    x = 0
    if target > e.reach[i + 1]:
        x = (target - e.reach[i + 1] + a - 1) // a
    x_high = min(e.bound[i], target // a)
    while x <= x_high:
        e.work -= 1
        if e.work < 0 or search(e, i + 1, target - a * x):
            return True
        x += 1
    return False


cdef bint solvable(Equation *e) noexcept nogil:
    """Tell whether the equation has a solution; True, to be safe, where that is not found out."""
    cdef int i
    cdef int64_t reach
    e.reach[e.terms] = 0
    e.divisor[e.terms] = 0
    for i in range(e.terms - 1, -1, -1):
        e.overflowed |= mul_overflows(e.coefficient[i], e.bound[i], &reach) \
            or add_overflows(e.reach[i + 1], reach, &e.reach[i])
        e.divisor[i] = gcd(e.coefficient[i], e.divisor[i + 1])
    if e.overflowed:
        return True
    e.work = OVERLAP_WORK
    return search(e, 0, e.target)


cdef bint views_overlap(const char *a, int a_ndim, const int64_t *a_shape, const int64_t *a_strides, int64_t a_item,
                        const char *b, int b_ndim, const int64_t *b_shape, const int64_t *b_strides, int64_t b_item
                        ) noexcept nogil:
    """Tell whether some byte belongs to both views; tensor_size has checked them. Strides and items are in bytes."""
    cdef int64_t a_low, a_high, b_low, b_high, distance
    cdef Equation e
    cdef int d
    tensor_extent(a_ndim, a_shape, a_strides, a_item, &a_low, &a_high)
    tensor_extent(b_ndim, b_shape, b_strides, b_item, &b_low, &b_high)
    if a_low == a_high or b_low == b_high:
        return False
    distance = <int64_t>(<uintptr_t>b - <uintptr_t>a)
    if not (add_overflows(distance, b_low, &b_low) or add_overflows(distance, b_high, &b_high)) \
            and (b_low >= a_high or a_low >= b_high):
        return False
    # a's offset + a's byte = distance + b's offset + b's byte
    e.terms = e.overflowed = 0
    e.target = distance
    for d in range(a_ndim):
        add_term(&e, a_strides[d], a_shape[d] - 1)
    for d in range(b_ndim):
        add_term(&e, -b_strides[d], b_shape[d] - 1)
    add_term(&e, 1, a_item - 1)
    add_term(&e, -1, b_item - 1)
    return solvable(&e)


cdef bint tensors_overlap(const Tensor *a, const Tensor *b) noexcept nogil:
    """Tell whether some byte belongs to both tensors, at the addresses that they have."""
    return views_overlap(a.data, a.ndim, a.shape, a.strides, itemsize_of(a.dtype),
                         b.data, b.ndim, b.shape, b.strides, itemsize_of(b.dtype))


cdef bint overlaps_itself(const Tensor *t) noexcept nogil:
    """Tell whether two different indices of the view share a byte."""
    cdef int64_t item = itemsize_of(t.dtype), span
    cdef int64_t stride[MAX_NDIM]
    cdef int64_t last[MAX_NDIM]
    cdef int n = 0, d, i
    cdef bint nested = True
    cdef Equation e
    for d in range(t.ndim):  # axes that move, by descending |stride|
        if t.shape[d] == 0:
            return False
        if t.shape[d] == 1:
            continue
        i = n
        while i > 0 and stride[i - 1] < magnitude(t.strides[d]):
            stride[i] = stride[i - 1]
            last[i] = last[i - 1]
            i -= 1
        stride[i] = magnitude(t.strides[d])
        last[i] = t.shape[d] - 1
        n += 1
    span = item
    for i in range(n - 1, -1, -1):
        nested = nested and stride[i] >= span
        span += stride[i] * last[i]
    if nested:
        return False
    # Two indices differ first, by symmetry upwards, in axis i; the axes after it differ by anything.
    for i in range(n):
        e.terms = e.overflowed = 0
        e.target = item - 1 - stride[i]
        add_term(&e, stride[i], last[i] - 1)
        for d in range(i + 1, n):
            move_target(&e, stride[d], last[d])
            add_term(&e, stride[d], 2 * last[d])
        add_term(&e, 1, 2 * (item - 1))
        if stride[i] == 0 or solvable(&e):
            return True
    return False


cdef int check_output(const Tensor *out, int arg, Failure *failure) noexcept nogil:
    """Refuse an output that would be written twice in one place."""
    cdef int d
    for d in range(out.ndim):
        if out.shape[d] == 0:
            return Rule.PASSED
    for d in range(out.ndim):
        if out.strides[d] == 0 and out.shape[d] > 1:
            return fail(failure, Rule.OUT_ZERO_STRIDE, arg, -1, d, out.shape[d])
    if overlaps_itself(out):
        return fail(failure, Rule.OUT_SELF_OVERLAP, arg)
    return Rule.PASSED
