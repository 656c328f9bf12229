# Single values and short rows of them, in the storage and in the compute type.

cdef void add_values(const SampleGeometry *sample, const char *values, char *to, int64_t n) noexcept nogil:
    """Add n values to `to`, both of the compute type."""
    cdef int64_t i
    if sample.compute == DTYPE_F64:
        for i in range(n):
            (<double *>to)[i] += (<const double *>values)[i]
    else:
        for i in range(n):
            (<float *>to)[i] += (<const float *>values)[i]


cdef TransposeKernel transpose_to_compute(const SampleGeometry *sample) noexcept nogil:
    """Find the transposition of stored elements to those of the compute type."""
    return kernels.transpose[sample.dtype] if sample.dtype == sample.compute else kernels.widen_transpose[sample.dtype]


cdef double load_one(const ConvProblem *problem, const char *element) noexcept nogil:
    """Load one element from storage."""
    cdef float single
    cdef double value
    if problem.sample.compute == DTYPE_F64:
        problem.load(element, 0, <char *>&value, 8, 1)
        return value
    problem.load(element, 0, <char *>&single, 4, 1)
    return single


cdef void save_one(const ConvProblem *problem, double value, char *element) noexcept nogil:
    """Round one value to the compute type, then to storage."""
    cdef float single = <float>value
    problem.save(<char *>&value if problem.sample.compute == DTYPE_F64 else <char *>&single, 0, element, 0, 1)


cdef inline void add_one(const SampleGeometry *sample, char *sum, double value) noexcept nogil:
    """Add a value, exact in the compute type, to a sum of that type."""
    if sample.compute == DTYPE_F64:
        (<double *>sum)[0] += value
    else:
        (<float *>sum)[0] += <float>value


cdef inline double load_pixel(const ConvProblem *problem, const ConvView *view, int64_t n, int64_t channel,
                              const int64_t *pixel) noexcept nogil:
    """Load one element of a tensor."""
    return load_one(problem, view.data + n * view.n + channel * view.channel + pixel[0] * view.space[0]
                    + pixel[1] * view.space[1] + pixel[2] * view.space[2])


cdef inline bint is_nonfinite(double value) noexcept nogil:
    """Say whether a value is inf or NaN."""
    return value - value != 0
