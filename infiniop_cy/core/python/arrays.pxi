# NumPy arrays as the core sees them. What is refused and what is copied is decided here, once.
cimport numpy as cnp
from cpython.object cimport Py_TYPE, PyTypeObject
from cpython.ref cimport Py_INCREF

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewLikeArray(cnp.ndarray prototype, cnp.NPY_ORDER order, void *dtype, int subok)
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.dtype dtype, int ndim, cnp.npy_intp *shape,
                                cnp.npy_intp *strides, void *data, int flags, object owner)

cnp.import_array()

cdef int bfloat16_num = -1  # ml_dtypes' type number, learned from the first array that has it


cdef inline int floating_code(int num) noexcept:
    """Return the infiniDtype_t of a NumPy type that gradients are computed in, DTYPE_INVALID for any other."""
    if num == cnp.NPY_FLOAT32:
        return DTYPE_F32
    if num == cnp.NPY_FLOAT64:
        return DTYPE_F64
    if num == cnp.NPY_FLOAT16:
        return DTYPE_F16
    return DTYPE_BF16 if num == bfloat16_num else DTYPE_INVALID


cdef int dtype_code(cnp.dtype dtype):
    """Return the infiniDtype_t of a NumPy dtype, DTYPE_INVALID where there is none."""
    global bfloat16_num
    cdef int num = dtype.type_num, code = floating_code(num)
    if code != DTYPE_INVALID:
        return code
    if num >= 256 and dtype.name == "bfloat16":  # user-defined types start at 256
        bfloat16_num = num
        return DTYPE_BF16
    return dtypes.code_of(dtype.newbyteorder("=").name) if num < cnp.NPY_OBJECT else DTYPE_INVALID


cdef bint is_refused_subclass(object value):
    """Tell whether it is a MaskedArray or np.matrix, which change what indexing and arithmetic mean."""
    return isinstance(value, (numpy.ma.MaskedArray, numpy.matrix))


cdef int refuse_subclass(object value, str op, str name) except -1:
    """Raise for an array of these classes."""
    if not cnp.PyArray_CheckExact(value) and is_refused_subclass(value):
        raise TypeError(f"{op}: {name} is a {type(value).__name__}, expected a plain ndarray")
    return 0


def array_of_numbers(value, str op, str name):
    """Return what NumPy makes of numbers and lists of them."""
    try:
        return numpy.asarray(value)
    except ValueError as error:  # lists of several lengths
        raise status.BadTensorShape(f"{op}: {name} is no array: {error}") from None


cdef cnp.ndarray input_array(object value, str op, str name, space=None):
    """Return a native, aligned array with the value's data: the array itself where it is one; what other libraries'
    arrays are, backends/host_arrays.py says. space: where the data is (backends/cuda_spaces.py); None for the host's
    memory."""
    cdef cnp.ndarray array
    if space is not None:
        return space.input(value, op, name)
    if value is None:
        raise status.NullPointer(f"{op}: {name} is None")
    if Py_TYPE(value) != <PyTypeObject *>cnp.ndarray:
        if isinstance(value, cnp.ndarray):
            refuse_subclass(value, op, name)
            value = value.view(cnp.ndarray)
        elif isinstance(value, (float, int, list)):
            value = array_of_numbers(value, op, name)
        else:
            from infiniop_cy.backends.host_arrays import host_array
            value = host_array(value, op, name)
    array = value
    if not cnp.PyArray_ISNOTSWAPPED(array) or not cnp.PyArray_ISALIGNED(array):
        array = array.astype(array.dtype.newbyteorder("="), order="K")
    return array


cpdef bint is_weak(object value):
    """Tell whether it is a Python number, whose dtype and device follow those of the other input, as in NumPy 2.
    NumPy's own numbers are not, even float64, which is a float."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, numpy.generic)


cdef cnp.ndarray weak_array(object value, object dtype, str op, str name):
    """Return a Python number as an array of a dtype; None: of the one that NumPy gives it."""
    try:
        # Large integers are no numbers of a C type, which bfloat16 would take them from.
        return numpy.asarray(value if dtype is None else float(value), dtype)
    except OverflowError:
        raise status.BadParam(f"{op}: {name} is too large for {numpy.dtype(dtype)}") from None


cdef cnp.ndarray output_array(object value, str op, str name, space=None, bint accumulate=False):
    """Return the array itself or raise: results are never written to a copy."""
    if space is not None:
        return space.output(value, op, name, accumulate)
    if not isinstance(value, cnp.ndarray) or is_refused_subclass(value):
        same = f" (numpy.from_dlpack({name}) is one on the same memory)" if hasattr(value, "__dlpack__") else ""
        raise TypeError(f"{op}: {name} is a {type(value).__name__}, expected a plain ndarray{same}")
    for flag, problem in ((cnp.PyArray_ISWRITEABLE(value), "read-only"),
                          (cnp.PyArray_ISALIGNED(value), "not aligned"),
                          (cnp.PyArray_ISNOTSWAPPED(value), "byte-swapped")):
        if not flag:
            raise status.BadParam(f"{op}: {name} is {problem}, expected a writable, aligned, native array")
    return value


cdef void fill_tensor(Tensor *tensor, cnp.ndarray array):
    """Describe an array of at most MAX_NDIM axes, as every ndarray is."""
    cdef int d
    tensor.data = <char *>cnp.PyArray_DATA(array)
    tensor.dtype = dtype_code(array.dtype)
    tensor.ndim = cnp.PyArray_NDIM(array)
    for d in range(tensor.ndim):
        tensor.shape[d] = cnp.PyArray_DIM(array, d)
        tensor.strides[d] = cnp.PyArray_STRIDE(array, d)


cdef bint same_shape(const Tensor *t, cnp.ndarray array):
    cdef int d
    if t.ndim != cnp.PyArray_NDIM(array):
        return False
    for d in range(t.ndim):
        if t.shape[d] != cnp.PyArray_DIM(array, d):
            return False
    return True


cdef int fill_spec(ElementwiseSpec *spec, int formula, tuple values, bint promotes, bint accumulate) except -1:
    cdef int i
    spec.formula = formula
    spec.operands = 1 + kernels.formula[formula].inputs
    spec.promotes = promotes
    spec.accumulate = accumulate
    memset(&spec.parameters, 0, sizeof(FormulaParameters))
    for i in range(len(values)):
        spec.parameters.value[i] = values[i]
    return 0


def host_input(value, str op, str name):
    """Return what a call on NumPy arrays takes as its input."""
    return input_array(value, op, name)


def host_output(value, str op, str name, dict others):
    """Check every rule of a NumPy array to write results to. others: the outputs that the call has already, by name."""
    cdef cnp.ndarray array = output_array(value, op, name)
    cdef Tensor tensor, other
    cdef Failure failure
    fill_tensor(&tensor, array)
    if check_output(&tensor, 0, &failure):
        raise error_of(&failure, op, (name,), {name: array})
    for other_name, earlier in others.items():
        fill_tensor(&other, earlier)
        if tensors_overlap(&tensor, &other):
            fail(&failure, Rule.OUTPUTS_OVERLAP, 0, 1)
            raise error_of(&failure, op, (name, other_name), {})
    return array
