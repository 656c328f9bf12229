# Convolution backward: geometry, its rules, tiles and workspace.
#
#   grad_input[n, ci, i]   = sum over co, k with i = o*stride + k*dilation - pad   of grad_output[n, co, o] * weight[co, ci, k]
#   grad_weight[co, ci, k] = sum over n, o                                         of grad_output[n, co, o] * input[n, ci, o*stride + k*dilation - pad]
#   grad_bias[co]          = sum over n, o                                         of grad_output[n, co, o]
#
# One and two spatial dimensions are three with leading ones. co and ci count inside one group.
cdef enum:
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

    CONV_WORK = 1 << 21    # multiplications per gradient and thread; about 0.05 ms
    CONV_LEAST_WORK = 64
    CONV_ALIGN = 64        # bytes; every piece of the workspace starts on a cache line

cdef extern from *:
    """
    enum : int64_t { MAX_CHANNELS = int64_t(1) << 40 };
    static const double TINY = 0x1p-100;
    """
    const int64_t MAX_CHANNELS  # per group
    const double TINY


ctypedef struct ConvSpec:
    int64_t stride[3]
    int64_t before[3]
    int64_t after[3]
    int64_t dilation[3]
    int64_t groups
    bint accumulate


# A tensor as (n, channel, three spatial axes): element size and byte strides. For weights n is co, channel ci.
ctypedef struct ConvView:
    char *data
    int64_t n, channel
    int64_t space[3]


# How the work on one gradient is cut; conv_tiles.pxi chooses. Its matrix has columns in slivers of a few vectors.
ctypedef struct ConvCut:
    bint across                   # columns are pixels, side by side as they lie, and rows few channels
    bint amx                      # by AMX: rows and columns of both gradients change places (conv_amx.pxi)
    bint merged                   # by AMX, few ci: its rows are (phase, ci), or its columns (ci, tap)
    bint pairs                    # steps are pairs of bfloat16; blocks and panels hold those
    bint shifted                  # a tap is a shift within a packed block; otherwise every tap is packed (im2col)
    int vectors                   # of a sliver
    int64_t columns               # of a sliver
    int64_t slivers               # of one group
    int64_t task_slivers
    int64_t tile[4]               # pixels packed together: samples and along each axis
    int64_t pixels                # their product
    int64_t positions             # of a packed block (of one phase of it, for dots), at most
    int64_t phases                # grad_weight, across: blocks for one channel
    int64_t channels              # of grad_output in one panel (grad_input)
    int64_t taps                  # in one panel (grad_input)
    int64_t rows                  # (ci, tap) of a task (grad_weight)
    int64_t bytes                 # of one thread's scratch


ctypedef struct ConvPlan:
    int dtype, compute
    int64_t item                  # bytes of the compute type
    int64_t batch, groups, cin, cout
    int64_t size_in[3]
    int64_t size_out[3]
    int64_t kernel[3]
    int64_t stride[3]
    int64_t before[3]
    int64_t dilation[3]
    int64_t pixels_in, pixels_out, taps
    bint accumulate
    ConvView view[CONV_TENSORS]   # data is NULL for gradients left out
    ConvertKernel load, save      # storage to compute type and back
    ConvCut for_input, for_weight
    bint planes                   # one channel at a time, on flat planes
    int64_t reach                 # pixels that a tap is away, at most (planes)
    int64_t packed_bytes          # what all threads share: weights repacked for grad_input, or tables
    int64_t thread_bytes          # blocks, sums and tables of one thread
    int64_t workspace_bytes
    int threads                   # as many as pay; the workspace has room for them


cdef int64_t pieces(int64_t n, int64_t of) noexcept nogil:
    return n // of + (n % of != 0)


cdef int64_t round_up(int64_t n, int64_t to) noexcept nogil:
    return (n + to - 1) // to * to


cdef int check_axis(const Tensor *t, int arg, int axis, int64_t expected, int against, Failure *failure) noexcept nogil:
    if t.shape[axis] != expected:
        return fail(failure, Rule.AXIS_MISMATCH, arg, against, axis, t.shape[axis], expected)
    return Rule.PASSED


