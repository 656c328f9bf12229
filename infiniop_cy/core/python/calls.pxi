# The quick way of iop.relu(x) and iop.relu_backward(g, x): plain contiguous arrays of one shape and dtype go from the
# interpreter's argument vector straight to the kernel. Whatever is not that plain, wrong arguments included, takes
# the general way.
from sys import intern

from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsDouble, PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact

cdef extern from "python/vectorcall.h":
    void install_vectorcall(PyTypeObject *type, const PyTypeObject *base, Py_ssize_t offset)

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf)
    object PyObject_Vectorcall(object callable, PyObject **args, size_t nargsf, PyObject *names)

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.PyArray_Descr *descr, int nd, const cnp.npy_intp *dims,
                                const cnp.npy_intp *strides, void *data, int flags, PyObject *obj)

ctypedef object (*VectorCall)(object, PyObject **, size_t, PyObject *)

cdef enum:
    QUICK_UNLOCKED = 4096  # elements; fewer take less time than giving the GIL away and back

cdef str OUT_NAME = "out", ACCUMULATE_NAME = "accumulate", NUM_THREADS_NAME = "num_threads", DEVICE_NAME = "device"


ctypedef struct QuickOptions:
    ElementwiseSpec spec
    PyObject *out          # NULL: none
    PyObject *num_threads  # NULL: none


cdef class ElementwiseCall:
    """A callable of one elementwise operator, with its default parameters compiled in.

    parameters: (name, choices, slot, is_flag) for each of the row's, positional ones first. choices: the formula's
    number for each value, or None where the value itself is the formula's parameter number `slot`. A subclass provides
    `general`, for the calls that are not the plainest.
    """
    cdef VectorCall _vectorcall
    cdef ElementwiseSpec _spec
    cdef bint _quick
    cdef int _positional
    cdef tuple _names
    cdef tuple _parameters

    def __cinit__(self, *args, **kwargs):
        self._vectorcall = call_elementwise
        install_vectorcall(Py_TYPE(self), <PyTypeObject *>ElementwiseCall,
                           <char *>&self._vectorcall - <char *><PyObject *>self)

    def __init__(self, int formula, tuple values, bint promotes, bint quick, tuple parameters, int positional):
        self._quick = quick and not environment_refused
        self._positional = positional
        self._names = tuple([intern(parameter[0]) for parameter in parameters])
        self._parameters = parameters
        fill_spec(&self._spec, formula, values, promotes, False)

    def __call__(self, *args, **kwargs):
        # For whoever asks for the attribute; a call itself goes to call_elementwise.
        return self.general(*args, **kwargs)

    cdef bint set_parameter(self, int i, object value, ElementwiseSpec *spec) except -1:
        """Set the i-th parameter; False where the value is not plainly one of its type."""
        cdef PyObject *formula
        cdef int slot
        name, choices, slot, is_flag = <tuple>self._parameters[i]
        if choices is not None:
            formula = PyDict_GetItem(choices, value) if PyUnicode_CheckExact(value) else NULL
            if formula == NULL:
                return False
            spec.formula = <object>formula
            return True
        if is_flag:
            if value is not True and value is not False:
                return False
            spec.parameters.value[slot] = value is True
        elif PyFloat_CheckExact(value):
            spec.parameters.value[slot] = PyFloat_AS_DOUBLE(value)
        elif PyLong_CheckExact(value) and -1000000 < value < 1000000:
            spec.parameters.value[slot] = PyLong_AsDouble(value)
        else:
            return False
        return True

    cdef bint read_options(self, PyObject **args, Py_ssize_t positional, PyObject *names,
                           QuickOptions *options) except -1:
        """Read all arguments after the inputs; False where one is not of the plainest kind."""
        cdef Py_ssize_t i, j, parameters = len(self._names), inputs = main_input(self._spec.operands)
        cdef PyObject *name
        cdef PyObject *value
        options.spec = self._spec
        options.out = options.num_threads = NULL
        if positional > inputs + self._positional:
            return False
        for i in range(inputs, positional):
            if not self.set_parameter(i - inputs, <object>args[i], &options.spec):
                return False
        for i in range(PyTuple_GET_SIZE(<object>names) if names != NULL else 0):
            name = <PyObject *>PyTuple_GET_ITEM(<object>names, i)
            value = args[positional + i]
            if name == <PyObject *>OUT_NAME:
                options.out = value if <object>value is not None else NULL
            elif name == <PyObject *>NUM_THREADS_NAME:
                if <object>value is not None:
                    if not PyLong_CheckExact(<object>value) or <object>value < 1:
                        return False
                    options.num_threads = value
            elif name == <PyObject *>ACCUMULATE_NAME:
                if inputs == INPUT or <object>value is not True and <object>value is not False:
                    return False
                options.spec.accumulate = <object>value is True
            elif name == <PyObject *>DEVICE_NAME:
                if <object>value is not None:
                    return False
            else:
                for j in range(max(0, positional - inputs), parameters):
                    if name == <PyObject *>self._names[j]:
                        break
                else:
                    return False
                if not self.set_parameter(j, <object>value, &options.spec):
                    return False
        return kernels.formula[options.spec.formula].accepts(&options.spec.parameters)


