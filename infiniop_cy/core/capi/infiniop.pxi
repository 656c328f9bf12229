# The infiniop functions of the C API are as thin as can be over the plans above. No Python object is touched,
# so that the same functions, linked into libinfiniop.so without the rest of this module, serve any client.
# infiniop_cy/capi has the headers, the runtime calls, and the per-operator functions (generated from operators.py) over
# infiniop_elementwise_*.
from libc.stddef cimport ptrdiff_t
from libc.string cimport strcmp
from libcpp cimport bool as c_bool


cdef extern from "../capi/objects.h" nogil:
    enum:
        HANDLE_OBJECT, TENSOR_OBJECT, CONV_OBJECT, FORWARD_OBJECT, ELEMENTWISE_OBJECT
    ctypedef struct Object:
        int device
        int device_id
    void *new_object(int32_t kind, size_t size)
    bint is_object(const void *pointer, int32_t kind)
    bint free_object(void *pointer, int32_t kind, size_t size)

cdef extern from "../capi/engine.h" nogil:
    ctypedef enum infiniStatus_t:
        INFINI_STATUS_SUCCESS
        INFINI_STATUS_INTERNAL_ERROR
        INFINI_STATUS_NOT_IMPLEMENTED
        INFINI_STATUS_BAD_PARAM
        INFINI_STATUS_NULL_POINTER
        INFINI_STATUS_DEVICE_NOT_INITIALIZED
        INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED
        INFINI_STATUS_BAD_TENSOR_DTYPE
        INFINI_STATUS_BAD_TENSOR_SHAPE
        INFINI_STATUS_BAD_TENSOR_STRIDES
        INFINI_STATUS_INSUFFICIENT_WORKSPACE
    ctypedef enum infiniDevice_t:
        INFINI_DEVICE_NVIDIA
    ctypedef enum infiniDtype_t:
        pass
    ctypedef struct InfiniopHandle:
        pass
    ctypedef struct InfiniopTensorDescriptor:
        pass
    ctypedef struct InfiniopConvBackwardDescriptor:
        pass
    ctypedef struct InfiniopConvDescriptor:
        pass
    ctypedef InfiniopHandle *infiniopHandle_t
    ctypedef InfiniopTensorDescriptor *infiniopTensorDescriptor_t
    ctypedef InfiniopConvBackwardDescriptor *infiniopConvBackwardDescriptor_t
    ctypedef InfiniopConvDescriptor *infiniopConvDescriptor_t
    infiniStatus_t infinirtGetDevice(infiniDevice_t *device, int *device_id)


ctypedef struct TensorObject:
    Object header
    Tensor tensor


ctypedef struct ElementwiseObject:
    Object header
    ElementwisePlan plan


ctypedef struct ConvObject:
    Object header
    ConvPlan plan
    bint has_bias
    Tensor tensors[CONV_TENSORS]
    CudaConvProblem problem  # on a GPU


ctypedef struct ForwardObject:
    Object header
    ConvPlan plan
    bint has_bias
    Tensor tensors[CONV_TENSORS]
    CudaConvProblem problem  # on a GPU


cdef infiniStatus_t status_of(int rule) noexcept nogil:
    return <infiniStatus_t>(rule // 100)


cdef infiniStatus_t cuda_status(int code) noexcept nogil:
    """Return the status of a driver's code, or of one of cuda/driver.h."""
    if code == 0:
        return INFINI_STATUS_SUCCESS
    if code == CUDA_OLD_DEVICE:
        return INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED
    return INFINI_STATUS_DEVICE_NOT_INITIALIZED if code == CUDA_NO_DRIVER else INFINI_STATUS_INTERNAL_ERROR


cdef bint on_gpu(const void *object) noexcept nogil:
    return (<const Object *>object).device == <int>INFINI_DEVICE_NVIDIA


# ---- handles and tensors

cdef public infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr) noexcept nogil:
    cdef Object *handle
    cdef infiniDevice_t device
    cdef CudaDevice *opened
    cdef infiniStatus_t status
    if handle_ptr == NULL:
        return INFINI_STATUS_NULL_POINTER
    if kernels == NULL:  # INFINIOP_CY_ISA names what this CPU cannot run
        return INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED
    if environment_threads() < 0:  # INFINIOP_CY_NUM_THREADS is no number of threads
        return INFINI_STATUS_BAD_PARAM
    handle = <Object *>new_object(HANDLE_OBJECT, sizeof(Object))
    if handle == NULL:
        return INFINI_STATUS_INTERNAL_ERROR
    infinirtGetDevice(&device, &handle.device_id)
    handle.device = <int>device
    if on_gpu(handle):
        status = cuda_status(cuda_open(handle.device_id, &opened))
        if status != INFINI_STATUS_SUCCESS:
            free_object(handle, HANDLE_OBJECT, sizeof(Object))
            return status
    handle_ptr[0] = <infiniopHandle_t>handle
    return INFINI_STATUS_SUCCESS


