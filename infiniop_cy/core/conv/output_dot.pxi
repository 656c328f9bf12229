# An output of one pixel as dot products of windows with the weights as they lie: where images are one pixel, or a
# kernel covers its image, packing the weights for other algorithms takes longer than all products. Lanes are (channel,
# tap); a window is gathered once for all rows of weights that a task has. Windows that meet padding are left to the
# others, so that an inf weight needs no care.
cdef enum:
    OUTPUT_DOT_VECTORS = 2          # of terms, at least
    OUTPUT_DOT_DEPTH = 1 << 16      # terms of a sum, at most
    OUTPUT_DOT_WINDOWS = 1 << 15    # elements of the windows gathered together
    OUTPUT_DOT_TASKS = 4            # of a thread, or more
    OUTPUT_DOT_ROWS = 256           # output channels of a task, at most
    OUTPUT_DOT_KEPT = 1 << 17       # sums of a task, at most

    # pieces of a thread's scratch
    OUTPUT_DOT_GATHERED = 0
    OUTPUT_DOT_STAGED = 1
    OUTPUT_DOT_RAW = 2
    OUTPUT_DOT_SUMS = 3


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
    if sample.pixels_in != 1:
        why[0] = b"several output pixels pay for packing the weights"
        return False
    if depth < OUTPUT_DOT_VECTORS * sample.lanes or depth > OUTPUT_DOT_DEPTH or meets_padding(sample):
        why[0] = b"windows are too small or large, or meet padding"
        return False
    if sample.groups > 1 and (accepts_depthwise(sample, why) or accepts_grouped(sample, why)):
        why[0] = b"groups of so few channels lie side by side in the lanes"
        return False
    return True


