# A convolution and its gradients on a GPU: the core's problem as the one that conv.h cuts into launches of the kernels
# of cuda/conv.cu.
cdef extern from "cuda/conv.h" nogil:
    ctypedef struct CudaConvProblem:
        int dtype
        int accumulate
        int tf32
        int multiprocessors
        int forward
        int64_t batch
        int64_t groups
        int64_t cin
        int64_t cout
        ConvAxis axis[3]
        int64_t step[3]
        int64_t strides[7][5]
    enum:
        CUDA_CONV_KERNELS, CUDA_CONV_ALIGN
    const char *const *cuda_conv_kernel_names
    void cuda_conv_exchange_roles(CudaConvProblem *problem)
    int64_t cuda_conv_workspace(const CudaConvProblem *problem)
    ctypedef int (*CudaConvLaunch)(void *context, int kernel, const unsigned *grid, unsigned block,
                                   const void *arguments, size_t size) noexcept nogil
    int cuda_conv_run(const CudaConvProblem *problem, void **data, void *workspace, CudaConvLaunch launch,
                      void *context)


cdef int cuda_conv_module(int dtype) noexcept nogil:
    return kernels.formula_count * CUDA_DTYPES + cuda_dtype_number(dtype)


cdef int cuda_conv_problem(const ConvProblem *conv, bint forward, bint tf32, int multiprocessors,
                           CudaConvProblem *problem, Failure *failure) noexcept nogil:
    """Copy the geometry and the views, with strides in elements. forward: of the output, else of the gradients.
    TOO_LARGE where the workspace would not fit."""
    cdef const SampleGeometry *sample = &conv.sample
    cdef int d, i
    cdef int64_t item = itemsize_of(sample.dtype)
    problem.dtype = sample.dtype
    problem.accumulate = conv.accumulate
    problem.tf32 = tf32
    problem.multiprocessors = multiprocessors
    problem.forward = False
    problem.batch, problem.groups, problem.cin, problem.cout = conv.batch, sample.groups, sample.cin, sample.cout
    for d in range(3):
        problem.axis[d] = sample.axis[d]
        problem.step[d] = 1
    for i in range(CONV_TENSORS):
        problem.strides[i][0] = conv.view[i].n // item
        problem.strides[i][1] = conv.view[i].channel // item
        for d in range(3):
            problem.strides[i][2 + d] = conv.view[i].space[d] // item
    if forward:
        cuda_conv_exchange_roles(problem)
    if cuda_conv_workspace(problem) < 0:
        return fail(failure, Rule.TOO_LARGE, CONV_WEIGHT)
    return Rule.PASSED


cdef bint use_tf32() noexcept nogil:
    """Tell whether float32 convolutions may round their factors to TF32, for tensor cores: INFINIOP_CY_TF32=1."""
    cdef const char *text = getenv("INFINIOP_CY_TF32")
    return text != NULL and text[0] == c"1"


cdef int check_conv_alignment(const Tensor *tensors, char **data, Failure *failure) noexcept nogil:
    """Refuse an address that is no multiple of the element's size, at which a GPU would fault."""
    cdef int i
    for i in range(CONV_TENSORS):
        if <uintptr_t>data[i] % <uintptr_t>itemsize_of(tensors[0].dtype):
            return fail(failure, Rule.ADDRESS_UNALIGNED, i, -1, -1, 0, itemsize_of(tensors[0].dtype))
    return Rule.PASSED


cdef int run_conv_launches(const CudaConvProblem *problem, char **data, char *workspace, int device,
                           CudaQueue *queue) noexcept nogil:
    """Put the output, or the gradients whose address is not null, on the queue. Returns a driver's code, 0 for
    success."""
    cdef int code = cuda_enter(device)
    if not code:
        workspace += -<uintptr_t>workspace % CUDA_CONV_ALIGN
        code = cuda_conv_run(problem, <void **>data, workspace, cuda_launch, queue)
        cuda_leave()
    return code
