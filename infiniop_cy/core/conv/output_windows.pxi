# What output:dot gathers: the stretch at hand of its task's windows, as [window][channel][tap], with zeros for padding.
# By runs of taps where they lie evenly, by squares that are transposed where channels lie side by side, else line of
# taps by line: under windows side by side at once, or those that follow each other in one window, whichever are more.

cdef void window_run(const SampleGeometry *sample, int64_t window, int64_t end, WindowRun *run) noexcept nogil:
    """Find the windows up to `end` that lie side by side, from that number on over all samples."""
    cdef int64_t left = window % sample.pixels_in
    cdef int d
    run.n = window // sample.pixels_in
    for d in range(2, -1, -1):
        run.at[d] = left % sample.axis[d].size_in
        left //= sample.axis[d].size_in
    run.windows = min(end - window, sample.axis[2].size_in - run.at[2])
    first_input_pixel(sample, run.at, run.first)


cdef int64_t even_taps(const SampleGeometry *sample, const ConvView *x, int64_t *step) noexcept nogil:
    """Return how many taps of a channel of a window lie evenly, each so many times, one after the other, and the bytes
    from one to the next."""
    cdef int64_t taps = 1, apart
    cdef int d
    step[0] = itemsize_of(sample.dtype)
    for d in range(2, -1, -1):
        apart = sample.axis[d].dilation * x.space[d]
        if sample.axis[d].kernel > 1 and taps > 1 and apart != taps * step[0]:
            break
        if sample.axis[d].kernel > 1 and taps == 1:
            step[0] = apart
        taps *= sample.axis[d].kernel
    return taps


cdef void line_of_channel(const SampleGeometry *sample, const WindowRun *run, int64_t line,
                          int64_t *pixel) noexcept nogil:
    """Write the input pixel under the first tap of a channel's line for the first window."""
    pixel[0] = run.first[0] + line // sample.axis[1].kernel * sample.axis[0].dilation
    pixel[1] = run.first[1] + line % sample.axis[1].kernel * sample.axis[1].dilation
    pixel[2] = run.first[2]


