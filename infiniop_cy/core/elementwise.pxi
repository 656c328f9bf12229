# All elementwise operators: check the tensors, plan once, run in chunks.
#
# A plan drops axes of length 1, orders the rest by the output's strides and merges what is contiguous in
# every operand. A run cuts the elements into chunks that depend on the plan alone, so any number of threads
# gives the same bits. Inside a chunk, an operand that lies contiguously is used where it is; any other is
# gathered, by blocks that stay in L1, and goes through the same kernel.
cdef enum:
    OUT = 0
    INPUT = 1
    GRAD_OUTPUT = 2
    OPERANDS = 3

    BLOCK_BYTES = 8192   # per buffer: three are half of L1
    BLOCK_DOUBLES = BLOCK_BYTES // 8
    LONG_ROW = 256       # contiguous elements from which a kernel is called without gathering a block
    CHUNK = 4096         # elements per task
    # Elements; below, one thread. With OpenMP's threads awake, two are 0.9 to 1.5 times as fast at 16,384 elements (relu,
    # gelu) and 1.05 to 1.7 times at 32,768.
    PARALLEL_FROM = 32768
    # Bytes of output from which it goes past the caches, on a Xeon with 2 MB of L2 per core: 0.95 to 1.7 times as fast at
    # 1 MB and 1.2 to 2 times from 2 MB on, even where the next call reads the output (0.8 to 1.2 times at half of it);
    # where the output is an input, 0.6 to 1 times at any size.
    STREAM_FROM = 1048576


ctypedef struct ElementwiseSpec:
    int formula
    bint promotes    # inputs of two dtypes promote, the output may have any dtype (leaky_relu_backward)
    bint accumulate
    FormulaParameters parameters


ctypedef struct ElementwisePlan:
    int formula
    int dtype        # of the blocks that the kernel sees
    int ndim         # >= 1
    int64_t size
    int64_t shape[MAX_NDIM]
    int64_t strides[OPERANDS][MAX_NDIM]  # bytes
    int64_t run[OPERANDS]                # so many elements on end are contiguous, and of the plan's dtype; 0 if none
    int64_t offset[OPERANDS]             # from an operand's data to its first element in the plan's order
    int64_t itemsize[OPERANDS]
    int dtypes[OPERANDS]
    ElementwiseKernel kernel
    ElementwiseKernel stream             # for an output that is neither input; may be the same
    ConvertKernel fetch[OPERANDS]        # operand to block
    ConvertKernel deliver                # block to output
    bint accumulate
    FormulaParameters parameters
    int tile_axis                        # -1: no operand lies across the output (elementwise_tiles.pxi)
    int64_t tile_rows, tile_columns      # elements along tile_axis and along the last axis
    bint across[OPERANDS]                # contiguous along tile_axis
    TransposeKernel transpose


include "elementwise_tiles.pxi"


cdef int check_input_dtypes(const ElementwiseSpec *spec, int grad_output, int input,
                            int *result, Failure *failure) noexcept nogil:
    """The dtype of the result, from those of the inputs."""
    if not is_floating(grad_output):
        return fail(failure, Rule.DTYPE_UNSUPPORTED, GRAD_OUTPUT)
    if not is_floating(input):
        return fail(failure, Rule.DTYPE_UNSUPPORTED, INPUT)
    if grad_output != input and not spec.promotes:
        return fail(failure, Rule.DTYPE_MISMATCH, INPUT, GRAD_OUTPUT)
    result[0] = promoted_dtype(grad_output, input)
    return Rule.PASSED


cdef int check_elementwise(const ElementwiseSpec *spec, const Tensor *out, const Tensor *input,
                           const Tensor *grad_output, ElementwisePlan *plan, Failure *failure) noexcept nogil:
    """Every rule that does not depend on addresses. Sets the plan's size and dtypes."""
    cdef const Tensor *operand[OPERANDS]
    cdef int k, d, result
    cdef int64_t size
    operand[OUT], operand[INPUT], operand[GRAD_OUTPUT] = out, input, grad_output
    if not kernels.formula_accepts[spec.formula](&spec.parameters):
        return fail(failure, Rule.PARAMETERS_CONTRADICT)
    if check_input_dtypes(spec, grad_output.dtype, input.dtype, &result, failure):
        return failure.rule
    if out.dtype != result:
        if not spec.promotes:
            return fail(failure, Rule.DTYPE_MISMATCH, OUT, GRAD_OUTPUT)
        if kernels.convert[result][out.dtype] == NULL:
            return fail(failure, Rule.DTYPE_UNSUPPORTED, OUT)
        if spec.accumulate:
            if not is_floating(out.dtype):
                return fail(failure, Rule.ACCUMULATE_DTYPE, OUT)
            result = promoted_dtype(result, out.dtype)  # what out holds must not be rounded before adding
    for k in range(OPERANDS):
        if operand[k].ndim != out.ndim:
            return fail(failure, Rule.SHAPE_MISMATCH, k, OUT)
        for d in range(out.ndim):
            if operand[k].shape[d] != out.shape[d]:
                return fail(failure, Rule.SHAPE_MISMATCH, k, OUT)
        if tensor_size(operand[k], k, &size, failure):
            return failure.rule
        plan.dtypes[k] = operand[k].dtype
        plan.itemsize[k] = itemsize_of(operand[k].dtype)
    plan.size = size
    plan.dtype = result
    return check_output(out, OUT, failure)


