# Elementwise operators on a GPU have the same plans as on the CPU, handed to the kernels of cuda/elementwise.cu.
cdef extern from "cuda/driver.h" nogil:
    enum:
        CUDA_NO_DRIVER
        CUDA_OLD_DEVICE
        CUDA_NO_MEMORY
        CUDA_NOT_READY
    ctypedef struct CudaDevice:
        void *context
        int capability
        int multiprocessors
    ctypedef struct CudaModule:
        pass
    ctypedef struct CudaQueue:
        const CudaModule *module
        void *stream
    int cuda_open(int index, CudaDevice **device)
    int cuda_enter(int index)
    void cuda_leave()
    void cuda_explain(int code, const char **name, const char **text)
    int cuda_device_of(const void *address)
    int cuda_follow(void *stream, void *other)
    CudaModule *cuda_find_module(int device, int number)
    int cuda_add_module(int device, int number, const void *image, const char *const *names, int count)
    int cuda_launch(void *queue, int kernel, const unsigned *grid, unsigned block, const void *arguments, size_t size)
    int cuda_is_foreign(int index, const void *address)
    int cuda_new(int index, void **address, size_t size)
    int cuda_free(void *address)
    int cuda_allocate(int index, void **address, size_t size, void *stream)
    int cuda_release(int index, void *address, void *stream)
    int cuda_mark(void **event, void *stream)
    int cuda_marked(void *event, int wait)
    void cuda_unmark(void *event)
    int cuda_copy(void *to, const void *source, size_t size, void *stream)
    int cuda_synchronize(void *stream)

cdef extern from "../kernels/cuda_arguments.h" nogil:
    enum:
        CUDA_BLOCK, CUDA_ITEMS, CUDA_VECTOR_BYTES, CUDA_TILE
    ctypedef struct CudaDivisor:
        pass
    CudaDivisor cuda_divisor(unsigned divisor)
    ctypedef struct CudaAxis:
        int64_t length
        CudaDivisor divisor
        int64_t strides[3]
    ctypedef struct CudaContiguous:
        void *data[3]
        int64_t size
        FormulaParameters parameters
        int32_t accumulate
    ctypedef struct CudaStrided:
        void *data[3]
        int64_t size
        FormulaParameters parameters
        int32_t accumulate
        int32_t ndim
        int32_t dtypes[3]
        int32_t tile_axis
        int32_t across[3]
        CudaAxis axes[64]

cdef extern from *:
    """
    enum {
        CUDA_KERNEL_CONTIGUOUS, CUDA_KERNEL_STRIDED, CUDA_KERNEL_TILED, CUDA_KERNEL_MIXED, CUDA_ELEMENTWISE_KERNELS
    };
    static const char *const cuda_elementwise_names[] = {"contiguous", "strided", "tiled", "mixed"};
    enum : int64_t { CUDA_MAX_BLOCKS = INT32_MAX };
    """
    enum:
        CUDA_KERNEL_CONTIGUOUS, CUDA_KERNEL_STRIDED, CUDA_KERNEL_TILED, CUDA_KERNEL_MIXED, CUDA_ELEMENTWISE_KERNELS
    const char *const *cuda_elementwise_names
    const int64_t CUDA_MAX_BLOCKS

cdef enum:
    CUDA_DTYPES = 4  # a module per formula and dtype; those of the convolution follow


cdef int cuda_dtype_number(int dtype) noexcept nogil:
    if dtype == DTYPE_F16:
        return 0
    if dtype == DTYPE_BF16:
        return 1
    return 2 if dtype == DTYPE_F32 else 3


cdef int cuda_elementwise_module(int formula, int dtype) noexcept nogil:
    return formula * CUDA_DTYPES + cuda_dtype_number(dtype)


cdef int check_device_addresses(const ElementwisePlan *plan, char **data, Failure *failure) noexcept nogil:
    """Check addresses as on the CPU, and that each is a multiple of its element's size: a GPU would fault."""
    cdef int k
    for k in range(plan.operands):
        if plan.size and <uintptr_t>data[k] % <uintptr_t>plan.itemsize[k]:
            return fail(failure, Rule.ADDRESS_UNALIGNED, k, -1, -1, 0, plan.itemsize[k])
    return check_addresses(plan, data, failure)


