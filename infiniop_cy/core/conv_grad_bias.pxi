# grad_bias, tile by tile of grad_weight's cut: taken there, while the tile is in the cache, or alone, with the same bits.

cdef enum:
    CONV_BIAS_CHANNELS = 64  # summed together where they lie side by side


cdef bint bias_on_the_way(const ConvPlan *plan) noexcept nogil:
    """Whether grad_weight's tasks take grad_bias with them."""
    return plan.view[CONV_GRAD_BIAS].data != NULL and plan.view[CONV_GRAD_WEIGHT].data != NULL and plan.cout and plan.cin


# A task's share of the channels that it meets; the tasks that meet the same ones take one share each.
ctypedef struct BiasShare:
    int64_t channel, channels
    double *totals


cdef BiasShare bias_share(const ConvPlan *plan, int64_t channel, int64_t channels, int64_t task, int64_t tasks,
                          double *totals) noexcept nogil:
    cdef BiasShare share
    cdef int64_t each = pieces(channels, tasks)
    share.channel, share.totals = channel + task * each, totals
    share.channels = max(<int64_t>0, min(each, channels - task * each)) if bias_on_the_way(plan) else 0
    start_bias(plan, share.channel, share.channels, totals)
    return share


cdef void start_bias(const ConvPlan *plan, int64_t channel, int64_t channels, double *totals) noexcept nogil:
    cdef int64_t c
    for c in range(channels):
        totals[c] = 0
        if plan.accumulate:
            totals[c] = load_one(plan, plan.view[CONV_GRAD_BIAS].data + (channel + c) * plan.view[CONV_GRAD_BIAS].n)


cdef void add_bias(const ConvPlan *plan, const Box *tile, int64_t channel, int64_t channels, double *totals) noexcept nogil:
    """Each sample's sums, plane by plane, row after row; in the compute type."""
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef int64_t first, count = CONV_BIAS_CHANNELS if g.channel == itemsize_of(plan.dtype) else 1, c, n, z
    cdef double planes[CONV_BIAS_CHANNELS]
    cdef char *at
    first = 0
    while first < channels:
        count = min(count, channels - first)
        for n in range(tile.n, tile.n + tile.samples):
            for z in range(tile.first[0], tile.first[0] + tile.extent[0]):
                at = g.data + n * g.n + (channel + first) * g.channel + z * g.space[0] + tile.first[1] * g.space[1] \
                    + tile.first[2] * g.space[2]
                if count > 1:
                    kernels.sum_channels[plan.dtype](at, g.space[2], g.space[1], tile.extent[1], tile.extent[2], count, planes)
                else:
                    planes[0] = kernels.sum_rows[plan.dtype](at, g.space[2], g.space[1], tile.extent[1], tile.extent[2])
                for c in range(count):
                    totals[first + c] = totals[first + c] + planes[c] if plan.compute == DTYPE_F64 \
                        else <float>totals[first + c] + <float>planes[c]
        first += count


cdef void add_sample_bias(const ConvPlan *plan, int64_t n, int64_t channel, int64_t channels, double *totals) noexcept nogil:
    """All tiles of one sample."""
    cdef const ConvCut *cut = &plan.for_weight
    cdef int64_t tiles = 1, number
    cdef Box tile
    cdef int d
    for d in range(3):
        tiles *= pieces(plan.size_out[d], cut.tile[1 + d])
    for number in range(tiles):
        nth_tile(cut, plan.batch, plan.size_out, n // cut.tile[0] * tiles + number, &tile)
        tile.n, tile.samples = n, 1
        add_bias(plan, &tile, channel, channels, totals)


cdef void save_bias(const ConvPlan *plan, int64_t channel, int64_t channels, const double *totals) noexcept nogil:
    cdef int64_t c
    for c in range(channels):
        save_one(plan, totals[c], plan.view[CONV_GRAD_BIAS].data + (channel + c) * plan.view[CONV_GRAD_BIAS].n)


cdef void grad_bias_channels(const ConvPlan *plan, int64_t channel, int64_t channels) noexcept nogil:
    """Some channels by themselves."""
    cdef Box tile
    cdef double totals[CONV_BIAS_CHANNELS]
    cdef int64_t number = 0
    cdef uint64_t float_state = enter_float_state()
    start_bias(plan, channel, channels, totals)
    while plan.pixels_out and nth_tile(&plan.for_weight, plan.batch, plan.size_out, number, &tile):
        add_bias(plan, &tile, channel, channels, totals)
        number += 1
    save_bias(plan, channel, channels, totals)
    leave_float_state(float_state)


cdef void run_grad_bias(const ConvPlan *plan, int threads) noexcept nogil:
    cdef int64_t all_channels = plan.groups * plan.cout, i
    cdef int64_t each = max(<int64_t>1, min(<int64_t>CONV_BIAS_CHANNELS, pieces(all_channels, 4 * threads)))
    if threads == 1:
        for i in range(pieces(all_channels, each)):
            grad_bias_channels(plan, i * each, min(each, all_channels - i * each))
        return
    for i in prange(pieces(all_channels, each), schedule="static", num_threads=threads):
        grad_bias_channels(plan, i * each, min(each, all_channels - i * each))


cdef int64_t bias_bytes(int64_t channels) noexcept nogil:
    """The totals of a task that sums on the way."""
    return round_up(channels * <int64_t>sizeof(double), CONV_ALIGN)
