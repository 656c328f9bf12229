# The phases of a strided convolution, and the weights for grad_input, packed once for all tiles, phase by phase.

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


cdef void tap_base(const ConvPlan *plan, const Phase *phase, int64_t tap, int64_t *base, int64_t *k) noexcept nogil:
    """The grad_output pixel that the phase's first pixel meets under its tap-th tap, and that tap's index."""
    cdef int64_t rest = tap
    cdef int d
    for d in range(2, -1, -1):
        k[d] = phase_tap(plan, phase, d, rest % phase.taps[d])
        rest //= phase.taps[d]
        base[d] = (phase.first[d] + plan.before[d] - k[d] * plan.dilation[d]) // plan.stride[d]  # exact


cdef char *packed_panel(const ConvPlan *plan, char *packed, int64_t group, int64_t sliver, int64_t co) noexcept nogil:
    """Weights of one sliver and one block of co, as [packed_tap][co][columns], or pairs of co."""
    cdef int64_t columns = plan.for_input.columns * plan.item
    if plan.for_input.pairs:
        co //= 2
    return packed + ((group * plan.for_input.slivers + sliver) * plan.cout + co) * plan.taps * columns


cdef void stage_taps(const ConvPlan *plan, const char *source, int64_t tap, int64_t taps, int64_t channels, char *raw,
                     char *staged) noexcept nogil:
    """Taps [tap, +taps) of so many ci from `source` on, as [tap][columns], zeros after the last ci."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t item = plan.item, columns = plan.for_input.columns, stored = itemsize_of(plan.dtype), i, k
    cdef bint in_line = w.space[2] == stored and (plan.kernel[1] == 1 or w.space[1] == plan.kernel[2] * stored) \
        and (plan.kernel[0] == 1 or w.space[0] == plan.kernel[1] * plan.kernel[2] * stored)
    if channels < columns:
        memset(staged, 0, taps * columns * item)
    if not in_line or taps == 1:
        for i in range(taps):
            k = tap + i
            plan.load(source + k // (plan.kernel[1] * plan.kernel[2]) * w.space[0]
                      + k // plan.kernel[2] % plan.kernel[1] * w.space[1] + k % plan.kernel[2] * w.space[2],
                      w.channel, staged + i * columns * item, item, channels)
        return
    source += tap * stored
    if plan.dtype == plan.compute:
        kernels.transpose[plan.compute](source, w.channel, staged, columns * item, taps, channels)
        return
    if w.channel == taps * stored:
        plan.load(source, stored, raw, item, taps * channels)
    else:
        for i in range(channels):
            plan.load(source + i * w.channel, stored, raw + i * taps * item, item, taps)
    kernels.transpose[plan.compute](raw, taps * item, staged, columns * item, taps, channels)


cdef bint replace_all_nonfinite(const ConvPlan *plan, char *values, int64_t n) noexcept nogil:
    if plan.compute == DTYPE_F64:
        return replace_nonfinite(<double *>values, n)
    return replace_nonfinite(<float *>values, n)


cdef void join_pairs(const uint32_t *values, int64_t n, bint second, uint32_t *pairs) noexcept nogil:
    """bfloat16 numbers, widened, into the upper halves, or (second) the lower ones."""
    cdef int64_t i
    for i in range(n):
        pairs[i] = pairs[i] | values[i] >> 16 if second else values[i]


cdef bint pack_weight(const ConvPlan *plan, int64_t group, int64_t sliver, int64_t co_from, char *packed,
                      char *scratch) noexcept nogil:
    """One panel of weights. inf and NaN become tiny, since they would meet padding's zeros; the result says whether
    add_nonfinite has to make up for that."""
    cdef const ConvCut *cut = &plan.for_input
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t item = plan.item, columns = cut.columns, count = min(cut.channels, plan.cout - co_from)
    cdef int64_t channels = min(columns, plan.cin - sliver * columns), tap, taps, co, i
    cdef char *panel = packed_panel(plan, packed, group, sliver, co_from)
    cdef char *raw = take(&scratch, scratch_bytes(plan, CONV_STAGED_TAPS * columns))
    cdef char *staged
    cdef int64_t place[CONV_STAGED_TAPS]
    cdef bint nonfinite = False
    cdef int64_t steps = pieces(count, 2) if cut.pairs else count
    cdef uint64_t float_state = enter_float_state()
    tap = 0
    while tap < plan.taps:
        taps = min(<int64_t>CONV_STAGED_TAPS, plan.taps - tap)
        for i in range(taps):
            place[i] = packed_tap(plan, (tap + i) // (plan.kernel[1] * plan.kernel[2]),
                                  (tap + i) // plan.kernel[2] % plan.kernel[1], (tap + i) % plan.kernel[2]) * steps
        for co in range(count):
            staged = scratch if taps > 1 or cut.pairs else panel + (place[0] + co) * columns * item
            stage_taps(plan, w.data + (group * plan.cout + co_from + co) * w.n + sliver * columns * w.channel, tap, taps,
                       channels, raw, staged)
            if staged != scratch:
                continue
            if cut.pairs:
                nonfinite |= replace_all_nonfinite(plan, scratch, taps * columns)
            for i in range(taps):
                if cut.pairs:
                    join_pairs(<const uint32_t *>scratch + i * columns, columns, co % 2,
                               <uint32_t *>panel + (place[i] + co // 2) * columns)
                else:
                    memcpy(panel + (place[i] + co) * columns * item, scratch + i * columns * item, columns * item)
        tap += CONV_STAGED_TAPS
    if not cut.pairs:
        nonfinite = replace_all_nonfinite(plan, panel, plan.taps * count * columns)
    leave_float_state(float_state)
    return nonfinite
