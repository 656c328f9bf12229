# The aclnn functions of the C API: the two-phase calls of LeakyReluBackward, on host memory, and the tensors and
# scalars that they take.
from libc.stdint cimport int8_t, int16_t, uint64_t


cdef extern from "../capi/objects.h" nogil:
    enum:
        ACL_TENSOR_OBJECT, ACL_SCALAR_OBJECT, ACL_EXECUTOR_OBJECT

cdef extern from "../capi/include/aclnnop/aclnn_leaky_relu_backward.h" nogil:
    ctypedef int aclnnStatus
    ctypedef enum aclDataType:
        ACL_FLOAT, ACL_FLOAT16, ACL_INT8, ACL_INT32, ACL_UINT8, ACL_INT16, ACL_UINT16, ACL_UINT32, ACL_INT64
        ACL_UINT64, ACL_DOUBLE, ACL_BOOL, ACL_COMPLEX64, ACL_COMPLEX128, ACL_BF16
    ctypedef enum aclFormat:
        pass
    ctypedef struct aclTensor:
        pass
    ctypedef struct aclScalar:
        pass
    ctypedef struct aclOpExecutor:
        pass
    enum:
        ACLNN_SUCCESS, ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_RUNTIME_ERROR


cdef enum:
    ACL_MAX_NDIM = 8  # of the operator; a tensor may have more


ctypedef struct ScalarObject:
    Object header
    double value


ctypedef struct ExecutorObject:
    Object header
    ElementwisePlan plan
    char *data[OPERANDS]


cdef int dtype_of_acl(int dtype) noexcept nogil:
    if dtype == <int>ACL_FLOAT:
        return DTYPE_F32
    if dtype == <int>ACL_FLOAT16:
        return DTYPE_F16
    if dtype == <int>ACL_BF16:
        return DTYPE_BF16
    if dtype == <int>ACL_DOUBLE:
        return DTYPE_F64
    if dtype == <int>ACL_INT8:
        return DTYPE_I8
    if dtype == <int>ACL_INT16:
        return DTYPE_I16
    if dtype == <int>ACL_INT32:
        return DTYPE_I32
    if dtype == <int>ACL_INT64:
        return DTYPE_I64
    if dtype == <int>ACL_UINT8:
        return DTYPE_U8
    if dtype == <int>ACL_UINT16:
        return DTYPE_U16
    if dtype == <int>ACL_UINT32:
        return DTYPE_U32
    if dtype == <int>ACL_UINT64:
        return DTYPE_U64
    if dtype == <int>ACL_BOOL:
        return DTYPE_BOOL
    if dtype == <int>ACL_COMPLEX64:
        return DTYPE_C64
    if dtype == <int>ACL_COMPLEX128:
        return DTYPE_C128
    return DTYPE_INVALID


cdef public aclTensor *aclCreateTensor(
        const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t *stride, int64_t offset,
        aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData) noexcept nogil:
    cdef Tensor tensor
    cdef TensorObject *object
    cdef int64_t bytes, address
    if fill_c_tensor(&tensor, viewDimsNum, <const size_t *>viewDims, <const ptrdiff_t *>stride,
                     dtype_of_acl(<int>dataType)) != INFINI_STATUS_SUCCESS:
        return NULL
    if mul_overflows(offset, itemsize_of(tensor.dtype), &bytes) \
            or add_overflows(<int64_t><intptr_t>tensorData, bytes, &address):
        return NULL
    if tensorData != NULL:
        if address <= 0:  # no address of a user's memory has the upper bit
            return NULL
        tensor.data = <char *><intptr_t>address
    object = <TensorObject *>new_object(ACL_TENSOR_OBJECT, sizeof(TensorObject))
    if object != NULL:
        object.tensor = tensor
    return <aclTensor *>object


cdef aclnnStatus acl_status(infiniStatus_t status) noexcept nogil:
    if status == INFINI_STATUS_SUCCESS:
        return ACLNN_SUCCESS
    return ACLNN_ERR_PARAM_NULLPTR if status == INFINI_STATUS_NULL_POINTER else ACLNN_ERR_PARAM_INVALID


cdef public aclnnStatus aclDestroyTensor(const aclTensor *tensor) noexcept nogil:
    return acl_status(destroy(<void *>tensor, ACL_TENSOR_OBJECT, sizeof(TensorObject)))