cdef infiniStatus_t destroy(void *object, int32_t kind, size_t size) noexcept nogil:
    if object == NULL:
        return INFINI_STATUS_NULL_POINTER
    return INFINI_STATUS_SUCCESS if free_object(object, kind, size) else INFINI_STATUS_BAD_PARAM


cdef infiniStatus_t check_object(const void *object, int32_t kind) noexcept nogil:
    if object == NULL:
        return INFINI_STATUS_NULL_POINTER
    return INFINI_STATUS_SUCCESS if is_object(object, kind) else INFINI_STATUS_BAD_PARAM


cdef public infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle) noexcept nogil:
    return destroy(handle, HANDLE_OBJECT, sizeof(Object))


cdef infiniStatus_t fill_c_tensor(Tensor *t, size_t ndim, const size_t *shape, const ptrdiff_t *strides,
                                  int dtype) noexcept nogil:
    """Describe a tensor by C arrays, with strides in elements; NULL strides mean C order."""
    cdef size_t d
    cdef int64_t size
    cdef Failure failure
    if ndim and shape == NULL:
        return INFINI_STATUS_NULL_POINTER
    if ndim > MAX_NDIM:
        return INFINI_STATUS_BAD_TENSOR_SHAPE
    t.data = NULL
    t.dtype = dtype
    t.ndim = <int>ndim
    if itemsize_of(dtype) == 0:
        return INFINI_STATUS_BAD_TENSOR_DTYPE
    for d in range(ndim):
        t.shape[d] = <int64_t>shape[d]  # beyond 63 bits it is negative, which tensor_size refuses
        if strides != NULL and mul_overflows(strides[d], itemsize_of(dtype), &t.strides[d]):
            return INFINI_STATUS_BAD_TENSOR_STRIDES
    if strides == NULL:
        contiguous_strides(t)
    return status_of(tensor_size(t, 0, &size, &failure))


cdef public infiniStatus_t infiniopCreateTensorDescriptor(
        infiniopTensorDescriptor_t *desc_ptr, size_t ndim, const size_t *shape, const ptrdiff_t *strides,
        infiniDtype_t dtype) noexcept nogil:
    cdef Tensor tensor
    cdef TensorObject *object
    cdef infiniStatus_t status
    if desc_ptr == NULL:
        return INFINI_STATUS_NULL_POINTER
    status = fill_c_tensor(&tensor, ndim, shape, strides, <int>dtype)
    if status != INFINI_STATUS_SUCCESS:
        return status
    object = <TensorObject *>new_object(TENSOR_OBJECT, sizeof(TensorObject))
    if object == NULL:
        return INFINI_STATUS_INTERNAL_ERROR
    object.tensor = tensor
    desc_ptr[0] = <infiniopTensorDescriptor_t>object
    return INFINI_STATUS_SUCCESS


cdef public infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc) noexcept nogil:
    return destroy(desc, TENSOR_OBJECT, sizeof(TensorObject))


# ---- elementwise operators; `position` in the table of operators tells their descriptors apart

cdef int formula_number(const char *name) noexcept nogil:
    cdef int i
    for i in range(kernels.formula_count):
        if strcmp(kernels.formula[i].name, name) == 0:
            return i
    return -1


