# How a plan of an elementwise operator is made from its tensors.
#
# A plan drops axes of length 1, orders the rest by the output's strides and merges what is contiguous in every operand.
cdef enum:
    # Bytes of output from which it goes past the caches. On a Xeon with 2 MB of L2 per core that is 0.95 to 1.7 times
    # as fast at 1 MB and 1.2 to 2 times from 2 MB on, even where the next call reads the output (0.8 to 1.2 times at
    # half of it); where the output is an input, 0.6 to 1 times at any size.
    STREAM_FROM = 1048576


cdef void choose_kernel(const ElementwiseSpec *spec, ElementwisePlan *plan) noexcept nogil:
    """Take the kernels of the formula for plan.dtype; large outputs go past the caches, unless they accumulate."""
    plan.formula = spec.formula
    plan.operands = spec.operands
    plan.accumulate = spec.accumulate
    plan.parameters = spec.parameters
    plan.kernel = kernels.formula[spec.formula].kernel[plan.dtype][ACCUMULATE if spec.accumulate else WRITE]
    plan.stream = plan.kernel
    if not spec.accumulate and plan.size * plan.itemsize[OUT] >= STREAM_FROM:
        plan.stream = kernels.formula[spec.formula].kernel[plan.dtype][STREAM]


cdef void plan_contiguous(const ElementwiseSpec *spec, int dtype, int64_t size, ElementwisePlan *plan) noexcept nogil:
    """Plan for contiguous operands of one dtype and shape, where nothing is to be checked, sorted or converted."""
    cdef int k
    plan.dtype = dtype
    plan.ndim = 1
    plan.size = plan.shape[0] = size
    plan.tile_axis = -1
    for k in range(spec.operands):
        plan.dtypes[k] = dtype
        plan.itemsize[k] = plan.strides[k][0] = itemsize_of(dtype)
        plan.offset[k] = 0
        plan.run[k] = size
    choose_kernel(spec, plan)


cdef int64_t contiguous_run(const ElementwisePlan *plan, int k) noexcept nogil:
    """Count the elements on end that lie contiguously in operand k and are of the plan's dtype; 0 for none."""
    cdef int64_t run = 1
    cdef int d
    if plan.dtypes[k] != plan.dtype:
        return 0
    for d in range(plan.ndim - 1, -1, -1):
        if plan.strides[k][d] != run * plan.itemsize[k]:
            return run if d < plan.ndim - 1 else 0
        run *= plan.shape[d]
    return run


cdef bint continues(int64_t outer, int64_t inner, int64_t length) noexcept nogil:
    """Tell whether an axis of this outer stride goes on where one of the inner stride and this length ends."""
    cdef int64_t reach
    return not mul_overflows(inner, length, &reach) and outer == reach


cdef int plan_elementwise(const ElementwiseSpec *spec, const Tensor *operand, ElementwisePlan *plan,
                          Failure *failure) noexcept nogil:
    """Check tensors of one shape, one per operand, without addresses, and plan how to walk them."""
    cdef const Tensor *out = &operand[OUT]
    cdef int order[MAX_NDIM]
    cdef int64_t sign
    cdef int64_t width[MAX_NDIM]
    cdef int n = 0, d, i, k, last
    cdef bint mergeable
    if check_elementwise(spec, operand, plan, failure):
        return failure.rule
    choose_kernel(spec, plan)
    plan.deliver = kernels.convert[plan.dtype][out.dtype]
    for k in range(spec.operands):
        plan.fetch[k] = kernels.convert[plan.dtypes[k]][plan.dtype]
        plan.offset[k] = 0

    for d in range(out.ndim):  # insertion sort: outermost, the largest output stride, first
        if out.shape[d] == 1 or plan.size == 0:  # nobody has checked the strides of what has no elements
            continue
        i = n
        while i > 0 and width[i - 1] < magnitude(out.strides[d]):
            width[i] = width[i - 1]
            order[i] = order[i - 1]
            i -= 1
        width[i] = magnitude(out.strides[d])
        order[i] = d
        n += 1

    last = -1  # the plan's innermost axis so far
    for i in range(n):
        d = order[i]
        sign = 1
        if out.strides[d] < 0:  # walk the output upwards; elements are independent of the order
            sign = -1
            for k in range(spec.operands):
                plan.offset[k] += operand[k].strides[d] * (out.shape[d] - 1)
        mergeable = last >= 0
        for k in range(spec.operands):
            mergeable = mergeable and continues(plan.strides[k][last], sign * operand[k].strides[d], out.shape[d])
        if mergeable:
            plan.shape[last] *= out.shape[d]
        else:
            last += 1
            plan.shape[last] = out.shape[d]
        for k in range(spec.operands):
            plan.strides[k][last] = sign * operand[k].strides[d]
    if last < 0:
        last = 0
        plan.shape[0] = plan.size
        for k in range(spec.operands):
            plan.strides[k][0] = plan.itemsize[k]
    plan.ndim = last + 1
    for k in range(spec.operands):
        plan.run[k] = contiguous_run(plan, k)
    plan_tiles(plan)
    return Rule.PASSED
