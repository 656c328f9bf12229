# All three gradients. Tasks are tiles of an output: no two write the same element, every element is summed
# in an order that depends on the geometry alone, and each is rounded to storage once.

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
    if plan.view[CONV_GRAD_BIAS].data != NULL and not bias_on_the_way(plan):
        run_grad_bias(plan, threads)


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
