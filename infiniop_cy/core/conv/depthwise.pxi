# Depthwise convolutions: one input channel to a group, so that channels are lanes; and convolutions of few channels to
# a group, whose groups lie side by side in the lanes. A task packs a tile of steps for a vector of channels, computes
# grad_input there and the tile's sums of grad_weight, and moves grad_input back. Sums of tiles, then of samples, are
# added one after the other: by the task itself where it takes all samples of its channels, else in a second round. The
# layout decides how pixels are moved and how many channels a task takes; no order of sums.
include "depthwise_blocks.pxi"   # tiles, their blocks, and how pixels are moved in and out
include "depthwise_tile.pxi"     # both gradients on one tile
include "depthwise_pixels.pxi"   # an output whose channels lie side by side
include "depthwise_rows.pxi"     # ... by whole rows, past the caches
include "depthwise_weights.pxi"  # a vector of weights for each tap


cdef bint fits_depthwise(const SampleGeometry *sample, bint sums, const char **why) noexcept nogil:
    """Say whether each group has one channel, and the channels fit the lanes, as fits_lanes says."""
    if sample.cin != 1 or not 1 <= sample.cout <= STENCIL_OUTPUTS:
        why[0] = b"there is not one input channel to a group, or there are too many output channels"
        return False
    return fits_lanes(sample, sums, why)


cdef bint accepts_depthwise(const SampleGeometry *sample, const char **why) noexcept nogil:
    return fits_depthwise(sample, not sample.forward, why)


