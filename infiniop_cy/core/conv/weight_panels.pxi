# The weights as grad_input multiplies them: packed once for all tasks, so that the taps of a phase follow each other,
# or, of one tap and few pixels, where they lie.
# [group][micro-panel of ci][block of co][packed tap][co][ci], or pairs of co.
cdef enum:
    STAGED_TAPS = 64        # taps converted and transposed together; those of several co that follow each other,
    JOINED_TAPS = 256       # at most
    WEIGHT_COLUMNS = 256    # ci of a task, or about
    PANEL_DEPTH = 1024      # steps of a panel, at most: 256 kB of 64 floats, read once for every register tile
    PANEL_CHANNELS = 64     # output channels of a panel with several taps
    PANEL_TAP_CHANNELS = 256  # taps by channels of a panel, at least
    READY_PIXELS = 1024     # of grad_input's, at most; for more, packed weights are worth the time
    READY_PART = 1 << 12    # pixels by a row's bytes for each in a micro-panel, where rows share sets of a cache
    ROWS_BYTES = 512        # of a row of weights that are packed together, at most,
    ROWS_PARTS = 4          # and parts of a row, at least, that threads pack
    ROWS_TOGETHER = 8       # co whose rows are


ctypedef struct WeightPanels:
    MicroPanels ci
    int64_t channels     # co of a block: those of a panel of the SumOrder
    int64_t ready        # micro-panels, the first ones, that are read where they lie, and not packed
    int64_t together     # micro-panels that are packed together


cdef int64_t even_channels(int64_t cout, int64_t max_channels) noexcept nogil:
    """Cut output channels into equal parts of at most about max_channels, for panels; even for the sake of pairs."""
    cdef int64_t all_channels = max(<int64_t>1, cout)
    return round_up(ceil_div(all_channels, ceil_div(all_channels, max_channels)), 2)


