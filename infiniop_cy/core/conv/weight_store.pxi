# Sums of grad_weight to memory, rounded once, and what is there to sums.

cdef bint weights_in_line(const SampleGeometry *sample, const ConvView *w) noexcept nogil:
    """Say whether the (ci, tap) of one output channel follow each other in memory."""
    return taps_in_line(sample, w) and (sample.cin == 1 or w.channel == sample.taps * itemsize_of(sample.dtype))


cdef void move_weight_lines(const ConvProblem *problem, int64_t row_from, int64_t count, char *line, char *weights,
                            bint loading) noexcept nogil:
    """Do what move_weights does, line by line of what lies evenly."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t stored = itemsize_of(sample.dtype), step = w.space[2], kx = sample.axis[2].kernel, i = 0, n, tap
    cdef bint in_line = weights_in_line(sample, w)
    cdef char *element
    if not in_line and count > sample.taps * kx:  # fewer and longer lines: those of each tap
        for tap in range(sample.taps):
            i = (tap + sample.taps - row_from % sample.taps) % sample.taps
            n = ceil_div(count - i, sample.taps)
            element = weights + (row_from + i) // sample.taps * w.channel + tap_offset(sample, w, tap)
            if loading:
                problem.load(element, w.channel, line + i * sample.item, sample.taps * sample.item, n)
            else:
                problem.save(line + i * sample.item, sample.taps * sample.item, element, w.channel, n)
        return
    while i < count:
        tap = (row_from + i) % sample.taps
        element = weights + (row_from + i) // sample.taps * w.channel + tap_offset(sample, w, tap)
        n = min(kx - tap % kx, count - i)
        if in_line:
            n, step = count, stored
        if loading:
            problem.load(element, step, line + i * sample.item, sample.item, n)
        else:
            problem.save(line + i * sample.item, sample.item, element, step, n)
        i += n


cdef bint transposes_channels(const ConvProblem *problem) noexcept nogil:
    """Say whether grad_weight has the ci of a tap side by side, those of one tap as far from the other's as everywhere,
    and what is computed is stored as it is: then a transposition moves [ci][tap] values."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    return sample.dtype == sample.compute and sample.taps > 1 and sample.cin > 1 and w.channel == sample.item \
        and of_whole_elements(problem, w) and taps_lie_evenly(sample, w, tap_offset(sample, w, 1))


cdef void move_weights(const ConvProblem *problem, int64_t row_from, int64_t count, char *line, char *weights,
                       bint loading) noexcept nogil:
    """Move (ci, tap) [row_from, +count) of one output channel from contiguous values to `weights`, or (loading)
    back."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t taps = sample.taps, head = 0, cis, item = sample.item, next_tap
    cdef char *whole
    if transposes_channels(problem):
        head = min(count, (taps - row_from % taps) % taps)
        cis, next_tap = (count - head) // taps, tap_offset(sample, w, 1)
        whole = weights + (row_from + head) // taps * w.channel
        if loading:
            kernels.transpose[sample.compute](whole, next_tap, line + head * item, taps * item, cis, taps)
        else:
            kernels.transpose[sample.compute](line + head * item, taps * item, whole, next_tap, taps, cis)
        move_weight_lines(problem, row_from, head, line, weights, loading)
        head += cis * taps
    move_weight_lines(problem, row_from + head, count - head, line + head * item, weights, loading)


cdef void move_staged_rows(const ConvProblem *problem, char *sums, int64_t pitch, int64_t rows, char *weights,
                           int64_t step, int64_t row_from, int64_t channels, char *staging,
                           bint loading) noexcept nogil:
    """Move [row][co] sums by way of a stage of some rows by a vector of co; see move_even_rows. step: 0 where rows are
    the (ci, tap) from row_from on, wherever these lie."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = sample.item, next_co = problem.view[CONV_GRAD_WEIGHT].n, first, n, c = 0, many, i
    cdef char *line
    cdef char *to
    while c < channels:
        many = min(sample.lanes, channels - c)
        first = 0
        while first < rows:
            n = min(<int64_t>STAGE_PIXELS, rows - first)
            if not loading:
                kernels.transpose[sample.compute](sums + (first * pitch + c) * item, pitch * item, staging,
                                                  STAGE_ROW * item, many, n)
            for i in range(many):
                line, to = staging + i * STAGE_ROW * item, weights + (c + i) * next_co
                if step == 0:
                    move_weights(problem, row_from + first, n, line, to, loading)
                elif loading:
                    problem.load(to + first * step, step, line, item, n)
                else:
                    problem.save(line, item, to + first * step, step, n)
            if loading:
                kernels.transpose[sample.compute](staging, STAGE_ROW * item, sums + (first * pitch + c) * item,
                                                  pitch * item, n, many)
            first += STAGE_PIXELS
        c += sample.lanes


cdef void move_even_rows(const ConvProblem *problem, char *sums, int64_t pitch, int64_t rows, char *weights,
                         int64_t step, int64_t channels, char *staging, bint loading) noexcept nogil:
    """Move [row][co] sums, `pitch` elements from row to row, to grad_weight, whose rows lie `step` bytes apart from
    `weights` on, or (loading) from it."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = sample.item, next_co = problem.view[CONV_GRAD_WEIGHT].n
    if sample.dtype != sample.compute or step != item:
        move_staged_rows(problem, sums, pitch, rows, weights, step, 0, channels, staging, loading)
    elif loading:
        kernels.transpose[sample.compute](weights, next_co, sums, pitch * item, rows, channels)
    else:
        kernels.transpose[sample.compute](sums, pitch * item, weights, next_co, channels, rows)


cdef void move_weight_taps(const ConvProblem *problem, int64_t group, int64_t ci_from, int64_t cis, int64_t tap_from,
                           int64_t taps, int64_t co_from, int64_t channels, char *sums, int64_t pitch, char *staging,
                           bint loading) noexcept nogil:
    """Move [tap][ci][co] sums, `pitch` elements from row to row, to grad_weight, or (loading) from it."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef char *weights = w.data + (group * sample.cout + co_from) * w.n + ci_from * w.channel
    cdef int64_t tap
    for tap in range(taps):
        move_even_rows(problem, sums + tap * cis * pitch * sample.item, pitch, cis,
                       weights + tap_offset(sample, w, tap_from + tap), w.channel, channels, staging, loading)


cdef void move_weight_rows(const ConvProblem *problem, int64_t group, int64_t row_from, int64_t rows, int64_t co_from,
                           int64_t channels, char *sums, int64_t pitch, char *staging, bint loading) noexcept nogil:
    """Move [(ci, tap)][co] sums, `pitch` elements from row to row, to grad_weight, or (loading) from it."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef char *weights = w.data + (group * sample.cout + co_from) * w.n
    if weights_in_line(sample, w):
        move_even_rows(problem, sums, pitch, rows, weights + row_from * stored, stored, channels, staging, loading)
    else:
        move_staged_rows(problem, sums, pitch, rows, weights, 0, row_from, channels, staging, loading)