cdef public infiniStatus_t infiniop_elementwise_create(
        infiniopHandle_t handle, void **desc_ptr, const infiniopTensorDescriptor_t *tensors, int position,
        const char *formula, c_bool promotes, const double *values, int count) noexcept nogil:
    cdef ElementwiseSpec spec
    cdef ElementwiseObject *object
    cdef Failure failure
    cdef infiniStatus_t status
    cdef int i
    cdef Tensor operand[OPERANDS]
    if desc_ptr == NULL:
        return INFINI_STATUS_NULL_POINTER
    status = check_object(handle, HANDLE_OBJECT)
    if status != INFINI_STATUS_SUCCESS:
        return status
    spec.formula = formula_number(formula)
    spec.operands = 1 + kernels.formula[spec.formula].inputs
    for i in range(spec.operands):
        status = check_object(tensors[i], TENSOR_OBJECT)
        if status != INFINI_STATUS_SUCCESS:
            return status
        operand[i] = (<TensorObject *>tensors[i]).tensor
    spec.promotes = promotes
    spec.accumulate = False
    memset(&spec.parameters, 0, sizeof(FormulaParameters))
    for i in range(count):
        spec.parameters.value[i] = values[i]
    if check_stack(&failure):
        return status_of(failure.rule)
    object = <ElementwiseObject *>new_object(ELEMENTWISE_OBJECT + position, sizeof(ElementwiseObject))
    if object == NULL:
        return INFINI_STATUS_INTERNAL_ERROR
    status = status_of(plan_elementwise(&spec, operand, &object.plan, &failure))
    if status == INFINI_STATUS_SUCCESS and on_gpu(handle):
        status = cuda_status(cuda_require((<Object *>handle).device_id,
                                          cuda_elementwise_module(spec.formula, object.plan.dtype)))
    if status != INFINI_STATUS_SUCCESS:
        free_object(object, ELEMENTWISE_OBJECT + position, sizeof(ElementwiseObject))
        return status
    object.header.device = (<Object *>handle).device
    object.header.device_id = (<Object *>handle).device_id
    desc_ptr[0] = object
    return INFINI_STATUS_SUCCESS


cdef public infiniStatus_t infiniop_elementwise_workspace(void *desc, int position, size_t *size) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, ELEMENTWISE_OBJECT + position)
    if size == NULL:
        return INFINI_STATUS_NULL_POINTER
    if status == INFINI_STATUS_SUCCESS:
        size[0] = 0
    return status


cdef public infiniStatus_t infiniop_elementwise_calculate(
        void *desc, int position, void *workspace, size_t workspace_size, void *out, const void *input,
        const void *grad_output, void *stream) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, ELEMENTWISE_OBJECT + position)
    cdef char *data[OPERANDS]
    cdef Failure failure
    cdef CudaQueue queue
    cdef const ElementwisePlan *plan
    if status != INFINI_STATUS_SUCCESS:
        return status
    data[OUT], data[INPUT], data[GRAD_OUTPUT] = <char *>out, <char *>input, <char *>grad_output
    plan = &(<ElementwiseObject *>desc).plan
    if on_gpu(desc):
        status = status_of(check_device_addresses(plan, data, &failure))
        if status != INFINI_STATUS_SUCCESS:
            return status
        queue.module = cuda_find_module((<Object *>desc).device_id, cuda_elementwise_module(plan.formula, plan.dtype))
        queue.stream = stream
        return cuda_status(run_elementwise_on_gpu(plan, data, (<Object *>desc).device_id, &queue))
    status = status_of(check_stack(&failure) or check_addresses(plan, data, &failure))
    if status == INFINI_STATUS_SUCCESS:
        run_elementwise(plan, data, default_threads())
    return status


cdef public infiniStatus_t infiniop_elementwise_destroy(void *desc, int position) noexcept nogil:
    return destroy(desc, ELEMENTWISE_OBJECT + position, sizeof(ElementwiseObject))


# ---- convolution

cdef bint is_wide(const int32_t *strides, const int32_t *dilations, int axes) noexcept nogil:
    """Say whether the entries have 64 bits: then the second word of strides and of dilations is the upper half of the
    first entry, 0, where narrow ones have the second entry, which is not 0. One entry reads alike, little-endian.
    Narrow lists that are both wrong, 0 in both, are the same words as wide ones, and cannot be told from them."""
    return axes > 1 and (strides == NULL or strides[1] == 0) and (dilations == NULL or dilations[1] == 0)


cdef int64_t entry_of(const void *list, int i, bint wide, int64_t otherwise) noexcept nogil:
    """Read one entry of a list; where there is none, `otherwise` stands for all of them."""
    if list == NULL:
        return otherwise
    return (<const int64_t *>list)[i] if wide else (<const int32_t *>list)[i]


