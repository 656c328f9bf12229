# A strided view of memory: the only form in which the core sees data.
ctypedef struct Tensor:
    char *data
    int dtype
    int ndim
    int64_t shape[MAX_NDIM]
    int64_t strides[MAX_NDIM]  # bytes


cdef inline int64_t itemsize_of(int dtype) noexcept nogil:
    """Return the bytes of one element, 0 for a dtype that is none."""
    if dtype == DTYPE_F32 or dtype == DTYPE_I32 or dtype == DTYPE_U32:
        return 4
    if dtype == DTYPE_F16 or dtype == DTYPE_BF16 or dtype == DTYPE_I16 or dtype == DTYPE_U16:
        return 2
    if dtype == DTYPE_F64 or dtype == DTYPE_I64 or dtype == DTYPE_U64 or dtype == DTYPE_C64:
        return 8
    if dtype == DTYPE_C128:
        return 16
    if dtype == DTYPE_BOOL or dtype == DTYPE_I8 or dtype == DTYPE_U8:
        return 1
    return 0


cdef inline int64_t magnitude(int64_t n) noexcept nogil:
    return -n if n < 0 else n


cdef inline bint is_floating(int dtype) noexcept nogil:
    return dtype == DTYPE_F16 or dtype == DTYPE_BF16 or dtype == DTYPE_F32 or dtype == DTYPE_F64


cdef inline int compute_dtype_of(int dtype) noexcept nogil:
    """Return the dtype that sums and products of this one are in: float64 for itself, else float32."""
    return DTYPE_F64 if dtype == DTYPE_F64 else DTYPE_F32


cdef inline int promoted_dtype(int a, int b) noexcept nogil:
    """Return the smallest floating dtype that holds both: float16 with bfloat16 gives float32."""
    if a == b:
        return a
    if a == DTYPE_F64 or b == DTYPE_F64:
        return DTYPE_F64
    return DTYPE_F32


cdef int tensor_size(const Tensor *t, int arg, int64_t *size, Failure *failure) noexcept nogil:
    """Count the elements. TOO_LARGE where their number, or any offset in bytes, does not fit in 63 bits."""
    cdef int d
    cdef int64_t count = 1, nonzero = 1, span = itemsize_of(t.dtype), reach
    for d in range(t.ndim):
        if t.shape[d] < 0:
            return fail(failure, Rule.SHAPE_NEGATIVE, arg, -1, d, t.shape[d])
        count *= t.shape[d] != 0
        if t.shape[d] > 1:
            if mul_overflows(nonzero, t.shape[d], &nonzero):
                return fail(failure, Rule.TOO_LARGE, arg)
            # INT64_MIN has no absolute value; a multiplication by -1 finds it.
            if mul_overflows(t.strides[d], -1 if t.strides[d] < 0 else 1, &reach) \
                    or mul_overflows(reach, t.shape[d] - 1, &reach) or add_overflows(span, reach, &span):
                return fail(failure, Rule.TOO_LARGE, arg)
    if mul_overflows(nonzero, itemsize_of(t.dtype), &reach):
        return fail(failure, Rule.TOO_LARGE, arg)
    size[0] = nonzero if count else 0
    return Rule.PASSED


cdef void tensor_extent(int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize,
                        int64_t *low, int64_t *high) noexcept nogil:
    """Find the offsets in bytes from the first element to the lowest byte and past the highest, both 0 when empty."""
    cdef int d
    low[0] = 0
    high[0] = itemsize
    for d in range(ndim):
        if shape[d] == 0:
            low[0] = high[0] = 0
            return
        if strides[d] < 0:
            low[0] += strides[d] * (shape[d] - 1)
        else:
            high[0] += strides[d] * (shape[d] - 1)


cdef void contiguous_strides(Tensor *t) noexcept nogil:
    """Set the strides in bytes of C order, the last axis innermost."""
    cdef int d
    cdef int64_t step = itemsize_of(t.dtype)
    for d in range(t.ndim - 1, -1, -1):
        t.strides[d] = step
        if t.shape[d] > 1 and mul_overflows(step, t.shape[d], &step):
            step = 0  # tensor_size refuses this shape


cdef bint has_elements(const Tensor *t) noexcept nogil:
    """Tell whether no axis has length 0."""
    cdef int d
    for d in range(t.ndim):
        if t.shape[d] == 0:
            return False
    return True


cdef void expand(Tensor *t, int ndim) noexcept nogil:
    """Put axes of length 1 in front until there are ndim."""
    cdef int added = ndim - t.ndim, d
    if added == 0:
        return
    for d in range(t.ndim - 1, -1, -1):
        t.shape[d + added] = t.shape[d]
        t.strides[d + added] = t.strides[d]
    for d in range(added):
        t.shape[d] = 1
        t.strides[d] = 0
    t.ndim = ndim


cdef bint broadcast(Tensor *a, Tensor *b) noexcept nogil:
    """Broadcast both to one shape as NumPy does, by strides of 0; False where the shapes do not allow it."""
    cdef int ndim = max(a.ndim, b.ndim), d
    cdef int64_t length
    expand(a, ndim)
    expand(b, ndim)
    for d in range(ndim):
        if a.shape[d] != b.shape[d] and a.shape[d] != 1 and b.shape[d] != 1:
            return False
    for d in range(ndim):
        length = b.shape[d] if a.shape[d] == 1 else a.shape[d]
        if a.shape[d] != length:
            a.shape[d], a.strides[d] = length, 0
        if b.shape[d] != length:
            b.shape[d], b.strides[d] = length, 0
    return True
