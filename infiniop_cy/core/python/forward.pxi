# iop.conv(...), and the plans of its descriptors.
cdef tuple FORWARD_NAMES = ("output", *CONV_NAMES[1:])
cdef tuple FORWARD_CALL_NAMES = ("out", *CONV_NAMES[1:])


cdef dict inputs_of_conv(input, weight, bias, Tensor *storage, Tensor **tensors, space):
    """Describe the tensors that an output is computed from; return their arrays by name."""
    cdef int i
    named = {}
    for i in range(CONV_TENSORS):
        tensors[i] = NULL
    for i, value in ((CONV_INPUT, input), (CONV_WEIGHT, weight), (CONV_BIAS, bias)):
        if i < CONV_BIAS or value is not None:
            named[CONV_NAMES[i]] = input_array(value, "conv", CONV_NAMES[i], space)
            fill_tensor(&storage[i], named[CONV_NAMES[i]])
            tensors[i] = &storage[i]
    return named


def conv(input, weight, bias, tuple stride, tuple padding, tuple dilation, groups, out, num_threads, space=None):
    """Compute a convolution; return out, or a new contiguous array. space: where the arrays are."""
    cdef str op = "conv"
    cdef ConvSpec spec
    cdef ConvPlan plan
    cdef ConvProblem problem
    cdef Failure failure
    cdef Tensor result
    cdef Tensor storage[CONV_TENSORS]
    cdef Tensor *tensors[CONV_TENSORS]
    cdef int d, threads = resolve_threads(num_threads, op)
    require_stack(op)
    fill_conv_spec(&spec, stride, padding, dilation, groups, False)
    named = inputs_of_conv(input, weight, bias, storage, tensors, space)
    if out is not None:
        named["out"] = output_array(out, op, "out", space)
    if check_forward(&spec, tensors, &result, &failure):
        raise error_of(&failure, op, FORWARD_CALL_NAMES, named)
    if out is None:
        shape, dtype = tuple([result.shape[d] for d in range(result.ndim)]), named["input"].dtype
        named["out"] = numpy.empty(shape, dtype) if space is None else space.new(shape, dtype, None)
    fill_tensor(&storage[CONV_GRAD_OUTPUT], named["out"])
    tensors[CONV_GRAD_OUTPUT] = &storage[CONV_GRAD_OUTPUT]
    if check_forward_output(tensors, &result, &failure):
        raise error_of(&failure, op, FORWARD_CALL_NAMES, named)
    while check_forward_addresses(tensors, &failure):  # NumPy's rule: as if nothing overlapped
        name = CONV_NAMES[failure.against]
        named[name] = named[name].copy(order="K") if space is None else space.copy(named[name], op)
        fill_tensor(&storage[failure.against], named[name])
    conv_problem(&spec, tensors, &problem)
    if space is not None:
        cuda_conv(&problem, True, space, op, FORWARD_CALL_NAMES)
        return space.result(named["out"])
    if plan_conv(&problem, FOR_OUTPUT, threads, &plan, &failure):
        raise error_of(&failure, op, FORWARD_CALL_NAMES, named)
    run_planned(&plan, op, threads)
    return named["out"]


cdef class ForwardPlanObject:
    """A plan for one forward convolution."""
    cdef ConvPlan plan
    cdef Tensor tensors[CONV_TENSORS]
    cdef bint has_bias
    cdef int device  # index of a GPU; -1 for the CPU
    cdef CudaConvProblem problem

    def __init__(self, output, input, weight, bias, tuple stride, tuple padding, tuple dilation, groups,
                 int device=-1):
        cdef str op = "conv"
        cdef ConvSpec spec
        cdef ConvProblem problem
        cdef Failure failure
        cdef Tensor result
        cdef Tensor *pointers[CONV_TENSORS]
        cdef int i
        require_stack(op)
        named = dict(zip(FORWARD_NAMES, (output, input, weight, bias)))
        fill_conv_spec(&spec, stride, padding, dilation, groups, False)
        self.has_bias = bias is not None
        self.device = device
        for i in range(CONV_TENSORS):
            pointers[i] = NULL
        for i in range(3 + self.has_bias):
            self.tensors[i] = required(named[FORWARD_NAMES[i]], op, FORWARD_NAMES[i]).tensor
            pointers[i] = &self.tensors[i]
        if check_forward(&spec, pointers, &result, &failure) or check_forward_output(pointers, &result, &failure):
            raise error_of(&failure, op, FORWARD_NAMES, named)
        conv_problem(&spec, pointers, &problem)
        if device >= 0:
            self.plan.problem = problem
            prepare_cuda_conv(&problem, True, device, op, &self.problem)
            self.plan.workspace_bytes = cuda_conv_workspace(&self.problem) + CUDA_CONV_ALIGN
            require_module(device, cuda_conv_module(problem.sample.dtype), op)
        elif plan_conv(&problem, FOR_OUTPUT, resolve_threads(None, op), &self.plan, &failure):
            raise error_of(&failure, op, FORWARD_NAMES, named)

    @property
    def workspace_size(self):
        return self.plan.workspace_bytes

    @property
    def facts(self):
        """What the plan chose, by name; None for a GPU, whose kernels choose for themselves."""
        return None if self.device >= 0 else plan_facts(&self.plan)

    def calculate(self, workspace, output, input, weight, bias, stream=0):
        """Compute the output. stream: the address of a GPU's stream."""
        cdef str op = "conv"
        cdef Failure failure
        cdef ConvProblem bound
        cdef Interrupt storage
        cdef Interrupt *interrupt
        cdef char *data[CONV_TENSORS]
        cdef char *scratch
        cdef int i, threads = resolve_threads(None, op)
        require_stack(op)
        if not self.has_bias and not is_left_out(bias):
            raise status.BadParam(f"{op}: bias is given, but the descriptor was created without a bias")
        memset(data, 0, sizeof(data))
        values = (output, input, weight, bias)
        for i in range(3 + self.has_bias):
            data[i] = address_of(values[i], &self.tensors[i], i == CONV_GRAD_OUTPUT, op, FORWARD_NAMES[i])
        if bind_forward(&self.plan.problem, 0, self.tensors, self.has_bias, data, NULL, &bound, &failure):
            raise error_of(&failure, op, FORWARD_NAMES, {})
        scratch = address_of_workspace(workspace, self.plan.workspace_bytes, op)
        if bind_forward(&self.plan.problem, self.plan.workspace_bytes, self.tensors, self.has_bias, data, scratch,
                        &bound, &failure):
            raise error_of(&failure, op, FORWARD_NAMES, {})
        if self.device >= 0:
            if check_conv_alignment(self.tensors, data, &failure):
                raise error_of(&failure, op, FORWARD_NAMES, {})
            launch_conv(&self.problem, data, scratch, self.device, <void *><uintptr_t>stream, op, FORWARD_NAMES)
            return
        interrupt = interrupt_of(&self.plan, &storage)
        with nogil:
            run_conv(&self.plan, &bound, scratch, threads, interrupt)
        raise_if_stopped(interrupt)
