# The operators as handlers of XLA's typed FFI. XLA calls them on threads of its own, without Python: no object is
# touched, and nothing waits for the GIL. bridges/jax.py makes the calls and has checked all that can be checked before.
from cpython.pycapsule cimport PyCapsule_New
from libc.stdlib cimport free, malloc

cdef extern from "jax/ffi.h" namespace "xla_ffi" nogil:
    int XLA_F16 "xla_ffi::F16", XLA_F32 "xla_ffi::F32", XLA_F64 "xla_ffi::F64", XLA_BF16 "xla_ffi::BF16"
    ctypedef struct XlaError "xla_ffi::Error":
        pass
    ctypedef struct XlaBuffer "xla_ffi::Buffer":
        int dtype
        char *data
        int64_t rank
        const int64_t *dims
    ctypedef struct XlaBuffers "xla_ffi::Buffers":
        int64_t count
        XlaBuffer **buffers
    ctypedef struct XlaText "xla_ffi::Text":
        const char *text
        size_t length
    ctypedef struct XlaArray "xla_ffi::Array":
        size_t count
        const void *data
    ctypedef struct XlaCall "xla_ffi::Call":
        XlaBuffers arguments
        XlaBuffers results
    bint xla_answers "xla_ffi::answers"(XlaCall *call)
    XlaError *xla_error "xla_ffi::error"(XlaCall *call, const char *message)
    const void *xla_attribute "xla_ffi::attribute"(const XlaCall *call, const char *name)

cdef enum:
    # The numbers of a convolution: three each, then one each. What is wanted is FOR_... of the gradients or FOR_OUTPUT.
    XLA_STRIDE = 0
    XLA_BEFORE = 3
    XLA_AFTER = 6
    XLA_DILATION = 9
    XLA_GROUPS = 12
    XLA_WANTED = 13


cdef int fill_xla_tensor(Tensor *tensor, const XlaBuffer *buffer, int arg, Failure *failure) noexcept nogil:
    """Describe a buffer, which is contiguous in C order."""
    cdef int64_t d
    if buffer.rank > MAX_NDIM:
        return fail(failure, Rule.NDIM_UNSUPPORTED, arg)
    tensor.dtype = DTYPE_INVALID
    if buffer.dtype == XLA_F16:
        tensor.dtype = DTYPE_F16
    elif buffer.dtype == XLA_BF16:
        tensor.dtype = DTYPE_BF16
    elif buffer.dtype == XLA_F32:
        tensor.dtype = DTYPE_F32
    elif buffer.dtype == XLA_F64:
        tensor.dtype = DTYPE_F64
    if tensor.dtype == DTYPE_INVALID:
        return fail(failure, Rule.DTYPE_UNSUPPORTED, arg)
    tensor.data = buffer.data if buffer.data != NULL else <char *>tensor  # NULL where there are no elements
    tensor.ndim = <int>buffer.rank
    for d in range(buffer.rank):
        tensor.shape[d] = buffer.dims[d]
    contiguous_strides(tensor)
    return Rule.PASSED


cdef int xla_threads(const XlaCall *call) noexcept nogil:
    cdef int64_t threads = (<const int64_t *>(<const XlaArray *>xla_attribute(call, "threads")).data)[0]
    if threads == 0 or in_forked_child or openmp_version() == 0:
        return default_threads()
    return <int>min(threads, <int64_t>MAX_THREADS)


cdef int run_xla_elementwise(const XlaCall *call, Failure *failure) noexcept nogil:
    """Compute a formula. Arguments: input, and of a gradient grad_output."""
    cdef const XlaText *name = <const XlaText *>xla_attribute(call, "formula")
    cdef const XlaArray *values = <const XlaArray *>xla_attribute(call, "values")
    cdef ElementwiseSpec spec
    cdef ElementwisePlan plan
    cdef Tensor tensors[OPERANDS]
    cdef char *data[OPERANDS]
    cdef char formula[64]
    cdef int i
    memset(&spec, 0, sizeof(ElementwiseSpec))
    snprintf(formula, sizeof(formula), "%.*s", <int>name.length, name.text)
    spec.formula = formula_number(formula)
    if spec.formula < 0:
        return fail(failure, Rule.PARAMETERS_CONTRADICT)
    spec.operands = 1 + kernels.formula[spec.formula].inputs
    memcpy(spec.parameters.value, values.data, min(values.count * sizeof(double), sizeof(FormulaParameters)))
    for i in range(spec.operands):
        if fill_xla_tensor(&tensors[i], call.arguments.buffers[i - 1] if i else call.results.buffers[0], i, failure):
            return failure.rule
        data[i] = tensors[i].data
    if plan_elementwise(&spec, tensors, &plan, failure) or check_addresses(&plan, data, failure):
        return failure.rule
    run_elementwise(&plan, data, xla_threads(call))
    return Rule.PASSED


