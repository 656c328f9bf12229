# A convolution backward as a problem: its rules, the geometry of one sample, and where the tensors lie.
#
#   grad_input[n, ci, i]   = sum over co, k  grad_output[n, co, o] * weight[co, ci, k]
#   grad_weight[co, ci, k] = sum over n, o   grad_output[n, co, o] * input[n, ci, i]
#   grad_bias[co]          = sum over n, o   grad_output[n, co, o]
#
# with i = o*stride + k*dilation - pad; a pixel i outside of the image is no term of grad_input, and 0 to grad_weight.
#
# One and two spatial axes are three with leading ones of one pixel. co and ci count inside one group. The CPU's
# algorithms and the GPU's plan both start from here.
cdef enum:
    STREAM_GRADIENT = 1 << 20  # bytes of a grad_input that does not stay in the caches until it is read

    # the tensors, in the order of messages
    CONV_GRAD_OUTPUT = 0
    CONV_INPUT = 1
    CONV_WEIGHT = 2
    CONV_BIAS = 3
    CONV_GRAD_INPUT = 4
    CONV_GRAD_WEIGHT = 5
    CONV_GRAD_BIAS = 6
    CONV_TENSORS = 7
    # the parameters
    CONV_STRIDE = 7
    CONV_PADDING = 8
    CONV_DILATION = 9
    CONV_GROUPS = 10
    CONV_WORKSPACE = 11
    CONV_ALGORITHMS = 12

cdef extern from *:
    """
    enum : int64_t { MAX_CHANNELS = int64_t(1) << 40 };
    """
    const int64_t MAX_CHANNELS  # per group; sums of channels by taps then fit in 63 bits

cdef extern from "../kernels/conv_axis.h" nogil:
    ctypedef struct ConvAxis:
        int64_t size_in, size_out, kernel, stride, before, dilation
        int64_t common, period, hop, inverse, phases
    ctypedef struct ConvAxisPhase:
        int64_t first, size, tap, taps, output
    void conv_axis_derive(ConvAxis *axis)
    ConvAxisPhase conv_axis_phase "conv_axis_phase<int64_t>"(const ConvAxis &axis, int64_t number)


ctypedef struct ConvSpec:
    int64_t stride[3]
    int64_t before[3]
    int64_t after[3]
    int64_t dilation[3]
    int64_t groups
    bint accumulate


# A tensor as (n, channel, three spatial axes): byte strides. For weights n is co and channel is ci, of one group.
ctypedef struct ConvView:
    char *data
    int64_t n, channel
    int64_t space[3]
    int64_t group                 # of weights: from group to group


cdef enum:
    FAR_PIXELS = 1 << 30  # times channels and bytes, this fits 63 bits


# How the block of pixels that taps read is taken from its tensor along an axis. The output of a convolution with a
# stride reads its input by classes of taps, k % classes, each a block of pixels `step` apart (forward.pxi); all else
# reads one block of neighbours.
ctypedef struct SourceAxis:
    int64_t classes, step
    int64_t hop                   # positions from tap to tap of a class
    int64_t before                # pixels of padding before position 0 of the first class


# All that may decide the order of a sum: one sample's shapes, the dtype and the instruction set. There is no batch in
# it, no number of threads, no stride of memory and no address.
ctypedef struct SampleGeometry:
    int dtype, compute            # of storage and of arithmetic
    int64_t item                  # bytes of the compute type
    int64_t groups, cin, cout     # channels of one group
    ConvAxis axis[3]
    SourceAxis source[3]
    bint forward                  # the output's problem, as that of a grad_input (forward.pxi)
    int64_t folded, fold_step     # taps along the last axis that count as channels, and pixels from one to the next
    int64_t pixels_in, pixels_out, taps
    bint far                      # whether pixels under taps may lie FAR_PIXELS apart or outside
    int64_t lanes                 # elements of the compute type in a vector
    bint dot2                     # bfloat16 by AVX512_BF16, two products an instruction
    int64_t parts                 # bfloat16 whose sum an element is to AMX; 0 where there is no AMX


# The kernel before taps were taken off that meet only padding, and which of its taps is the first that is left.
ctypedef struct TrimmedTaps:
    bint any
    int64_t kernel[3]
    int64_t first[3]


ctypedef struct ConvProblem:
    SampleGeometry sample
    TrimmedTaps trimmed           # the sample's geometry is that of what is left
    int64_t input_shift           # of an output's problem: bytes to the first pixel of the input that any tap meets
    int64_t batch
    bint accumulate
    bint stream                   # grad_input goes past the caches, as far as an algorithm can
    ConvView view[CONV_TENSORS]   # data is NULL for gradients left out
    ConvertKernel load, save      # storage to compute type and back