cdef int check_conv_output(const Tensor *out, int arg, const Tensor *like, int against, Failure *failure) noexcept nogil:
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
    return check_output(out, arg, failure)


cdef int check_conv_parameters(const ConvSpec *spec, int nd, Failure *failure) noexcept nogil:
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


cdef int check_conv(const ConvSpec *spec, Tensor **tensors, Failure *failure) noexcept nogil:
    """tensors[CONV_...]; bias and the gradients may be NULL."""
    cdef const Tensor *grad_output = tensors[CONV_GRAD_OUTPUT]
    cdef const Tensor *input = tensors[CONV_INPUT]
    cdef const Tensor *weight = tensors[CONV_WEIGHT]
    cdef Tensor channels
    cdef int d, arg, nd = input.ndim - 2
    cdef int64_t size, span, padded
    if not is_floating(grad_output.dtype):
        return fail(failure, Rule.DTYPE_UNSUPPORTED, CONV_GRAD_OUTPUT)
    for arg in range(1, 3):
        if tensors[arg].dtype != grad_output.dtype:
            return fail(failure, Rule.DTYPE_MISMATCH if is_floating(tensors[arg].dtype) else Rule.DTYPE_UNSUPPORTED, arg, CONV_GRAD_OUTPUT)
    if nd < 1 or nd > 3:
        return fail(failure, Rule.NDIM_UNSUPPORTED, CONV_INPUT, -1, -1, input.ndim)
    for arg in range(3):
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
            or check_axis(grad_output, CONV_GRAD_OUTPUT, 0, input.shape[0], CONV_INPUT, failure) \
            or check_axis(grad_output, CONV_GRAD_OUTPUT, 1, weight.shape[0], CONV_WEIGHT, failure):
        return failure.rule
    for d in range(nd):
        if weight.shape[2 + d] < 1:
            return fail(failure, Rule.KERNEL_EMPTY, CONV_WEIGHT, -1, 2 + d)
        if mul_overflows(spec.dilation[d], weight.shape[2 + d] - 1, &span) or add_overflows(span, 1, &span) \
                or add_overflows(input.shape[2 + d], spec.before[d], &padded) \
                or add_overflows(padded, spec.after[d], &padded):
            return fail(failure, Rule.TOO_LARGE, CONV_PADDING)
        if padded < span:
            return fail(failure, Rule.KERNEL_TOO_LARGE, CONV_WEIGHT, CONV_INPUT, 2 + d, span, padded)
        if check_axis(grad_output, CONV_GRAD_OUTPUT, 2 + d, (padded - span) // spec.stride[d] + 1, CONV_INPUT, failure):
            return failure.rule
    channels.dtype = weight.dtype
    channels.ndim = 1
    channels.shape[0] = weight.shape[0]
    if tensors[CONV_BIAS] != NULL and (
            check_conv_output(tensors[CONV_BIAS], CONV_BIAS, &channels, CONV_WEIGHT, failure)):
        return failure.rule
    if tensors[CONV_GRAD_INPUT] != NULL and (
            check_conv_output(tensors[CONV_GRAD_INPUT], CONV_GRAD_INPUT, input, CONV_INPUT, failure)):
        return failure.rule
    if tensors[CONV_GRAD_WEIGHT] != NULL and (
            check_conv_output(tensors[CONV_GRAD_WEIGHT], CONV_GRAD_WEIGHT, weight, CONV_WEIGHT, failure)):
        return failure.rule
    if tensors[CONV_GRAD_BIAS] != NULL and (
            check_conv_output(tensors[CONV_GRAD_BIAS], CONV_GRAD_BIAS, &channels, CONV_WEIGHT, failure)):
        return failure.rule
    return Rule.PASSED


cdef void conv_view(const Tensor *t, ConvView *view) noexcept nogil:
    """Strides as (n, channel, space); the data is bound at run time."""
    cdef int d, nd = t.ndim - 2
    view.data = NULL
    view.n = t.strides[0]
    view.channel = t.strides[1] if t.ndim > 1 else 0
    for d in range(3):
        view.space[d] = t.strides[2 + d - (3 - nd)] if t.ndim > 2 and d >= 3 - nd else 0


cdef int plan_conv(const ConvSpec *spec, Tensor **tensors, int threads, ConvPlan *plan, Failure *failure) noexcept nogil:
    cdef const Tensor *input = tensors[CONV_INPUT]
    cdef const Tensor *weight = tensors[CONV_WEIGHT]
    cdef const Tensor *grad_output = tensors[CONV_GRAD_OUTPUT]
    cdef int d, e, arg, nd = input.ndim - 2
    if check_conv(spec, tensors, failure):
        return failure.rule
    memset(plan, 0, sizeof(ConvPlan))
    plan.dtype = input.dtype
    plan.compute = compute_dtype_of(input.dtype)
    plan.item = itemsize_of(plan.compute)
    plan.load = kernels.convert[plan.dtype][plan.compute]
    plan.save = kernels.convert[plan.compute][plan.dtype]
    plan.accumulate = spec.accumulate
    plan.batch = input.shape[0]
    plan.groups = spec.groups
    plan.cin = weight.shape[1]
    plan.cout = weight.shape[0] // spec.groups
    plan.pixels_in = plan.pixels_out = plan.taps = 1
    for d in range(3):
        e = d - (3 - nd)
        plan.size_in[d] = input.shape[2 + e] if e >= 0 else 1
        plan.size_out[d] = grad_output.shape[2 + e] if e >= 0 else 1
        plan.kernel[d] = weight.shape[2 + e] if e >= 0 else 1
        plan.stride[d] = spec.stride[e] if e >= 0 else 1
        plan.before[d] = spec.before[e] if e >= 0 else 0
        plan.dilation[d] = spec.dilation[e] if e >= 0 else 1
        plan.pixels_in *= plan.size_in[d]
        plan.pixels_out *= plan.size_out[d]
        plan.taps *= plan.kernel[d]
    for arg in range(CONV_TENSORS):
        if tensors[arg] != NULL:
            conv_view(tensors[arg], &plan.view[arg])

    plan.threads = worthwhile_threads(plan, threads)
    if plan.cin > MAX_CHANNELS:  # all sums below then fit
        return fail(failure, Rule.TOO_LARGE, CONV_WEIGHT)
    cut_grad_input(plan)
    cut_grad_weight(plan)
    plan.planes = fits_planes(plan)
    if mul_overflows(plan.groups * plan.cout * plan.taps, plan.for_input.slivers * plan.for_input.columns * plan.item,
                     &plan.packed_bytes) or plan.packed_bytes > (<int64_t>1 << 60):
        return fail(failure, Rule.TOO_LARGE, CONV_WEIGHT)
    if plan.for_input.amx:
        plan.packed_bytes = amx_packed_bytes(plan)
    plan.packed_bytes = round_up(plan.packed_bytes, CONV_ALIGN) if tensors[CONV_GRAD_INPUT] != NULL else 0
    plan.thread_bytes = max(plan.for_input.bytes, plan.for_weight.bytes)
    if plan.planes:
        plan.packed_bytes = plane_shared_bytes(plan)
        plan.thread_bytes = plane_thread_bytes(plan)
    plan.workspace_bytes = CONV_ALIGN + plan.packed_bytes + plan.threads * plan.thread_bytes
    return Rule.PASSED


cdef int worthwhile_threads(const ConvPlan *plan, int threads) noexcept nogil:
    """One for every CONV_WORK multiplications: waking threads costs microseconds, and milliseconds on a busy machine. An
    output element of few multiplications counts as CONV_LEAST_WORK: moving it takes that long."""
    cdef int64_t work = plan.batch * plan.pixels_out  # fits: it counts elements of one channel
    cdef int64_t each
    if mul_overflows(plan.cin, plan.taps, &each) or mul_overflows(work, plan.groups * plan.cout, &work) \
            or mul_overflows(work, max(<int64_t>CONV_LEAST_WORK, each), &work):
        return threads
    return <int>max(<int64_t>1, min(<int64_t>threads, work // CONV_WORK))


cdef int check_conv_addresses(Tensor **tensors, Failure *failure) noexcept nogil:
    """No output may share memory with an input or with another output."""
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