cdef public aclScalar *aclCreateScalar(void *value, aclDataType dataType) noexcept nogil:
    cdef ScalarObject *object
    cdef double number
    cdef int dtype = dtype_of_acl(<int>dataType)
    if value == NULL or kernels == NULL:  # INFINIOP_CY_ISA names what this CPU cannot run
        return NULL
    if is_floating(dtype):
        kernels.convert[dtype][DTYPE_F64](<char *>value, 0, <char *>&number, 0, 1)
    elif dtype == DTYPE_I8:
        number = (<int8_t *>value)[0]
    elif dtype == DTYPE_I16:
        number = (<int16_t *>value)[0]
    elif dtype == DTYPE_I32:
        number = (<int32_t *>value)[0]
    elif dtype == DTYPE_I64:
        number = <double>(<int64_t *>value)[0]
    elif dtype == DTYPE_U8:
        number = (<uint8_t *>value)[0]
    elif dtype == DTYPE_BOOL:
        number = (<uint8_t *>value)[0] != 0
    else:
        return NULL
    object = <ScalarObject *>new_object(ACL_SCALAR_OBJECT, sizeof(ScalarObject))
    if object != NULL:
        object.value = number
    return <aclScalar *>object


cdef public aclnnStatus aclDestroyScalar(const aclScalar *scalar) noexcept nogil:
    return acl_status(destroy(<void *>scalar, ACL_SCALAR_OBJECT, sizeof(ScalarObject)))


cdef bint same_dims(const Tensor *a, const Tensor *b) noexcept nogil:
    cdef int d
    if a.ndim != b.ndim:
        return False
    for d in range(a.ndim):
        if a.shape[d] != b.shape[d]:
            return False
    return True


cdef public aclnnStatus aclnnLeakyReluBackwardGetWorkspaceSize(
        const aclTensor *gradOutput, const aclTensor *self, const aclScalar *negativeSlope, c_bool selfIsResult,
        aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor) noexcept nogil:
    cdef const void *objects[OPERANDS]
    cdef Tensor tensors[OPERANDS]
    cdef ElementwiseSpec spec
    cdef ExecutorObject *object
    cdef Failure failure
    cdef int k
    if gradOutput == NULL or self == NULL or negativeSlope == NULL or out == NULL or workspaceSize == NULL \
            or executor == NULL:
        return ACLNN_ERR_PARAM_NULLPTR
    objects[OUT], objects[INPUT], objects[GRAD_OUTPUT] = out, self, gradOutput
    if check_stack(&failure):
        return ACLNN_ERR_RUNTIME_ERROR
    if kernels == NULL or environment_threads() < 0 or not is_object(negativeSlope, ACL_SCALAR_OBJECT):
        return ACLNN_ERR_PARAM_INVALID
    for k in range(OPERANDS):
        if not is_object(objects[k], ACL_TENSOR_OBJECT):
            return ACLNN_ERR_PARAM_INVALID
        tensors[k] = (<TensorObject *>objects[k]).tensor
        if tensors[k].ndim > ACL_MAX_NDIM:
            return ACLNN_ERR_PARAM_INVALID
    if not broadcast(&tensors[INPUT], &tensors[GRAD_OUTPUT]) or not same_dims(&tensors[INPUT], &tensors[OUT]):
        return ACLNN_ERR_PARAM_INVALID
    memset(&spec, 0, sizeof(ElementwiseSpec))
    spec.formula = formula_number("leaky_relu_backward")
    spec.operands = OPERANDS
    spec.promotes = True
    spec.parameters.value[0] = (<ScalarObject *>negativeSlope).value
    spec.parameters.value[1] = selfIsResult
    object = <ExecutorObject *>new_object(ACL_EXECUTOR_OBJECT, sizeof(ExecutorObject))
    if object == NULL:
        return ACLNN_ERR_RUNTIME_ERROR
    for k in range(OPERANDS):
        object.data[k] = tensors[k].data
    if plan_elementwise(&spec, tensors, &object.plan, &failure) \
            or check_addresses(&object.plan, object.data, &failure):
        free_object(object, ACL_EXECUTOR_OBJECT, sizeof(ExecutorObject))
        return acl_status(status_of(failure.rule))
    workspaceSize[0] = 0
    executor[0] = <aclOpExecutor *>object
    return ACLNN_SUCCESS


cdef public aclnnStatus aclnnLeakyReluBackward(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                               void *stream) noexcept nogil:
    cdef ExecutorObject *object = <ExecutorObject *>executor
    cdef ExecutorObject taken
    cdef Failure failure
    if check_stack(&failure):
        return ACLNN_ERR_RUNTIME_ERROR
    if executor == NULL:
        return ACLNN_ERR_PARAM_NULLPTR
    if not is_object(executor, ACL_EXECUTOR_OBJECT):
        return ACLNN_ERR_PARAM_INVALID
    taken = object[0]
    if not free_object(executor, ACL_EXECUTOR_OBJECT, sizeof(ExecutorObject)):  # another thread was first
        return ACLNN_ERR_PARAM_INVALID
    run_elementwise(&taken.plan, taken.data, default_threads())
    return ACLNN_SUCCESS


cdef public aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor) noexcept nogil:
    return acl_status(destroy(executor, ACL_EXECUTOR_OBJECT, sizeof(ExecutorObject)))
