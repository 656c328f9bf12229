# The output of a depthwise convolution with a channel multiplier: several output channels of each input channel, which
# has a group of its own. As one depthwise convolution of all output channels, where these lie side by side: a tile's
# input is copied with each channel as many times (`spread`). Else as many depthwise convolutions, each of which writes
# every so-manieth channel. The terms of a sum and their order are the same.
cdef enum:
    MULTIPLIED_BYTES = 1 << 19   # of copies, so that they stay in L2
    MULTIPLIED_SHARED = 4        # times that a pixel is copied, at most

    STENCIL_SPREAD = 11          # a piece of a thread's scratch, beside those of depthwise


ctypedef struct Multiplied:
    Depthwise depthwise          # of all outputs (spread), or of one of each group
    bint spread
    bint whole                   # an image is copied, for all of its tiles
    int64_t copied               # channels of the input that a task's are, at most
    int64_t pitch                # bytes from pixel to pixel of the copy


cdef void all_of_multiplied(const ConvProblem *problem, ConvProblem *all_) noexcept nogil:
    """State the depthwise convolution of all output channels. Its image is that of the copies, as yet nowhere."""
    memcpy(all_, problem, sizeof(ConvProblem))
    all_.sample.groups *= problem.sample.cin
    all_.sample.cin = 1
    all_.view[CONV_WEIGHT].group = problem.view[CONV_WEIGHT].channel


cdef void one_of_multiplied(const ConvProblem *problem, int64_t number, ConvProblem *one) noexcept nogil:
    """State the depthwise convolution that computes output channel `number` of each group."""
    cdef ConvView *w = &one.view[CONV_WEIGHT]
    cdef ConvView *y = &one.view[CONV_GRAD_INPUT]
    cdef ConvView *bias = &one.view[CONV_BIAS]
    cdef int64_t channels = problem.sample.cin
    memcpy(one, problem, sizeof(ConvProblem))
    one.sample.cin = 1
    w.data += number * w.channel
    if y.data != NULL:
        y.data += number * y.channel
    if bias.data != NULL:
        bias.data += number * bias.n
    y.channel *= channels
    bias.n *= channels