cdef int64_t tiled_blocks(const ElementwisePlan *plan) noexcept nogil:
    """Count the tiles of CUDA_TILE by CUDA_TILE elements, each of which is a block's."""
    cdef int64_t blocks = 1
    cdef int d
    for d in range(plan.ndim):
        if d == plan.tile_axis or d == plan.ndim - 1:
            blocks *= (plan.shape[d] + CUDA_TILE - 1) // CUDA_TILE
        else:
            blocks *= plan.shape[d]
    return blocks


cdef int launch_blocks(CudaQueue *queue, int kernel, int64_t blocks, const void *arguments, size_t size) noexcept nogil:
    cdef unsigned grid[3]
    grid[0], grid[1], grid[2] = <unsigned>blocks, 1, 1
    return cuda_launch(queue, kernel, grid, CUDA_BLOCK, arguments, size)


cdef int launch_contiguous(const ElementwisePlan *plan, char **data, CudaQueue *queue) noexcept nogil:
    cdef CudaContiguous arguments
    cdef int64_t per_block = CUDA_BLOCK * (CUDA_VECTOR_BYTES // itemsize_of(plan.dtype))
    cdef int k
    memset(&arguments, 0, sizeof(arguments))
    for k in range(plan.operands):
        arguments.data[k] = data[k] + plan.offset[k]
    arguments.size = plan.size
    arguments.parameters = plan.parameters
    arguments.accumulate = plan.accumulate
    return launch_blocks(queue, CUDA_KERNEL_CONTIGUOUS, (plan.size + per_block - 1) // per_block, &arguments,
                         sizeof(arguments))


cdef int launch_strided(const ElementwisePlan *plan, char **data, CudaQueue *queue, int kernel) noexcept nogil:
    cdef CudaStrided arguments
    cdef int64_t per_block = CUDA_BLOCK * CUDA_ITEMS, blocks
    cdef int k, d
    memset(&arguments, 0, sizeof(arguments))
    for k in range(plan.operands):
        arguments.data[k] = data[k] + plan.offset[k]
        arguments.dtypes[k] = plan.dtypes[k]
        arguments.across[k] = plan.tile_axis >= 0 and k != OUT and plan.across[k]
    arguments.size = plan.size
    arguments.parameters = plan.parameters
    arguments.accumulate = plan.accumulate
    arguments.ndim = plan.ndim
    arguments.tile_axis = plan.tile_axis
    for d in range(plan.ndim):
        arguments.axes[d].length = plan.shape[d]
        if plan.size < INT32_MAX:
            arguments.axes[d].divisor = cuda_divisor(<unsigned>plan.shape[d])
        for k in range(plan.operands):
            arguments.axes[d].strides[k] = plan.strides[k][d]
    blocks = tiled_blocks(plan) if kernel == CUDA_KERNEL_TILED else (plan.size + per_block - 1) // per_block
    return launch_blocks(queue, kernel, blocks, &arguments, sizeof(arguments))


cdef int launch_elementwise(const ElementwisePlan *plan, char **data, CudaQueue *queue) noexcept nogil:
    """Put the computation on the queue. The addresses are checked already. Returns a driver's code, 0 for success."""
    cdef bint contiguous = True, mixed = False
    cdef int k
    if plan.size == 0:
        return 0
    for k in range(plan.operands):
        contiguous = contiguous and plan.run[k] == plan.size \
            and <uintptr_t>(data[k] + plan.offset[k]) % CUDA_VECTOR_BYTES == 0
        mixed = mixed or plan.dtypes[k] != plan.dtype
    if contiguous:
        return launch_contiguous(plan, data, queue)
    if mixed:
        return launch_strided(plan, data, queue, CUDA_KERNEL_MIXED)
    if plan.tile_axis >= 0 and tiled_blocks(plan) <= CUDA_MAX_BLOCKS:
        return launch_strided(plan, data, queue, CUDA_KERNEL_TILED)
    return launch_strided(plan, data, queue, CUDA_KERNEL_STRIDED)


cdef int run_elementwise_on_gpu(const ElementwisePlan *plan, char **data, int device, CudaQueue *queue) noexcept nogil:
    """Put the computation on the queue, in the device's context. Returns a driver's code, 0 for success."""
    cdef int code = cuda_enter(device)
    if not code:
        code = launch_elementwise(plan, data, queue)
        cuda_leave()
    return code
