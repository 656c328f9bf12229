# grad_bias, tile by tile of grad_weight's cut: taken there, while the tile is in the cache, or alone, with the same bits.

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
    cdef int64_t c, each = pieces(channels, tasks)
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
    cdef int64_t c, n, z
    cdef double plane
    for c in range(channels):
        for n in range(tile.n, tile.n + tile.samples):
            for z in range(tile.first[0], tile.first[0] + tile.extent[0]):
                plane = kernels.sum_rows[plan.dtype](
                    g.data + n * g.n + (channel + c) * g.channel + z * g.space[0] + tile.first[1] * g.space[1]
                    + tile.first[2] * g.space[2], g.space[2], g.space[1], tile.extent[1], tile.extent[2])
                totals[c] = totals[c] + plane if plan.compute == DTYPE_F64 else <float>totals[c] + <float>plane


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


cdef void grad_bias_channel(const ConvPlan *plan, int64_t channel) noexcept nogil:
    """One channel by itself."""
    cdef Box tile
    cdef double total
    cdef int64_t number = 0
    cdef uint64_t float_state = enter_float_state()
    start_bias(plan, channel, 1, &total)
    while plan.pixels_out and nth_tile(&plan.for_weight, plan.batch, plan.size_out, number, &tile):
        add_bias(plan, &tile, channel, 1, &total)
        number += 1
    save_bias(plan, channel, 1, &total)
    leave_float_state(float_state)


cdef void run_grad_bias(const ConvPlan *plan, int threads) noexcept nogil:
    cdef int64_t i
    if threads == 1:
        for i in range(plan.groups * plan.cout):
            grad_bias_channel(plan, i)
        return
    for i in prange(plan.groups * plan.cout, schedule="static", num_threads=threads):
        grad_bias_channel(plan, i)


cdef int64_t bias_bytes(int64_t channels) noexcept nogil:
    """The totals of a task that sums on the way."""
    return round_up(channels * <int64_t>sizeof(double), CONV_ALIGN)