cdef void choose_kernel(const ElementwiseSpec *spec, ElementwisePlan *plan) noexcept nogil:
    plan.formula = spec.formula
    plan.accumulate = spec.accumulate
    plan.parameters = spec.parameters
    plan.kernel = kernels.elementwise[spec.formula][plan.dtype][ACCUMULATE if spec.accumulate else WRITE]
    plan.stream = plan.kernel
    if not spec.accumulate and plan.size * plan.itemsize[OUT] >= STREAM_FROM:
        plan.stream = kernels.elementwise[spec.formula][plan.dtype][STREAM]


cdef void plan_contiguous(const ElementwiseSpec *spec, int dtype, int64_t size, ElementwisePlan *plan) noexcept nogil:
    """The plan for contiguous operands of one dtype and shape: nothing to check, sort or convert."""
    cdef int k
    plan.dtype = dtype
    plan.ndim = 1
    plan.size = plan.shape[0] = size
    plan.tile_axis = -1
    for k in range(OPERANDS):
        plan.dtypes[k] = dtype
        plan.itemsize[k] = plan.strides[k][0] = itemsize_of(dtype)
        plan.offset[k] = 0
        plan.run[k] = size
    choose_kernel(spec, plan)


cdef int64_t contiguous_run(const ElementwisePlan *plan, int k) noexcept nogil:
    cdef int64_t run = 1
    cdef int d
    if plan.dtypes[k] != plan.dtype:
        return 0
    for d in range(plan.ndim - 1, -1, -1):
        if plan.strides[k][d] != run * plan.itemsize[k]:
            return run if d < plan.ndim - 1 else 0
        run *= plan.shape[d]
    return run


cdef int plan_elementwise(const ElementwiseSpec *spec, const Tensor *out, const Tensor *input,
                          const Tensor *grad_output, ElementwisePlan *plan, Failure *failure) noexcept nogil:
    cdef const Tensor *operand[OPERANDS]
    cdef int order[MAX_NDIM]
    cdef int64_t sign
    cdef int64_t width[MAX_NDIM]
    cdef int n = 0, d, i, k, last
    cdef bint mergeable
    if check_elementwise(spec, out, input, grad_output, plan, failure):
        return failure.rule
    operand[OUT], operand[INPUT], operand[GRAD_OUTPUT] = out, input, grad_output
    choose_kernel(spec, plan)
    plan.deliver = kernels.convert[plan.dtype][out.dtype]
    for k in range(OPERANDS):
        plan.fetch[k] = kernels.convert[plan.dtypes[k]][plan.dtype]
        plan.offset[k] = 0

    for d in range(out.ndim):  # insertion sort: outermost, the largest output stride, first
        if out.shape[d] == 1:
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
            if plan.size:
                for k in range(OPERANDS):
                    plan.offset[k] += operand[k].strides[d] * (out.shape[d] - 1)
        mergeable = last >= 0
        for k in range(OPERANDS):
            mergeable = mergeable and plan.strides[k][last] == sign * operand[k].strides[d] * out.shape[d]
        if mergeable:
            plan.shape[last] *= out.shape[d]
        else:
            last += 1
            plan.shape[last] = out.shape[d]
        for k in range(OPERANDS):
            plan.strides[k][last] = sign * operand[k].strides[d]
    if last < 0:
        last = 0
        plan.shape[0] = 1
        for k in range(OPERANDS):
            plan.strides[k][0] = plan.itemsize[k]
    plan.ndim = last + 1
    for k in range(OPERANDS):
        plan.run[k] = contiguous_run(plan, k)
    plan_tiles(plan)
    return Rule.PASSED


cdef int check_addresses(const ElementwisePlan *plan, char **data, Failure *failure) noexcept nogil:
    """An output may be exactly an input or apart from it, nothing between."""
    cdef int k, d
    cdef bint same
    if plan.size == 0:
        return Rule.PASSED
    for k in range(OPERANDS):
        if data[k] == NULL:
            return fail(failure, Rule.NULL_DATA, k)
    for k in range(1, OPERANDS):
        same = data[k] == data[OUT] and plan.dtypes[k] == plan.dtypes[OUT]
        for d in range(plan.ndim):
            same = same and plan.strides[k][d] == plan.strides[OUT][d]
        if not same and views_overlap(
                data[OUT] + plan.offset[OUT], plan.ndim, plan.shape, plan.strides[OUT], plan.itemsize[OUT],
                data[k] + plan.offset[k], plan.ndim, plan.shape, plan.strides[k], plan.itemsize[k]):
            return fail(failure, Rule.PARTIAL_OVERLAP, k, OUT)
    return Rule.PASSED


