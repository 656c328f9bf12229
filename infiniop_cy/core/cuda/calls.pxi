# Python's side of a GPU: NumPy headers over device memory, the stream and the memory of a call, kernels that are built
# when first needed.
import atexit
import collections

def device_header(address, tuple shape, tuple strides, cnp.dtype dtype, bint writable, owner):
    """Make an ndarray over device memory, which has shape, strides (bytes), dtype and address for the checks, but no
    data to read. Raises NullPointer for address 0, unless the array is empty."""
    cdef cnp.npy_intp lengths[MAX_NDIM]
    cdef cnp.npy_intp steps[MAX_NDIM]
    cdef int d
    cdef cnp.ndarray header
    if len(shape) > MAX_NDIM:
        raise status.BadTensorShape(f"{len(shape)} dimensions, expected at most {MAX_NDIM}")
    for d in range(len(shape)):
        lengths[d] = shape[d]
        steps[d] = strides[d]
    if address == 0:
        if 0 not in shape:
            raise status.NullPointer("an array that is not empty is at address 0")
        address = CUDA_CONV_ALIGN  # NumPy takes 0 as a wish for memory of its own
    Py_INCREF(dtype)  # which NewFromDescr steals
    header = PyArray_NewFromDescr(<PyTypeObject *>cnp.ndarray, dtype, <int>len(shape), lengths, steps,
                                  <void *><uintptr_t>address, cnp.NPY_ARRAY_WRITEABLE if writable else 0, None)
    cnp.PyArray_UpdateFlags(header, cnp.NPY_ARRAY_UPDATE_ALL)
    cnp.set_array_base(header, owner)
    return header


cdef int check_driver(int code, str op) except -1:
    """Raise InternalError for a driver's code other than 0."""
    cdef const char *name
    cdef const char *text
    if code:
        cuda_explain(code, &name, &text)
        raise status.InternalError(f"{op}: {name.decode()}: {text.decode()}")
    return 0


def device_of(address):
    """Return the index of the GPU that an address belongs to; -1 for one in the host's memory."""
    return cuda_device_of(<void *><uintptr_t>address)


def device_capability(int index):
    """Return a GPU's compute capability, 90 for 9.0."""
    cdef CudaDevice *device
    check_driver(cuda_open(index, &device), "Handle")
    return device.capability


cdef class DeviceMemory:
    """Device memory of the primary context, freed by whichever thread drops it last, as PyCUDA's own is not."""
    cdef readonly int index
    cdef readonly size_t address

    def __init__(self, int index, size_t size, str op):
        cdef void *address = NULL
        cdef int code = cuda_enter(index)
        if not code:
            code = cuda_new(index, &address, size if size else 1)
            cuda_leave()
        raise_if_short(code, size, op)
        self.index = index
        self.address = <size_t>address

    def __dealloc__(self):
        if self.address and cuda_enter(self.index) == 0:
            cuda_free(<void *>self.address)
            cuda_leave()


cdef int raise_if_short(int code, size_t size, str op) except -1:
    if code == CUDA_NO_MEMORY:
        raise MemoryError(f"{op}: {size} bytes of device memory")
    return check_driver(code, op)


cdef class Mark:
    """An event: where a stream of a device was."""
    cdef int index
    cdef void *event

    def __init__(self, int index, size_t stream):
        self.index = index
        cdef int code = cuda_enter(index)
        if not code:
            code = cuda_mark(&self.event, <void *>stream)
            cuda_leave()
        check_driver(code, "holding an array")

    def passed(self, bint wait):
        """Tell whether the stream is behind it; an error of the device counts, since nothing runs after one."""
        cdef int done = 1
        with nogil:
            if cuda_enter(self.index) == 0:
                done = cuda_marked(self.event, wait)
                cuda_leave()
        return done

    def __dealloc__(self):
        if self.event != NULL and cuda_enter(self.index) == 0:
            cuda_unmark(self.event)
            cuda_leave()


# What calls on other libraries' tensors keep until their kernels have run: (mark, owners), the oldest first.
held = collections.deque()


def release_held(bint wait=False):
    """Drop the owners of arrays whose kernels have run. wait: for all of them."""
    while True:
        try:
            entry = held.popleft()
        except IndexError:
            return
        if not entry[0].passed(wait):
            held.appendleft(entry)
            return


atexit.register(release_held, True)