cdef bint accepts_output_multiplied(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef SampleGeometry one = sample[0]
    if sample.cout != 1 or not 2 <= sample.cin <= SPREAD_MOST:
        why[0] = b"there are not some output channels to one input channel"
        return False
    if existing_products(sample) < 0.004 * sample.pixels_out:
        why[0] = b"taps meet so little of the image that copying all of it takes longer than the products"
        return False
    one.cin = 1
    return accepts_depthwise(&one, why)


cdef void order_output_multiplied(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum as output:depthwise does."""
    cdef SampleGeometry one = sample[0]
    one.cin = 1
    order_depthwise(&one, order)


# ---- all outputs at once

cdef void cut_copies(const ConvProblem *problem, Multiplied *own) noexcept nogil:
    """Find how many channels of the input a task copies, and how far apart the pixels of the copy are."""
    cdef int64_t copies = problem.sample.cin
    own.copied = min(problem.sample.groups, own.depthwise.each // copies + 2)
    own.pitch = (own.copied * copies + SPREAD_MOST) * itemsize_of(problem.sample.dtype)


cdef bint cut_spread_tiles(const ConvProblem *all_, Multiplied *own) noexcept nogil:
    """Cut pixels into tiles of which the copies stay in the caches; return False where tiles share much of them."""
    cdef Depthwise *depthwise = &own.depthwise
    cdef LaneBlocks blocks = depthwise.blocks
    cdef int64_t positions
    if not cut_lane_tiles(&all_.sample, MULTIPLIED_BYTES // own.pitch, &blocks):
        return False
    positions = min(all_.sample.pixels_out, sample_positions(blocks.extent, STENCIL_MOST_POSITIONS))
    if count_tiles(&blocks.tiling, 1, blocks.steps) * positions > MULTIPLIED_SHARED * all_.sample.pixels_out:
        return False
    depthwise.blocks = blocks
    return True


cdef bint cut_spread_image(const ConvProblem *problem, const ConvProblem *all_, Multiplied *own) noexcept nogil:
    """Cut channels into tasks of which the copies of a whole image stay in the caches; return False where it is too
    large."""
    cdef int64_t lines = PIXEL_CHANNELS * itemsize_of(problem.sample.dtype) // CONV_ALIGN
    while own.pitch * all_.sample.pixels_out > MULTIPLIED_BYTES and lines > 1:
        lines //= 2
        cut_channels(all_, lines, &own.depthwise)
        cut_copies(problem, own)
    return own.pitch * all_.sample.pixels_out <= 2 * MULTIPLIED_BYTES


cdef bint cut_spread(const ConvProblem *problem, int threads, Multiplied *own) noexcept nogil:
    """Cut all output channels and pixels into tasks; return False where they are not written side by side, or the
    copies would be too large."""
    cdef Depthwise *depthwise = &own.depthwise
    cdef ConvProblem all_
    all_of_multiplied(problem, &all_)
    cut_depthwise(&all_, FOR_GRAD_INPUT, threads, depthwise)
    cut_copies(problem, own)
    own.whole = depthwise.by_pixels and not cut_spread_tiles(&all_, own)
    if not depthwise.by_pixels or (own.whole and not cut_spread_image(problem, &all_, own)):
        return False
    depthwise.block_vectors = 1
    depthwise.g_apart = sample_positions(depthwise.blocks.extent, STENCIL_MOST_POSITIONS)
    depthwise.sums_apart = sample_positions(depthwise.blocks.pixels, STENCIL_MOST_POSITIONS)
    depthwise.tiles = count_tiles(&depthwise.blocks.tiling, 1, depthwise.blocks.steps)
    depthwise.together = depthwise.tiles if own.whole else tiles_together(&all_, threads, depthwise)
    return True


cdef void block_spread(const ConvProblem *problem, Blocking *blocking) noexcept nogil:
    """Give a task some tiles of some channels. Packed blocks are for weights of inf or NaN."""
    cdef const Multiplied *own = <const Multiplied *>blocking.own
    cdef const Depthwise *depthwise = &own.depthwise
    cdef Scratch *local = &blocking.local
    cdef int64_t vector = problem.sample.lanes * problem.sample.item
    cdef ConvProblem all_
    all_of_multiplied(problem, &all_)
    book_lane_tables(&all_.sample, local)
    book(local, STENCIL_G, depthwise.g_apart, vector)
    book(local, STENCIL_SUMS, depthwise.sums_apart, vector)
    book(local, STENCIL_NATURAL, natural_vectors(&all_.sample, depthwise.vectors), vector)
    book(local, STENCIL_WEIGHTS, depthwise.products, vector)
    book(local, STENCIL_SPREAD, all_.sample.pixels_out if own.whole else depthwise.g_apart, own.pitch)
    blocking.tasks = ceil_div(problem.batch * depthwise.tiles, depthwise.together) * depthwise.parts


cdef void spread_tile(const LaneTask *t, const ConvView *x, int64_t copies, char *to, ConvView *spread) noexcept nogil:
    """Copy what a tile meets of the input, or all of it; spread: shows the copy as the image that it is a part of."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const Multiplied *own = <const Multiplied *>t.run.blocking.own
    cdef int64_t item = itemsize_of(sample.dtype), first = t.channel // copies, z, y
    cdef int64_t channels = (t.channel + t.channels - 1) // copies + 1 - first
    cdef int64_t size[3]
    cdef int64_t begin[3]
    cdef int64_t extent[3]
    cdef const char *row
    cdef int d
    output_size(sample, size)
    for d in range(3):
        begin[d] = t.tile.first[d] * sample.source[d].step + t.own.blocks.halo.low[d]
        extent[d] = begin[d] + (t.tile.extent[d] - 1) * sample.source[d].step + 1 + t.own.blocks.halo.extra[d]
        begin[d] = 0 if own.whole else max(<int64_t>0, begin[d])
        extent[d] = size[d] if own.whole else max(<int64_t>0, min(size[d], extent[d]) - begin[d])
    spread.n, spread.channel, spread.space[2] = 0, item, own.pitch
    spread.space[1] = extent[2] * spread.space[2]
    spread.space[0] = extent[1] * spread.space[1]
    spread.data = to - first * copies * item
    row = x.data + t.tile.n * x.n + first * x.channel
    for d in range(3):
        spread.data -= begin[d] * spread.space[d]
        row += begin[d] * x.space[d]
    for z in range(extent[0]):
        for y in range(extent[1]):
            kernels.spread[sample.dtype](row + z * x.space[0] + y * x.space[1], x.space[2], extent[2], channels,
                                         copies, to + z * spread.space[0] + y * spread.space[1], own.pitch)


cdef void spread_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Compute some tiles for a task's channels."""
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t tile = number // own.parts * own.together
    cdef int64_t end = min(tile + own.together, run.problem.batch * own.tiles)
    cdef ConvProblem all_
    cdef ConvRun part = run[0]
    cdef LaneTask t
    all_of_multiplied(run.problem, &all_)
    part.problem, part.sample = &all_, &all_.sample
    begin_lanes(&part, number % own.parts, scratch, &t)
    if t.channels == 0:
        return
    t.tables = lane_tables(&all_.sample, &run.blocking.local, scratch)
    fill_lane_tables(&all_.sample, &own.blocks, &t.tables)
    load_lane_weights(&t, local_piece(run, STENCIL_NATURAL, scratch))
    while tile < end and not is_stopped(run):
        begin_tile(&t, tile // own.tiles, tile % own.tiles)
        if tile % own.tiles == 0 or not (<const Multiplied *>run.blocking.own).whole:
            spread_tile(&t, &run.problem.view[CONV_GRAD_OUTPUT], run.sample.cin,
                        local_piece(run, STENCIL_SPREAD, scratch), &all_.view[CONV_GRAD_OUTPUT])
        run_lane_tile(&t, NULL)
        tile += 1


# ---- one output of each group after the other

cdef void block_output_multiplied(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                  Blocking *blocking) noexcept nogil:
    """Cut all outputs into tasks; or have the tasks of one depthwise convolution after those of the other, which share
    the tables, not what a task computes before."""
    cdef Multiplied *own = <Multiplied *>blocking.own
    cdef ConvProblem one
    own.spread = cut_spread(problem, threads, own)
    if own.spread:
        block_spread(problem, blocking)
        return
    one_of_multiplied(problem, 0, &one)
    block_depthwise(&one, order, gradients, threads, blocking)
    if own.depthwise.by_tiles:
        blocking.prepares *= problem.sample.cin
    blocking.tasks *= problem.sample.cin


cdef bint prepare_output_multiplied(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    cdef ConvProblem one
    cdef ConvRun part = run[0]
    cdef int64_t each = max(<int64_t>1, run.blocking.prepares // run.sample.cin)
    one_of_multiplied(run.problem, number // each, &one)
    part.problem, part.sample = &one, &one.sample
    return prepare_depthwise(&part, number % each, scratch)


cdef void output_multiplied_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    cdef ConvProblem one
    cdef ConvRun part = run[0]
    cdef int64_t each = run.blocking.tasks // run.sample.cin
    if (<const Multiplied *>run.blocking.own).spread:
        spread_task(run, number, scratch)
        return
    one_of_multiplied(run.problem, number // each, &one)
    part.problem, part.sample = &one, &one.sample
    depthwise_task(&part, number % each, scratch)


cdef void explain_output_multiplied(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                    char *text, size_t size) noexcept nogil:
    cdef size_t length
    explain_depthwise(sample, order, blocking, text, size)
    length = strlen(text)
    snprintf(text + length, size - length, b"; %s",
             b"all outputs side by side, from copies of the input's channels"
             if (<const Multiplied *>blocking.own).spread else b"one output of each group after the other")


cdef ConvAlgorithm output_multiplied() noexcept nogil:
    cdef ConvAlgorithm row = output_depthwise()
    row.name = b"output:multiplied"
    row.accepts, row.order, row.block = accepts_output_multiplied, order_output_multiplied, block_output_multiplied
    row.prepare, row.task, row.explain = prepare_output_multiplied, output_multiplied_task, explain_output_multiplied
    return row
