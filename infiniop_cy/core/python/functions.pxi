# The general calls behind iop.relu(x) and iop.relu_backward(g, x), and iop.conv_backward(...), for NumPy arrays.
from cpython.mem cimport PyMem_RawMalloc, PyMem_RawFree


cdef cnp.ndarray new_result(const Tensor *like, list inputs, int dtype, space):
    """Make an array of like's shape, in the memory order of the last input that has that shape, else in C order."""
    cdef cnp.ndarray model = None
    cdef object np_dtype = numpy.dtype(numpy.float32)  # the one promotion to a dtype that neither input has
    for array in inputs:
        if same_shape(like, array):
            model = array
        if dtype == dtype_code(array.dtype):
            np_dtype = array.dtype
    np_dtype = np_dtype.newbyteorder("=")
    if space is not None:
        return space.new(tuple([like.shape[d] for d in range(like.ndim)]), np_dtype, model)
    if model is not None:
        return numpy.empty_like(model, dtype=np_dtype)
    return numpy.empty(tuple([like.shape[d] for d in range(like.ndim)]), np_dtype)


cdef int check_inputs(const ElementwiseSpec *spec, Tensor *tensors, int *result, Failure *failure) noexcept nogil:
    """Broadcast the inputs to one shape, check all that needs no output, and find the result's dtype."""
    cdef int k
    cdef int64_t size
    if check_input_dtypes(spec, tensors, result, failure):
        return failure.rule
    if spec.operands > GRAD_OUTPUT and not broadcast(&tensors[INPUT], &tensors[GRAD_OUTPUT]):
        return fail(failure, Rule.SHAPE_MISMATCH, INPUT, GRAD_OUTPUT)
    for k in range(INPUT, spec.operands):
        if tensor_size(&tensors[k], k, &size, failure):
            return failure.rule
    if not kernels.formula[spec.formula].accepts(&spec.parameters):
        return fail(failure, Rule.PARAMETERS_CONTRADICT)
    return Rule.PASSED


cdef dict arrays_of_inputs(tuple inputs, list arrays, str op, space):
    """Fill in the arrays of (input,) or (input, grad_output), and return them by name. A Python number takes the other
    input's dtype where that is one to compute in, else float64, and goes where the other is; integers alone stay what
    they are, and are refused."""
    cdef int k
    weak = [is_weak(value) for value in inputs]
    dtype = numpy.float64 if not all(weak) or any([isinstance(value, float) for value in inputs]) else None
    for k in range(len(inputs) - 1, -1, -1):
        if not weak[k]:
            arrays[INPUT + k] = input_array(inputs[k], op, ELEMENTWISE_NAMES[INPUT + k], space)
            if is_floating(dtype_code(arrays[INPUT + k].dtype)):
                dtype = arrays[INPUT + k].dtype
    for k in range(len(inputs)):
        if weak[k]:
            arrays[INPUT + k] = weak_array(inputs[k], dtype, op, ELEMENTWISE_NAMES[INPUT + k])
            if space is not None:
                arrays[INPUT + k] = space.number(arrays[INPUT + k], op)
    return {ELEMENTWISE_NAMES[k]: arrays[k] for k in range(len(inputs), OUT, -1)}


