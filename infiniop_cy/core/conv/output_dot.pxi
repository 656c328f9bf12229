# An output of few pixels as dot products of windows with the weights as they lie: where images are one pixel, or a
# kernel covers its image, packing the weights for other algorithms takes longer than all products. Lanes are (channel,
# tap); a window is gathered once for all rows of weights that a task has. Windows that meet padding are left to the
# others, so that an inf weight needs no care.
cdef enum:
    OUTPUT_DOT_PIXELS = 4           # of a sample's output, at most; one where AMX multiplies
    OUTPUT_DOT_VECTORS = 2          # of terms, at least
    OUTPUT_DOT_DEPTH = 1 << 16      # terms of a sum, at most
    OUTPUT_DOT_WINDOWS = 1 << 15    # elements of the windows gathered together
    OUTPUT_DOT_BLOCKS = 4           # of DOT_ROWS channels, in a task

    # pieces of a thread's scratch
    OUTPUT_DOT_GATHERED = 0
    OUTPUT_DOT_STAGED = 1


ctypedef struct OutputDot:
    int64_t pitch      # elements of a window, up to whole vectors
    int64_t windows    # gathered together
    int64_t rows       # output channels of a task
    int64_t parts      # tasks of a group


cdef bint meets_padding(const SampleGeometry *sample) noexcept nogil:
    """Say whether any window leaves the image."""
    cdef int64_t last
    cdef int64_t position[3]
    cdef int64_t k[3]
    cdef int64_t first[3]
    cdef Phase phase
    cdef int d
    make_phase(sample, 0, &phase)
    phase_tap(sample, &phase, 0, position, k)
    source_pixel(sample, position, k, first)
    for d in range(3):
        last = first[d] + (sample.axis[d].size_in - 1) * sample.source[d].step \
            + (sample.axis[d].kernel - 1) * sample.axis[d].dilation
        if first[d] < 0 or last >= sample.axis[d].size_out:
            return True
    return False


