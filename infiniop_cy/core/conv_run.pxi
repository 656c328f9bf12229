# grad_bias, and all three gradients. Tasks are tiles of an output: no two write the same element, every element is summed
# in an order that depends on the geometry alone, and each is rounded to storage once.

cdef enum:
    CONV_BIAS_DEPTH = 256  # pixels added by one tree


cdef void grad_bias_channel(const ConvPlan *plan, int64_t channel, char *scratch) noexcept nogil:
    """One channel: panels of CONV_BIAS_DEPTH pixels by the fixed tree of SumKernel, added in order, restarting per sample."""
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef char *element = plan.view[CONV_GRAD_BIAS].data + channel * plan.view[CONV_GRAD_BIAS].n
    cdef int64_t n, first, depth, i, row, x, count
    cdef double total = 0
    cdef uint64_t float_state = enter_float_state()
    if plan.accumulate:
        total = load_one(plan, element)
    for n in range(plan.batch):
        first = 0
        while first < plan.pixels_out:
            depth = min(<int64_t>CONV_BIAS_DEPTH, plan.pixels_out - first)
            i = 0
            while i < depth:
                row, x = (first + i) // plan.size_out[2], (first + i) % plan.size_out[2]
                count = min(depth - i, plan.size_out[2] - x)
                plan.load(g.data + n * g.n + channel * g.channel + row // plan.size_out[1] * g.space[0]
                          + row % plan.size_out[1] * g.space[1] + x * g.space[2], g.space[2], scratch + i * plan.item,
                          plan.item, count)
                i += count
            total += kernels.sum[plan.compute](scratch, depth)
            if plan.compute != DTYPE_F64:
                total = <float>total
            first += CONV_BIAS_DEPTH
    save_one(plan, total, element)
    leave_float_state(float_state)


cdef void run_grad_bias(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t i
    if threads == 1:
        for i in range(plan.groups * plan.cout):
            grad_bias_channel(plan, i, scratch)
        return
    for i in prange(plan.groups * plan.cout, schedule="static", num_threads=threads):
        grad_bias_channel(plan, i, scratch + omp_get_thread_num() * plan.thread_bytes)


cdef void run_conv(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """All gradients whose view has data; workspace: plan.workspace_bytes at any address."""
    workspace += -<uintptr_t>workspace % CONV_ALIGN
    threads = min(threads, plan.threads)
    if plan.planes:
        run_planes(plan, workspace, threads)
    else:
        if plan.view[CONV_GRAD_INPUT].data != NULL and plan.pixels_in and plan.batch and plan.cin:
            if plan.for_input.amx:
                run_grad_input_amx(plan, workspace, threads)
            else:
                run_grad_input(plan, workspace, threads)
        if plan.view[CONV_GRAD_WEIGHT].data != NULL and plan.cout and plan.cin:
            if plan.for_weight.amx:
                run_grad_weight_amx(plan, workspace, threads)
            else:
                run_grad_weight(plan, workspace, threads)
    if plan.view[CONV_GRAD_BIAS].data != NULL:
        run_grad_bias(plan, workspace, threads)


cdef void conv_gradient_tensors(Tensor *tensors) noexcept nogil:
    """Descriptors' gradients: shaped like input, weight and (C_out), contiguous."""
    tensors[CONV_GRAD_INPUT] = tensors[CONV_INPUT]
    tensors[CONV_GRAD_WEIGHT] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS].ndim = min(1, tensors[CONV_WEIGHT].ndim)
    contiguous_strides(&tensors[CONV_GRAD_INPUT])
    contiguous_strides(&tensors[CONV_GRAD_WEIGHT])
    contiguous_strides(&tensors[CONV_GRAD_BIAS])


cdef int bind_conv(const ConvPlan *plan, const Tensor *described, char **data, char *workspace, ConvPlan *bound,
                   Failure *failure) noexcept nogil:
    """A descriptor's plan with these addresses; gradients whose address is NULL are left out. A workspace of NULL
    is not checked."""
    cdef Tensor tensors[CONV_TENSORS]
    cdef Tensor *present[CONV_TENSORS]
    cdef int64_t byte = 1
    cdef int i
    bound[0] = plan[0]
    for i in range(CONV_TENSORS):
        tensors[i] = described[i]
        tensors[i].data = bound.view[i].data = data[i]
        present[i] = &tensors[i] if data[i] != NULL else NULL
        if i < CONV_BIAS and data[i] == NULL and has_elements(&tensors[i]):
            return fail(failure, Rule.NULL_DATA, i)
    if check_conv_addresses(present, failure):
        return failure.rule
    for i in range(CONV_TENSORS):
        if workspace != NULL and present[i] != NULL and views_overlap(
                workspace, 1, &bound.workspace_bytes, &byte, 1,
                present[i].data, present[i].ndim, present[i].shape, present[i].strides, itemsize_of(present[i].dtype)):
            return fail(failure, Rule.PARTIAL_OVERLAP, CONV_WORKSPACE, i)
    return Rule.PASSED


cdef int run_conv_on(const ConvPlan *plan, const Tensor *described, char **data, char *workspace, int threads,
                     Failure *failure) noexcept nogil:
    """Bind and run; a workspace of NULL only checks. Several threads may run one plan, each with its own workspace."""
    cdef ConvPlan bound
    if bind_conv(plan, described, data, workspace, &bound, failure):
        return failure.rule
    if workspace != NULL:
        run_conv(&bound, workspace, threads)
    return Rule.PASSED