cdef bint accepts_input_depthwise(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Of grad_input alone, more taps are accepted, where padding does not cost more than others take."""
    if not fits_depthwise(sample, False, why):
        return False
    why[0] = b"pixels under taps would mostly be padding"
    return lanes_pay(sample)


cdef bint accepts_grouped(const SampleGeometry *sample, const char **why) noexcept nogil:
    if not 2 <= sample.cin <= STENCIL_GROUP or sample.cout != sample.cin or sample.lanes % sample.cin:
        why[0] = b"groups of as many input as output channels do not fill a vector side by side"
        return False
    if sample.groups == 1 and sample.taps == 1 and sample.cin == sample.lanes and sample.dtype == DTYPE_F32 \
            and has_wide_vectors(sample):
        why[0] = b"one group that fills a vector is a product of matrices, read where they lie"
        return False
    if sample.forward and has_wide_vectors(sample) and sample.groups == 1 and sample.cin < sample.lanes:
        why[0] = b"one group leaves lanes of a vector empty"  # as it does for gradients, which share what is packed
        return False
    if sample.dtype == DTYPE_BF16 and sample.cin > (AMX_LEAVES_ONE if sample.groups == 1 else AMX_LEAVES_GROUPS) \
            and phase_count(sample) == 1 and accepts_input_amx(sample, why):
        why[0] = b"AMX multiplies pairs of bfloat16 faster"
        return False
    if bfloat16_dot2(sample) and phase_count(sample) == 1 and sample.cin == sample.lanes:
        why[0] = b"a group's pairs of bfloat16 fill a vector by themselves"
        return False
    return fits_lanes(sample, not sample.forward, why)


cdef bint meets_once(const SampleGeometry *sample) noexcept nogil:
    """Say whether an output's taps meet no pixel of the image twice, on the average, and are so many that its few
    channels would else go by dot products: vectors a third full take less than to gather these."""
    return sample.forward and sample.taps >= OUTPUT_DOT_TERMS and 3 * lane_channels(sample) >= sample.lanes \
        and sample.taps * sample.pixels_in <= sample.pixels_out


cdef bint fits_lanes(const SampleGeometry *sample, bint sums, const char **why) noexcept nogil:
    """Say whether channels fill the lanes, a task can hold the weights of all taps, or (sums) grad_weight's sums
    besides, and the blocks of a tile are small enough."""
    cdef int64_t most_taps = STENCIL_TAPS if sums else max(<int64_t>STENCIL_MOST_TAPS, STENCIL_VECTORS // sample.cout)
    cdef LaneBlocks blocks
    cdef int d
    if sample.taps > most_taps or sample.pixels_in == 0:
        why[0] = b"there are too many taps, or no pixels"
        return False
    if 2 * lane_channels(sample) < sample.lanes and not meets_once(sample):
        why[0] = b"most lanes of a vector would be empty"
        return False
    if without_padding(sample) < 0.01:
        why[0] = b"nearly all pixels under taps meet padding"
        return False
    for d in range(3):
        if sample.axis[d].phases > STENCIL_PHASES or phase_count(sample) > STENCIL_PHASES:
            why[0] = b"the stride has too many phases"
            return False
    if not make_lane_blocks(sample, &blocks):
        why[0] = b"taps reach too far"
        return False
    return True


cdef void order_depthwise(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum grad_input of one output channel after the other, all taps of each; grad_weight by tiles."""
    cdef LaneBlocks blocks
    make_lane_blocks(sample, &blocks)
    order.channels, order.taps, order.accumulate = sample.cout, sample.taps, False
    memcpy(order.tile, blocks.tiling.extent, sizeof(order.tile))


cdef bint lies_by_channels(const ConvProblem *problem) noexcept nogil:
    """Say whether some tensor has its channels side by side, so that a vector of them is a part of a line."""
    cdef int64_t item = itemsize_of(problem.sample.dtype)
    return problem.view[CONV_GRAD_OUTPUT].channel == item or problem.view[CONV_INPUT].channel == item \
        or problem.view[CONV_GRAD_INPUT].channel == item


cdef void cut_channels(const ConvProblem *problem, int64_t lines, Depthwise *own) noexcept nogil:
    """Cut the channels into tasks; where they lie side by side, of at most so many cache lines of a pixel, about as
    many each."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t bytes = (own.g_apart + own.x_apart + own.sums_apart) * sample.lanes * sample.item
    cdef int64_t of_line = max(<int64_t>1, CONV_ALIGN // (sample.lanes * itemsize_of(sample.dtype)))
    cdef int64_t vectors = ceil_div(lane_channels(sample), sample.lanes), most = lines * of_line
    most = max(<int64_t>1, min(most, STENCIL_VECTORS // (sample.cout * sample.taps)))
    own.vectors = own.block_vectors = 1
    if lies_by_channels(problem):
        own.vectors = min(vectors, most, round_up(ceil_div(vectors, ceil_div(vectors, most)), of_line))
        own.block_vectors = max(<int64_t>1, min(own.vectors, STENCIL_BYTES // bytes))
    own.each = sample.lanes * own.vectors
    own.by_lines = lies_by_channels(problem) and lane_channels(sample) >= 4 * own.each \
        and own.each * itemsize_of(sample.dtype) % CONV_ALIGN == 0
    own.parts = ceil_div(lane_channels(sample), own.each) + own.by_lines
    own.products = own.vectors * sample.cout * sample.taps


cdef int64_t lines_of_task(const SampleGeometry *sample, int64_t lines, int64_t most) noexcept nogil:
    """Return of how many cache lines of a pixel a task takes the channels: all of a pixel that has at most `most`."""
    return most if lane_channels(sample) * itemsize_of(sample.dtype) <= most * CONV_ALIGN else lines


cdef int64_t fewest_lines(const SampleGeometry *sample) noexcept nogil:
    """Return the same where there is no reason for more; groups of float32 go past the caches by whole pixels."""
    if sample.cin == 1 or itemsize_of(sample.dtype) < sample.item:
        return STENCIL_LINES
    return lines_of_task(sample, GROUP_LINES, GROUP_PIXEL_LINES)


cdef int64_t tiles_together(const ConvProblem *problem, int threads, const Depthwise *own) noexcept nogil:
    """Return how many tiles a task of the first round takes: several where loading the weights takes as long, as with
    kernels about as large as the image, or a part of that, as with groups, whose weights are put in order; but not so
    many that threads have few tasks."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t tiles = problem.batch * own.tiles, pixels = max(<int64_t>1, tiling_pixels(&own.blocks.tiling))
    cdef int64_t most = 4 * sample.taps // pixels, tasks = 8
    if sample.cin > 1:
        most, tasks = max(most, GROUP_TASK_PIXELS // pixels), 4
    return max(<int64_t>1, min(most, tiles * own.parts // (tasks * threads)))


cdef int64_t cut_depthwise(const ConvProblem *problem, int gradients, int threads, Depthwise *own) noexcept nogil:
    """Cut the work into tasks; return the bytes of what they keep for the second round."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t kept = 0, lines
    make_lane_blocks(sample, &own.blocks)
    own.g_apart = sample_positions(own.blocks.extent, STENCIL_MOST_POSITIONS)
    own.x_apart = own.blocks.input.plane
    own.sums_apart = sample_positions(own.blocks.pixels, STENCIL_MOST_POSITIONS)
    own.tiles = count_tiles(&own.blocks.tiling, 1, own.blocks.steps)
    own.by_pixels, own.staged = writes_pixels(problem, &own.blocks), False
    lines = fewest_lines(sample)
    if gradients & FOR_GRAD_WEIGHT:
        if dots_pixels(problem) or may_stage(problem, gradients, own):
            lines = lines_of_task(sample, DOT_LINES, DOT_PIXEL_LINES)
    elif own.by_pixels:
        lines = PIXEL_CHANNELS * itemsize_of(sample.dtype) // CONV_ALIGN
    cut_channels(problem, lines, own)
    while lines > STENCIL_LINES and problem.batch * own.tiles * own.parts < 2 * threads:
        lines = max(<int64_t>STENCIL_LINES, lines // 2)
        cut_channels(problem, lines, own)
    own.by_tiles = own.parts < 8 * threads
    own.together = tiles_together(problem, threads, own)
    if own.by_tiles and gradients & FOR_GRAD_WEIGHT:
        own.keeps = not mul_overflows(own.tiles * own.parts, problem.batch, &kept) \
            and not mul_overflows(kept, own.products * sample.lanes * sample.item, &kept) \
            and kept <= <int64_t>threads * STENCIL_KEPT
        if not own.keeps:
            cut_channels(problem, 0, own)
    return kept if own.keeps else 0


cdef void block_depthwise(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                          Blocking *blocking) noexcept nogil:
    """Give a task all samples of its channels where there are channels enough for the threads. Else a first round
    computes tiles, and a second one joins their sums of grad_weight; or, where those are too many to be kept, computes
    grad_weight by channels."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef Depthwise *own = <Depthwise *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t vector = sample.lanes * sample.item, kept = cut_depthwise(problem, gradients, threads, own)
    book_lane_tables(sample, local if own.by_tiles else &blocking.shared)
    if own.by_tiles:
        book(&blocking.shared, STENCIL_PARTS, kept, 1)
    book(local, STENCIL_G, own.block_vectors * own.g_apart, vector)
    book(local, STENCIL_X, own.block_vectors * own.x_apart, vector)
    book(local, STENCIL_SUMS, own.block_vectors * own.sums_apart, vector)
    if problem.accumulate:
        book(local, STENCIL_OLD, own.block_vectors * own.sums_apart, vector)
    book(local, STENCIL_NATURAL, natural_vectors(sample, own.vectors), vector)
    book(local, STENCIL_WEIGHTS, own.products, vector)
    if gradients & FOR_GRAD_WEIGHT:
        book(local, STENCIL_PRODUCTS, own.products, vector)
        book(local, STENCIL_TOTALS, own.products, vector)
        book(local, STENCIL_BIAS, own.each * sample.cout, sizeof(double))
    own.staged = may_stage(problem, gradients, own) and own.parts == 1
    if own.staged:
        book(local, STENCIL_STAGE, 2, staged_bytes(sample))
    blocking.prepares = ceil_div(problem.batch * own.tiles, own.together) * own.parts if own.by_tiles else 1
    blocking.tasks = own.parts


# ---- tasks

cdef int64_t channels_before_line(const ConvRun *run) noexcept nogil:
    """Count the channels of a line that lie before the first one of grad_input, or of grad_output, in whole groups: by
    so many the first task has fewer, so that those after it write whole lines."""
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef const ConvView *view = &run.problem.view[
        CONV_GRAD_INPUT if run.gradients & FOR_GRAD_INPUT else CONV_GRAD_OUTPUT]
    if not own.by_lines or view.channel != itemsize_of(run.sample.dtype):
        return 0
    return <int64_t>(<uintptr_t>view.data % CONV_ALIGN) // view.channel // run.sample.cin * run.sample.cin


cdef void begin_lanes(const ConvRun *run, int64_t part, char *scratch, LaneTask *t) noexcept nogil:
    """Find the channels and the pieces of a task; there are no channels in the last one where lines begin with it."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t first
    t.run, t.own = run, <const Depthwise *>run.blocking.own
    t.of_input, t.of_weight = run.gradients & FOR_GRAD_INPUT, run.gradients & FOR_GRAD_WEIGHT
    first = part * t.own.each - channels_before_line(run)
    t.channel = max(<int64_t>0, first)
    t.channels = max(<int64_t>0, min(first + t.own.each, lane_channels(sample)) - t.channel)
    t.vectors = ceil_div(t.channels, sample.lanes)
    t.bytes = sample.cout * sample.taps * sample.lanes * sample.item
    t.g, t.x = local_piece(run, STENCIL_G, scratch), local_piece(run, STENCIL_X, scratch)
    t.sums, t.old = local_piece(run, STENCIL_SUMS, scratch), local_piece(run, STENCIL_OLD, scratch)
    t.weights, t.products = local_piece(run, STENCIL_WEIGHTS, scratch), local_piece(run, STENCIL_PRODUCTS, scratch)
    t.totals, t.stage = local_piece(run, STENCIL_TOTALS, scratch), local_piece(run, STENCIL_STAGE, scratch)


cdef bint prepare_depthwise(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Fill the tables; or compute some tiles for a task's channels, and keep each one's sums of grad_weight."""
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t tile, end, part
    cdef LaneTask t
    if not own.by_tiles:
        t.tables = lane_tables(run.sample, &run.blocking.shared, run.shared)
        fill_lane_tables(run.sample, &own.blocks, &t.tables)
        return False
    tile, part = number // own.parts * own.together, number % own.parts
    end = min(tile + own.together, run.problem.batch * own.tiles)
    begin_lanes(run, part, scratch, &t)
    t.of_weight = t.of_weight and own.keeps
    if t.channels == 0 or not (t.of_input or t.of_weight):
        return False
    t.tables = lane_tables(run.sample, &run.blocking.local, scratch)
    fill_lane_tables(run.sample, &own.blocks, &t.tables)
    if t.of_input:
        load_lane_weights(&t, local_piece(run, STENCIL_NATURAL, scratch))
    while tile < end and not is_stopped(run):
        begin_tile(&t, tile // own.tiles, tile % own.tiles)
        run_lane_tile(&t, shared_piece(run, STENCIL_PARTS) + (tile * own.parts + part) * own.vectors * t.bytes)
        tile += 1
    return False


cdef void add_parts(const LaneTask *t, int64_t part) noexcept nogil:
    """Add the sums that prepare kept, in the order of samples and tiles."""
    cdef int64_t number
    for number in range(t.run.problem.batch * t.own.tiles):
        add_values(t.run.sample, shared_piece(t.run, STENCIL_PARTS)
                   + (number * t.own.parts + part) * t.own.vectors * t.bytes, t.totals,
                   t.vectors * t.bytes // t.run.sample.item)


cdef void run_samples(LaneTask *t, const BiasShare *bias, char *natural) noexcept nogil:
    """Compute all samples of a task's channels, tile by tile."""
    cdef int64_t n, number
    if t.of_input:
        load_lane_weights(t, natural)
    for n in range(t.run.problem.batch):
        for number in range(0 if is_stopped(t.run) else t.own.tiles):
            begin_tile(t, n, number)
            run_lane_tile(t, t.products)
            if t.of_weight:
                add_values(t.run.sample, t.products, t.totals, t.vectors * t.bytes // t.run.sample.item)
                if box_positions(&t.out):
                    add_bias(t.run.problem, &t.out, bias)


cdef void depthwise_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run all samples of the channels of task `number`, or what prepare has left of them."""
    cdef LaneTask t
    cdef BiasShare bias
    cdef int64_t n
    begin_lanes(run, number, scratch, &t)
    if t.channels == 0 or (t.own.by_tiles and not t.of_weight):
        return
    memset(&bias, 0, sizeof(bias))
    if t.of_weight:
        begin_totals(&t, local_piece(run, STENCIL_NATURAL, scratch))
        bias = bias_share(run, t.channel // run.sample.cin * run.sample.cout,
                          t.channels // run.sample.cin * run.sample.cout, 0, 1, local_piece(run, STENCIL_BIAS, scratch))
    if t.own.by_tiles and t.own.keeps:
        add_parts(&t, number)
        for n in range(run.problem.batch):
            add_sample_bias(run, n, &bias)
    else:
        t.tables = lane_tables(run.sample, &run.blocking.shared, run.shared)
        if t.own.by_tiles:
            t.of_input = False
            t.tables = lane_tables(run.sample, &run.blocking.local, scratch)
            fill_lane_tables(run.sample, &t.own.blocks, &t.tables)
        run_samples(&t, &bias, local_piece(run, STENCIL_NATURAL, scratch))
    if t.of_weight:
        save_totals(&t, local_piece(run, STENCIL_NATURAL, scratch))
        save_bias(run.problem, &bias)


cdef void explain_depthwise(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                            size_t size) noexcept nogil:
    cdef const Depthwise *own = <const Depthwise *>blocking.own
    cdef const int64_t *extent = &own.blocks.tiling.extent[0]
    snprintf(text, size, b"channels are lanes, %lld of them in a task, %lldx%lldx%lld output pixels "
             b"at a time, %s", <long long>(own.vectors * sample.lanes), <long long>extent[0], <long long>extent[1],
             <long long>extent[2], b"grad_weight in a second round" if own.by_tiles else b"one sample after the other")


cdef ConvAlgorithm depthwise() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"depthwise", FOR_GRAD_INPUT | FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_depthwise, order_depthwise, block_depthwise
    row.prepare, row.task, row.explain = prepare_depthwise, depthwise_task, explain_depthwise
    return row


cdef ConvAlgorithm grouped() noexcept nogil:
    cdef ConvAlgorithm row = depthwise()
    row.name, row.accepts = b"grouped", accepts_grouped
    return row


cdef ConvAlgorithm input_depthwise() noexcept nogil:
    cdef ConvAlgorithm row = depthwise()
    row.name, row.gradients, row.accepts = b"grad_input:depthwise", FOR_GRAD_INPUT, accepts_input_depthwise
    return row