cdef void gather_whole_channels(const ConvRun *run, const DotTask *t, const WindowRun *windows, int64_t many,
                                int64_t step, char *to) noexcept nogil:
    """Gather the stretch of one window inside of the image whose channels are whole, `many` taps at a time that are
    `step` bytes apart."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t item = sample.item, per_channel = lines_of_channel(sample), channels = t.lines // per_channel
    cdef int64_t tap = 0, c
    cdef int64_t k[3]
    cdef const char *source
    cdef const char *image = x.data + windows.n * x.n \
        + (t.group * sample.cout + t.line // per_channel) * x.channel
    cdef int d
    while tap < sample.taps:
        tap_index(sample, tap, k)
        source = image
        for d in range(3):
            source += (windows.first[d] + k[d] * sample.axis[d].dilation) * x.space[d]
        if many == 1:
            run.problem.load(source, x.channel, to + tap * item, sample.taps * item, channels)
        elif many == sample.taps and x.channel == many * step:
            run.problem.load(source, step, to, item, channels * many)
        elif x.channel == itemsize_of(sample.dtype):
            transpose_to_compute(sample)(source, step, to + tap * item, sample.taps * item, channels, many)
        else:
            for c in range(channels):
                run.problem.load(source + c * x.channel, step, to + (c * sample.taps + tap) * item, item, many)
        tap += many


cdef void gather_lines(const ConvRun *run, const DotTask *t, const WindowRun *windows, char *to) noexcept nogil:
    """Gather the stretch of windows side by side line by line, with zeros for padding. A line writes up to one vector
    less an element past its end, where the next one, or what no product reads, begins."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvAxis *axis = &sample.axis[2]
    cdef int64_t per_channel = lines_of_channel(sample), line
    cdef int64_t pixel[3]
    cdef TapLine taps
    cdef const char *source
    taps.rows, taps.row_step, taps.taps, taps.tap_step = windows.windows, sample.source[2].step, axis.kernel, \
        axis.dilation if axis.kernel > 1 else 1
    taps.first, taps.pitch = windows.first[2], x.space[2] // itemsize_of(sample.dtype)
    for line in range(t.line, t.line + t.lines):
        line_of_channel(sample, windows, line % per_channel, pixel)
        source, taps.size = x.data, 0  # of padding
        if 0 <= pixel[0] < sample.axis[0].size_out and 0 <= pixel[1] < sample.axis[1].size_out:
            source += windows.n * x.n + (t.group * sample.cout + line // per_channel) * x.channel \
                + pixel[0] * x.space[0] + pixel[1] * x.space[1]
            taps.size = axis.size_out
        kernels.take_taps[sample.dtype](&taps, source, to, own.pitch)
        to += axis.kernel * sample.item


cdef void taps_within(const SampleGeometry *sample, int d, int64_t pixel, int64_t *begin, int64_t *end) noexcept nogil:
    """Find the taps [begin, end) along one axis that meet the image, where the first one meets that input pixel."""
    cdef const ConvAxis *axis = &sample.axis[d]
    begin[0] = min(axis.kernel, ceil_div(max(<int64_t>0, -pixel), axis.dilation))
    end[0] = max(begin[0], min(axis.kernel, ceil_div(max(<int64_t>0, axis.size_out - pixel), axis.dilation)))


cdef void gather_pixels(const ConvRun *run, const DotTask *t, const WindowRun *windows, char *to) noexcept nogil:
    """Gather the stretch of one window whose channels are whole and lie side by side, with zeros for padding."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvAxis *axis = &sample.axis[2]
    cdef int64_t per_channel = lines_of_channel(sample), channels = t.lines // per_channel, line, item = sample.item
    cdef int64_t begin, end
    cdef int64_t pixel[3]
    cdef const char *source
    memset(to, 0, t.depth * item)
    taps_within(sample, 2, windows.first[2], &begin, &end)
    for line in range(per_channel if begin < end else 0):
        line_of_channel(sample, windows, line, pixel)
        if not 0 <= pixel[0] < sample.axis[0].size_out or not 0 <= pixel[1] < sample.axis[1].size_out:
            continue
        source = x.data + windows.n * x.n + (t.group * sample.cout + t.line // per_channel) * x.channel \
            + pixel[0] * x.space[0] + pixel[1] * x.space[1] + (pixel[2] + begin * axis.dilation) * x.space[2]
        transpose_to_compute(sample)(source, axis.dilation * x.space[2],
                                     to + (line * axis.kernel + begin) * item, sample.taps * item, channels,
                                     end - begin)


cdef bint describe_lines(const SampleGeometry *sample, const ConvView *x, TapLine *taps) noexcept nogil:
    """Let lines of one window that follow each other be the rows of a TapLine, whose pixels are elements; return False
    where some lie backwards or upon each other."""
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef int d = axis_of_lines(sample)
    taps.taps, taps.tap_step = sample.axis[2].kernel, 1
    if taps.taps > 1:
        taps.tap_step = sample.axis[2].dilation * x.space[2] // stored
    taps.row_step = 1
    if d >= 0:
        taps.row_step = sample.axis[d].dilation * x.space[d] // stored
    elif sample.cout > 1:
        taps.row_step = x.channel // stored
    taps.first, taps.size, taps.pitch = 0, MAX_SCRATCH, 1
    return taps.row_step > 0 and taps.tap_step > 0


cdef void gather_window(const ConvRun *run, const DotTask *t, const WindowRun *windows, TapLine *taps,
                        char *to) noexcept nogil:
    """Gather the stretch of one window, whose lines are within the image or in padding, as many lines at a time as
    follow each other."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t per_channel = lines_of_channel(sample), line = t.line, end = t.line + t.lines, rows, low, high, k
    cdef int64_t bytes = sample.axis[2].kernel * sample.item
    cdef int64_t pixel[3]
    cdef int d = axis_of_lines(sample), e
    while line < end:
        line_of_channel(sample, windows, line % per_channel, pixel)
        rows, low, high = end - line, 0, end - line
        if d >= 0:
            k = line % sample.axis[d].kernel
            rows = min(rows, sample.axis[d].kernel - k)
            taps_within(sample, d, windows.first[d], &low, &high)
            low, high = min(rows, max(<int64_t>0, low - k)), min(rows, high - k)
            pixel[d] += low * sample.axis[d].dilation
        for e in range(2):
            if e != d and not 0 <= pixel[e] < sample.axis[e].size_out:
                high = 0
        if high <= low:
            low = high = rows
        memset(to, 0, low * bytes)
        taps.rows = high - low
        if taps.rows:
            kernels.take_taps[sample.dtype](
                taps, x.data + windows.n * x.n + (t.group * sample.cout + line // per_channel) * x.channel
                + pixel[0] * x.space[0] + pixel[1] * x.space[1] + pixel[2] * x.space[2],
                to + low * bytes, sample.axis[2].kernel)
        memset(to + high * bytes, 0, (rows - high) * bytes)
        to += rows * bytes
        line += rows


cdef bint lines_within(const SampleGeometry *sample, const WindowRun *windows) noexcept nogil:
    """Say whether no line of windows side by side begins or ends in padding."""
    cdef const ConvAxis *axis = &sample.axis[2]
    return windows.first[2] >= 0 and windows.first[2] + (windows.windows - 1) * sample.source[2].step \
        + (axis.kernel - 1) * axis.dilation < axis.size_out


cdef void gather_windows(const ConvRun *run, const DotTask *t) noexcept nogil:
    """Gather the stretch of the task's windows as [window][channel][tap]."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t step, i, many = even_taps(sample, x, &step)
    cdef int64_t per_channel = lines_of_channel(sample), pitch = own.pitch * sample.item, count
    cdef bint whole = t.lines % per_channel == 0 and t.line % per_channel == 0
    cdef bint side_by_side = whole and x.channel == itemsize_of(sample.dtype) and t.lines > per_channel
    cdef int64_t window = t.window, end = t.window + t.windows
    cdef char *to = t.gathered
    cdef WindowRun windows
    cdef TapLine lines
    cdef bint in_line = describe_lines(sample, x, &lines)
    while window < end:
        window_run(sample, window, end, &windows)
        count = windows.windows
        if not side_by_side and (not in_line or count >= lines_that_follow(sample)
                                 or not lines_within(sample, &windows)):
            gather_lines(run, t, &windows, to)
        else:
            windows.windows = 1
            for i in range(count):
                if whole and (side_by_side or many > sample.axis[2].kernel or many == 1) \
                        and is_within(sample, windows.first):
                    gather_whole_channels(run, t, &windows, many, step, to + i * pitch)
                elif side_by_side:
                    gather_pixels(run, t, &windows, to + i * pitch)
                else:
                    gather_window(run, t, &windows, &lines, to + i * pitch)
                windows.first[2] += sample.source[2].step
        window += count
        to += count * pitch
