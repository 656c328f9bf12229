# Panels for the micro-kernel, packed straight from strided tensors: the im2col matrix only ever exists as
# one panel per thread. A panel is [column block of nr (or mr)][k][nr].

# A stretch of consecutive pixels in the last spatial axis, and the panel index of the first.
ctypedef struct Run:
    int64_t n
    int64_t pixel[3]
    int64_t length
    int64_t at


cdef int make_runs(int64_t first, int64_t count, const int64_t *size, int64_t split, Run *runs) noexcept nogil:
    """Cut `count` pixels from flat index `first` of (n, size[0], size[1], size[2]) into runs that cross
    neither a row nor a panel index divisible by `split` (0: no split). Returns their number."""
    cdef int64_t rest = first, at = 0, length
    cdef int64_t n
    cdef int64_t pixel[3]
    cdef int made = 0, d
    for d in range(2, -1, -1):
        pixel[d] = rest % size[d]
        rest //= size[d]
    n = rest
    while at < count:
        length = min(count - at, size[2] - pixel[2])
        if split:
            length = min(length, split - at % split)
        runs[made].n = n
        runs[made].pixel[0], runs[made].pixel[1], runs[made].pixel[2] = pixel[0], pixel[1], pixel[2]
        runs[made].length = length
        runs[made].at = at
        made += 1
        at += length
        pixel[2] += length
        if pixel[2] == size[2]:
            pixel[2] = 0
            pixel[1] += 1
            if pixel[1] == size[1]:
                pixel[1] = 0
                pixel[0] += 1
                if pixel[0] == size[0]:
                    pixel[0] = 0
                    n += 1
    return made


cdef inline void zero_strided(char *to, int64_t stride, int64_t item, int64_t n) noexcept nogil:
    cdef int64_t i
    if stride == item:
        memset(to, 0, n * item)
        return
    for i in range(n):
        memset(to + i * stride, 0, item)


# The input pixels whose index along each axis is first + step * stride: one phase of a strided convolution.
# Only the taps of the same residue reach them, each from grad_output pixels that again lie side by side.
ctypedef struct Phase:
    int64_t first[3]
    int64_t size[3]    # pixels along each axis
    int64_t taps[3]    # taps along each axis
    int64_t tap_offset # of the phase's first tap in the order of packed weights
    int64_t tap_count


cdef inline int64_t tap_residue(const ConvPlan *plan, int d, int64_t k) noexcept nogil:
    return (k * (plan.dilation[d] % plan.stride[d])) % plan.stride[d]


cdef int64_t phase_tap(const ConvPlan *plan, const Phase *phase, int d, int64_t i) noexcept nogil:
    """The i-th tap along axis d that belongs to the phase."""
    cdef int64_t residue = (phase.first[d] + plan.before[d]) % plan.stride[d], k
    for k in range(plan.kernel[d]):
        if tap_residue(plan, d, k) == residue:
            if i == 0:
                return k
            i -= 1
    return -1


cdef void make_phase(const ConvPlan *plan, int64_t number, Phase *phase) noexcept nogil:
    cdef int64_t residue, k
    cdef int64_t below[3]
    cdef int d
    for d in range(2, -1, -1):
        phase.first[d] = number % min(plan.stride[d], plan.size_in[d])
        number //= min(plan.stride[d], plan.size_in[d])
        phase.size[d] = (plan.size_in[d] - phase.first[d] - 1) // plan.stride[d] + 1
        residue = (phase.first[d] + plan.before[d]) % plan.stride[d]
        phase.taps[d] = below[d] = 0
        for k in range(plan.kernel[d]):
            phase.taps[d] += tap_residue(plan, d, k) == residue
            below[d] += tap_residue(plan, d, k) < residue
    phase.tap_count = phase.taps[0] * phase.taps[1] * phase.taps[2]
    phase.tap_offset = below[0] * plan.kernel[1] * plan.kernel[2] \
        + phase.taps[0] * (below[1] * plan.kernel[2] + phase.taps[1] * below[2])