cdef void fill_c_conv_spec(ConvSpec *spec, int axes, const void *pads, const void *strides, const void *dilations,
                           size_t groups) noexcept nogil:
    """Read C arrays of one entry per axis, each of 32 or of 64 bits; one that is NULL says nothing out of the way."""
    cdef bint wide = is_wide(<const int32_t *>strides, <const int32_t *>dilations, axes)
    cdef int i
    memset(spec, 0, sizeof(ConvSpec))
    for i in range(axes):
        spec.stride[i] = entry_of(strides, i, wide, 1)
        spec.before[i] = spec.after[i] = entry_of(pads, i, wide, 0)
        spec.dilation[i] = entry_of(dilations, i, wide, 1)
    spec.groups = <int64_t>groups


cdef public infiniStatus_t infiniopCreateConvBackwardDescriptor(
        infiniopHandle_t handle, infiniopConvBackwardDescriptor_t *desc_ptr,
        infiniopTensorDescriptor_t grad_output_desc, infiniopTensorDescriptor_t input_desc,
        infiniopTensorDescriptor_t weight_desc, infiniopTensorDescriptor_t bias_desc, void *pads,
        void *strides, void *dilations, size_t n) noexcept nogil:
    cdef ConvSpec spec
    cdef ConvObject *object
    cdef Failure failure
    cdef Tensor *tensors[CONV_TENSORS]
    cdef const void *given[4]
    cdef infiniStatus_t status
    cdef int i, count = 3 + (bias_desc != NULL)
    if desc_ptr == NULL or pads == NULL or strides == NULL or dilations == NULL:
        return INFINI_STATUS_NULL_POINTER
    given[0], given[1], given[2], given[3] = grad_output_desc, input_desc, weight_desc, bias_desc
    status = check_object(handle, HANDLE_OBJECT)
    for i in range(count):
        if status == INFINI_STATUS_SUCCESS:
            status = check_object(given[i], TENSOR_OBJECT)
    if status != INFINI_STATUS_SUCCESS:
        return status
    if check_stack(&failure):
        return status_of(failure.rule)
    fill_c_conv_spec(&spec, min(3, (<TensorObject *>input_desc).tensor.ndim - 2), pads, strides, dilations, n)
    object = <ConvObject *>new_object(CONV_OBJECT, sizeof(ConvObject))
    if object == NULL:
        return INFINI_STATUS_INTERNAL_ERROR
    for i in range(CONV_TENSORS):
        tensors[i] = &object.tensors[i]
        if i < count:
            object.tensors[i] = (<TensorObject *>given[i]).tensor
    object.has_bias = bias_desc != NULL
    if not object.has_bias:
        tensors[CONV_BIAS] = NULL
    conv_gradient_tensors(object.tensors)
    status = status_of(check_conv(&spec, tensors, &failure))
    if status == INFINI_STATUS_SUCCESS:
        conv_problem(&spec, tensors, &object.plan.problem)
        if on_gpu(handle):
            status = plan_conv_on_gpu(&object.plan, False, (<Object *>handle).device_id, &object.problem)
        else:
            status = status_of(plan_conv(&object.plan.problem, FOR_ALL, default_threads(), &object.plan, &failure))
    if status != INFINI_STATUS_SUCCESS:
        free_object(object, CONV_OBJECT, sizeof(ConvObject))
        return status
    object.header.device = (<Object *>handle).device
    object.header.device_id = (<Object *>handle).device_id
    desc_ptr[0] = <infiniopConvBackwardDescriptor_t>object
    return INFINI_STATUS_SUCCESS


cdef infiniStatus_t plan_conv_on_gpu(ConvPlan *plan, bint forward, int device, CudaConvProblem *problem) noexcept nogil:
    """Make a GPU's problem of the plan's, and find the workspace's size."""
    cdef CudaDevice *opened
    cdef Failure failure
    cdef infiniStatus_t status = cuda_status(cuda_open(device, &opened))
    if status == INFINI_STATUS_SUCCESS:
        status = status_of(cuda_conv_problem(&plan.problem, forward, use_tf32(), opened.multiprocessors, problem,
                                             &failure))
    if status == INFINI_STATUS_SUCCESS:
        status = cuda_status(cuda_require(device, cuda_conv_module(problem.dtype)))
    if status == INFINI_STATUS_SUCCESS:
        plan.workspace_bytes = cuda_conv_workspace(problem) + CUDA_CONV_ALIGN
    return status


