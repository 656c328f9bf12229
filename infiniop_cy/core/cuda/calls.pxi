# Python's calls on a GPU: kernels that are built when first needed, and launches.

def device_of(address):
    """Return the index of the GPU that an address belongs to; -1 for one in the host's memory."""
    return cuda_device_of(<void *><uintptr_t>address)


def device_capability(int index):
    """Return a GPU's compute capability, 90 for 9.0."""
    cdef CudaDevice *device
    check_driver(cuda_open(index, &device), "Handle")
    return device.capability


def cuda_cache():
    """Return the folder where kernels are kept; empty where the environment names none."""
    return cache_folder().string().decode()


def cuda_compiler():
    """Return the path of nvcc, by the rules of core/cuda/compile.h; empty where there is none."""
    return find_nvcc().decode()


def cuda_build_request(str name, str dtype, int capability, bint ptx=False):
    """Return what a module is built from: its file in the cache, source file, options and folders of headers."""
    cdef int number = CUDA_DTYPE_NAMES.index(dtype)
    cdef Target target
    target.capability, target.ptx = capability, ptx
    return (image_name(name.encode(), number, target).decode(),
            source_file(name.encode()).string().decode(),
            [word.decode() for word in options(name.encode(), number)],
            [folder.string().decode() for folder in source_folders()])


def cuda_is_cached(str name, str dtype, int capability, bint ptx):
    """Tell whether the cache has that image, whole and trusted."""
    cdef Target target
    target.capability, target.ptx = capability, ptx
    return not read_cached(image_name(name.encode(), CUDA_DTYPE_NAMES.index(dtype), target)).empty()


def cuda_image(str name, str dtype, int capability, bint fresh=False, exactly=None):
    """Return (image, words): what a GPU of that compute capability loads, or empty and why there is none.

    exactly: "cubin" for its own machine code, "ptx" for PTX, rather than what the cache has for its relatives.
    """
    cdef string text = name.encode()
    cdef int number = CUDA_DTYPE_NAMES.index(dtype)
    cdef bint any_that_runs = exactly is None
    cdef Target target
    cdef Built built
    target.capability, target.ptx = capability, exactly == "ptx"
    with nogil:
        built = build_image(text, number, capability, fresh) if any_that_runs \
            else make_image(text, number, target, fresh)
    return <bytes>built.image, built.words.decode(errors="replace")


cdef const CudaModule *require_module(int index, int number, str op) except NULL:
    """Return the kernels of a formula or a convolution for one dtype, built and loaded if they are not yet."""
    cdef const CudaModule *module = cuda_find_module(index, number)
    cdef int code, count
    cdef const char *const *names
    cdef const unsigned char[::1] image
    if module != NULL:
        return module
    from infiniop_cy.backends import cuda_build
    name = cuda_module_kernels(number, &names, &count).decode()
    dtype = CUDA_DTYPE_NAMES[number % CUDA_DTYPES]
    capability = device_capability(index)
    for fresh in (False, True):  # what another compiler left in the cache may not load
        image = cuda_build.cubin(op, name, dtype, capability, fresh)
        code = cuda_enter(index)
        if not code:
            code = cuda_add_module(index, number, &image[0], names, count)
            cuda_leave()
        if not code:
            break
    check_driver(code, f"{op}: loading its kernels")
    return cuda_find_module(index, number)


cdef int require_primary_context(char **data, int count, int index, str op, tuple names) except -1:
    """Raise BadParam for memory that the kernels could not reach, where it belongs to another context."""
    cdef CudaDevice *device
    cdef int i
    check_driver(cuda_open(index, &device), op)
    for i in range(count):
        if data[i] != NULL and cuda_is_foreign(index, data[i]):
            raise status.BadParam(f"{op}: {names[i]} belongs to another CUDA context than the device's primary one, as "
                                  "arrays do after `import pycuda.autoinit`: import pycuda.autoprimaryctx instead")
    return 0


cdef int cuda_elementwise(const ElementwisePlan *plan, char **data, int index, void *stream, str op,
                          tuple names) except -1:
    """Queue the operator on a stream. names: of its operands, the output first."""
    cdef CudaQueue queue
    cdef int code
    require_primary_context(data, plan.operands, index, op, names)
    queue.module = require_module(index, cuda_elementwise_module(plan.formula, plan.dtype), op)
    queue.stream = stream
    with nogil:
        code = run_elementwise_on_gpu(plan, data, index, &queue)
    return check_driver(code, op)


cdef int prepare_cuda_conv(const ConvProblem *conv, bint forward, int index, str op,
                           CudaConvProblem *problem) except -1:
    cdef CudaDevice *device
    cdef Failure failure
    check_driver(cuda_open(index, &device), op)
    if cuda_conv_problem(conv, forward, use_tf32(), device.multiprocessors, problem, &failure):
        raise error_of(&failure, op, CONV_NAMES, {})
    return 0


cdef int launch_conv(const CudaConvProblem *problem, char **data, void *workspace, int index, void *stream, str op,
                     tuple names) except -1:
    """Queue a convolution on a stream. names: of the tensors that have addresses."""
    cdef CudaQueue queue
    cdef char *scratch = <char *>workspace
    cdef int code
    require_primary_context(data, CONV_TENSORS, index, op, names)
    require_primary_context(&scratch, 1, index, op, ("workspace",))
    queue.module = require_module(index, cuda_conv_module(problem.dtype), op)
    queue.stream = stream
    with nogil:
        code = run_conv_launches(problem, data, <char *>workspace, index, &queue)
    return check_driver(code, op)


cdef int cuda_conv(const ConvProblem *conv, bint forward, space, str op, tuple names) except -1:
    """Compute the output, or the gradients whose views have data, in a workspace borrowed for the call."""
    cdef CudaConvProblem problem
    cdef char *data[CONV_TENSORS]
    cdef int i
    prepare_cuda_conv(conv, forward, space.index, op, &problem)
    for i in range(CONV_TENSORS):
        data[i] = conv.view[i].data
    workspace = space.borrow(cuda_conv_workspace(&problem) + CUDA_CONV_ALIGN, op)
    return launch_conv(&problem, data, <void *><uintptr_t>workspace, space.index, <void *><uintptr_t>space.stream, op,
                       names)
