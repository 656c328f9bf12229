# The image under a task's windows as planes, for output:dot: where its pixels do not follow each other, as where
# channels lie side by side, and windows share most of them, it is transposed once; windows are gathered from the copy.
cdef enum:
    OUTPUT_PLANES_ELEMENTS = 1 << 16   # of the copy, at most
    OUTPUT_PLANES_SHARED = 3           # windows that meet a pixel of the copy, at least, on the average


cdef int64_t most_under_windows(const SampleGeometry *sample) noexcept nogil:
    """Return the most elements of a copy."""
    cdef int64_t elements
    if mul_overflows(sample.cout, sample.pixels_out, &elements):
        return OUTPUT_PLANES_ELEMENTS
    return min(<int64_t>OUTPUT_PLANES_ELEMENTS, elements)


cdef void image_under(const SampleGeometry *sample, int64_t window, int64_t count, Box *box) noexcept nogil:
    """Find what `count` windows of one sample, from that number on, meet of the image: a box around it."""
    cdef WindowRun first, last
    cdef bint alike = True
    cdef int64_t low, high, step
    cdef int d
    window_run(sample, window, window + 1, &first)
    window_run(sample, window + count - 1, window + count, &last)
    box.n, box.samples = first.n, 1
    for d in range(3):
        step = sample.source[d].step
        low, high = first.first[d], last.first[d]
        if not alike:  # all of them along this axis
            low -= first.at[d] * step
            high = low + (sample.axis[d].size_in - 1) * step
        alike = alike and first.at[d] == last.at[d]
        high += (sample.axis[d].kernel - 1) * sample.axis[d].dilation + 1
        box.first[d], box.step[d] = max(<int64_t>0, low), 1
        box.extent[d] = max(<int64_t>0, min(sample.axis[d].size_out, high) - box.first[d])


cdef bint planes_under(const ConvRun *run, const DotTask *t, int64_t window, int64_t count,
                       ConvProblem *planes) noexcept nogil:
    """Copy what `count` windows of one sample, from that number on, meet of the stretch's channels, and state the
    problem of the copy; return False where that does not pay."""
    cdef const SampleGeometry *sample = run.sample
    cdef ConvView *x
    cdef int64_t stored = itemsize_of(sample.dtype), per_channel = lines_of_channel(sample), pixels, channel, channels
    cdef int64_t size[3]
    cdef Box box
    cdef int d
    if run.problem.view[CONV_GRAD_OUTPUT].space[2] == stored or count < OUTPUT_PLANES_SHARED:
        return False
    image_under(sample, window, count, &box)
    pixels, channel = box_positions(&box), t.line // per_channel
    channels = (t.line + t.lines - 1) // per_channel + 1 - channel
    if pixels == 0 or pixels * channels > most_under_windows(sample) \
            or OUTPUT_PLANES_SHARED * pixels * channels > count * t.depth:
        return False
    memcpy(planes, run.problem, sizeof(ConvProblem))
    output_size(sample, size)
    x = &planes.view[CONV_GRAD_OUTPUT]
    pack_planes(sample.dtype, sample.dtype, x, size, &box, t.group * sample.cout + channel, channels, t.planes, pixels)
    x.space[2], x.space[1] = stored, stored * box.extent[2]
    x.space[0], x.channel, x.n = x.space[1] * box.extent[1], pixels * stored, 0
    x.data = t.planes - (t.group * sample.cout + channel) * x.channel
    for d in range(3):
        x.data -= box.first[d] * x.space[d]
    return True


cdef void gather_windows(const ConvRun *run, const DotTask *t) noexcept nogil:
    """Gather the stretch of the task's windows, from planes where that pays."""
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t window = t.window, end = t.window + t.windows, pixels = run.sample.pixels_in, count
    cdef char *to = t.gathered
    cdef ConvProblem planes
    cdef ConvRun part = run[0]
    part.problem = &planes
    while window < end:
        count = min(end - window, pixels - window % pixels)  # of one sample
        if planes_under(run, t, window, count, &planes):
            gather_windows_of(&part, t, window, window + count, to)
        else:
            gather_windows_of(run, t, window, window + count, to)
        window += count
        to += count * own.pitch * run.sample.item