cdef int check_axis(const Tensor *t, int arg, int axis, int64_t expected, int against, Failure *failure) noexcept nogil:
    """Check one extent, which `against` determines."""
    if t.shape[axis] != expected:
        return fail(failure, Rule.AXIS_MISMATCH, arg, against, axis, t.shape[axis], expected)
    return Rule.PASSED


cdef int check_conv_output(const Tensor *out, int arg, const Tensor *like, int against,
                           Failure *failure) noexcept nogil:
    """Check that a gradient or bias has the shape and dtype of `like`, and that a gradient can be written."""
    cdef int64_t size
    cdef int d
    if out.dtype != like.dtype:
        return fail(failure, Rule.DTYPE_MISMATCH, arg, against)
    if out.ndim != like.ndim:
        return fail(failure, Rule.SHAPE_MISMATCH, arg, against)
    for d in range(out.ndim):
        if out.shape[d] != like.shape[d]:
            return fail(failure, Rule.SHAPE_MISMATCH, arg, against)
    if tensor_size(out, arg, &size, failure):
        return failure.rule
    return Rule.PASSED if arg == CONV_BIAS else check_output(out, arg, failure)


cdef int check_conv_outputs(Tensor **tensors, Failure *failure) noexcept nogil:
    """Check that bias and the gradients that are present have the shapes and dtype that input and weight give them."""
    cdef Tensor channels
    cdef const Tensor *like[CONV_TENSORS]
    cdef int arg
    channels.dtype = tensors[CONV_WEIGHT].dtype
    channels.ndim = 1
    channels.shape[0] = tensors[CONV_WEIGHT].shape[0]
    like[CONV_BIAS] = like[CONV_GRAD_BIAS] = &channels
    like[CONV_GRAD_INPUT], like[CONV_GRAD_WEIGHT] = tensors[CONV_INPUT], tensors[CONV_WEIGHT]
    for arg in range(CONV_BIAS, CONV_TENSORS):
        if tensors[arg] != NULL and check_conv_output(
                tensors[arg], arg, like[arg], CONV_INPUT if arg == CONV_GRAD_INPUT else CONV_WEIGHT, failure):
            return failure.rule
    return Rule.PASSED


cdef int check_conv_parameters(const ConvSpec *spec, int nd, Failure *failure) noexcept nogil:
    """Check that strides, dilations and groups are positive and no padding is negative."""
    cdef int d
    for d in range(nd):
        if spec.stride[d] <= 0:
            return fail(failure, Rule.STRIDE_NOT_POSITIVE, CONV_STRIDE, -1, d, spec.stride[d])
        if spec.dilation[d] <= 0:
            return fail(failure, Rule.DILATION_NOT_POSITIVE, CONV_DILATION, -1, d, spec.dilation[d])
        if spec.before[d] < 0 or spec.after[d] < 0:
            return fail(failure, Rule.PADDING_NEGATIVE, CONV_PADDING, -1, d, min(spec.before[d], spec.after[d]))
    if spec.groups <= 0:
        return fail(failure, Rule.GROUPS_NOT_POSITIVE, CONV_GROUPS, -1, -1, spec.groups)
    return Rule.PASSED


cdef int check_conv_space(const ConvSpec *spec, Tensor **tensors, int nd, Failure *failure) noexcept nogil:
    """Check the spatial axes: a kernel that fits the padded image, and as many output pixels as that gives."""
    cdef const Tensor *input = tensors[CONV_INPUT]
    cdef const Tensor *weight = tensors[CONV_WEIGHT]
    cdef int64_t span, padded
    cdef int d
    for d in range(nd):
        if weight.shape[2 + d] < 1:
            return fail(failure, Rule.KERNEL_EMPTY, CONV_WEIGHT, -1, 2 + d)
        if mul_overflows(spec.dilation[d], weight.shape[2 + d] - 1, &span) or add_overflows(span, 1, &span) \
                or add_overflows(input.shape[2 + d], spec.before[d], &padded) \
                or add_overflows(padded, spec.after[d], &padded):
            return fail(failure, Rule.TOO_LARGE, CONV_PADDING)
        if padded < span:
            return fail(failure, Rule.KERNEL_TOO_LARGE, CONV_WEIGHT, CONV_INPUT, 2 + d, span, padded)
        if tensors[CONV_GRAD_OUTPUT] != NULL and check_axis(
                tensors[CONV_GRAD_OUTPUT], CONV_GRAD_OUTPUT, 2 + d, output_length(spec, tensors, d), CONV_INPUT,
                failure):
            return failure.rule
    return Rule.PASSED


