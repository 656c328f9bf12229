# An output as dot products of windows of the input with the weights as they lie, for few output pixels or channels:
# there packing the weights for other algorithms takes longer than all products, or most lanes stay empty. Lanes are
# (channel, tap). A task has some windows by some output channels and goes through a sum stretch by stretch: it gathers
# that of its windows, with zeros for padding, and takes the same stretch of the weights, in place where it can. The sum
# of a panel's terms begins at zero; stretches are some panels, so that bits do not depend on them.
#
# `sample` is stated with exchanged roles (forward.pxi): cout and size_out are the input's, cin and size_in the
# output's. A line is all taps along the last axis of one channel.
cdef enum:
    OUTPUT_DOT_TERMS = 32           # of a sum, at least
    OUTPUT_DOT_PANEL = 1024         # terms of a panel, but for a channel of more
    OUTPUT_DOT_LINE = 1 << 14       # taps of a line, or of a channel in one panel, at most
    OUTPUT_DOT_WINDOWS = 32         # of a task, at most
    OUTPUT_DOT_STRETCH = 8192       # terms of a stretch, but for a panel
    OUTPUT_DOT_ELEMENTS = 1 << 16   # of a task's gathered windows, but for one panel of one
    OUTPUT_DOT_ROWS = 256           # output channels of a task, at most
    OUTPUT_DOT_TASKS = 4            # of a thread, or more

    # pieces of a thread's scratch
    OUTPUT_DOT_GATHERED = 0
    OUTPUT_DOT_STAGED = 1
    OUTPUT_DOT_SUMS = 2


ctypedef struct OutputDot:
    int64_t terms        # of a panel
    int64_t lines        # of a stretch
    int64_t pitch        # elements from window to window, and from row to row of staged weights
    int64_t windows      # of a task
    int64_t window_blocks
    int64_t rows         # output channels of a task
    int64_t row_blocks
    bint padded          # some window leaves the image


# A task's part, and where its scratch lies.
ctypedef struct DotTask:
    int64_t group
    int64_t window, windows
    int64_t row, rows
    int64_t line, lines      # of the stretch at hand
    int64_t depth            # its terms
    bint nonfinite           # there were inf or NaN among the weights
    char *gathered
    char *staged
    char *sums


# Windows side by side: of one sample, from an output pixel on along the last axis.
ctypedef struct WindowRun:
    int64_t n, windows
    int64_t at[3]            # the first output pixel
    int64_t first[3]         # the input pixel under its first tap


cdef int64_t lines_of_channel(const SampleGeometry *sample) noexcept nogil:
    """Count the lines of taps of a channel."""
    return sample.axis[0].kernel * sample.axis[1].kernel


cdef int axis_of_lines(const SampleGeometry *sample) noexcept nogil:
    """Find the axis along which a window's lines follow each other: the innermost that has several taps, or -1, that of
    the channels."""
    if sample.axis[1].kernel > 1:
        return 1
    return 0 if sample.axis[0].kernel > 1 else -1


cdef int64_t lines_that_follow(const SampleGeometry *sample) noexcept nogil:
    """Count the lines of a window that follow each other in memory."""
    cdef int d = axis_of_lines(sample)
    return sample.cout if d < 0 else sample.axis[d].kernel


