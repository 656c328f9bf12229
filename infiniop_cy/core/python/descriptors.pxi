# What Python descriptors hold: tensors without data, and plans to run on addresses.

cdef class TensorDescriptor:
    """TensorDescriptor(shape, dtype, strides=None)\n--\n\n

    Shape, dtype and strides of a tensor, without its data. Immutable.

    Parameters
    ----------
    shape : sequence of int
        Up to 64 lengths.
    dtype : dtype or str
        A NumPy dtype or its name; "bfloat16" needs no ml_dtypes.
    strides : sequence of int, optional
        In elements, not bytes; negative ones and 0 (broadcast) allowed. None: contiguous, C order.

    Raises
    ------
    BadTensorShape, BadTensorDtype, BadTensorStrides

    Examples
    --------
    >>> import infiniop_cy as iop
    >>> iop.TensorDescriptor((2, 3), "float32")
    TensorDescriptor((2, 3), 'float32', strides=(3, 1))
    """
    cdef Tensor tensor
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly str dtype_name

    def __init__(self, shape, dtype, strides=None):
        cdef int d
        cdef int64_t item, size
        cdef Failure failure
        self.dtype_name = dtypes.name_of(dtype)
        self.tensor.dtype = dtypes.code_of(self.dtype_name)
        if not self.tensor.dtype:
            raise status.BadTensorDtype(f"TensorDescriptor: unknown dtype {self.dtype_name}")
        if not dtypes.is_native(dtype):
            raise status.BadTensorDtype(f"TensorDescriptor: dtype {dtype!r}, expected numbers in native byte order")
        self.shape = integers(shape, "shape", status.BadTensorShape)
        if len(self.shape) > MAX_NDIM:
            raise status.BadTensorShape(f"TensorDescriptor: {len(self.shape)} dimensions, expected at most {MAX_NDIM}")
        self.tensor.data = NULL
        self.tensor.ndim = len(self.shape)
        for d in range(self.tensor.ndim):
            self.tensor.shape[d] = self.shape[d]
        item = itemsize_of(self.tensor.dtype)
        if strides is None:
            contiguous_strides(&self.tensor)
            self.strides = tuple([self.tensor.strides[d] // item for d in range(self.tensor.ndim)])
        else:
            self.strides = integers(strides, "strides", status.BadTensorStrides)
            if len(self.strides) != self.tensor.ndim:
                raise status.BadTensorStrides(f"TensorDescriptor: {len(self.strides)} strides, expected "
                                              f"{self.tensor.ndim} to match shape {self.shape}")
            for d in range(self.tensor.ndim):
                if mul_overflows(self.strides[d], item, &self.tensor.strides[d]):
                    raise status.BadTensorStrides(f"TensorDescriptor: stride {self.strides[d]} does not fit")
        if tensor_size(&self.tensor, 0, &size, &failure):
            raise error_of(&failure, "TensorDescriptor", ("shape",), {"shape": self})

    @classmethod
    def from_array(cls, array):
        """Describe a NumPy array. Raises BadTensorStrides where a stride is no whole number of elements, and
        BadTensorDtype where bytes are swapped or there is no such dtype."""
        cdef str op = "TensorDescriptor.from_array"
        if isinstance(array, numpy.ndarray):
            refuse_subclass(array, op, "array")
        else:
            array = input_array(array, op, "array")
        if not dtypes.code_of(dtypes.name_of(array.dtype)) or not array.dtype.isnative:
            raise status.BadTensorDtype(f"{op}: dtype {array.dtype!r}, expected numbers in native byte order")
        if any([stride % array.itemsize for stride in array.strides]):
            raise status.BadTensorStrides(f"{op}: strides of {array.strides} bytes, expected multiples of "
                                          f"{array.itemsize}")
        return cls(array.shape, array.dtype, tuple([stride // array.itemsize for stride in array.strides]))

    @property
    def dtype(self):
        """The NumPy dtype; the name where NumPy has none (bfloat16 without ml_dtypes)."""
        return dtypes.numpy_dtype(self.dtype_name)

    @property
    def ndim(self):
        return self.tensor.ndim

    def __repr__(self):
        return f"TensorDescriptor({self.shape}, {self.dtype_name!r}, strides={self.strides})"

    def __eq__(self, other):
        return isinstance(other, TensorDescriptor) and (self.shape, self.dtype_name, self.strides) == (
            other.shape, other.dtype_name, other.strides)

    def __hash__(self):
        return hash((self.shape, self.dtype_name, self.strides))


cdef tuple integers(object values, str what, type error):
    try:
        result = tuple([value.__index__() for value in values])
    except (TypeError, AttributeError):
        raise error(f"TensorDescriptor: {what} is {values!r}, expected a sequence of integers") from None
    if any([not -2**63 <= value < 2**63 for value in result]):
        raise error(f"TensorDescriptor: {what} is {values!r}, expected 64-bit integers")
    return result


cdef TensorDescriptor required(object descriptor, str op, str name):
    if descriptor is None:
        raise status.NullPointer(f"{op}: descriptor of {name} is None")
    if not isinstance(descriptor, TensorDescriptor):
        raise TypeError(f"{op}: {name} is a {type(descriptor).__name__}, expected a TensorDescriptor")
    return descriptor


cdef bint is_integer(object value):
    """Tell whether a value is an integer of Python's, NumPy's or another library's."""
    # A bool is an index, too, and so is another library's array of one integer.
    return hasattr(value, "__index__") and not isinstance(value, bool) and (
        isinstance(value, numpy.integer) or not hasattr(value, "shape"))


cdef char *address_in(object value, str op, str name) except? NULL:
    """Return an address that is given as an integer."""
    if not is_integer(value):
        raise TypeError(f"{op}: {name} is a {type(value).__name__}, expected an array or an address")
    number = value.__index__()
    if not 0 <= number < 2**64:
        raise status.BadParam(f"{op}: {name} is {number}, expected an address")
    return <char *><uintptr_t>number


cdef bint is_left_out(object value):
    """Tell whether a tensor is not given: by None, or as the address 0."""
    return value is None or (is_integer(value) and value.__index__() == 0)


cdef bint is_storage(object dtype, const Tensor *described):
    """Tell whether an array of that dtype, another one, may hold the bits of what is described: unsigned integers or
    unnamed bytes of the same size, int16, which other libraries have for 16 bits, or single bytes."""
    cdef int64_t size = itemsize_of(described.dtype)
    if described.dtype < DTYPE_F16 or dtype.num >= 256 or dtype.names is not None or not dtype.isnative:
        return False
    if dtype.itemsize == 1 or dtype.itemsize == size == 2:
        return dtype.kind in "uiV"
    return dtype.itemsize == size and dtype.kind in "uV"


cdef bint is_dense(const Tensor *t, int64_t itemsize, int64_t low, int64_t high):
    """Tell whether elements fill the bytes from low to high, each once."""
    cdef int d
    for d in range(t.ndim):
        itemsize *= t.shape[d]  # fits: the array is in memory
        if t.shape[d] > 1 and t.strides[d] == 0:
            return False
    return itemsize == high - low


cdef char *address_of(object value, const Tensor *described, bint written, str op, str name) except? NULL:
    """Return the address in an array or integer, NULL for None and 0. An array must hold all that is described, as that
    is described: in the same shape with the same strides, or in another one without gaps."""
    cdef int64_t low, high, array_low, array_high, itemsize
    cdef Tensor actual
    cdef bint same
    cdef int d
    if value is None:
        return NULL
    if not isinstance(value, cnp.ndarray):
        return address_in(value, op, name)
    if written:
        output_array(value, op, name)
    else:
        refuse_subclass(value, op, name)
    fill_tensor(&actual, value)
    if (actual.dtype != described.dtype or not cnp.PyArray_ISNOTSWAPPED(value)) \
            and not is_storage(value.dtype, described):
        raise status.BadTensorDtype(f"{op}: {name} has dtype {value.dtype}, its descriptor another one")
    itemsize = cnp.PyArray_ITEMSIZE(value)
    same = actual.ndim == described.ndim and itemsize == itemsize_of(described.dtype)
    for d in range(actual.ndim):
        same = same and actual.shape[d] == described.shape[d]
    if same and has_elements(&actual):  # strides of no elements say nothing
        for d in range(actual.ndim):
            if actual.shape[d] > 1 and actual.strides[d] != described.strides[d]:
                raise status.BadTensorStrides(f"{op}: {name} has strides of {value.strides} bytes, "
                                              f"its descriptor others")
    tensor_extent(described.ndim, described.shape, described.strides, itemsize_of(described.dtype), &low, &high)
    tensor_extent(actual.ndim, actual.shape, actual.strides, itemsize, &array_low, &array_high)
    if low < array_low or high > array_high:
        raise status.BadTensorShape(f"{op}: {name} has shape {value.shape}, its descriptor reaches beyond its memory")
    if not same and high > low and not is_dense(&actual, itemsize, array_low, array_high):
        raise status.BadTensorStrides(f"{op}: {name} has shape {value.shape} and strides of {value.strides} bytes, "
                                      f"its descriptor another shape, for which memory without gaps is needed")
    return actual.data


cdef class ElementwisePlanObject:
    """A plan for (output, input) or (grad_input, input, grad_output); run any number of times, from any thread."""
    cdef ElementwisePlan plan
    cdef Tensor tensors[OPERANDS]
    cdef str op
    cdef readonly tuple names
    cdef int device  # index of a GPU; -1 for the CPU

    def __init__(self, str op, int formula, tuple values, bint promotes, tuple tensors, refusal, int device=-1):
        cdef ElementwiseSpec spec
        cdef Failure failure
        cdef int k
        require_stack(op)
        self.op = op
        self.device = device
        fill_spec(&spec, formula, values, promotes, False)
        self.names = BACKWARD_PLAN_NAMES if spec.operands > GRAD_OUTPUT else FORWARD_PLAN_NAMES
        for k, name in enumerate(self.names):
            self.tensors[k] = required(tensors[k], op, name).tensor
        if plan_elementwise(&spec, self.tensors, &self.plan, &failure):
            raise error_of(&failure, op, self.names, dict(zip(self.names, tensors)), refusal)
        if device >= 0:  # so that calculate finds its kernels built
            require_module(device, cuda_elementwise_module(formula, self.plan.dtype), op)

    @property
    def workspace_size(self):
        return 0

    def calculate(self, workspace, *values, stream=0):
        """Compute the first of the values, arrays or addresses, from the others. stream: the address of a GPU's stream.
        """
        cdef Failure failure
        cdef char *data[OPERANDS]
        cdef int k, threads = resolve_threads(None, self.op)
        require_stack(self.op)
        for k, name in enumerate(self.names):
            data[k] = address_of(values[k], &self.tensors[k], k == OUT, self.op, name)
        if (check_addresses(&self.plan, data, &failure) if self.device < 0
                else check_device_addresses(&self.plan, data, &failure)):
            raise error_of(&failure, self.op, self.names, {})
        if self.device >= 0:
            cuda_elementwise(&self.plan, data, self.device, <void *><uintptr_t>stream, self.op,
                             self.names)
            return
        with nogil:
            run_elementwise(&self.plan, data, threads)


cdef class ConvPlanObject:
    """A plan for one convolution backward; gradients whose address is None or 0 are skipped."""
    cdef ConvPlan plan
    cdef Tensor tensors[CONV_TENSORS]
    cdef bint has_bias
    cdef int device  # index of a GPU; -1 for the CPU
    cdef CudaConvProblem problem

    def __init__(self, grad_output, input, weight, bias, tuple stride, tuple padding, tuple dilation, groups,
                 int device=-1):
        cdef ConvSpec spec
        cdef Failure failure
        cdef Tensor *pointers[CONV_TENSORS]
        cdef int i
        require_stack("conv_backward")
        named = dict(zip(CONV_NAMES, (grad_output, input, weight, bias)))
        fill_conv_spec(&spec, stride, padding, dilation, groups, False)
        self.has_bias = bias is not None
        self.device = device
        for i in range(CONV_TENSORS):
            pointers[i] = NULL
        for i in range(3 + self.has_bias):
            self.tensors[i] = required(named[CONV_NAMES[i]], "conv_backward", CONV_NAMES[i]).tensor
            pointers[i] = &self.tensors[i]
        conv_gradient_tensors(self.tensors)
        for i in range(CONV_GRAD_INPUT, CONV_TENSORS):
            pointers[i] = &self.tensors[i]
        if check_conv(&spec, pointers, &failure):
            raise error_of(&failure, "conv_backward", CONV_NAMES, named)
        conv_problem(&spec, pointers, &self.plan.problem)
        if device >= 0:
            prepare_cuda_conv(&self.plan.problem, False, device, "conv_backward", &self.problem)
            self.plan.workspace_bytes = cuda_conv_workspace(&self.problem) + CUDA_CONV_ALIGN
            require_module(device, cuda_conv_module(self.plan.problem.sample.dtype), "conv_backward")
        elif plan_conv(&self.plan.problem, FOR_ALL, resolve_threads(None, "conv_backward"), &self.plan, &failure):
            raise error_of(&failure, "conv_backward", CONV_NAMES, named)

    @property
    def workspace_size(self):
        return self.plan.workspace_bytes

    @property
    def facts(self):
        """What the plan chose, by name; None for a GPU, whose kernels choose for themselves."""
        return None if self.device >= 0 else plan_facts(&self.plan)

    def calculate(self, workspace, grad_input, grad_weight, grad_bias, grad_output, input, weight, stream=0):
        """Compute the gradients that are neither None nor 0. stream: the address of a GPU's stream."""
        cdef str op = "conv_backward"
        cdef Failure failure
        cdef ConvProblem bound
        cdef Interrupt storage
        cdef Interrupt *interrupt
        cdef char *data[CONV_TENSORS]
        cdef char *scratch
        cdef int i, threads = resolve_threads(None, op)
        require_stack(op)
        values = (grad_output, input, weight, None, grad_input, grad_weight, grad_bias)
        if not self.has_bias and not is_left_out(grad_bias):
            raise status.BadParam(f"{op}: grad_bias is given, but the descriptor was created without a bias")
        for i in range(CONV_TENSORS):
            data[i] = address_of(values[i], &self.tensors[i], i >= CONV_GRAD_INPUT, op, CONV_NAMES[i])
        if run_conv_on(&self.plan, self.tensors, data, NULL, threads, NULL, &failure):
            raise error_of(&failure, op, CONV_NAMES, {})
        scratch = address_of_workspace(workspace, self.plan.workspace_bytes, op)
        if self.device >= 0:
            if check_conv_alignment(self.tensors, data, &failure) \
                    or bind_conv(&self.plan.problem, self.plan.workspace_bytes, self.tensors, data, scratch, &bound,
                                 &failure):
                raise error_of(&failure, op, CONV_NAMES, {})
            launch_conv(&self.problem, data, scratch, self.device, <void *><uintptr_t>stream, op, CONV_NAMES)
            return
        interrupt = interrupt_of(&self.plan, &storage)
        with nogil:
            i = run_conv_on(&self.plan, self.tensors, data, scratch, threads, interrupt, &failure)
        raise_if_stopped(interrupt)
        if i:
            raise error_of(&failure, op, CONV_NAMES, {})


cdef char *address_of_workspace(object workspace, int64_t least, str op) except? NULL:
    """Return the address of a workspace of at least so many bytes; of a bare address nobody knows how many they are."""
    cdef Failure failure
    cdef int64_t size = 0
    cdef char *address = NULL
    if isinstance(workspace, cnp.ndarray):
        output_array(workspace, op, "workspace")
        if not cnp.PyArray_ISCONTIGUOUS(workspace):
            raise status.BadParam(f"{op}: workspace is not contiguous")
        address, size = <char *>cnp.PyArray_DATA(workspace), workspace.nbytes
    elif workspace is not None:
        address = address_in(workspace, op, "workspace")
        if address != NULL:
            return address
    if size < least:
        fail(&failure, Rule.WORKSPACE_TOO_SMALL, 0, -1, -1, size, least)
        raise error_of(&failure, op, ("workspace",), {})
    return address


def empty_workspace_array(size):
    """Return `size` bytes, uninitialised, that start on a cache line."""
    buffer = numpy.empty(size + CONV_ALIGN, numpy.uint8)
    start = -<uintptr_t>cnp.PyArray_DATA(buffer) % CONV_ALIGN
    return buffer[start:start + size]
