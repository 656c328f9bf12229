# The output of a convolution, as a grad_input: forward, grad_input and grad_weight are three contractions of one
# geometry, and the first two differ by which image is read under the taps and which one is written. So the forward
# problem is stated with exchanged roles, and grad_input's algorithms compute it as they are:
#
#   output[n, co, o] = sum over ci, k  input[n, ci, o*stride + k*dilation - pad] * weight[co, ci, k]
#
# the input stands for grad_output, the output for grad_input, ci for co, and taps lead the other way: without a stride,
# o = i*1 + (kernel - 1 - k)*dilation - (dilation*(kernel - 1) - pad). In this problem the image that is written has one
# phase. What a stride does instead is to take the image that is read apart, by classes of taps, k % classes: under the
# taps of one class the pixels that o = 0, 1, 2, ... meet lie a stride apart, and from tap to tap they move by whole
# strides. A block of the input holds those of one class after those of the other (geometry.pxi); a tap is an offset
# into it, as ever.
#
# Where the input has few channels, as images have, the taps along the last axis stand side by side as channels of their
# own: the pixels that they meet are one position of a block, and the kernel has one tap along that axis.
#
# Padding is no term of the sum: where a window leaves the image, an inf weight has nothing to meet.

# ---- rules

cdef int check_forward_bias(Tensor **tensors, Failure *failure) noexcept nogil:
    """Check the dtype and length of a bias, if there is one."""
    cdef const Tensor *bias = tensors[CONV_BIAS]
    cdef int64_t size
    if bias == NULL:
        return Rule.PASSED
    if bias.dtype != tensors[CONV_INPUT].dtype:
        return fail(failure, Rule.DTYPE_MISMATCH if is_floating(bias.dtype) else Rule.DTYPE_UNSUPPORTED, CONV_BIAS,
                    CONV_INPUT)
    if bias.ndim != 1:
        return fail(failure, Rule.NDIM_MISMATCH, CONV_BIAS, CONV_WEIGHT, -1, bias.ndim, 1)
    if check_axis(bias, CONV_BIAS, 0, tensors[CONV_WEIGHT].shape[0], CONV_WEIGHT, failure):
        return failure.rule
    return tensor_size(bias, CONV_BIAS, &size, failure)


cdef int check_forward(const ConvSpec *spec, Tensor **tensors, Tensor *result, Failure *failure) noexcept nogil:
    """Check all rules of a forward convolution but those of its output, tensors[CONV_GRAD_OUTPUT], and describe a
    contiguous one. The bias may be NULL."""
    cdef Tensor *inputs[CONV_TENSORS]
    cdef int64_t size
    cdef int i, d
    for i in range(CONV_TENSORS):
        inputs[i] = tensors[i] if i == CONV_INPUT or i == CONV_WEIGHT else NULL
    if check_conv(spec, inputs, failure) or check_forward_bias(tensors, failure):
        return failure.rule
    result[0] = tensors[CONV_INPUT][0]
    result.data = NULL
    result.shape[1] = tensors[CONV_WEIGHT].shape[0]
    for d in range(result.ndim - 2):
        result.shape[2 + d] = output_length(spec, tensors, d)
    contiguous_strides(result)
    return tensor_size(result, CONV_GRAD_OUTPUT, &size, failure)


cdef int check_forward_output(Tensor **tensors, const Tensor *result, Failure *failure) noexcept nogil:
    """Check that the output has the dtype and shape of the result, and can be written."""
    cdef const Tensor *output = tensors[CONV_GRAD_OUTPUT]
    cdef int64_t size
    cdef int d
    if output.dtype != result.dtype:
        return fail(failure, Rule.DTYPE_MISMATCH, CONV_GRAD_OUTPUT, CONV_INPUT)
    if output.ndim != result.ndim:
        return fail(failure, Rule.NDIM_MISMATCH, CONV_GRAD_OUTPUT, CONV_INPUT, -1, output.ndim, result.ndim)
    for d in range(result.ndim):
        if check_axis(output, CONV_GRAD_OUTPUT, d, result.shape[d], CONV_WEIGHT if d == 1 else CONV_INPUT, failure):
            return failure.rule
    if tensor_size(output, CONV_GRAD_OUTPUT, &size, failure):
        return failure.rule
    return check_output(output, CONV_GRAD_OUTPUT, failure)