cdef int64_t phase_count(const ConvPlan *plan) noexcept nogil:
    return min(plan.stride[0], plan.size_in[0]) * min(plan.stride[1], plan.size_in[1]) \
        * min(plan.stride[2], plan.size_in[2])


cdef int64_t packed_tap(const ConvPlan *plan, int64_t k0, int64_t k1, int64_t k2) noexcept nogil:
    """Position of a tap in the packed weights: sorted by residue, so that a phase is one piece."""
    cdef int64_t r
    cdef int64_t k[3]
    cdef int64_t below[3]
    cdef int64_t same[3]
    cdef int64_t rank[3]
    cdef int d
    k[0], k[1], k[2] = k0, k1, k2
    for d in range(3):
        below[d] = same[d] = rank[d] = 0
        for r in range(plan.kernel[d]):
            below[d] += tap_residue(plan, d, r) < tap_residue(plan, d, k[d])
            same[d] += tap_residue(plan, d, r) == tap_residue(plan, d, k[d])
            rank[d] += r < k[d] and tap_residue(plan, d, r) == tap_residue(plan, d, k[d])
    return below[0] * plan.kernel[1] * plan.kernel[2] + same[0] * (below[1] * plan.kernel[2] + same[1] * below[2]) \
        + (rank[0] * same[1] + rank[1]) * same[2] + rank[2]


ctypedef fused real:
    float
    double


cdef bint drop_nonfinite(real *values, int64_t n) noexcept nogil:
    """Replace inf and NaN by 0; whether there were any."""
    cdef int64_t i
    cdef bint found = False
    for i in range(n):
        if values[i] - values[i] != 0:
            values[i] = 0
            found = True
    return found


cdef bint pack_weight(const ConvPlan *plan, int64_t group, int64_t block, char *packed) noexcept nogil:
    """Rows [block*mr, +mr) of the group's weights, transposed, as [tap, co][mr]. inf and NaN become 0, since
    they would meet padding's zeros; the result says whether add_nonfinite has to make up for that."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t mr = plan.tile.mr, depth = plan.taps * plan.cout, k0, k1, k2, i, ci
    cdef char *panel = packed + (group * (plan.rows_in // mr) + block) * depth * mr * plan.item
    cdef char *to
    cdef char *source
    cdef bint nonfinite
    cdef uint64_t float_state = enter_float_state()
    for k0 in range(plan.kernel[0]):
        for k1 in range(plan.kernel[1]):
            for k2 in range(plan.kernel[2]):
                to = panel + packed_tap(plan, k0, k1, k2) * plan.cout * mr * plan.item
                source = w.data + group * plan.cout * w.n + k0 * w.space[0] + k1 * w.space[1] + k2 * w.space[2]
                for i in range(mr):
                    ci = block * mr + i
                    if ci < plan.cin:
                        plan.load(source + ci * w.channel, w.n, to + i * plan.item, mr * plan.item, plan.cout)
                    else:
                        zero_strided(to + i * plan.item, mr * plan.item, plan.item, plan.cout)
    if plan.compute == DTYPE_F64:
        nonfinite = drop_nonfinite(<double *>panel, depth * mr)
    else:
        nonfinite = drop_nonfinite(<float *>panel, depth * mr)
    leave_float_state(float_state)
    return nonfinite


cdef int64_t clip_run(const Run *run, const int64_t *base, const int64_t *size, int64_t *skip) noexcept nogil:
    """How many pixels of the run land inside `size` after adding base, and how many to skip before them."""
    cdef int64_t y = base[2] + run.pixel[2], end
    skip[0] = 0
    if run.pixel[0] + base[0] < 0 or run.pixel[0] + base[0] >= size[0] \
            or run.pixel[1] + base[1] < 0 or run.pixel[1] + base[1] >= size[1]:
        return 0
    skip[0] = min(run.length, max(<int64_t>0, -y))
    end = min(run.length, size[2] - y)
    return max(<int64_t>0, end - skip[0])


cdef char *phase_source(const ConvPlan *plan, const Run *run, const int64_t *base, int64_t channel) noexcept nogil:
    """Address of the run's first grad_output pixel, which may lie outside."""
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    return g.data + run.n * g.n + channel * g.channel + (run.pixel[0] + base[0]) * g.space[0] \
        + (run.pixel[1] + base[1]) * g.space[1] + (run.pixel[2] + base[2]) * g.space[2]