cdef int64_t output_length(const ConvSpec *spec, Tensor **tensors, int d) noexcept nogil:
    """Count the output pixels along a spatial axis that fits."""
    return (tensors[CONV_INPUT].shape[2 + d] + spec.before[d] + spec.after[d]
            - (spec.dilation[d] * (tensors[CONV_WEIGHT].shape[2 + d] - 1) + 1)) // spec.stride[d] + 1


cdef int check_conv(const ConvSpec *spec, Tensor **tensors, Failure *failure) noexcept nogil:
    """Check all rules on shapes, dtypes and parameters. tensors[CONV_...]; all but input and weight may be NULL."""
    cdef const Tensor *grad_output = tensors[CONV_GRAD_OUTPUT]
    cdef const Tensor *input = tensors[CONV_INPUT]
    cdef const Tensor *weight = tensors[CONV_WEIGHT]
    cdef int arg, nd = input.ndim - 2, first = CONV_INPUT if grad_output == NULL else CONV_GRAD_OUTPUT
    cdef int64_t size
    if not is_floating(tensors[first].dtype):
        return fail(failure, Rule.DTYPE_UNSUPPORTED, first)
    for arg in range(first + 1, 3):
        if tensors[arg].dtype != tensors[first].dtype:
            return fail(failure, Rule.DTYPE_MISMATCH if is_floating(tensors[arg].dtype) else Rule.DTYPE_UNSUPPORTED,
                        arg, first)
    if nd < 1 or nd > 3:
        return fail(failure, Rule.NDIM_UNSUPPORTED, CONV_INPUT, -1, -1, input.ndim)
    for arg in range(first, 3):
        if tensors[arg].ndim != input.ndim:
            return fail(failure, Rule.NDIM_MISMATCH, arg, CONV_INPUT, -1, tensors[arg].ndim, input.ndim)
        if tensor_size(tensors[arg], arg, &size, failure):
            return failure.rule
    if check_conv_parameters(spec, nd, failure):
        return failure.rule
    if input.shape[1] % spec.groups:
        return fail(failure, Rule.GROUPS_DO_NOT_DIVIDE, CONV_INPUT, -1, 1, spec.groups, input.shape[1])
    if weight.shape[0] % spec.groups:
        return fail(failure, Rule.GROUPS_DO_NOT_DIVIDE, CONV_WEIGHT, -1, 0, spec.groups, weight.shape[0])
    if check_axis(weight, CONV_WEIGHT, 1, input.shape[1] // spec.groups, CONV_INPUT, failure) \
            or (grad_output != NULL
                and (check_axis(grad_output, CONV_GRAD_OUTPUT, 0, input.shape[0], CONV_INPUT, failure)
                     or check_axis(grad_output, CONV_GRAD_OUTPUT, 1, weight.shape[0], CONV_WEIGHT, failure))) \
            or check_conv_space(spec, tensors, nd, failure):
        return failure.rule
    if weight.shape[1] > MAX_CHANNELS:
        return fail(failure, Rule.TOO_LARGE, CONV_WEIGHT)
    return check_conv_outputs(tensors, failure)


cdef int check_conv_addresses(Tensor **tensors, Failure *failure) noexcept nogil:
    """Check that no output shares memory with an input or with another output."""
    cdef int out, other
    for out in range(CONV_GRAD_INPUT, CONV_TENSORS):
        if tensors[out] == NULL:
            continue
        for other in range(CONV_TENSORS):
            if other == out or other == CONV_BIAS or tensors[other] == NULL \
                    or (other > CONV_BIAS and other > out):
                continue
            if tensors_overlap(tensors[out], tensors[other]):
                return fail(failure, Rule.OUTPUTS_OVERLAP if other > CONV_BIAS else Rule.PARTIAL_OVERLAP, out, other)
    return Rule.PASSED


cdef void conv_view(const Tensor *t, ConvView *view) noexcept nogil:
    """Take a tensor's strides as (n, channel, space), and its address."""
    cdef int d, nd = t.ndim - 2
    view.data = t.data
    view.n = t.strides[0]
    view.channel = t.strides[1] if t.ndim > 1 else 0
    for d in range(3):
        view.space[d] = t.strides[2 + d - (3 - nd)] if t.ndim > 2 and d >= 3 - nd else 0


cdef void sample_geometry(const ConvSpec *spec, Tensor **tensors, SampleGeometry *sample) noexcept nogil:
    """Derive the geometry of one sample from what check_conv has passed; without an instruction set."""
    cdef const Tensor *input = tensors[CONV_INPUT]
    cdef const Tensor *weight = tensors[CONV_WEIGHT]
    cdef ConvAxis *axis
    cdef int d, e, nd = input.ndim - 2
    memset(sample, 0, sizeof(SampleGeometry))
    sample.dtype = input.dtype
    sample.compute = compute_dtype_of(input.dtype)
    sample.item = itemsize_of(sample.compute)
    sample.groups = spec.groups
    sample.cin = weight.shape[1]
    sample.cout = weight.shape[0] // spec.groups
    sample.folded = 1
    sample.pixels_in = sample.pixels_out = sample.taps = 1
    for d in range(3):
        e = d - (3 - nd)
        axis = &sample.axis[d]
        axis.size_in = input.shape[2 + e] if e >= 0 else 1
        axis.size_out = tensors[CONV_GRAD_OUTPUT].shape[2 + e] if e >= 0 else 1
        axis.kernel = weight.shape[2 + e] if e >= 0 else 1
        axis.stride = spec.stride[e] if e >= 0 else 1
        axis.before = spec.before[e] if e >= 0 else 0
        axis.dilation = spec.dilation[e] if e >= 0 else 1
        if axis.size_out == 1:  # whose stride nothing takes
            axis.stride = min(axis.stride, <int64_t>FAR_PIXELS)
        conv_axis_derive(axis)
        sample.far = sample.far or axis.stride > FAR_PIXELS or axis.before > FAR_PIXELS \
            or (axis.kernel - 1) * axis.dilation > FAR_PIXELS
        sample.source[d].classes = sample.source[d].step = 1
        sample.pixels_in *= axis.size_in
        sample.pixels_out *= axis.size_out
        sample.taps *= axis.kernel


cdef int64_t written_bytes(const ConvProblem *problem) noexcept nogil:
    """Count the bytes of the image that is written."""
    cdef const SampleGeometry *sample = &problem.sample
    return problem.batch * sample.groups * sample.cin * sample.pixels_in * itemsize_of(sample.dtype)


cdef bint leaves_caches(const ConvProblem *problem) noexcept nogil:
    """Say whether the image that is written is so large that it had better go past the caches."""
    return not problem.accumulate and written_bytes(problem) >= STREAM_GRADIENT


cdef void conv_problem(const ConvSpec *spec, Tensor **tensors, ConvProblem *problem) noexcept nogil:
    """Make the problem of tensors that check_conv has passed."""
    cdef int arg
    memset(problem, 0, sizeof(ConvProblem))
    sample_geometry(spec, tensors, &problem.sample)
    problem.batch = tensors[CONV_INPUT].shape[0]
    problem.accumulate = spec.accumulate
    problem.stream = leaves_caches(problem)
    problem.load = kernels.convert[problem.sample.dtype][problem.sample.compute]
    problem.save = kernels.convert[problem.sample.compute][problem.sample.dtype]
    for arg in range(CONV_TENSORS):
        if tensors[arg] != NULL:
            conv_view(tensors[arg], &problem.view[arg])
            problem.view[arg].group = problem.sample.cout * problem.view[arg].n


cdef void conv_gradient_tensors(Tensor *tensors) noexcept nogil:
    """Describe the gradients for descriptors: shaped like input, weight and (C_out), contiguous."""
    tensors[CONV_GRAD_INPUT] = tensors[CONV_INPUT]
    tensors[CONV_GRAD_WEIGHT] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS].ndim = min(1, tensors[CONV_WEIGHT].ndim)
    contiguous_strides(&tensors[CONV_GRAD_INPUT])
    contiguous_strides(&tensors[CONV_GRAD_WEIGHT])
    contiguous_strides(&tensors[CONV_GRAD_BIAS])