cdef void order_panel_of(const SampleGeometry *sample, int64_t max_channels, SumOrder *order) noexcept nogil:
    """Sum in panels of at most about so many channels, and as many taps as they leave room for."""
    order.channels = even_channels(sample.cout, max_channels)
    order.taps = min(sample.taps, max(<int64_t>1, PANEL_DEPTH // order.channels))


cdef void order_panel(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum in panels of several taps."""
    order_panel_of(sample, max(<int64_t>PANEL_CHANNELS, PANEL_TAP_CHANNELS // sample.taps), order)


cdef bint meets_no_padding(const SampleGeometry *sample) noexcept nogil:
    """Say whether all that the one tap of a kernel meets under the pixels of its phase is grad_output."""
    cdef const ConvAxis *axis
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        if axis.before <= -axis.stride or floor_div(axis.size_in - 1 + axis.before, axis.stride) >= axis.size_out:
            return False
    return True


cdef bint keeps_nonfinite(const SampleGeometry *sample, bint vnni) noexcept nogil:
    """Say whether inf and NaN are multiplied as they are, since no padding might meet them: whether weights are packed
    or read where they lie depends on the layout, and an inf that is added later finds a sum that has been rounded, to
    an inf of the other sign at worst."""
    return sample.taps == 1 and sample.folded == 1 and not vnni and meets_no_padding(sample)


cdef int64_t ready_panels(const ConvProblem *problem, const MicroPanels *ci) noexcept nogil:
    """Count the micro-panels, the first ones, whose weights are read where they lie: those of one tap, ci side by side,
    where copies would be used for few pixels. There is no padding that inf and NaN might meet."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t most = READY_PIXELS
    if not keeps_nonfinite(sample, ci.vnni) or sample.dtype != sample.compute \
            or w.channel != sample.item or w.n % sample.item or (sample.groups > 1 and w.group % sample.item):
        return 0
    if not spreads_over_sets(w.n):
        most = READY_PART * ci.columns * sample.item // max(w.n, -w.n)
    if sample.pixels_in * problem.batch > most:
        return 0
    return sample.cin // ci.columns


cdef int64_t packed_panels(const WeightPanels *panels) noexcept nogil:
    """Count the micro-panels of a group that are packed: those after the ones that are read where they lie."""
    return panels.ci.count - panels.ready


cdef bint inputs_in_rows(const ConvProblem *problem, bint vnni) noexcept nogil:
    """Say whether the weights of a tap's ci lie side by side, as they are packed."""
    cdef const SampleGeometry *sample = &problem.sample
    return not vnni and sample.folded == 1 and sample.dtype == sample.compute \
        and problem.view[CONV_WEIGHT].channel == sample.item


cdef int64_t panels_together(const ConvProblem *problem, const WeightPanels *panels) noexcept nogil:
    """Return how many micro-panels one unit packs: several narrow ones where their parts of a row lie side by side,
    since one part would be fetched with its neighbours, and these lost again; not so many that threads find no
    units."""
    if not inputs_in_rows(problem, panels.ci.vnni):
        return 1
    return max(<int64_t>1, min(packed_panels(panels) // ROWS_PARTS,
                               ROWS_BYTES // (panels.ci.columns * problem.sample.item)))


cdef int64_t weight_prepares(const SampleGeometry *sample, const WeightPanels *panels) noexcept nogil:
    """Count the units that pack_weight_panels packs."""
    return sample.groups * ceil_div(packed_panels(panels), panels.together) * ceil_div(sample.cout, panels.channels)


cdef void book_weights(const ConvProblem *problem, WeightPanels *panels, int shared_name, int local_name,
                       Blocking *blocking) noexcept nogil:
    """Make room for all packed weights, and for what packing one micro-panel stages; decide how many are packed
    together."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t count
    panels.together = panels_together(problem, panels)
    if mul_overflows(sample.groups * sample.cout * sample.taps, packed_panels(panels) * panels.ci.columns, &count):
        blocking.shared.too_large = True
        return
    book(&blocking.shared, shared_name, count, sample.item)
    book(&blocking.local, local_name, 2 * STAGED_TAPS * panels.ci.columns, sample.item)
    blocking.prepares = weight_prepares(sample, panels)


cdef char *weight_panel(const SampleGeometry *sample, const WeightPanels *panels, char *packed, int64_t group,
                        int64_t panel, int64_t co) noexcept nogil:
    """Find the weights of one packed micro-panel and one block of co, as [packed tap][co][columns], or pairs of co."""
    cdef int64_t number = group * packed_panels(panels) + panel - panels.ready
    if panels.ci.vnni:
        co //= 2
    return packed + (number * sample.cout + co) * sample.taps * panels.ci.columns * sample.item


cdef bint taps_lie_evenly(const SampleGeometry *sample, const ConvView *w, int64_t step) noexcept nogil:
    """Say whether the taps of one pair of channels are `step` bytes apart in memory."""
    cdef int d
    for d in range(2, -1, -1):
        if sample.axis[d].kernel > 1 and w.space[d] != step:
            return False
        step *= sample.axis[d].kernel
    return True


cdef bint taps_in_line(const SampleGeometry *sample, const ConvView *w) noexcept nogil:
    """Say whether the taps of one pair of channels follow each other in memory."""
    return taps_lie_evenly(sample, w, itemsize_of(sample.dtype))


cdef bint outputs_in_line(const SampleGeometry *sample, const ConvView *w) noexcept nogil:
    """Say whether the weights of a group's outputs lie side by side, those of one tap after those of the other."""
    cdef int64_t stored = itemsize_of(sample.dtype)
    return sample.taps > 1 and w.n == stored and taps_lie_evenly(sample, w, sample.cout * stored)


cdef int64_t tap_offset(const SampleGeometry *sample, const ConvView *w, int64_t tap) noexcept nogil:
    """Count the bytes from the first tap to this one."""
    cdef int64_t k[3]
    tap_index(sample, tap, k)
    return k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2]


cdef void stage_taps(const ConvProblem *problem, const char *source, int64_t tap, int64_t taps, int64_t channels,
                     int64_t columns, char *raw, char *staged) noexcept nogil:
    """Load taps [tap, +taps) of `channels` ci from `source` on as [tap][columns]; columns after the last ci stay as
    they are."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t item = sample.item, stored = itemsize_of(sample.dtype), i
    if w.channel == stored and taps > 1 and taps_lie_evenly(sample, w, channels * stored):
        problem.load(source + tap * channels * stored, stored, raw, item, taps * channels)
        kernels.pad_rows(raw, channels * item, staged, columns * item, taps, 0, channels * item, channels * item)
        return
    if taps == 1 or not taps_in_line(sample, w):
        for i in range(taps):
            problem.load(source + tap_offset(sample, w, tap + i), w.channel, staged + i * columns * item, item,
                         channels)
        return
    source += tap * stored
    if sample.dtype == sample.compute:
        kernels.transpose[sample.compute](source, w.channel, staged, columns * item, taps, channels)
        return
    if w.channel == taps * stored:
        problem.load(source, stored, raw, item, taps * channels)
    else:
        for i in range(channels):
            problem.load(source + i * w.channel, stored, raw + i * taps * item, item, taps)
    kernels.transpose[sample.compute](raw, taps * item, staged, columns * item, taps, channels)


# A part of the weights: a panel of ci by a block of co.
ctypedef struct WeightUnit:
    int64_t group, panel, block


cdef WeightUnit weight_unit(const ConvProblem *problem, int64_t number, int64_t panels, int64_t blocks) noexcept nogil:
    """Return the unit of that number, where units that share lines of memory follow each other."""
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef WeightUnit unit
    unit.group = number // (panels * blocks)
    number %= panels * blocks
    if w.n > w.channel:
        unit.block, unit.panel = number // panels, number % panels
    else:
        unit.panel, unit.block = number // blocks, number % blocks
    return unit


cdef void copy_rows_of_panels(const ConvProblem *problem, const char *source, int64_t channels, int64_t count,
                              int64_t columns, char *to, int64_t to_panel) noexcept nogil:
    """Pack the weights of `count` co, whose ci lie side by side, as [packed tap][co][columns], micro-panels of them
    `to_panel` bytes apart: some rows of all, then the next ones."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t row = columns * sample.item, tap, co, ci
    cdef const char *weights
    cdef char *there
    for tap in range(sample.taps):
        weights = source + tap_offset(sample, w, tap)
        there = to + packed_tap(sample, tap) * count * row
        co = 0
        while co < count:
            ci = 0
            while ci < channels:
                kernels.pad_rows(weights + co * w.n + ci * sample.item, w.n,
                                 there + co * row + ci // columns * to_panel, row,
                                 min(<int64_t>ROWS_TOGETHER, count - co), 0, min(columns, channels - ci) * sample.item,
                                 row)
                ci += columns
            co += ROWS_TOGETHER


cdef bint stage_rows(const ConvProblem *problem, const char *source, int64_t channels, int64_t count, int64_t columns,
                     char *to) noexcept nogil:
    """Load the weights of `count` co as [packed tap][co][columns], where these or the taps lie side by side; return
    whether they do."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef TransposeKernel transpose = transpose_to_compute(sample)
    cdef int64_t row = columns * sample.item, tap, co = 0, some = 1, i
    cdef int64_t place[JOINED_TAPS]
    cdef bint of_taps = sample.dtype == sample.compute and 1 < sample.taps <= STAGED_TAPS and taps_in_line(sample, w)
    if sample.folded > 1 or not (of_taps or w.n == itemsize_of(sample.dtype)):
        return False
    if channels < columns:
        memset(to, 0, sample.taps * count * row)
    if of_taps:
        if w.n == sample.taps * sample.item:
            some = min(count, JOINED_TAPS // sample.taps)
        for tap in range(sample.taps):
            place[tap] = packed_tap(sample, tap) * count * row
        for i in range(sample.taps, some * sample.taps):
            place[i] = place[i - sample.taps] + row
        while co < count:
            kernels.transpose_to[sample.compute](source + co * w.n, w.channel, to + co * row, place,
                                                 min(some, count - co) * sample.taps, channels)
            co += some
        return True
    for tap in range(sample.taps):
        transpose(source + tap_offset(sample, w, tap), w.channel, to + packed_tap(sample, tap) * count * row, row,
                  count, channels)
    return True


cdef void join_pairs(const uint32_t *values, int64_t n, bint second, uint32_t *pairs) noexcept nogil:
    """Put widened bfloat16 numbers into the upper halves of the pairs, or (second) add them as the lower ones."""
    cdef int64_t i
    if not second:
        memcpy(pairs, values, n * sizeof(uint32_t))
        return
    for i in range(n):
        pairs[i] |= values[i] >> 16


cdef void stage_pairs_of_taps(const ConvProblem *problem, const char *source, int64_t channels, int64_t count,
                              int64_t columns, char *raw, char *to) noexcept nogil:
    """Load them where the taps lie side by side, and after them the ci or the co."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t taps = sample.taps, row = columns * 4, some = STAGED_TAPS // taps, pair = 0, pairs, c, tap, i
    cdef int64_t place[STAGED_TAPS]
    for tap in range(taps):
        place[tap] = packed_tap(sample, tap) * ceil_div(count, 2) * row
    while pair < ceil_div(count, 2):
        pairs = min(some, ceil_div(count, 2) - pair)
        if w.channel == taps * 2:
            for i in range(pair, pair + pairs):
                zip_lines(source + 2 * i * w.n, w.n, min(<int64_t>2, count - 2 * i), channels * taps,
                          raw + (i - pair) * channels * taps * 4, 0)
        else:
            for c in range(channels):
                zip_lines(source + c * w.channel + 2 * pair * w.n, w.n, min(2 * pairs, count - 2 * pair), taps,
                          raw + c * taps * 4, channels * taps * 4)
        for i in range(pairs):
            kernels.transpose_to[DTYPE_F32](raw + i * channels * taps * 4, taps * 4, to + (pair + i) * row, place, taps,
                                            channels)
        pair += some


cdef bint stage_pairs(const ConvProblem *problem, const char *source, int64_t channels, int64_t count, int64_t columns,
                      char *raw, char *to) noexcept nogil:
    """Load the weights of `count` co as [packed tap][pair of co][columns], if any of these lie side by side; return
    whether they do. raw: STAGED_TAPS rows of columns."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t row = columns * 4, tap, c
    cdef int64_t place[MAX_MICRO_PANEL]
    cdef bint by_taps = 1 < sample.taps <= STAGED_TAPS and taps_in_line(sample, w) \
        and (w.channel == sample.taps * 2 or w.n == sample.taps * 2)
    cdef char *at
    if sample.folded > 1 or not (w.n == 2 or w.channel == 2 or by_taps):
        return False
    if channels < columns:
        memset(to, 0, sample.taps * ceil_div(count, 2) * row)
    if w.n != 2 and w.channel != 2:
        stage_pairs_of_taps(problem, source, channels, count, columns, raw, to)
        return True
    for c in range(channels):
        place[c] = c * w.channel
    for tap in range(sample.taps):
        at = to + packed_tap(sample, tap) * ceil_div(count, 2) * row
        if w.n == 2:
            kernels.vnni.of_pixels[1](source + tap_offset(sample, w, tap), place, at, row, count, channels)
        else:
            zip_lines(source + tap_offset(sample, w, tap), w.n, count, channels, at, row)
    return True


cdef bint replace_weights(const SampleGeometry *sample, bint vnni, char *values, int64_t n) noexcept nogil:
    """Make inf and NaN tiny, unless they are to stay; return whether there were any."""
    return not keeps_nonfinite(sample, vnni) and replace_nonfinite_values(sample, values, n)


cdef bint pack_weight_panel(const ConvProblem *problem, const WeightPanels *panels, int64_t group, int64_t panel,
                            int64_t co_from, char *packed, char *scratch) noexcept nogil:
    """Pack one micro-panel of the block of co from one on, under all taps. inf and NaN become tiny, unless they
    stay; return whether there were any that did. scratch: 2 * STAGED_TAPS rows of a micro-panel."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t item = sample.item, columns = panels.ci.columns, count = min(panels.channels, sample.cout - co_from)
    cdef int64_t channels = min(columns, sample.cin - panel * columns), tap = 0, taps, co, i
    cdef int64_t steps = ceil_div(count, 2) if panels.ci.vnni else count
    cdef char *to = weight_panel(sample, panels, packed, group, panel, co_from)
    cdef char *raw = scratch + STAGED_TAPS * columns * item
    cdef char *staged
    cdef int64_t place[STAGED_TAPS]
    cdef bint nonfinite = False
    cdef const char *source = w.data + group * w.group + co_from * w.n + panel * columns * w.channel
    if panels.ci.vnni:
        if stage_pairs(problem, source, channels, count, columns, raw, to):
            return kernels.vnni.replace_nonfinite(to, sample.taps * steps * columns * 2)
    elif stage_rows(problem, source, channels, count, columns, to):
        return replace_weights(sample, False, to, sample.taps * count * columns)
    while tap < sample.taps:
        taps = min(<int64_t>STAGED_TAPS, sample.taps - tap)
        for i in range(taps):
            place[i] = packed_tap(sample, tap + i) * steps
        for co in range(count):
            staged = scratch if taps > 1 or panels.ci.vnni else to + (place[0] + co) * columns * item
            if channels < columns:
                memset(staged, 0, taps * columns * item)
            stage_taps(problem, w.data + group * w.group + weight_row(sample, w, co_from + co)
                       + panel * columns * w.channel, tap, taps, channels, columns, raw, staged)
            nonfinite |= replace_weights(sample, panels.ci.vnni, staged, taps * columns)
            if staged != scratch:
                continue
            for i in range(taps):
                if panels.ci.vnni:
                    join_pairs(<const uint32_t *>scratch + i * columns, columns, co % 2,
                               <uint32_t *>to + (place[i] + co // 2) * columns)
                else:
                    memcpy(to + (place[i] + co) * columns * item, scratch + i * columns * item, columns * item)
        tap += STAGED_TAPS
    return nonfinite


cdef bint pack_weight_panels(const ConvProblem *problem, const WeightPanels *panels, int64_t number, char *packed,
                             char *scratch) noexcept nogil:
    """Pack a unit, the micro-panels of one block of co that are packed together, as pack_weight_panel does; return
    whether there was inf or NaN."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef WeightUnit unit = weight_unit(problem, number, ceil_div(packed_panels(panels), panels.together),
                                       ceil_div(sample.cout, panels.channels))
    cdef int64_t panel = panels.ready + unit.panel * panels.together, co_from = unit.block * panels.channels
    cdef int64_t columns = panels.ci.columns, count = min(panels.channels, sample.cout - co_from), p
    cdef int64_t many = min(panels.together, panels.ci.count - panel)
    cdef bint nonfinite = False
    if not inputs_in_rows(problem, panels.ci.vnni):
        return pack_weight_panel(problem, panels, unit.group, panel, co_from, packed, scratch)
    copy_rows_of_panels(problem, w.data + unit.group * w.group + co_from * w.n + panel * columns * w.channel,
                        min(many * columns, sample.cin - panel * columns), count, columns,
                        weight_panel(sample, panels, packed, unit.group, panel, co_from),
                        sample.cout * sample.taps * columns * sample.item)
    for p in range(panel, panel + many):
        nonfinite |= replace_weights(sample, False, weight_panel(sample, panels, packed, unit.group, p, co_from),
                                     sample.taps * count * columns)
    return nonfinite