cdef class DeviceCall:
    """A call on one GPU: it has a stream, memory that it borrows until it is done, and owners of arrays that must not
    go before the stream has done the call's work. Nothing here waits."""
    cdef readonly int index
    cdef void *queue
    cdef list borrowed
    cdef list owners

    def __init__(self, int index, stream):
        self.index = index
        self.queue = <void *><uintptr_t>stream
        self.borrowed = []
        self.owners = []
        if held:
            release_held()

    def hold(self, owner):
        """Keep an owner until all that the call gives to its stream is done."""
        self.owners.append(owner)

    @property
    def stream(self):
        return <uintptr_t>self.queue

    def borrow(self, size_t size, str op):
        """Return the address of `size` bytes, which close() gives back in the stream's order."""
        cdef void *address = NULL
        cdef int code = cuda_enter(self.index)
        if not code:
            code = cuda_allocate(self.index, &address, size if size else 1, self.queue)
            cuda_leave()
        raise_if_short(code, size, op)
        self.borrowed.append(<uintptr_t>address)
        return <uintptr_t>address

    def copy(self, cnp.ndarray header, str op):
        """Return the same view of a copy of the memory that it spans."""
        cdef int64_t low, high
        cdef Tensor tensor
        cdef int code
        fill_tensor(&tensor, header)
        tensor_extent(tensor.ndim, tensor.shape, tensor.strides, header.itemsize, &low, &high)
        address = self.borrow(high - low, op)
        code = cuda_enter(self.index)
        if not code:
            code = cuda_copy(<void *><uintptr_t>address, tensor.data + low, high - low, self.queue)
            cuda_leave()
        check_driver(code, op)
        return device_header(address - low, (<object>header).shape, (<object>header).strides, header.dtype, True, self)

    def follow(self, other, str op):
        """Let the call's stream wait, from here on, for what `other` was given so far."""
        cdef int code = cuda_enter(self.index)
        if not code:
            code = cuda_follow(self.queue, <void *><uintptr_t>other)
            cuda_leave()
        check_driver(code, op)

    def lead(self, other, str op):
        """Let `other` wait for what the call's stream was given so far."""
        cdef int code = cuda_enter(self.index)
        if not code:
            code = cuda_follow(<void *><uintptr_t>other, self.queue)
            cuda_leave()
        check_driver(code, op)

    def close(self):
        for address in self.borrowed:
            if cuda_enter(self.index) == 0:
                cuda_release(self.index, <void *><uintptr_t>address, self.queue)
                cuda_leave()
        self.borrowed = []
        if self.owners:
            held.append((Mark(self.index, <size_t>self.queue), self.owners))
        self.owners = []


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
    """Queue the gradient on a stream. names: of out, input and grad_output."""
    cdef CudaQueue queue
    cdef int code
    require_primary_context(data, OPERANDS, index, op, names)
    queue.module = require_module(index, cuda_elementwise_module(plan.formula, plan.dtype), op)
    queue.stream = stream
    with nogil:
        code = run_elementwise_on_gpu(plan, data, index, &queue)
    return check_driver(code, op)


cdef int prepare_cuda_conv(const ConvProblem *conv, int index, str op, CudaConvProblem *problem) except -1:
    cdef CudaDevice *device
    cdef Failure failure
    check_driver(cuda_open(index, &device), op)
    if cuda_conv_problem(conv, use_tf32(), device.multiprocessors, problem, &failure):
        raise error_of(&failure, op, CONV_NAMES, {})
    return 0


cdef int launch_conv(const CudaConvProblem *problem, char **data, void *workspace, int index, void *stream,
                     str op) except -1:
    cdef CudaQueue queue
    cdef char *scratch = <char *>workspace
    cdef int code
    require_primary_context(data, CONV_TENSORS, index, op, CONV_NAMES)
    require_primary_context(&scratch, 1, index, op, ("workspace",))
    queue.module = require_module(index, cuda_conv_module(problem.dtype), op)
    queue.stream = stream
    with nogil:
        code = run_conv_launches(problem, data, <char *>workspace, index, &queue)
    return check_driver(code, op)


cdef int cuda_conv(const ConvProblem *conv, space, str op) except -1:
    """Compute the gradients whose views have data, in a workspace borrowed for the call."""
    cdef CudaConvProblem problem
    cdef char *data[CONV_TENSORS]
    cdef int i
    prepare_cuda_conv(conv, space.index, op, &problem)
    for i in range(CONV_TENSORS):
        data[i] = conv.view[i].data
    workspace = space.borrow(cuda_conv_workspace(&problem) + CUDA_CONV_ALIGN, op)
    return launch_conv(&problem, data, <void *><uintptr_t>workspace, space.index, <void *><uintptr_t>space.stream, op)
