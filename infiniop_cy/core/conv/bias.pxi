# grad_bias, summed tile by tile of grad_weight's order: by the tasks of grad_weight while a tile is in the cache, or by
# tasks of its own, with the same bits.
cdef enum:
    BIAS_CHANNELS = 64  # summed together where they lie side by side


# A task's share of the channels that it meets; the tasks that meet the same ones take one share each.
ctypedef struct BiasShare:
    int64_t channel, channels
    double *totals


cdef void start_bias(const ConvProblem *problem, const BiasShare *share) noexcept nogil:
    """Set the totals to 0, or (accumulating) to what is there."""
    cdef const ConvView *out = &problem.view[CONV_GRAD_BIAS]
    cdef int64_t c
    memset(share.totals, 0, share.channels * sizeof(double))
    for c in range(share.channels if problem.accumulate else 0):
        share.totals[c] = load_one(problem, out.data + (share.channel + c) * out.n)


cdef BiasShare bias_share(const ConvRun *run, int64_t channel, int64_t channels, int64_t part, int64_t parts,
                          char *totals) noexcept nogil:
    """Start share number `part` of `parts` of some channels of grad_output; it is empty where grad_bias is not wanted.
    totals: room for as many doubles."""
    cdef BiasShare share
    cdef int64_t each = ceil_div(channels, parts)
    share.channel, share.channels, share.totals = channel + part * each, 0, <double *>totals
    if run.gradients & FOR_GRAD_BIAS:
        share.channels = max(<int64_t>0, min(each, channels - part * each))
    start_bias(run.problem, &share)
    return share


cdef void add_bias(const ConvProblem *problem, const Box *tile, const BiasShare *share) noexcept nogil:
    """Add the sums of a tile of each sample, plane by plane, row after row; in the compute type."""
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    cdef int dtype = problem.sample.dtype
    cdef int64_t first = 0, count = BIAS_CHANNELS if g.channel == itemsize_of(dtype) else 1, c, n, z
    cdef double planes[BIAS_CHANNELS]
    cdef char *at
    while first < share.channels:
        count = min(count, share.channels - first)
        for n in range(tile.n, tile.n + tile.samples):
            for z in range(tile.first[0], tile.first[0] + tile.extent[0]):
                at = g.data + n * g.n + (share.channel + first) * g.channel + z * g.space[0] \
                    + tile.first[1] * g.space[1] + tile.first[2] * g.space[2]
                if count > 1:
                    kernels.sum_channels[dtype](at, g.space[2], g.space[1], tile.extent[1], tile.extent[2], count,
                                                planes)
                else:
                    planes[0] = kernels.sum_rows[dtype](at, g.space[2], g.space[1], tile.extent[1], tile.extent[2])
                add_plane(problem, planes, share.totals + first, count)
        first += count


cdef void add_plane(const ConvProblem *problem, const double *sums, double *totals, int64_t count) noexcept nogil:
    """Add the sums of a plane of some channels, in the compute type."""
    cdef int64_t c
    for c in range(count):
        totals[c] = totals[c] + sums[c] if problem.sample.compute == DTYPE_F64 else <float>totals[c] + <float>sums[c]


cdef void keep_bias(const ConvProblem *problem, const Box *tile, const BiasShare *share) noexcept nogil:
    """Keep the sums of each plane of a tile of one sample, for join_bias: plane after plane, the share's channels of
    each."""
    cdef BiasShare plane = share[0]
    cdef Box one = tile[0]
    cdef int64_t z, c
    one.extent[0] = 1
    for z in range(tile.extent[0]):
        for c in range(share.channels):
            plane.totals[c] = 0
        add_bias(problem, &one, &plane)
        plane.totals += share.channels
        one.first[0] += 1


cdef void join_bias(const ConvProblem *problem, const double *sums, int64_t planes,
                    const BiasShare *share) noexcept nogil:
    """Add the sums of so many planes of a tile that another share has kept."""
    cdef int64_t z
    for z in range(planes):
        add_plane(problem, sums + z * share.channels, share.totals, share.channels)


cdef void add_sample_bias(const ConvRun *run, int64_t n, const BiasShare *share) noexcept nogil:
    """Add all tiles of one sample."""
    cdef int64_t size[3]
    cdef int64_t number = 0
    cdef Tiling tiling
    cdef Box tile
    output_size(run.sample, size)
    one_sample_tiling(run.order.tile, &tiling)
    while not is_stopped(run) and nth_tile(&tiling, 1, size, number, &tile):
        tile.n = n
        add_bias(run.problem, &tile, share)
        number += 1


cdef void save_bias(const ConvProblem *problem, const BiasShare *share) noexcept nogil:
    """Round the totals to the compute type, then to storage."""
    cdef const ConvView *out = &problem.view[CONV_GRAD_BIAS]
    cdef char *at
    cdef float single[BIAS_CHANNELS]
    cdef int64_t first = 0, count, c
    if share.channels == 0:  # grad_bias may not be asked for, and has no address then
        return
    at = out.data + share.channel * out.n
    if problem.sample.compute == DTYPE_F64:
        problem.save(<char *>share.totals, sizeof(double), at, out.n, share.channels)
        return
    while first < share.channels:
        count = min(<int64_t>BIAS_CHANNELS, share.channels - first)
        for c in range(count):
            single[c] = <float>share.totals[first + c]
        problem.save(<char *>single, sizeof(float), at + first * out.n, out.n, count)
        first += BIAS_CHANNELS


# ---- alone: an algorithm whose tasks are channels

ctypedef struct BiasAlone:
    int64_t each  # channels of a task


cdef void block_bias(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                     Blocking *blocking) noexcept nogil:
    """Make tasks of BIAS_CHANNELS channels, or of fewer where threads would idle."""
    cdef int64_t channels = problem.sample.groups * problem.sample.cout
    cdef BiasAlone *own = <BiasAlone *>blocking.own
    own.each = max(<int64_t>1, min(<int64_t>BIAS_CHANNELS, ceil_div(channels, 4 * threads)))
    blocking.tasks = ceil_div(channels, own.each)


cdef void bias_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum the channels of task `number` over all samples and output pixels."""
    cdef const BiasAlone *own = <const BiasAlone *>run.blocking.own
    cdef double totals[BIAS_CHANNELS]
    cdef BiasShare share
    cdef int64_t n, channels = run.sample.groups * run.sample.cout
    share.channel, share.totals = number * own.each, totals
    share.channels = min(own.each, channels - share.channel)
    start_bias(run.problem, &share)
    for n in range(run.problem.batch):
        add_sample_bias(run, n, &share)
    save_bias(run.problem, &share)


cdef ConvAlgorithm bias_alone() noexcept nogil:
    """Describe grad_bias where no task of grad_weight takes it along. The order is grad_weight's."""
    cdef ConvAlgorithm row
    memset(&row, 0, sizeof(row))
    row.name, row.gradients = b"grad_bias", FOR_GRAD_BIAS
    row.block, row.prepare, row.task = block_bias, nothing_to_prepare, bias_task
    return row