cdef void tap_base(const ConvPlan *plan, const Phase *phase, int64_t tap, int64_t *base, int64_t *k) noexcept nogil:
    """The grad_output pixel that the phase's first pixel meets under its tap-th tap, and that tap's index."""
    cdef int64_t rest = tap
    cdef int d
    for d in range(2, -1, -1):
        k[d] = phase_tap(plan, phase, d, rest % phase.taps[d])
        rest //= phase.taps[d]
        base[d] = (phase.first[d] + plan.before[d] - k[d] * plan.dilation[d]) // plan.stride[d]  # exact


cdef void pack_grad_output(const ConvPlan *plan, int64_t group, const Phase *phase, int64_t depth_from,
                           int64_t depth_to, const Run *runs, int run_count, char *panel) noexcept nogil:
    """Rows [depth_from, depth_to) of (tap, co) by the runs' pixels; zeros where a tap falls outside."""
    cdef int64_t nr = plan.tile.nr, item = plan.item, step = plan.view[CONV_GRAD_OUTPUT].space[2]
    cdef int64_t depth = depth_from, co, co_from, co_to, skip, inside
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef char *to
    cdef const Run *run
    cdef int r
    while depth < depth_to:
        co_from = depth % plan.cout
        co_to = min(plan.cout, co_from + depth_to - depth)
        tap_base(plan, phase, depth // plan.cout, base, k)
        for r in range(run_count):
            run = &runs[r]
            inside = clip_run(run, base, plan.size_out, &skip)
            for co in range(co_from, co_to):
                to = panel + ((run.at // nr * CONV_K + depth - depth_from + co - co_from) * nr + run.at % nr) * item
                if skip:
                    memset(to, 0, skip * item)
                if inside:
                    plan.load(phase_source(plan, run, base, group * plan.cout + co) + skip * step, step,
                              to + skip * item, item, inside)
                if skip + inside < run.length:
                    memset(to + (skip + inside) * item, 0, (run.length - skip - inside) * item)
        depth += co_to - co_from


cdef double load_one(const ConvPlan *plan, const char *element) noexcept nogil:
    cdef float single
    cdef double value
    if plan.compute == DTYPE_F64:
        plan.load(element, 0, <char *>&value, plan.item, 1)
        return value
    plan.load(element, 0, <char *>&single, plan.item, 1)
    return single


cdef void save_one(const ConvPlan *plan, double value, char *element) noexcept nogil:
    cdef float single = <float>value
    plan.save(<char *>&value if plan.compute == DTYPE_F64 else <char *>&single, 0, element, 0, 1)


cdef inline void add_to(const ConvPlan *plan, char *sum, double value) noexcept nogil:
    """Add in the compute type; value is exact in it."""
    if plan.compute == DTYPE_F64:
        (<double *>sum)[0] += value
    else:
        (<float *>sum)[0] += <float>value


cdef void add_nonfinite(const ConvPlan *plan, int64_t group, const Phase *phase, const Run *runs, int run_count,
                        char *tile) noexcept nogil:
    """Add the products with inf and NaN weights, which pack_weight left out, where they really exist."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t step = plan.view[CONV_GRAD_OUTPUT].space[2], tap, co, ci, skip, inside, i
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef double weight
    cdef char *g
    cdef int r
    for tap in range(phase.tap_count):
        tap_base(plan, phase, tap, base, k)
        for co in range(plan.cout):
            for ci in range(plan.cin):
                weight = load_one(plan, w.data + (group * plan.cout + co) * w.n + ci * w.channel
                                  + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2])
                if weight - weight == 0:
                    continue
                for r in range(run_count):
                    inside = clip_run(&runs[r], base, plan.size_out, &skip)
                    g = phase_source(plan, &runs[r], base, group * plan.cout + co)
                    for i in range(skip, skip + inside):
                        add_to(plan, tile + (ci * plan.columns_in + runs[r].at + i) * plan.item,
                               load_one(plan, g + i * step) * weight)


cdef void load_rows(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t rows, const Run *runs,
                    int run_count, char *panel) noexcept nogil:
    """grad_output channels [row_from, +rows) by the runs' output pixels, as [channel][CONV_LINE]."""
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef int64_t item = plan.item, i
    cdef const Run *run
    cdef int r
    for i in range(rows):
        for r in range(run_count):
            run = &runs[r]
            plan.load(g.data + run.n * g.n + (group * plan.cout + row_from + i) * g.channel + run.pixel[0] * g.space[0]
                      + run.pixel[1] * g.space[1] + run.pixel[2] * g.space[2], g.space[2],
                      panel + (i * CONV_LINE + run.at) * item, item, run.length)


cdef void load_column(const ConvPlan *plan, int64_t group, int64_t column, const Run *runs, int run_count,
                      char *row) noexcept nogil:
    """input under (ci, tap) number `column` by the runs' output pixels, side by side; zeros in the padding."""
    cdef const ConvView *x = &plan.view[CONV_INPUT]
    cdef int64_t item = plan.item, ci = column // plan.taps, tap = column % plan.taps, s = plan.stride[2], low, high
    cdef int64_t y0, y1
    cdef int64_t first[3]
    cdef int64_t k2 = tap % plan.kernel[2], k1 = tap // plan.kernel[2] % plan.kernel[1]
    cdef char *source
    cdef char *to
    cdef const Run *run
    cdef int r
    first[0] = tap // (plan.kernel[2] * plan.kernel[1]) * plan.dilation[0] - plan.before[0]  # of output pixel 0
    first[1] = k1 * plan.dilation[1] - plan.before[1]
    first[2] = k2 * plan.dilation[2] - plan.before[2]
    source = x.data + (group * plan.cin + ci) * x.channel
    for r in range(run_count):
        run = &runs[r]
        to = row + run.at * item
        y0 = run.pixel[0] * plan.stride[0] + first[0]
        y1 = run.pixel[1] * plan.stride[1] + first[1]
        # steps [low, high) of the run are inside the row
        low = run.pixel[2] * s + first[2]
        high = min(run.length, (plan.size_in[2] - low - 1) // s + 1 if plan.size_in[2] > low else 0)
        low = min(high, (-low - 1) // s + 1 if low < 0 else 0)
        if y0 < 0 or y0 >= plan.size_in[0] or y1 < 0 or y1 >= plan.size_in[1]:
            low = high = 0
        if low:
            memset(to, 0, low * item)
        if high > low:
            plan.load(source + run.n * x.n + y0 * x.space[0] + y1 * x.space[1]
                      + ((run.pixel[2] + low) * s + first[2]) * x.space[2], s * x.space[2], to + low * item, item,
                      high - low)
        if high < run.length:
            memset(to + high * item, 0, (run.length - high) * item)


cdef void pack_columns(const ConvPlan *plan, int64_t group, int64_t column_from, int64_t columns, const Run *runs,
                       int run_count, int64_t depth, char *stage, char *panel) noexcept nogil:
    """im2col: (ci, tap) in [column_from, +columns) by the runs' output pixels, as [block][pixel][nr]: as many columns as
    a vector has lanes are laid side by side on the stage, and transposed from there."""
    cdef int64_t nr = plan.tile.nr, item = plan.item, count, i, j = 0
    while j < columns:
        count = min(<int64_t>plan.tile.lanes, columns - j)
        for i in range(count):
            load_column(plan, group, column_from + j + i, runs, run_count, stage + i * CONV_LINE * item)
        kernels.transpose[plan.compute](stage, CONV_LINE * item, panel + (j // nr * CONV_K * nr + j % nr) * item, nr * item,
                                        depth, plan.tile.lanes)
        j += count