def elementwise(str op, int formula, tuple values, bint promotes, tuple inputs, out, bint accumulate, num_threads,
                refusal, space=None):
    """Compute an elementwise operator on arrays of any layout. Returns out, or a new array. inputs: (input,) or
    (input, grad_output). space: where they are."""
    cdef ElementwiseSpec spec
    cdef ElementwisePlan plan
    cdef Failure failure
    cdef Tensor tensors[OPERANDS]
    cdef char *data[OPERANDS]
    cdef list arrays = [None, None, None]
    cdef int k, d, result, threads = resolve_threads(num_threads, op)
    require_stack(op)
    fill_spec(&spec, formula, values, promotes, accumulate)
    named = arrays_of_inputs(inputs, arrays, op, space)
    for k in range(INPUT, spec.operands):
        fill_tensor(&tensors[k], arrays[k])
    if out is not None:
        named["out"] = out = output_array(out, op, "out", space, accumulate)
    elif accumulate:
        raise status.BadParam(f"{op}: accumulate=True without out, expected an array to add to")
    if check_inputs(&spec, tensors, &result, &failure):
        raise error_of(&failure, op, ELEMENTWISE_NAMES, named, refusal)
    if out is None:
        out = new_result(&tensors[INPUT], arrays[INPUT:spec.operands], result, space)
        named["out"] = out
    arrays[OUT] = out
    fill_tensor(&tensors[OUT], arrays[OUT])
    if not same_shape(&tensors[INPUT], arrays[OUT]):
        shape = tuple([tensors[INPUT].shape[d] for d in range(tensors[INPUT].ndim)])
        reason = "the broadcast shape of grad_output and input" if spec.operands > GRAD_OUTPUT else "that of input"
        raise status.BadTensorShape(f"{op}: out has shape {out.shape}, expected {shape}, {reason}")
    if plan_elementwise(&spec, tensors, &plan, &failure):
        raise error_of(&failure, op, ELEMENTWISE_NAMES, named, refusal)
    for k in range(spec.operands):
        data[k] = tensors[k].data
    while check_addresses(&plan, data, &failure):
        # NumPy's rule: as if nothing overlapped. Each turn replaces one input by a copy.
        k = failure.arg
        arrays[k] = arrays[k].copy(order="K") if space is None else space.copy(arrays[k], op)
        shape = tuple([tensors[OUT].shape[d] for d in range(tensors[OUT].ndim)])
        fill_tensor(&tensors[k], numpy.broadcast_to(arrays[k], shape))
        tensors[k].data = <char *>cnp.PyArray_DATA(arrays[k])
        if plan_elementwise(&spec, tensors, &plan, &failure):
            raise error_of(&failure, op, ELEMENTWISE_NAMES, named, refusal)
        data[k] = tensors[k].data
    if space is not None:
        cuda_elementwise(&plan, data, space.index, <void *><uintptr_t>space.stream, op, ELEMENTWISE_NAMES)
        return space.result(out)
    with nogil:
        run_elementwise(&plan, data, threads)
    return out


cpdef tuple plain_integers(value, Py_ssize_t axes):
    """Return a tuple of `axes` integers: of an int that stands for all, or of a tuple of ints; None of anything else,
    and of one beyond 64 bits."""
    if type(value) is int:
        value = (value,) * axes
    elif type(value) is not tuple or len(value) != axes:
        return None
    for number in <tuple>value:
        if type(number) is not int or not INT64_MIN <= number <= INT64_MAX:
            return None
    return value


cdef tuple plain_pairs(value, Py_ssize_t axes):
    """Return a (before, after) pair for each axis: of what plain_integers() takes, or of a tuple of such pairs; None of
    anything else."""
    cdef tuple pads = plain_integers(value, axes)
    if pads is not None:
        return tuple([(pad, pad) for pad in pads])
    if type(value) is not tuple or len(value) != axes:
        return None
    for pair in <tuple>value:
        if type(pair) is not tuple or plain_integers(pair, 2) is None:
            return None
    return value


def plain_geometry(Py_ssize_t axes, stride, padding, dilation, groups):
    """Return what functions.geometry() does where all of it is plain integers, as in most calls; else None."""
    cdef tuple strides = plain_integers(stride, axes), pairs = plain_pairs(padding, axes)
    cdef tuple dilations = plain_integers(dilation, axes), group = plain_integers(groups, 1)
    if strides is None or pairs is None or dilations is None or group is None:
        return None
    return strides, pairs, dilations, group[0]


def plain_flags(value, Py_ssize_t count):
    """Return whether value is a tuple of so many bools."""
    if type(value) is not tuple or len(value) != count:
        return False
    for flag in <tuple>value:
        if type(flag) is not bool:
            return False
    return True


cdef int fill_conv_spec(ConvSpec *spec, tuple stride, tuple padding, tuple dilation, groups, bint accumulate) except -1:
    """Fill a spec. stride and dilation have one integer per spatial axis, padding one (before, after) pair."""
    cdef int d
    memset(spec, 0, sizeof(ConvSpec))
    for d in range(min(3, len(stride))):
        spec.stride[d] = stride[d]
        spec.before[d], spec.after[d] = padding[d]
        spec.dilation[d] = dilation[d]
    spec.groups = groups
    spec.accumulate = accumulate
    return 0