cdef void walk_rows(const ElementwisePlan *plan, int k, const int64_t *start, char *at, char *block, int64_t n,
                    bint fetching) noexcept nogil:
    """Convert n elements of operand k, from index `start` at address `at`, to or from a contiguous block."""
    cdef int64_t run
    cdef int64_t index[MAX_NDIM]
    cdef int64_t item = itemsize_of(plan.dtype)
    cdef int last = plan.ndim - 1, d
    memcpy(index, start, plan.ndim * sizeof(int64_t))
    while True:
        run = min(n, plan.shape[last] - index[last])
        if fetching:
            plan.fetch[k](at, plan.strides[k][last], block, item, run)
        else:
            plan.deliver(block, item, at, plan.strides[k][last], run)
        n -= run
        if n == 0:
            return
        block += run * item
        at -= index[last] * plan.strides[k][last]
        index[last] = 0
        d = last - 1
        index[d] += 1
        at += plan.strides[k][d]
        while index[d] == plan.shape[d]:
            at -= plan.shape[d] * plan.strides[k][d]
            index[d] = 0
            d -= 1
            index[d] += 1
            at += plan.strides[k][d]


cdef void run_chunk(const ElementwisePlan *plan, ElementwiseKernel stream, char **data, int64_t start,
                    int64_t count) noexcept nogil:
    cdef double buffer[OPERANDS][BLOCK_DOUBLES]  # doubles: aligned
    cdef int64_t block_size = BLOCK_BYTES // itemsize_of(plan.dtype)
    cdef char *at[OPERANDS]
    cdef char *block[OPERANDS]
    cdef int64_t rest = start, n, carry
    cdef int64_t index[MAX_NDIM]
    cdef int64_t left[OPERANDS]  # of the contiguous run that an operand is in
    cdef int last = plan.ndim - 1, k, d
    cdef ElementwiseKernel kernel
    for k in range(OPERANDS):
        at[k] = data[k] + plan.offset[k]
    for d in range(last, -1, -1):
        index[d] = rest % plan.shape[d]
        rest //= plan.shape[d]
        for k in range(OPERANDS):
            at[k] += index[d] * plan.strides[k][d]
    while count:
        n = count
        for k in range(OPERANDS):
            left[k] = plan.run[k] - start % plan.run[k] if plan.run[k] else 0
            n = min(n, left[k])
        if n < min(count, <int64_t>LONG_ROW):
            n = min(count, block_size)
            if plan.shape[last] >= LONG_ROW:
                n = min(n, plan.shape[last] - index[last])
        for k in range(OPERANDS):
            if n <= left[k]:
                block[k] = at[k]
            else:
                block[k] = <char *>buffer[k]
                if k != OUT or plan.accumulate:
                    walk_rows(plan, k, index, at[k], block[k], n, True)
        kernel = plan.kernel if block[OUT] == <char *>buffer[OUT] else stream
        kernel(block[GRAD_OUTPUT], block[INPUT], block[OUT], n, &plan.parameters)
        if block[OUT] == <char *>buffer[OUT]:
            walk_rows(plan, OUT, index, at[OUT], block[OUT], n, False)
        start += n
        count -= n
        carry = n
        d = last
        while carry and d >= 0:
            rest = index[d] + carry
            carry = rest // plan.shape[d]
            rest -= carry * plan.shape[d]
            for k in range(OPERANDS):
                at[k] += (rest - index[d]) * plan.strides[k][d]
            index[d] = rest
            d -= 1


cdef void run_tasks(const ElementwisePlan *plan, ElementwiseKernel stream, char **data, int64_t start,
                    int64_t stop) noexcept nogil:
    """Tiles, where the plan has some, else chunks; one thread's part of them."""
    cdef int64_t i
    cdef uint64_t float_state = enter_float_state()
    if plan.tile_axis >= 0:
        for i in range(start, stop):
            run_tile(plan, stream, data, i)
    else:
        for i in range(start, stop):
            run_chunk(plan, stream, data, i * CHUNK, min(<int64_t>CHUNK, plan.size - i * CHUNK))
    finish_streams()
    leave_float_state(float_state)


cdef void run_elementwise(const ElementwisePlan *plan, char **data, int threads) noexcept nogil:
    """Compute; addresses already checked."""
    cdef int64_t tasks = tile_count(plan) if plan.tile_axis >= 0 else (plan.size + CHUNK - 1) // CHUNK
    cdef int team = <int>min(<int64_t>threads, tasks), i
    cdef ElementwiseKernel stream = plan.stream
    if plan.size == 0:
        return
    if (data[OUT] == data[INPUT] or data[OUT] == data[GRAD_OUTPUT]
            or <uintptr_t>data[OUT] % <uintptr_t>plan.itemsize[OUT]):  # streaming stores have to be aligned
        stream = plan.kernel
    if plan.size < PARALLEL_FROM or team == 1:
        run_tasks(plan, stream, data, 0, tasks)
        return
    for i in prange(team, schedule="static", num_threads=team):
        run_tasks(plan, stream, data, tasks * i // team, tasks * (i + 1) // team)