cdef int check_xla_conv(const ConvSpec *spec, int wanted, Tensor **tensors, Failure *failure) noexcept nogil:
    cdef Tensor result
    cdef Tensor *output = tensors[CONV_GRAD_OUTPUT]
    cdef int rule
    if wanted != FOR_OUTPUT:
        return check_conv(spec, tensors, failure) or check_conv_addresses(tensors, failure)
    tensors[CONV_GRAD_OUTPUT] = NULL
    rule = check_forward(spec, tensors, &result, failure)
    tensors[CONV_GRAD_OUTPUT] = output
    return rule or check_forward_output(tensors, &result, failure) or check_forward_addresses(tensors, failure)


cdef int run_xla_conv(const XlaCall *call, Failure *failure) noexcept nogil:
    """Compute an output of input, weight and perhaps bias, or gradients of grad_output, input and weight."""
    cdef const int64_t *numbers = <const int64_t *>(<const XlaArray *>xla_attribute(call, "numbers")).data
    cdef int i, arg, given = 0, wanted = <int>numbers[XLA_WANTED], threads = xla_threads(call)
    cdef bint forward = wanted == FOR_OUTPUT
    cdef Tensor storage[CONV_TENSORS]
    cdef Tensor *tensors[CONV_TENSORS]
    cdef ConvSpec spec
    cdef ConvProblem problem
    cdef ConvPlan plan
    cdef char *workspace
    memset(&spec, 0, sizeof(ConvSpec))
    for i in range(3):
        spec.stride[i], spec.before[i] = numbers[XLA_STRIDE + i], numbers[XLA_BEFORE + i]
        spec.after[i], spec.dilation[i] = numbers[XLA_AFTER + i], numbers[XLA_DILATION + i]
    spec.groups = numbers[XLA_GROUPS]
    for arg in range(CONV_TENSORS):
        tensors[arg] = NULL
    for i in range(call.arguments.count):
        arg = i + forward
        tensors[arg] = &storage[arg]
        if fill_xla_tensor(tensors[arg], call.arguments.buffers[i], arg, failure):
            return failure.rule
    for i in range(1 if forward else 3):
        if not forward and not wanted & (FOR_GRAD_INPUT << i):
            continue
        arg = CONV_GRAD_OUTPUT if forward else CONV_GRAD_INPUT + i
        tensors[arg] = &storage[arg]
        if fill_xla_tensor(tensors[arg], call.results.buffers[given], arg, failure):
            return failure.rule
        given += 1
    if check_xla_conv(&spec, wanted, tensors, failure):
        return failure.rule
    conv_problem(&spec, tensors, &problem)
    if plan_conv(&problem, FOR_OUTPUT if forward else wanted_gradients(&problem), threads, &plan, failure):
        return failure.rule
    workspace = <char *>malloc(plan.workspace_bytes)
    if workspace == NULL:
        return fail(failure, Rule.TOO_LARGE, CONV_WORKSPACE)
    run_conv(&plan, &plan.problem, workspace, threads, NULL)
    free(workspace)
    return Rule.PASSED


cdef XlaError *xla_outcome(XlaCall *call, const Failure *failure) noexcept nogil:
    """Return what XLA takes for a broken rule. Sentences are for checks before the call (bridges/jax.py)."""
    cdef char message[64]
    snprintf(message, sizeof(message), "infiniop_cy: rule %d of argument %d", failure.rule, failure.arg)
    return xla_error(call, message)


cdef XlaError *xla_elementwise(XlaCall *call) noexcept nogil:
    cdef Failure failure
    if xla_answers(call) or not (check_stack(&failure) or run_xla_elementwise(call, &failure)):
        return NULL
    return xla_outcome(call, &failure)


cdef XlaError *xla_conv(XlaCall *call) noexcept nogil:
    cdef Failure failure
    if xla_answers(call) or not (check_stack(&failure) or run_xla_conv(call, &failure)):
        return NULL
    return xla_outcome(call, &failure)


def xla_handlers():
    """Return {name: capsule} for jax.ffi.register_ffi_target."""
    return {"infiniop_cy_elementwise": PyCapsule_New(<void *>xla_elementwise, NULL, NULL),
            "infiniop_cy_conv": PyCapsule_New(<void *>xla_conv, NULL, NULL)}
