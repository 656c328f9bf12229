# Sums of grad_weight by AMX, [panel of ci][tap][co][AMX_SIDE ci]: where they begin, and how they go to memory.
cdef int64_t amx_tap_bytes(const WeightAmx *own) noexcept nogil:
    """Count the bytes of the sums of one tap and one panel of ci, [co][AMX_SIDE ci]; an odd number of lines, since
    powers of two share cache sets."""
    return own.tiles.rows * AMX_SIDE * 4 + CONV_ALIGN


cdef bint saves_panels(const ConvRun *run) noexcept nogil:
    """Say whether a task's sums are rows of grad_weight, panel beside panel: input channels lie side by side, and not
    float16's, for which there is no such kernel."""
    return run.problem.view[CONV_GRAD_WEIGHT].channel == itemsize_of(run.sample.dtype) \
        and run.sample.dtype != DTYPE_F16


cdef void save_amx_panels(const ConvRun *run, const WeightAmxTask *t) noexcept nogil:
    """Save [panel of ci][tap][co][AMX_SIDE ci] sums, some panels at a time."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t pitch = amx_tap_bytes(<const WeightAmx *>run.blocking.own), c = 0, tap
    cdef char *weights = w.data + t.co_from * w.n + t.ci_from * w.channel
    while c < t.cis:
        for tap in range(sample.taps):
            kernels.amx.save_panels(t.sums + (c // AMX_SIDE * sample.taps + tap) * pitch, sample.taps * pitch,
                                    weights + c * w.channel + tap_offset(sample, w, tap), w.n, t.cos,
                                    min(<int64_t>AMX_PANELS_COLUMNS, t.cis - c),
                                    AMX_BF16_SUBNORMAL if sample.dtype == DTYPE_BF16 else 0, False)
        c += AMX_PANELS_COLUMNS


cdef void move_amx_weights(const ConvRun *run, int64_t co_from, int64_t cos, int64_t ci_from, int64_t cis, char *sums,
                           char *line, bint loading) noexcept nogil:
    """Move [panel of ci][tap][co][AMX_SIDE ci] sums to grad_weight, or (loading) from it. line: room for AMX_SIDE
    ci."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_GRAD_WEIGHT]
    cdef char *weights = w.data + co_from * w.n
    cdef char *at
    cdef char *element
    cdef int64_t taps = sample.taps, pitch = amx_tap_bytes(own), co, panel, c, many, tap
    cdef bint in_line = taps > 1 and weights_in_line(sample, w)
    for co in range(cos):
        for panel in range(ceil_div(cis, AMX_SIDE)):
            c = panel * AMX_SIDE
            many = min(<int64_t>AMX_SIDE, cis - c)
            at = sums + panel * taps * pitch + co * AMX_SIDE * 4
            for tap in range(0 if in_line else taps):
                element = weights + (ci_from + c) * w.channel + (tap_offset(sample, w, tap) if taps > 1 else 0)
                if loading:
                    run.problem.load(element, w.channel, at + tap * pitch, 4, many)
                else:
                    run.problem.save(at + tap * pitch, 4, element, w.channel, many)
            if not in_line:
                continue
            if not loading and run.sample.dtype == DTYPE_F32:
                kernels.transpose[DTYPE_F32](at, pitch, weights + (ci_from + c) * w.channel, taps * 4, many, taps)
                continue
            if not loading:
                kernels.transpose[DTYPE_F32](at, pitch, line, taps * 4, many, taps)
            move_weights(run.problem, (ci_from + c) * taps, many * taps, line, weights, loading)
            if loading:
                kernels.transpose[DTYPE_F32](line, taps * 4, at, pitch, taps, many)
        weights += w.n


cdef int64_t amx_task_sums(const ConvRun *run, const WeightAmxTask *t) noexcept nogil:
    """Count the floats of a task's sums, with the gaps between taps."""
    return t.panels * run.sample.taps * amx_tap_bytes(<const WeightAmx *>run.blocking.own) // <int64_t>sizeof(float)


cdef bint begins_with_tile(const ConvRun *run) noexcept nogil:
    """Say whether sums begin with the products of the first tile, instead of zeros that these are added to: the same
    where products are added one by one."""
    return run.order.accumulate and not run.problem.accumulate and run.problem.batch > 0


cdef bint sums_in_place(const ConvRun *run) noexcept nogil:
    """Say whether grad_weight takes the sums of the only tile as AMX stores them: float32, whole vectors of input
    channels side by side."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_GRAD_WEIGHT]
    return own.one_tile and run.sample.dtype == DTYPE_F32 and begins_with_tile(run) and w.channel == 4 \
        and run.sample.cin % AMX_HALF == 0 and taps_lie_evenly(run.sample, w, w.space[2])


cdef void begin_amx_sums(const ConvRun *run, WeightAmxTask *t) noexcept nogil:
    """Begin with zeros or (accumulating) with what is there."""
    cdef const ConvView *w = &run.problem.view[CONV_GRAD_WEIGHT]
    if sums_in_place(run):
        t.sums = w.data + t.co_from * w.n + t.ci_from * w.channel
        t.row, t.tap, t.panel = w.n, w.space[2], AMX_SIDE * 4
        return
    if not begins_with_tile(run):
        memset(t.sums, 0, amx_task_sums(run, t) * <int64_t>sizeof(float))
    if run.problem.accumulate:
        move_amx_weights(run, t.co_from, t.cos, t.ci_from, t.cis, t.sums, local_piece(run, AMX_WEIGHT_LINE, t.scratch),
                         True)


cdef void save_amx_sums(const ConvRun *run, const WeightAmxTask *t) noexcept nogil:
    """Round a task's sums to storage."""
    if sums_in_place(run):
        return
    if saves_panels(run):
        save_amx_panels(run, t)
        return
    move_amx_weights(run, t.co_from, t.cos, t.ci_from, t.cis, t.sums, local_piece(run, AMX_WEIGHT_LINE, t.scratch),
                     False)