cdef bint accepts_output_dot(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t depth = sample.cout * sample.taps
    if sample.pixels_in > (1 if sample.parts else OUTPUT_DOT_PIXELS) or sample.pixels_in == 0:
        why[0] = b"so many output pixels pay for packing the weights"
        return False
    if depth < OUTPUT_DOT_VECTORS * sample.lanes or depth > OUTPUT_DOT_DEPTH or meets_padding(sample):
        why[0] = b"windows are too small or large, or meet padding"
        return False
    return True


cdef void order_output_dot(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum all terms by lanes, then the lanes."""
    order.channels, order.taps = sample.cout, sample.taps


cdef void block_output_dot(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Give a task some blocks of channels, of all samples."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef OutputDot *own = <OutputDot *>blocking.own
    own.pitch = round_up(sample.cout * sample.taps, sample.lanes)
    own.windows = max(<int64_t>1, min(problem.batch * sample.pixels_in, OUTPUT_DOT_WINDOWS // own.pitch))
    own.rows = DOT_ROWS * OUTPUT_DOT_BLOCKS
    if threads > 1 and sample.groups * ceil_div(sample.cin, own.rows) < 4 * threads:
        own.rows = DOT_ROWS
    own.parts = ceil_div(sample.cin, own.rows)
    book(&blocking.local, OUTPUT_DOT_GATHERED, own.windows * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_STAGED, DOT_ROWS * own.pitch, sample.item)
    blocking.tasks = sample.groups * own.parts


cdef void gather_window(const ConvRun *run, int64_t group, int64_t n, const int64_t *o, char *to) noexcept nogil:
    """Gather what an output pixel meets as [channel][tap], and zeros up to a whole vector."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t depth = sample.cout * sample.taps, item = sample.item, tap, line = sample.axis[2].kernel, c
    cdef int64_t step = sample.axis[2].dilation * x.space[2]
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef Phase phase
    cdef const char *source
    cdef int d
    make_phase(sample, 0, &phase)
    memset(to + depth * item, 0, (own.pitch - depth) * item)
    tap = 0
    while tap < sample.taps:
        phase_tap(sample, &phase, tap, output, k)
        for d in range(3):
            output[d] += o[d]
        source_pixel(sample, output, k, output)
        source = x.data + n * x.n + group * sample.cout * x.channel + output[0] * x.space[0] + output[1] * x.space[1] \
            + output[2] * x.space[2]
        if line == 1:
            run.problem.load(source, x.channel, to + tap * item, sample.taps * item, sample.cout)
        else:
            for c in range(sample.cout):
                run.problem.load(source + c * x.channel, step, to + (c * sample.taps + tap) * item, item, line)
        tap += line


cdef const char *weights_of_row(const ConvRun *run, int64_t group, int64_t row) noexcept nogil:
    """Find the weights of an output channel."""
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    return w.data + group * w.group + row * w.channel


cdef const char *dot_weights(const ConvRun *run, int64_t group, int64_t row, int64_t rows, char *staged,
                             int64_t *at) noexcept nogil:
    """Find some rows of weights as [channel][tap] with whole vectors, where they lie or staged; at: how many elements
    each is from the first, the last one again for those that there are not."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t depth = sample.cout * sample.taps, stored = itemsize_of(sample.dtype), item = sample.item, r, c, tap
    cdef bint in_line = taps_in_line(sample, w) and (w.n == sample.taps * stored or sample.cout == 1)
    cdef bint in_place = in_line and depth == own.pitch and of_whole_elements(run.problem, w)
    for r in range(DOT_ROWS):
        at[r] = min(r, rows - 1) * (w.channel // item if in_place else own.pitch)
    if in_place:
        return weights_of_row(run, group, row)
    for r in range(rows):
        memset(staged + depth * item, 0, (own.pitch - depth) * item)
        if in_line:
            run.problem.load(weights_of_row(run, group, row + r), stored, staged, item, depth)
        else:
            for c in range(sample.cout):
                for tap in range(sample.taps):
                    run.problem.load(weights_of_row(run, group, row + r) + c * w.n + tap_offset(sample, w, tap), 0,
                                     staged + (c * sample.taps + tap) * item, item, 1)
        staged += own.pitch * item
    return staged - rows * own.pitch * item


cdef void save_dots(const ConvRun *run, int64_t channel, int64_t count, int64_t n, const int64_t *o,
                    char *sums) noexcept nogil:
    """Add the bias to the sums of some channels of one pixel, and save them."""
    cdef const ConvView *y = &run.problem.view[CONV_GRAD_INPUT]
    cdef double bias[BIAS_STAGED]
    if has_output_bias(run.problem):
        load_output_bias(run.problem, channel, count, <char *>bias)
        add_values(run.sample, <char *>bias, sums, count)
    run.problem.save(sums, run.sample.item, y.data + n * y.n + channel * y.channel + o[0] * y.space[0]
                     + o[1] * y.space[1] + o[2] * y.space[2], y.channel, count)


cdef void nth_pixel(const SampleGeometry *sample, int64_t number, int64_t *n, int64_t *o) noexcept nogil:
    """Write the sample and the output pixel of that number."""
    cdef int d
    for d in range(2, -1, -1):
        o[d] = number % sample.axis[d].size_in
        number //= sample.axis[d].size_in
    n[0] = number


cdef void output_dot_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Gather some windows at a time, and multiply them with the rows of the task, block by block."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t group = number // own.parts, first = number % own.parts * own.rows, row, rows, n, window
    cdef int64_t last = min(first + own.rows, sample.cin), pixels = run.problem.batch * sample.pixels_in, count
    cdef int64_t from_window = 0
    cdef int64_t o[3]
    cdef int64_t at[DOT_ROWS]
    cdef double sums[DOT_ROWS]
    cdef char *gathered = local_piece(run, OUTPUT_DOT_GATHERED, scratch)
    cdef const char *weights
    while from_window < pixels and not is_stopped(run):
        count = min(own.windows, pixels - from_window)
        for window in range(count):
            nth_pixel(sample, from_window + window, &n, o)
            gather_window(run, group, n, o, gathered + window * own.pitch * sample.item)
        row = first
        while row < last:
            rows = min(<int64_t>DOT_ROWS, last - row)
            weights = dot_weights(run, group, row, rows, local_piece(run, OUTPUT_DOT_STAGED, scratch), at)
            for window in range(count):
                nth_pixel(sample, from_window + window, &n, o)
                memset(sums, 0, sizeof(sums))
                kernels.dot[sample.compute](1, own.pitch, gathered + window * own.pitch * sample.item, 0, weights, 0,
                                            at, rows, <char *>sums)
                save_dots(run, group * sample.cin + row, rows, n, o, <char *>sums)
            row += DOT_ROWS
        from_window += count


cdef void explain_output_dot(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const OutputDot *own = <const OutputDot *>blocking.own
    snprintf(text, size, b"dot products of windows with the weights as they lie, of %lld terms each; %lld windows by "
             b"%lld output channels a task", <long long>(sample.cout * sample.taps), <long long>own.windows,
             <long long>own.rows)


cdef ConvAlgorithm output_dot() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"output:dot", FOR_OUTPUT
    row.accepts, row.order, row.block = accepts_output_dot, order_output_dot, block_output_dot
    row.prepare, row.task, row.explain = nothing_to_prepare, output_dot_task, explain_output_dot
    return row