cdef int check_forward_addresses(Tensor **tensors, Failure *failure) noexcept nogil:
    """Check that the output shares no memory with what it is computed from."""
    cdef int i
    for i in range(CONV_INPUT, CONV_BIAS + 1):
        if tensors[i] != NULL and tensors_overlap(tensors[CONV_GRAD_OUTPUT], tensors[i]):
            return fail(failure, Rule.PARTIAL_OVERLAP, CONV_GRAD_OUTPUT, i)
    return Rule.PASSED


# ---- roles

cdef enum:
    FOLD_CHANNELS = 8     # of the input, at most, for taps to be channels
    FOLD_OUTPUTS = 16     # channels of the output, at least
    FOLD_TAPS = 32        # at most, or
    FOLD_LONG_TAPS = 1024
    FOLD_LONG_CHANNELS = 3  # of so few input channels, such as of sound
    FOLD_PIXELS = 8       # of the output, more than these: fewer go by dot products
    FOLD_ROW = 8          # of a row of it, at least, since what taps meet is moved row by row; or
    FOLD_PATCHES = 4      # where no two of them share pixels
    FAR_HOPS = 2          # times the output's length: taps so far apart are classes of their own


cdef bint are_far_apart(const ConvAxis *axis) noexcept nogil:
    """Say whether taps that meet no padding are so far apart that a block of all between them had better be one of
    what each of them meets."""
    return axis.kernel > 1 and axis.hop // FAR_HOPS >= axis.size_out and axis.before <= 0 \
        and axis.size_out * axis.stride - axis.stride + (axis.kernel - 1) * axis.dilation - axis.before < axis.size_in


cdef void exchange_axis(ConvAxis *axis, SourceAxis *source) noexcept nogil:
    """State an axis for the output: the written image is the output, whose pixels the taps reach one by one."""
    cdef int64_t pad = axis.before, stride = axis.stride
    source.classes = axis.kernel if are_far_apart(axis) else min(axis.period, axis.kernel)
    axis.size_in, axis.size_out = axis.size_out, axis.size_in
    if source.classes > 1:
        source.step, source.hop, source.before = stride, axis.hop, pad
    axis.stride, axis.before = 1, (axis.kernel - 1) * axis.dilation - pad
    conv_axis_derive(axis)


cdef bint folding_pays(const SampleGeometry *sample) noexcept nogil:
    """Say whether there are so few input channels that taps had better be channels, too, and outputs enough to share
    them."""
    cdef const ConvAxis *axis = &sample.axis[2]
    return not sample.far and sample.groups == 1 and 1 <= sample.cin <= FOLD_CHANNELS and sample.cout >= FOLD_OUTPUTS \
        and 1 < axis.kernel <= (FOLD_LONG_TAPS if sample.cin <= FOLD_LONG_CHANNELS else FOLD_TAPS) \
        and sample.pixels_out > FOLD_PIXELS \
        and axis.size_out >= (FOLD_ROW if axis.stride < axis.kernel else FOLD_PATCHES)


cdef void fold_axis(SampleGeometry *sample) noexcept nogil:
    """Let the taps along the last axis be channels. A position is the pixel under the first of them."""
    cdef ConvAxis *axis = &sample.axis[2]
    cdef SourceAxis *source = &sample.source[2]
    sample.folded, sample.fold_step = axis.kernel, axis.dilation
    source.step, source.before = axis.stride, axis.before
    sample.taps //= axis.kernel
    sample.cin *= axis.kernel
    axis.size_in, axis.size_out = axis.size_out, axis.size_in
    axis.kernel = axis.stride = 1
    axis.before = 0
    conv_axis_derive(axis)


cdef void thin_axis(ConvAxis *axis, ConvView *input, int d, int64_t *shift) noexcept nogil:
    """Where all taps meet pixels of one residue of the stride, see only these pixels: an image without a stride. shift:
    bytes from the image's start to the first of them."""
    cdef int64_t first, size, stride = axis.stride
    if stride == 1 or (axis.period > 1 and axis.kernel > 1):
        return
    if axis.kernel == 1:
        axis.dilation = stride
    first = ceil_div(axis.before, stride)
    size = max(<int64_t>0, floor_div(axis.size_in - 1 + axis.before, stride) + 1 - first)
    if size:
        shift[0] += (first * stride - axis.before) * input.space[d]
    if size > 1:  # else nothing is stepped over, and the stride may be of any size
        input.space[d] *= stride
    axis.size_in, axis.before = size, first
    axis.stride, axis.dilation = 1, axis.dilation // stride
    conv_axis_derive(axis)


