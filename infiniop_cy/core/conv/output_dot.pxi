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
    OUTPUT_DOT_GATHERING = 128      # output channels whose products with a line of one tap take as long as gathering it

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
    OutputCopies copies


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


cdef int64_t output_dot_tasks(const SampleGeometry *sample, int64_t samples, OutputDot *own) noexcept nogil:
    """Count the tasks of a pass; set how many blocks of windows and of rows there are."""
    own.window_blocks = ceil_div(samples * sample.pixels_in, own.windows)
    own.row_blocks = ceil_div(sample.cin, own.rows)
    return sample.groups * own.row_blocks * own.window_blocks


cdef int64_t windows_of_task(const SampleGeometry *sample, int64_t samples, int64_t least) noexcept nogil:
    """Return the most windows of a task whose stretches have at least so many terms."""
    return max(<int64_t>1, min(min(<int64_t>OUTPUT_DOT_WINDOWS, samples * sample.pixels_in),
                               OUTPUT_DOT_ELEMENTS // least))


cdef void block_output_dot(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Give a task as many windows and output channels as fit; fewer channels, then windows, while there are too few
    tasks for the threads."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef OutputDot *own = <OutputDot *>blocking.own
    cdef int64_t lines = panel_lines(sample), panels = ceil_div(sample.cout * lines_of_channel(sample), lines), least
    cdef int64_t samples, fewest = max(<int64_t>2 * DOT_ROWS, OUTPUT_DOT_GATHERING // sample.axis[2].kernel)
    blocking.samples = samples_to_copy(problem, threads)
    samples = blocking.samples if blocking.samples else problem.batch
    own.terms, own.padded = lines * sample.axis[2].kernel, meets_padding(sample)
    least = own.terms
    own.windows = windows_of_task(sample, samples, least)
    if (problem.view[CONV_GRAD_OUTPUT].channel == itemsize_of(sample.dtype) and not blocking.samples) \
            or not (rows_of_terms(sample, &problem.view[CONV_WEIGHT])
                    or copies_weights(problem, ceil_div(samples * sample.pixels_in, own.windows))):
        least = max(least, min(sample.cout, sample.lanes) * sample.taps)  # vectors of channels are transposed
        own.windows = windows_of_task(sample, samples, least)
    own.rows = max(<int64_t>1, min(sample.cin, <int64_t>OUTPUT_DOT_ROWS))
    while threads > 1 and output_dot_tasks(sample, samples, own) < OUTPUT_DOT_TASKS * threads:
        if own.rows > fewest:
            own.rows = round_up(ceil_div(own.rows, 2), DOT_ROWS)
        elif own.windows > DOT_ROWS:
            own.windows = ceil_div(own.windows, 2)
        else:
            break
    blocking.tasks = output_dot_tasks(sample, samples, own)
    panels = min(panels, min(max(<int64_t>OUTPUT_DOT_STRETCH, least), OUTPUT_DOT_ELEMENTS // own.windows) // own.terms)
    own.lines = lines * max(<int64_t>1, panels)
    own.pitch = (ceil_div(own.lines * sample.axis[2].kernel, sample.lanes) + 1) * sample.lanes
    book(&blocking.local, OUTPUT_DOT_GATHERED, own.windows * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_STAGED, DOT_ROWS * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_SUMS, own.windows * own.rows, sample.item)
    plan_copies(problem, own.window_blocks, &own.copies, blocking)


# ---- weights

cdef const char *weights_of_line(const ConvRun *run, const DotTask *t, int64_t row) noexcept nogil:
    """Find an output channel's weights of the stretch's first line."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t per_channel = lines_of_channel(sample)
    return w.data + t.group * w.group + row * w.channel + t.line // per_channel * w.n \
        + tap_offset(sample, w, t.line % per_channel * sample.axis[2].kernel)


cdef bint rows_in_place(const ConvRun *run, const DotTask *t, int64_t row, int64_t rows) noexcept nogil:
    """Say whether dot products may read the stretch of some rows of weights, whose terms follow each other, where they
    lie, and past its end until the vectors of its last panel are whole: that is, still in the weights of the row, or of
    the next one."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t last = (t.depth - 1) // own.terms * own.terms
    cdef int64_t left = (sample.cout * lines_of_channel(sample) - t.line) * sample.axis[2].kernel
    if not of_whole_elements(run.problem, w):
        return False
    if row + rows < sample.cin and w.channel == sample.cout * sample.taps * sample.item:
        left += (sample.cin - row - rows) * sample.cout * sample.taps
    return last + round_up(t.depth - last, sample.lanes) <= left


cdef void stage_row(const ConvRun *run, const DotTask *t, const char *source, char *to) noexcept nogil:
    """Load the stretch of a row of weights, which begins at `source`, line by line."""
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
    cdef bint in_line = rows_of_terms(sample, w)
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


cdef bint prepare_output_dot(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    copy_unit(run, &(<const OutputDot *>run.blocking.own).copies, number)
    return False


cdef void output_dot_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task `number` on what was copied."""
    cdef ConvProblem copied
    cdef ConvRun part = run[0]
    problem_of_copies(run, &(<const OutputDot *>run.blocking.own).copies, &copied)
    part.problem = &copied
    sum_windows(&part, number, scratch)


cdef void sum_windows(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
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
    row.prepare, row.task, row.explain = prepare_output_dot, output_dot_task, explain_output_dot
    return row