cdef infiniStatus_t queue_conv(const CudaConvProblem *problem, const Tensor *tensors, char **data, char *workspace,
                               int device, void *stream) noexcept nogil:
    """Put a convolution, whose addresses are checked but for their alignment, on a stream."""
    cdef Failure failure
    cdef CudaQueue queue
    if check_conv_alignment(tensors, data, &failure):
        return status_of(failure.rule)
    queue.module = cuda_find_module(device, cuda_conv_module(problem.dtype))
    queue.stream = stream
    return cuda_status(run_conv_launches(problem, data, workspace, device, &queue))


cdef public infiniStatus_t infiniopGetConvBackwardWorkspaceSize(infiniopConvBackwardDescriptor_t desc,
                                                                size_t *size) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, CONV_OBJECT)
    if size == NULL:
        return INFINI_STATUS_NULL_POINTER
    if status == INFINI_STATUS_SUCCESS:
        size[0] = (<ConvObject *>desc).plan.workspace_bytes
    return status


cdef public infiniStatus_t infiniopConvBackward(
        infiniopConvBackwardDescriptor_t desc, void *workspace, size_t workspace_size, void *grad_input,
        void *grad_weight, void *grad_bias, const void *grad_output, const void *input, const void *weight,
        void *stream) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, CONV_OBJECT)
    cdef ConvObject *object = <ConvObject *>desc
    cdef ConvProblem bound
    cdef Failure failure
    cdef char *data[CONV_TENSORS]
    if status != INFINI_STATUS_SUCCESS:
        return status
    data[CONV_GRAD_OUTPUT] = <char *>grad_output
    data[CONV_INPUT] = <char *>input
    data[CONV_WEIGHT] = <char *>weight
    data[CONV_BIAS] = NULL
    data[CONV_GRAD_INPUT] = <char *>grad_input
    data[CONV_GRAD_WEIGHT] = <char *>grad_weight
    data[CONV_GRAD_BIAS] = <char *>grad_bias
    if grad_bias != NULL and not object.has_bias:
        return INFINI_STATUS_BAD_PARAM
    if workspace_size < <size_t>object.plan.workspace_bytes:
        return INFINI_STATUS_INSUFFICIENT_WORKSPACE
    if workspace == NULL:
        return INFINI_STATUS_NULL_POINTER
    if on_gpu(desc):
        if bind_conv(&object.plan.problem, object.plan.workspace_bytes, object.tensors, data, <char *>workspace, &bound,
                     &failure):
            return status_of(failure.rule)
        return queue_conv(&object.problem, object.tensors, data, <char *>workspace, object.header.device_id, stream)
    if check_stack(&failure):
        return status_of(failure.rule)
    return status_of(run_conv_on(&object.plan, object.tensors, data, <char *>workspace, default_threads(), NULL,
                                 &failure))


cdef public infiniStatus_t infiniopDestroyConvBackwardDescriptor(infiniopConvBackwardDescriptor_t desc) noexcept nogil:
    return destroy(desc, CONV_OBJECT, sizeof(ConvObject))


# ---- forward convolution

cdef size_t groups_of(const Tensor *x, const Tensor *w) noexcept nogil:
    """Read the number of groups off the shapes; 1 where they do not go together."""
    if x.shape[1] and w.shape[1] and x.shape[1] % w.shape[1] == 0:
        return x.shape[1] // w.shape[1]
    return 1