cdef int bind_conv(const ConvProblem *problem, int64_t workspace_bytes, const Tensor *described, char **data,
                   char *workspace, ConvProblem *bound, Failure *failure) noexcept nogil:
    """Give a descriptor's problem these addresses; gradients whose address is NULL are left out. A workspace of NULL is
    not checked."""
    cdef Tensor tensors[CONV_TENSORS]
    cdef Tensor *present[CONV_TENSORS]
    cdef int64_t byte = 1
    cdef int i
    bound[0] = problem[0]
    for i in range(CONV_TENSORS):
        tensors[i] = described[i]
        tensors[i].data = bound.view[i].data = data[i]
        present[i] = &tensors[i] if data[i] != NULL else NULL
        if i < CONV_BIAS and data[i] == NULL and has_elements(&tensors[i]):
            return fail(failure, Rule.NULL_DATA, i)
    if check_conv_addresses(present, failure):
        return failure.rule
    for i in range(CONV_TENSORS):
        if workspace != NULL and present[i] != NULL and views_overlap(
                workspace, 1, &workspace_bytes, &byte, 1,
                present[i].data, present[i].ndim, present[i].shape, present[i].strides, itemsize_of(present[i].dtype)):
            return fail(failure, Rule.PARTIAL_OVERLAP, CONV_WORKSPACE, i)
    return Rule.PASSED