cdef object call_elementwise(object callable, PyObject **args, size_t nargsf, PyObject *names):
    cdef ElementwiseCall self = <ElementwiseCall>callable
    cdef Py_ssize_t positional = PyVectorcall_NARGS(nargsf)
    cdef QuickOptions options
    cdef int inputs = main_input(self._spec.operands)
    if self._quick and positional >= inputs and self.read_options(args, positional, names, &options):
        result = quick_elementwise(&options, <object>args[0], <object>args[inputs - 1])
        if result is not None:
            return result
    return PyObject_Vectorcall(self.general, args, positional, names)


cdef object quick_elementwise(const QuickOptions *options, object first, object input):
    """Compute and return the result; None, nothing done, where the arrays are not of the plainest kind. first:
    grad_output, or input where there is none."""
    cdef cnp.ndarray g, x, o
    cdef int num, code, threads
    cdef Py_ssize_t n
    cdef char *data[OPERANDS]
    cdef ElementwiseKernel kernel
    cdef ElementwisePlan plan
    cdef uint64_t float_state
    cdef int64_t distance
    if not (cnp.PyArray_CheckExact(first) and cnp.PyArray_CheckExact(input)):
        return None
    g = first
    x = input
    if not (cnp.PyArray_ISCARRAY_RO(g) and cnp.PyArray_ISCARRAY_RO(x)):
        return None
    num = cnp.PyArray_TYPE(g)
    n = cnp.PyArray_SIZE(g)
    code = floating_code(num)
    if code == DTYPE_INVALID or cnp.PyArray_TYPE(x) != num or not cnp.PyArray_SAMESHAPE(g, x):
        return None
    threads = 1
    if n >= PARALLEL_FROM and environment_threads() < 0:
        return None
    if n >= PARALLEL_FROM or options.num_threads != NULL:
        threads = resolve_threads(<object>options.num_threads if options.num_threads != NULL else None, "")
    if options.out != NULL:
        if not cnp.PyArray_CheckExact(<object>options.out):
            return None
        o = <cnp.ndarray>options.out
        if not cnp.PyArray_ISCARRAY(o) or cnp.PyArray_TYPE(o) != num or not cnp.PyArray_SAMESHAPE(g, o):
            return None
        for array in (g, x):  # the same memory or apart, else the general way
            distance = <char *>cnp.PyArray_DATA(array) - <char *>cnp.PyArray_DATA(o)
            if distance != 0 and -cnp.PyArray_NBYTES(o) < distance < cnp.PyArray_NBYTES(o):
                return None
    elif options.spec.accumulate:
        return None
    else:
        Py_INCREF(<object><PyObject *>cnp.PyArray_DESCR(g))  # the new array takes it
        o = PyArray_NewFromDescr(<PyTypeObject *>cnp.ndarray, cnp.PyArray_DESCR(g), cnp.PyArray_NDIM(g),
                                 cnp.PyArray_DIMS(g), NULL, NULL, 0, NULL)
    if n == 0:
        return o
    data[OUT], data[INPUT] = <char *>cnp.PyArray_DATA(o), <char *>cnp.PyArray_DATA(x)
    data[main_input(options.spec.operands)] = <char *>cnp.PyArray_DATA(g)
    if n >= QUICK_UNLOCKED and stack_left() < STACK_NEEDED:
        return None  # the general way says so
    if n < QUICK_UNLOCKED:
        kernel = kernels.formula[options.spec.formula].kernel[code][
            ACCUMULATE if options.spec.accumulate else WRITE]
        float_state = enter_float_state()
        kernel(cnp.PyArray_DATA(g), data[INPUT], data[OUT], n, &options.spec.parameters)
        leave_float_state(float_state)
    else:
        with nogil:
            plan_contiguous(&options.spec, code, n, &plan)
            run_elementwise(&plan, data, threads)
    return o
