# Taps that meet only padding, at the sides of the kernel: the CPU's algorithms see a smaller kernel without them. Their
# grad_weight, the sum of zeros by grad_output, is written by a step of its own.
cdef extern from "math.h" nogil:
    double NAN


cdef enum:
    FOR_PADDING_TAPS = 8   # beside FOR_GRAD_..., what that step computes
    PADDING_CHANNELS = 8   # output channels of one of its tasks

    # pieces of a thread's scratch
    PADDING_STAGING = 0


cdef void trim_taps(ConvProblem *problem) noexcept nogil:
    """Take taps off the sample's kernel that meet only padding; problem.trimmed says which."""
    cdef SampleGeometry *sample = &problem.sample
    cdef TrimmedTaps *trimmed = &problem.trimmed
    cdef ConvAxis *axis
    cdef int64_t taps
    cdef TapBox box
    cdef int d
    memset(trimmed, 0, sizeof(TrimmedTaps))
    for d in range(3):
        trimmed.kernel[d] = sample.axis[d].kernel
    if sample.pixels_in == 0 or not reach_image(sample, &box):
        return
    for d in range(3):
        axis = &sample.axis[d]
        taps = box.tap[d] + box.taps[d]
        trimmed.first[d] = min(box.tap[d], axis.before // axis.dilation)  # what lies before the image is not negative
        axis.before -= trimmed.first[d] * axis.dilation
        axis.kernel = taps - trimmed.first[d]
        sample.taps = sample.taps // trimmed.kernel[d] * axis.kernel
        conv_axis_derive(axis)
    trimmed.any = sample.taps < trimmed.kernel[0] * trimmed.kernel[1] * trimmed.kernel[2]


cdef int64_t first_tap(const TrimmedTaps *trimmed, const ConvView *w) noexcept nogil:
    """Count the bytes from the first tap of the whole kernel to that of the trimmed one."""
    return trimmed.first[0] * w.space[0] + trimmed.first[1] * w.space[1] + trimmed.first[2] * w.space[2]


cdef void shift_weights(ConvProblem *problem) noexcept nogil:
    """Lead the views of weight and grad_weight to the first tap that is left."""
    cdef ConvView *w = &problem.view[CONV_WEIGHT]
    w.data += first_tap(&problem.trimmed, w)
    w = &problem.view[CONV_GRAD_WEIGHT]
    if w.data != NULL:
        w.data += first_tap(&problem.trimmed, w)


# ---- the step

cdef bint meets_nonfinite(const ConvProblem *problem, int64_t channel, char *staging) noexcept nogil:
    """Say whether there is inf or NaN in a channel of grad_output: by padding's zeros it is NaN."""
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t size[3]
    cdef int64_t n, z, y, x, count, rows
    output_size(sample, size)
    rows = size[1]
    if g.space[1] == size[2] * g.space[2]:  # they follow each other: one row
        size[2] *= rows
        rows = 1
    for n in range(problem.batch):
        for z in range(size[0]):
            for y in range(rows):
                x = 0
                while x < size[2]:
                    count = min(<int64_t>STAGE_PIXELS, size[2] - x)
                    problem.load(g.data + n * g.n + channel * g.channel + z * g.space[0] + y * g.space[1]
                                 + x * g.space[2], g.space[2], staging, sample.item, count)
                    if kernels.has_nonfinite[sample.compute](staging, count):
                        return True
                    x += count
    return False


cdef void fill_elements(char *to, int64_t step, int64_t count, int64_t stored, uint64_t bits) noexcept nogil:
    """Write a value, `stored` bytes of it, to elements `step` bytes apart."""
    cdef int64_t i
    if stored == 2:
        for i in range(count):
            (<uint16_t *>(to + i * step))[0] = <uint16_t>bits
    elif stored == 4:
        for i in range(count):
            (<uint32_t *>(to + i * step))[0] = <uint32_t>bits
    else:
        for i in range(count):
            (<uint64_t *>(to + i * step))[0] = bits


cdef void fill_padding_taps(const ConvProblem *problem, const char *channel, int64_t stored,
                            uint64_t bits) noexcept nogil:
    """Write a value to all taps of one output channel that were trimmed. channel: its first tap of the whole kernel."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const TrimmedTaps *trimmed = &problem.trimmed
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t ci, z, y, behind = trimmed.first[2] + sample.axis[2].kernel
    cdef char *at
    for ci in range(sample.cin):
        for z in range(trimmed.kernel[0]):
            for y in range(trimmed.kernel[1]):
                at = <char *>channel + ci * w.channel + z * w.space[0] + y * w.space[1]
                if 0 <= z - trimmed.first[0] < sample.axis[0].kernel \
                        and 0 <= y - trimmed.first[1] < sample.axis[1].kernel:
                    fill_elements(at, w.space[2], trimmed.first[2], stored, bits)
                    fill_elements(at + behind * w.space[2], w.space[2], trimmed.kernel[2] - behind, stored, bits)
                else:
                    fill_elements(at, w.space[2], trimmed.kernel[2], stored, bits)


cdef bint kernel_in_line(const ConvProblem *problem, const ConvView *w) noexcept nogil:
    """Say whether all (ci, tap) of one output channel, those that were trimmed too, follow each other in memory."""
    cdef const TrimmedTaps *trimmed = &problem.trimmed
    cdef int64_t next = itemsize_of(problem.sample.dtype)
    cdef int d
    for d in range(2, -1, -1):
        if trimmed.kernel[d] > 1 and w.space[d] != next:
            return False
        next *= trimmed.kernel[d]
    return problem.sample.cin == 1 or w.channel == next


cdef void block_padding_taps(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                             Blocking *blocking) noexcept nogil:
    """Make tasks of some output channels."""
    cdef const SampleGeometry *sample = &problem.sample
    book(&blocking.local, PADDING_STAGING, STAGE_PIXELS, sample.item)
    blocking.tasks = ceil_div(sample.groups * sample.cout, PADDING_CHANNELS)


cdef void padding_taps_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Write 0 or NaN to the trimmed taps of some output channels; where memory allows, over all taps, since
    grad_weight's step comes after. Accumulating, only NaN changes anything."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvProblem *problem = run.problem
    cdef const TrimmedTaps *trimmed = &problem.trimmed
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t taps = trimmed.kernel[0] * trimmed.kernel[1] * trimmed.kernel[2], co
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef bint whole = not problem.accumulate and kernel_in_line(problem, w) and 2 * sample.taps <= taps
    cdef uint64_t bits
    cdef bint nonfinite
    cdef char *channel
    for co in range(number * PADDING_CHANNELS, min((number + 1) * PADDING_CHANNELS, sample.groups * sample.cout)):
        nonfinite = meets_nonfinite(problem, co, local_piece(run, PADDING_STAGING, scratch))
        channel = w.data - first_tap(trimmed, w) + co * w.n
        bits = 0
        if nonfinite:
            save_one(problem, NAN, <char *>&bits)
        if whole and not nonfinite:
            memset(channel, 0, sample.cin * taps * stored)
        elif nonfinite or not problem.accumulate:
            fill_padding_taps(problem, channel, stored, bits)


cdef ConvAlgorithm padding_taps() noexcept nogil:
    """Describe the step of the taps that were trimmed."""
    cdef ConvAlgorithm row
    memset(&row, 0, sizeof(row))
    row.name, row.gradients = b"padding_taps", FOR_PADDING_TAPS
    row.block, row.prepare, row.task = block_padding_taps, nothing_to_prepare, padding_taps_task
    return row