cdef list given_gradients(str op, tuple output_mask, tuple out, bint accumulate, space, dict named):
    """Return the caller's arrays for grad_input, grad_weight and grad_bias, and add them to `named`; None stands for
    one that is to be made or masked out."""
    cdef list results = [None, None, None]
    cdef int i
    for i in range(3):
        name = CONV_NAMES[CONV_GRAD_INPUT + i]
        if output_mask[i] and out[i] is not None:
            named[name] = results[i] = output_array(out[i], op, name, space, accumulate)
        elif output_mask[i] and accumulate:
            raise status.BadParam(f"{op}: accumulate=True without out[{i}], expected an array to add to")
        elif out[i] is not None:
            raise status.BadParam(f"{op}: out[{i}] is given, but output_mask leaves {name} out")
    return results


cdef int run_planned(const ConvPlan *plan, str op, int threads) except -1:
    """Run a plan whose tensors have addresses, in a workspace of its own."""
    cdef Interrupt storage
    cdef Interrupt *interrupt = interrupt_of(plan, &storage)
    cdef char *workspace = <char *>PyMem_RawMalloc(plan.workspace_bytes)
    if workspace == NULL:
        raise MemoryError(f"{op}: workspace of {plan.workspace_bytes} bytes")
    with nogil:
        run_conv(plan, &plan.problem, workspace, threads, interrupt)
    PyMem_RawFree(workspace)
    return raise_if_stopped(interrupt)


def conv_backward(grad_output, input, weight, tuple stride, tuple padding, tuple dilation, groups, tuple output_mask,
                  tuple out, bint accumulate, num_threads, space=None):
    """Compute the three gradients of a convolution; None where masked out. space: where the arrays are."""
    cdef str op = "conv_backward"
    cdef ConvSpec spec
    cdef ConvPlan plan
    cdef ConvProblem problem
    cdef Failure failure
    cdef Tensor storage[CONV_TENSORS]
    cdef Tensor *tensors[CONV_TENSORS]
    cdef int i, d, arg, threads = resolve_threads(num_threads, op)
    cdef char *workspace
    cdef Interrupt storage_of_interrupt
    cdef Interrupt *interrupt
    cdef cnp.ndarray array
    require_stack(op)
    named = {}
    fill_conv_spec(&spec, stride, padding, dilation, groups, accumulate)
    for i in range(CONV_TENSORS):
        tensors[i] = NULL
    for i, value in enumerate((grad_output, input, weight)):
        named[CONV_NAMES[i]] = input_array(value, op, CONV_NAMES[i], space)
    results = given_gradients(op, output_mask, out, accumulate, space, named)
    for i in range(3):
        fill_tensor(&storage[i], named[CONV_NAMES[i]])
        tensors[i] = &storage[i]
    for i in range(3):
        if results[i] is not None:
            fill_tensor(&storage[CONV_GRAD_INPUT + i], results[i])
            tensors[CONV_GRAD_INPUT + i] = &storage[CONV_GRAD_INPUT + i]
    if check_conv(&spec, tensors, &failure):
        raise error_of(&failure, op, CONV_NAMES, named)
    shapes = (named["input"].shape, named["weight"].shape, (named["weight"].shape[0],))
    for i in range(3):
        if output_mask[i] and results[i] is None:
            results[i] = numpy.empty(shapes[i], named["input"].dtype) if space is None \
                else space.new(shapes[i], named["input"].dtype, None)
            fill_tensor(&storage[CONV_GRAD_INPUT + i], results[i])
            tensors[CONV_GRAD_INPUT + i] = &storage[CONV_GRAD_INPUT + i]
    while check_conv_addresses(tensors, &failure):
        if failure.rule == Rule.OUTPUTS_OVERLAP:
            raise error_of(&failure, op, CONV_NAMES, named)
        name = CONV_NAMES[failure.against]
        named[name] = named[name].copy(order="K") if space is None else space.copy(named[name], op)
        fill_tensor(&storage[failure.against], named[name])
    conv_problem(&spec, tensors, &problem)
    if space is not None:
        cuda_conv(&problem, False, space, op, CONV_NAMES)
        return tuple([None if result is None else space.result(result) for result in results])
    if plan_conv(&problem, wanted_gradients(&problem), threads, &plan, &failure):
        raise error_of(&failure, op, CONV_NAMES, named)
    run_planned(&plan, op, threads)
    return tuple(results)