cdef public infiniStatus_t infiniopCreateConvDescriptor(
        infiniopHandle_t handle, infiniopConvDescriptor_t *desc_ptr, infiniopTensorDescriptor_t y_desc,
        infiniopTensorDescriptor_t x_desc, infiniopTensorDescriptor_t w_desc, infiniopTensorDescriptor_t b_desc,
        void *pads, void *strides, void *dilations, size_t n) noexcept nogil:
    cdef ConvSpec spec
    cdef ConvProblem problem
    cdef ForwardObject *object
    cdef Failure failure
    cdef Tensor result
    cdef Tensor *tensors[CONV_TENSORS]
    cdef const void *given[4]
    cdef infiniStatus_t status
    cdef int i, count = 3 + (b_desc != NULL)
    if desc_ptr == NULL:
        return INFINI_STATUS_NULL_POINTER
    given[0], given[1], given[2], given[3] = y_desc, x_desc, w_desc, b_desc
    status = check_object(handle, HANDLE_OBJECT)
    for i in range(count):
        if status == INFINI_STATUS_SUCCESS:
            status = check_object(given[i], TENSOR_OBJECT)
    if status != INFINI_STATUS_SUCCESS:
        return status
    if n < 1 or n > 3 or (<TensorObject *>x_desc).tensor.ndim != <int>n + 2 \
            or (<TensorObject *>w_desc).tensor.ndim != <int>n + 2:
        return INFINI_STATUS_BAD_TENSOR_SHAPE
    if check_stack(&failure):
        return status_of(failure.rule)
    fill_c_conv_spec(&spec, <int>n, pads, strides, dilations,
                     groups_of(&(<TensorObject *>x_desc).tensor, &(<TensorObject *>w_desc).tensor))
    object = <ForwardObject *>new_object(FORWARD_OBJECT, sizeof(ForwardObject))
    if object == NULL:
        return INFINI_STATUS_INTERNAL_ERROR
    for i in range(CONV_TENSORS):
        tensors[i] = NULL
        if i < count:
            object.tensors[i] = (<TensorObject *>given[i]).tensor
            tensors[i] = &object.tensors[i]
    object.has_bias = b_desc != NULL
    status = status_of(check_forward(&spec, tensors, &result, &failure)
                       or check_forward_output(tensors, &result, &failure))
    if status == INFINI_STATUS_SUCCESS:
        conv_problem(&spec, tensors, &problem)
        if on_gpu(handle):
            object.plan.problem = problem
            status = plan_conv_on_gpu(&object.plan, True, (<Object *>handle).device_id, &object.problem)
        else:
            status = status_of(plan_conv(&problem, FOR_OUTPUT, default_threads(), &object.plan, &failure))
    if status != INFINI_STATUS_SUCCESS:
        free_object(object, FORWARD_OBJECT, sizeof(ForwardObject))
        return status
    object.header.device = (<Object *>handle).device
    object.header.device_id = (<Object *>handle).device_id
    desc_ptr[0] = <infiniopConvDescriptor_t>object
    return INFINI_STATUS_SUCCESS


cdef public infiniStatus_t infiniopGetConvWorkspaceSize(infiniopConvDescriptor_t desc, size_t *size) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, FORWARD_OBJECT)
    if size == NULL:
        return INFINI_STATUS_NULL_POINTER
    if status == INFINI_STATUS_SUCCESS:
        size[0] = (<ForwardObject *>desc).plan.workspace_bytes
    return status


cdef public infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                                        const void *x, const void *w, const void *bias, void *stream) noexcept nogil:
    cdef infiniStatus_t status = check_object(desc, FORWARD_OBJECT)
    cdef ForwardObject *object = <ForwardObject *>desc
    cdef ConvProblem bound
    cdef Failure failure
    cdef char *data[CONV_TENSORS]
    if status != INFINI_STATUS_SUCCESS:
        return status
    memset(data, 0, sizeof(data))
    data[CONV_GRAD_OUTPUT], data[CONV_INPUT] = <char *>y, <char *>x
    data[CONV_WEIGHT], data[CONV_BIAS] = <char *>w, <char *>bias
    if bias != NULL and not object.has_bias:
        return INFINI_STATUS_BAD_PARAM
    if workspace_size < <size_t>object.plan.workspace_bytes:
        return INFINI_STATUS_INSUFFICIENT_WORKSPACE
    if workspace == NULL:
        return INFINI_STATUS_NULL_POINTER
    if check_stack(&failure) \
            or bind_forward(&object.plan.problem, object.plan.workspace_bytes, object.tensors, object.has_bias, data,
                            <char *>workspace, &bound, &failure):
        return status_of(failure.rule)
    if on_gpu(desc):
        return queue_conv(&object.problem, object.tensors, data, <char *>workspace, object.header.device_id, stream)
    run_conv(&object.plan, &bound, <char *>workspace, default_threads(), NULL)
    return INFINI_STATUS_SUCCESS


cdef public infiniStatus_t infiniopDestroyConvDescriptor(infiniopConvDescriptor_t desc) noexcept nogil:
    return destroy(desc, FORWARD_OBJECT, sizeof(ForwardObject))