cdef void order_output_dot(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum all terms by lanes, then the lanes."""
    order.channels, order.taps = sample.cout, sample.taps


cdef void block_output_dot(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Give a task some channels, of all samples, whose windows it gathers: a thread has few tasks."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef OutputDot *own = <OutputDot *>blocking.own
    own.pitch = round_up(sample.cout * sample.taps, sample.lanes)
    own.rows = round_up(sample.cin * sample.groups // (OUTPUT_DOT_TASKS * threads), DOT_ROWS)
    own.rows = max(<int64_t>DOT_ROWS, min(own.rows, <int64_t>OUTPUT_DOT_ROWS))
    own.windows = min(problem.batch, min(OUTPUT_DOT_WINDOWS // own.pitch, OUTPUT_DOT_KEPT // own.rows))
    own.windows = max(<int64_t>1, own.windows)
    own.parts = ceil_div(sample.cin, own.rows)
    book(&blocking.local, OUTPUT_DOT_GATHERED, own.windows * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_STAGED, DOT_ROWS * own.pitch, sample.item)
    book(&blocking.local, OUTPUT_DOT_RAW, sample.cout * sample.taps, sample.item)
    book(&blocking.local, OUTPUT_DOT_SUMS, own.windows * own.rows, sample.item)
    blocking.tasks = sample.groups * own.parts


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


cdef void gather_window(const ConvRun *run, int64_t group, int64_t n, char *to) noexcept nogil:
    """Gather what the output pixel of a sample meets as [channel][tap], and zeros up to a whole vector."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t depth = sample.cout * sample.taps, item = sample.item, tap = 0, step, c
    cdef int64_t many = even_taps(sample, x, &step)
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef Phase phase
    cdef const char *source
    make_phase(sample, 0, &phase)
    memset(to + depth * item, 0, (own.pitch - depth) * item)
    while tap < sample.taps:
        phase_tap(sample, &phase, tap, output, k)
        source_pixel(sample, output, k, output)
        source = x.data + n * x.n + group * sample.cout * x.channel + output[0] * x.space[0] + output[1] * x.space[1] \
            + output[2] * x.space[2]
        if many == 1:
            run.problem.load(source, x.channel, to + tap * item, sample.taps * item, sample.cout)
        elif many == sample.taps and x.channel == many * step:
            run.problem.load(source, step, to, item, depth)
        elif x.channel == itemsize_of(sample.dtype):
            transpose_to_compute(sample)(source, step, to + tap * item, sample.taps * item, sample.cout, many)
        else:
            for c in range(sample.cout):
                run.problem.load(source + c * x.channel, step, to + (c * sample.taps + tap) * item, item, many)
        tap += many


cdef const char *weights_of_row(const ConvRun *run, int64_t group, int64_t row) noexcept nogil:
    """Find the weights of an output channel."""
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    return w.data + group * w.group + row * w.channel


cdef const char *dot_weights(const ConvRun *run, int64_t group, int64_t row, int64_t rows, char *staged, char *raw,
                             int64_t *at) noexcept nogil:
    """Find some rows of weights as [channel][tap] with whole vectors, where they lie or staged, by way of `raw` where
    they are transposed, so that memory is read in its order; at: how many elements each is from the first, the last one
    again for those that there are not."""
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
        elif outputs_in_line(sample, w):
            memcpy(raw, weights_of_row(run, group, row + r), depth * stored)
            transpose_to_compute(sample)(raw, sample.cout * stored, staged, sample.taps * item, sample.cout,
                                         sample.taps)
        else:
            for c in range(sample.cout):
                for tap in range(sample.taps):
                    run.problem.load(weights_of_row(run, group, row + r) + c * w.n + tap_offset(sample, w, tap), 0,
                                     staged + (c * sample.taps + tap) * item, item, 1)
        staged += own.pitch * item
    return staged - rows * own.pitch * item


cdef void save_dots(const ConvRun *run, int64_t channel, int64_t count, int64_t n, char *sums) noexcept nogil:
    """Add the bias to the sums of some channels of a sample, and save them."""
    cdef const ConvView *y = &run.problem.view[CONV_GRAD_INPUT]
    cdef double bias[BIAS_STAGED]
    cdef int64_t first = 0
    while has_output_bias(run.problem) and first < count:
        load_output_bias(run.problem, channel + first, min(<int64_t>BIAS_STAGED, count - first), <char *>bias)
        add_values(run.sample, <char *>bias, sums + first * run.sample.item,
                   min(<int64_t>BIAS_STAGED, count - first))
        first += BIAS_STAGED
    run.problem.save(sums, run.sample.item, y.data + n * y.n + channel * y.channel, y.channel, count)


cdef void output_dot_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Gather some windows at a time, and multiply them with the rows of the task, block by block."""
    cdef const SampleGeometry *sample = run.sample
    cdef const OutputDot *own = <const OutputDot *>run.blocking.own
    cdef int64_t group = number // own.parts, first = number % own.parts * own.rows, row, rows, window, count, n = 0
    cdef int64_t last = min(first + own.rows, sample.cin), item = sample.item
    cdef int64_t at[DOT_ROWS]
    cdef char *gathered = local_piece(run, OUTPUT_DOT_GATHERED, scratch)
    cdef char *sums = local_piece(run, OUTPUT_DOT_SUMS, scratch)
    cdef const char *weights
    while n < run.problem.batch and not is_stopped(run):
        count = min(own.windows, run.problem.batch - n)
        for window in range(count):
            gather_window(run, group, n + window, gathered + window * own.pitch * item)
        memset(sums, 0, count * own.rows * item)
        row = first
        while row < last:
            rows = min(<int64_t>DOT_ROWS, last - row)
            weights = dot_weights(run, group, row, rows, local_piece(run, OUTPUT_DOT_STAGED, scratch),
                                  local_piece(run, OUTPUT_DOT_RAW, scratch), at)
            for window in range(count):
                kernels.dot[sample.compute](1, own.pitch, gathered + window * own.pitch * item, 0, weights, 0, at, rows,
                                            sums + (window * own.rows + row - first) * item)
            row += DOT_ROWS
        for window in range(count):
            save_dots(run, group * sample.cin + first, last - first, n + window, sums + window * own.rows * item)
        n += count


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
