# Python's view of device memory: NumPy headers over it, memory of our own, and the memory and stream of a call.
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


cdef class DeviceMemory:
    """Device memory of the primary context, freed by whichever thread drops it last, as PyCUDA's own is not."""
    cdef readonly int index
    cdef void *start

    def __init__(self, int index, size_t size, str op):
        cdef void *address = NULL
        cdef int code = cuda_enter(index)
        if not code:
            code = cuda_new(index, &address, size if size else 1)
            cuda_leave()
        raise_if_short(code, size, op)
        self.index = index
        self.start = address

    @property
    def address(self):
        return <uintptr_t>self.start

    def __dealloc__(self):
        if self.start != NULL and cuda_enter(self.index) == 0:
            cuda_free(self.start)
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

    def number(self, cnp.ndarray array, str op):
        """Return a copy on the device of an array of one element in the host's memory."""
        cdef int code
        address = self.borrow(array.itemsize, op)
        code = cuda_enter(self.index)
        if not code:
            code = cuda_copy(<void *><uintptr_t>address, cnp.PyArray_DATA(array), array.itemsize, self.queue)
            cuda_leave()
        check_driver(code, op)
        self.hold(array)  # until the stream has read it
        return device_header(address, (), (), array.dtype, False, self)

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