cdef void exchange_roles(ConvProblem *problem) noexcept nogil:
    """State the problem of an output, whose taps were trimmed, as that of a grad_input."""
    cdef SampleGeometry *sample = &problem.sample
    cdef ConvView *w = &problem.view[CONV_WEIGHT]
    cdef ConvView output = problem.view[CONV_GRAD_OUTPUT]
    cdef int d
    sample.forward = True
    problem.input_shift = 0
    cdef bint folds = folding_pays(sample)
    for d in range(2 if folds else 3):
        thin_axis(&sample.axis[d], &problem.view[CONV_INPUT], d, &problem.input_shift)
        exchange_axis(&sample.axis[d], &sample.source[d])
    if folds:
        fold_axis(sample)
    sample.cin, sample.cout = sample.cout, sample.cin
    sample.pixels_in = sample.axis[0].size_in * sample.axis[1].size_in * sample.axis[2].size_in
    sample.pixels_out = sample.axis[0].size_out * sample.axis[1].size_out * sample.axis[2].size_out
    w.n, w.channel = w.channel, w.n
    problem.view[CONV_GRAD_OUTPUT], problem.view[CONV_GRAD_INPUT] = problem.view[CONV_INPUT], output
    problem.stream = leaves_caches(problem)


cdef void shift_input(ConvProblem *problem) noexcept nogil:
    """Lead the view of an output's input to the first pixel that any tap meets."""
    problem.view[CONV_GRAD_OUTPUT].data += problem.input_shift


cdef int64_t weight_row(const SampleGeometry *sample, const ConvView *w, int64_t co) noexcept nogil:
    """Count the bytes from the weights of a group's first co to those of this one; of folded taps, those of the first
    come first."""
    cdef int64_t channels
    if sample.folded == 1:
        return co * w.n
    channels = sample.cout // sample.folded
    return co // channels * w.space[2] + co % channels * w.n


# A run of co that are channels of one tap.
ctypedef struct FoldedRun:
    int64_t channel, channels   # of the tensor
    int64_t shift               # pixels from the position along the last axis


cdef void folded_run(const SampleGeometry *sample, int64_t group, int64_t co, int64_t count,
                     FoldedRun *run) noexcept nogil:
    """Find the first run of `count` co of a group."""
    cdef int64_t channels = max(<int64_t>1, sample.cout // sample.folded)
    run.channel = group * channels + co % channels
    run.channels = min(count, channels - co % channels)
    run.shift = co // channels * sample.fold_step


# ---- addresses

cdef int bind_forward(const ConvProblem *problem, int64_t workspace_bytes, const Tensor *described, bint has_bias,
                      char **data, char *workspace, ConvProblem *bound, Failure *failure) noexcept nogil:
    """Give a descriptor's problem, its roles exchanged, the addresses of output, input, weight and bias. A workspace of
    NULL is not checked."""
    cdef Tensor tensors[CONV_TENSORS]
    cdef Tensor *present[CONV_TENSORS]
    cdef int64_t byte = 1
    cdef int i
    bound[0] = problem[0]
    for i in range(CONV_TENSORS):
        present[i] = NULL
        if i > CONV_BIAS or (i == CONV_BIAS and not has_bias):
            continue
        tensors[i] = described[i]
        tensors[i].data = data[i]
        if data[i] != NULL:
            present[i] = &tensors[i]
        elif has_elements(&tensors[i]):
            return fail(failure, Rule.NULL_DATA, i)
    if present[CONV_GRAD_OUTPUT] != NULL and check_forward_addresses(present, failure):
        return failure.rule
    for i in range(CONV_TENSORS):
        if workspace != NULL and present[i] != NULL and views_overlap(
                workspace, 1, &workspace_bytes, &byte, 1,
                present[i].data, present[i].ndim, present[i].shape, present[i].strides, itemsize_of(present[i].dtype)):
            return fail(failure, Rule.PARTIAL_OVERLAP, CONV_WORKSPACE, i)
    bound.view[CONV_GRAD_INPUT].data, bound.view[CONV_GRAD_OUTPUT].data = data[CONV_GRAD_OUTPUT], data[CONV_INPUT]
    bound.view[CONV_WEIGHT].data, bound.view[CONV_BIAS].data = data[CONV_WEIGHT], data[CONV_BIAS] if has_bias else NULL
    return Rule.PASSED