cdef int64_t panel_lines(const SampleGeometry *sample) noexcept nogil:
    """Return the lines of a panel: all of some channels, whose terms fill vectors if that is possible, or some of
    one's."""
    cdef int64_t channels, whole = sample.lanes
    if sample.taps > OUTPUT_DOT_LINE:
        return OUTPUT_DOT_LINE // sample.axis[2].kernel
    while whole > 1 and sample.taps * whole % (2 * sample.lanes) == 0:
        whole //= 2
    channels = max(<int64_t>1, OUTPUT_DOT_PANEL // sample.taps)
    if channels >= whole:
        channels -= channels % whole
    return min(channels, sample.cout) * lines_of_channel(sample)


cdef void first_input_pixel(const SampleGeometry *sample, const int64_t *output, int64_t *pixel) noexcept nogil:
    """Write the input pixel that an output pixel meets under its first tap."""
    cdef int64_t position[3]
    cdef int64_t k[3]
    cdef Phase phase
    cdef int d
    make_phase(sample, 0, &phase)
    phase_tap(sample, &phase, 0, position, k)
    for d in range(3):
        position[d] += output[d]
    source_pixel(sample, position, k, pixel)


cdef bint is_within(const SampleGeometry *sample, const int64_t *first) noexcept nogil:
    """Say whether a window that begins at that input pixel is within the image."""
    cdef int d
    for d in range(3):
        if first[d] < 0 or first[d] + (sample.axis[d].kernel - 1) * sample.axis[d].dilation >= sample.axis[d].size_out:
            return False
    return True


cdef bint meets_padding(const SampleGeometry *sample) noexcept nogil:
    """Say whether any window leaves the image."""
    cdef int64_t corner[3]
    cdef int64_t first[3]
    cdef int d
    memset(corner, 0, sizeof(corner))
    first_input_pixel(sample, corner, first)
    for d in range(3):
        if first[d] < 0:
            return True
        corner[d] = sample.axis[d].size_in - 1
    first_input_pixel(sample, corner, first)
    return not is_within(sample, first)


cdef bint lanes_take_groups(const SampleGeometry *sample) noexcept nogil:
    """Say whether another algorithm of the output has channels of several groups for its lanes."""
    cdef const char *why
    return accepts_depthwise(sample, &why) or accepts_output_multiplied(sample, &why) or accepts_grouped(sample, &why)


cdef bint accepts_output_dot(const SampleGeometry *sample, const char **why) noexcept nogil:
    if sample.pixels_in == 0 or sample.cout * sample.taps < OUTPUT_DOT_TERMS \
            or sample.axis[2].kernel > OUTPUT_DOT_LINE:
        why[0] = b"windows have too few terms, or their lines too many"
        return False
    if sample.groups > 1 and lanes_take_groups(sample) \
            and lanes_time(sample) < 1.5 * windows_time(sample):
        why[0] = b"groups of so few channels lie side by side in the lanes"
        return False
    if not windows_pay(sample):
        why[0] = b"so many output pixels or channels pay for packing the weights"
        return False
    return True


cdef void order_output_dot(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum the terms of a panel by lanes, then the lanes, then panels."""
    order.channels, order.taps = sample.cout, sample.taps


cdef int64_t output_dot_tasks(const ConvProblem *problem, OutputDot *own) noexcept nogil:
    """Count the tasks; set how many blocks of windows and of rows there are."""
    own.window_blocks = ceil_div(problem.batch * problem.sample.pixels_in, own.windows)
    own.row_blocks = ceil_div(problem.sample.cin, own.rows)
    return problem.sample.groups * own.row_blocks * own.window_blocks


cdef void block_output_dot(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Give a task as many windows and output channels as fit; fewer channels, then windows, while there are too few
    tasks for the threads."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef OutputDot *own = <OutputDot *>blocking.own
    cdef int64_t lines = panel_lines(sample), panels = ceil_div(sample.cout * lines_of_channel(sample), lines), least
    own.terms, own.padded = lines * sample.axis[2].kernel, meets_padding(sample)
    least = own.terms
    if problem.view[CONV_GRAD_OUTPUT].channel == itemsize_of(sample.dtype):  # which a vector of transposes at a time
        least = max(least, min(sample.cout, sample.lanes) * sample.taps)
    own.windows = max(<int64_t>1, min(min(<int64_t>OUTPUT_DOT_WINDOWS, problem.batch * sample.pixels_in),
                                      OUTPUT_DOT_ELEMENTS // least))
    own.rows = max(<int64_t>1, min(sample.cin, <int64_t>OUTPUT_DOT_ROWS))
    while threads > 1 and output_dot_tasks(problem, own) < OUTPUT_DOT_TASKS * threads:
        if own.rows > 2 * DOT_ROWS:
            own.rows = round_up(ceil_div(own.rows, 2), DOT_ROWS)
        elif own.windows > DOT_ROWS:
            own.windows = ceil_div(own.windows, 2)
        else:
            break
    blocking.tasks = output_dot_tasks(problem, own)
    panels = min(panels, min(max(<int64_t>OUTPUT_DOT_STRETCH, least), OUTPUT_DOT_ELEMENTS // own.windows) // own.terms)
    own.lines = lines * max(<int64_t>1, panels)
    own.pitch = (ceil_div(own.lines * sample.axis[2].kernel, sample.lanes) + 1) * sample.lanes
    book(&blocking.local, OUTPUT_DOT_GATHERED, own.windows * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_STAGED, DOT_ROWS * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_SUMS, own.windows * own.rows, sample.item)


# ---- windows

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
    cdef int64_t window = t.window, step, i, many = even_taps(sample, x, &step)
    cdef int64_t per_channel = lines_of_channel(sample), pitch = own.pitch * sample.item, count
    cdef bint whole = t.lines % per_channel == 0 and t.line % per_channel == 0
    cdef bint side_by_side = whole and x.channel == itemsize_of(sample.dtype) and t.lines > per_channel
    cdef char *to = t.gathered
    cdef WindowRun windows
    cdef TapLine lines
    cdef bint in_line = describe_lines(sample, x, &lines)
    while window < t.window + t.windows:
        window_run(sample, window, t.window + t.windows, &windows)
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


# ---- weights

cdef const char *weights_of_line(const ConvRun *run, const DotTask *t, int64_t row) noexcept nogil:
    """Find an output channel's weights of the stretch's first line."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t per_channel = lines_of_channel(sample)
    return w.data + t.group * w.group + row * w.channel + t.line // per_channel * w.n \
        + tap_offset(sample, w, t.line % per_channel * sample.axis[2].kernel)


cdef bint rows_in_place(const ConvRun *run, const DotTask *t, int64_t row, int64_t rows) noexcept nogil:
    """Say whether a dot product may read the stretch of some rows of weights, whose terms follow each other, where they
    lie, and past its end up to a whole vector: that is, still in the weights of the row, or of the next one."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t left = (sample.cout * lines_of_channel(sample) - t.line) * sample.axis[2].kernel
    if not of_whole_elements(run.problem, w):
        return False
    if row + rows < sample.cin and w.channel == sample.cout * sample.taps * sample.item:
        left += (sample.cin - row - rows) * sample.cout * sample.taps
    return round_up(t.depth, sample.lanes) <= left


cdef void stage_row(const ConvRun *run, const DotTask *t, const char *source, char *to) noexcept nogil:
    """Load the stretch of a row of weights that begin at `source`, element by element or tap by tap."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t per_channel = lines_of_channel(sample), taps = sample.axis[2].kernel, line, i
    cdef const char *first = source - tap_offset(sample, w, t.line % per_channel * taps)
    for i in range(t.lines):
        line = t.line % per_channel + i
        run.problem.load(first + line // per_channel * w.n + tap_offset(sample, w, line % per_channel * taps),
                         w.space[2], to + i * taps * sample.item, sample.item, taps)


cdef const char *weight_rows(const ConvRun *run, DotTask *t, int64_t row, int64_t rows, int64_t *at) noexcept nogil:
    """Find the stretch of some rows of weights as [channel][tap], in place or staged; at: how many elements each is
    from the first, the last one again for those that there are not. inf and NaN that might meet padding are
    replaced."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t stored = itemsize_of(sample.dtype), r, per_channel = lines_of_channel(sample)
    cdef bint in_line = taps_in_line(sample, w) and (w.n == sample.taps * stored or sample.cout == 1)
    cdef bint in_place = in_line and rows_in_place(run, t, row, rows)
    cdef const char *source
    cdef char *to = t.staged
    for r in range(rows):
        source = weights_of_line(run, t, row + r)
        if in_place and own.padded and kernels.has_nonfinite[sample.compute](source, t.depth):
            in_place = False
    for r in range(DOT_ROWS):
        at[r] = min(r, rows - 1) * (w.channel // sample.item if in_place else own.pitch)
    if in_place:
        return weights_of_line(run, t, row)
    for r in range(rows):
        source = weights_of_line(run, t, row + r)
        if in_line:
            run.problem.load(source, stored, to, sample.item, t.depth)
        elif outputs_in_line(sample, w) and t.line % per_channel == 0 and t.lines % per_channel == 0:
            transpose_to_compute(sample)(source, sample.cout * stored, to, sample.taps * sample.item,
                                         t.lines // per_channel, sample.taps)
        else:
            stage_row(run, t, source, to)
        if own.padded:
            t.nonfinite |= replace_nonfinite_values(sample, to, t.depth)
        to += own.pitch * sample.item
    return t.staged


# ---- a task

cdef void multiply_by_rows(const ConvRun *run, const DotTask *t, const char *weights, const int64_t *at, int64_t row,
                           int64_t rows) noexcept nogil:
    """Add the products of some rows of weights, panel by panel, one window at a time."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t term = 0, window, item = sample.item
    while term < t.depth:
        for window in range(t.windows):
            kernels.dot[sample.compute](1, min(own.terms, t.depth - term),
                                        t.gathered + (window * own.pitch + term) * item, 0, weights + term * item, 0,
                                        at, rows, t.sums + (window * t.rows + row) * item)
        term += own.terms


cdef void multiply_by_windows(const ConvRun *run, const DotTask *t, const char *weights, const int64_t *at,
                              int64_t row, int64_t rows) noexcept nogil:
    """Do what multiply_by_rows does, with the same bits, some windows by one row at a time."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t term = 0, window, windows, item = sample.item, r, i
    cdef int64_t window_at[DOT_ROWS]
    cdef char dots[DOT_ROWS * 8]
    while term < t.depth:
        window = 0
        while window < t.windows:
            windows = min(<int64_t>DOT_ROWS, t.windows - window)
            for i in range(DOT_ROWS):
                window_at[i] = min(i, windows - 1) * own.pitch
            for r in range(rows):
                memset(dots, 0, sizeof(dots))
                kernels.dot[sample.compute](1, min(own.terms, t.depth - term), weights + (at[r] + term) * item, 0,
                                            t.gathered + (window * own.pitch + term) * item, 0, window_at, windows,
                                            dots)
                for i in range(windows):
                    add_values(sample, dots + i * item, t.sums + ((window + i) * t.rows + row + r) * item, 1)
            window += windows
        term += own.terms


cdef void save_windows(const ConvRun *run, DotTask *t) noexcept nogil:
    """Add what inf and NaN weights give, and the bias, to the sums, and save them."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *y = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t window = t.window, i, channel = t.group * sample.cin + t.row
    cdef int d
    cdef char *to
    cdef WindowRun windows
    cdef InputSums sums
    cdef Phase phase
    cdef Box tile
    make_phase(sample, 0, &phase)
    sums.data, sums.group, sums.ci_from, sums.channels = t.sums, t.group, t.row, t.rows
    sums.pixel_pitch, sums.ci_pitch = t.rows, 1
    while window < t.window + t.windows:
        window_run(sample, window, t.window + t.windows, &windows)
        tile.n, tile.samples = windows.n, 1
        for d in range(3):
            tile.first[d], tile.extent[d], tile.step[d] = windows.at[d], 1, 1
        tile.extent[2] = windows.windows
        sums.extent = tile.extent
        if t.nonfinite:
            add_nonfinite_weights(run.problem, &phase, &tile, &sums)
        for i in range(windows.windows):
            to = y.data + windows.n * y.n + windows.at[0] * y.space[0] + windows.at[1] * y.space[1] \
                + (windows.at[2] + i) * y.space[2]
            save_dots(run, channel, t.rows, sums.data + i * t.rows * sample.item, to)
        sums.data += windows.windows * t.rows * sample.item
        window += windows.windows


cdef void save_dots(const ConvRun *run, int64_t channel, int64_t count, char *sums, char *to) noexcept nogil:
    """Add the bias to the sums of some channels of an output pixel, and save them; to: where that of channel 0 lies."""
    cdef const ConvView *y = &run.problem.view[CONV_GRAD_INPUT]
    cdef double bias[BIAS_STAGED]
    cdef int64_t first = 0
    while has_output_bias(run.problem) and first < count:
        load_output_bias(run.problem, channel + first, min(<int64_t>BIAS_STAGED, count - first), <char *>bias)
        add_values(run.sample, <char *>bias, sums + first * run.sample.item,
                   min(<int64_t>BIAS_STAGED, count - first))
        first += BIAS_STAGED
    run.problem.save(sums, run.sample.item, to + channel * y.channel, y.channel, count)


cdef void output_dot_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum task number (group, rows, windows), stretch by stretch."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t row, rows, all_lines = sample.cout * lines_of_channel(sample)
    cdef int64_t at[DOT_ROWS]
    cdef const char *weights
    cdef DotTask t
    t.window = number % own.window_blocks * own.windows
    t.windows = min(own.windows, run.problem.batch * sample.pixels_in - t.window)
    number //= own.window_blocks
    t.row, t.group = number % own.row_blocks * own.rows, number // own.row_blocks
    t.rows, t.nonfinite, t.line = min(own.rows, sample.cin - t.row), False, 0
    t.gathered, t.staged = local_piece(run, OUTPUT_DOT_GATHERED, scratch), local_piece(run, OUTPUT_DOT_STAGED, scratch)
    t.sums = local_piece(run, OUTPUT_DOT_SUMS, scratch)
    if t.windows <= 0:
        return
    memset(t.sums, 0, t.windows * t.rows * sample.item)
    while t.line < all_lines and not is_stopped(run):
        t.lines = min(own.lines, all_lines - t.line)
        t.depth = t.lines * sample.axis[2].kernel
        gather_windows(run, &t)
        row = 0
        while row < t.rows:
            rows = min(<int64_t>DOT_ROWS, t.rows - row)
            weights = weight_rows(run, &t, t.row + row, rows, at)
            if rows * ceil_div(t.windows, DOT_ROWS) < t.windows:
                multiply_by_windows(run, &t, weights, at, row, rows)
            else:
                multiply_by_rows(run, &t, weights, at, row, rows)
            row += rows
        t.line += own.lines
    save_windows(run, &t)


cdef void explain_output_dot(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const OutputDot *own = <const OutputDot *>blocking.own
    snprintf(text, size, b"dot products of windows with the weights as they lie, of %lld terms each in panels of %lld; "
             b"%lld windows by %lld output channels a task", <long long>(sample.cout * sample.taps),
             <long long>own.terms, <long long>own.windows, <long long>own.rows)


cdef ConvAlgorithm output_dot() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"output:dot", FOR_OUTPUT
    row.accepts, row.order, row.block = accepts_output_dot, order_output_dot, block_output_dot
    row.prepare, row.task, row.explain = nothing_to_prepare, output_dot_task, explain_output_dot
    return row
