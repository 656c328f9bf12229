# Depthwise convolutions: one input channel to a group, so that channels are lanes. A task packs a tile of steps for a
# vector of channels, computes grad_input there and the tile's sums of grad_weight, and moves grad_input back. Sums of
# tiles, then of samples, are added one after the other: by the task itself where it takes all samples of its channels,
# else in a second round.
include "depthwise_blocks.pxi"


ctypedef struct Depthwise:
    LaneBlocks blocks
    int64_t vectors        # of channels, one after the other in a task, which make lines of memory
    int64_t g_apart, x_apart, sums_apart  # positions from a vector's block to the next one's
    int64_t parts          # tasks along the channels
    int64_t tiles          # of a sample
    bint by_tiles          # a task is a tile of one sample
    bint stream            # grad_input does not stay in the cache


cdef bint accepts_depthwise(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef LaneBlocks blocks
    cdef int d
    if sample.cin != 1 or not 1 <= sample.cout <= STENCIL_OUTPUTS or sample.taps > STENCIL_TAPS or sample.pixels_in == 0:
        why[0] = b"there is not one input channel to a group, or there are too many output channels or taps"
        return False
    if 2 * sample.groups < sample.lanes:
        why[0] = b"most lanes of a vector would be empty"
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


cdef void block_depthwise(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                          Blocking *blocking) noexcept nogil:
    """Give a task all samples of its channels where there are channels enough for the threads, else one tile."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef Depthwise *own = <Depthwise *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t vector = sample.lanes * sample.item, products, parts, batch = problem.batch
    make_lane_blocks(sample, &own.blocks)
    own.g_apart = sample_positions(own.blocks.extent, STENCIL_MOST_POSITIONS)
    own.x_apart = own.blocks.input.plane
    own.sums_apart = sample_positions(own.blocks.pixels, STENCIL_MOST_POSITIONS)
    own.vectors = 1
    if lies_by_channels(problem):
        own.vectors = STENCIL_LINES * CONV_ALIGN // (sample.lanes * itemsize_of(sample.dtype))
        own.vectors = min(own.vectors, STENCIL_BYTES // (vector * (own.g_apart + own.x_apart + own.sums_apart)))
        own.vectors = max(<int64_t>1, min(own.vectors, ceil_div(sample.groups, sample.lanes)))
    own.parts = ceil_div(sample.groups, sample.lanes * own.vectors)
    own.tiles = count_tiles(&own.blocks.tiling, 1, own.blocks.steps)
    products = own.vectors * sample.cout * sample.taps
    own.stream = not problem.accumulate and batch * sample.groups * sample.pixels_in * itemsize_of(sample.dtype) \
        >= STENCIL_STREAM
    own.by_tiles = own.parts < 8 * threads and not mul_overflows(own.tiles * own.parts, batch, &parts) \
        and not mul_overflows(parts, products * vector, &parts) and parts <= (<int64_t>threads << 20)
    book_lane_tables(sample, local if own.by_tiles else &blocking.shared)
    if own.by_tiles:
        book(&blocking.shared, STENCIL_PARTS, parts if gradients & FOR_GRAD_WEIGHT else 0, 1)
    book(local, STENCIL_G, own.vectors * own.g_apart, vector)
    book(local, STENCIL_X, own.vectors * own.x_apart, vector)
    book(local, STENCIL_SUMS, own.vectors * own.sums_apart, vector)
    if problem.accumulate:
        book(local, STENCIL_OLD, own.vectors * own.sums_apart, vector)
    book(local, STENCIL_NATURAL, own.vectors * sample.taps, vector)
    book(local, STENCIL_WEIGHTS, products, vector)
    book(local, STENCIL_PRODUCTS, products, vector)
    book(local, STENCIL_TOTALS, products, vector)
    book(local, STENCIL_BIAS, own.vectors * sample.lanes * sample.cout, sizeof(double))
    blocking.prepares = batch * own.tiles * own.parts if own.by_tiles else 1
    blocking.tasks = own.parts


# ---- one tile of a task's channels

ctypedef struct LaneTask:
    const ConvRun *run
    const Depthwise *own
    LaneTables tables
    bint of_input, of_weight
    int64_t group, groups, vectors  # of channels
    int64_t bytes          # of the weights or sums of a vector, by (output, tap)
    Box tile               # of steps; in one sample
    Box out                # what of it is in grad_output
    Box pixels             # the input's under it
    char *g
    char *x
    char *sums
    char *old
    char *weights
    char *products         # of one tile
    char *totals
    bint nonfinite[STENCIL_OUTPUTS]  # whether there are inf or NaN among the weights of an output


cdef LaneChannels task_channels(const LaneTask *t, int64_t co, int64_t each) noexcept nogil:
    """Take output co of each of the task's input channels (each = cout), or those themselves (co = 0, each = 1)."""
    cdef LaneChannels channels
    channels.first, channels.each, channels.count = t.group * each + co, each, t.groups
    return channels


cdef bint begin_tile(LaneTask *t, int64_t n, int64_t number) noexcept nogil:
    """Make the boxes of the tile of that number; return False where there are fewer."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int d
    if not nth_tile(&t.own.blocks.tiling, 1, t.own.blocks.steps, number, &t.tile):
        return False
    t.tile.n = n
    t.out, t.pixels = t.tile, t.tile
    for d in range(3):
        t.out.extent[d] = max(<int64_t>0, min(t.tile.extent[d], sample.axis[d].size_out - t.tile.first[d]))
        t.pixels.first[d] *= sample.axis[d].stride
        t.pixels.extent[d] = max(<int64_t>0, min(t.tile.extent[d] * sample.axis[d].stride,
                                                 sample.axis[d].size_in - t.pixels.first[d]))
    return True


cdef void load_tile_output(const LaneTask *t, int64_t co) noexcept nogil:
    """Pack grad_output under a tile, with its halo."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef LaneChannels channels = task_channels(t, co, sample.cout)
    cdef int64_t size[3]
    cdef Box box
    output_size(sample, size)
    block_under(&t.tile, &t.own.blocks.halo, &box)
    pack_lane_box(sample, &t.run.problem.view[CONV_GRAD_OUTPUT], size, &box, &channels, t.own.blocks.extent,
                  t.own.g_apart, t.g)


cdef void load_tile_input(const LaneTask *t) noexcept nogil:
    """Pack the input that the tile's outputs meet."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const InputBlock *block = &t.own.blocks.input
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef int64_t size[3]
    cdef Box box
    cdef int d
    input_size(sample, size)
    class_box(sample, block, &t.out, 0, &box)
    for d in range(3):
        box.extent[d] -= (t.own.blocks.tiling.extent[d] - t.out.extent[d]) * block.pixel[d]
    pack_lane_box(sample, &t.run.problem.view[CONV_INPUT], size, &box, &channels, block.extent, t.own.x_apart, t.x)


cdef char *phase_sums(const LaneTask *t, int64_t v, const Phase *phase, int64_t z, int64_t y, int64_t x) noexcept nogil:
    """Find the sums of a tile's step in one phase, for a vector of channels."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvAxis *axis = &sample.axis[0]
    cdef int64_t position = phase.axis[0].first + z * axis[0].stride
    position = position * t.pixels.extent[1] + phase.axis[1].first + y * axis[1].stride
    position = position * t.pixels.extent[2] + phase.axis[2].first + x * axis[2].stride
    return t.sums + (v * t.own.sums_apart + position) * sample.lanes * sample.item


cdef void tile_grad_input(const LaneTask *t, int64_t v, int64_t co) noexcept nogil:
    """Add the products of one output of each of a vector's channels to the sums of a tile's grad_input, phase by
    phase."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const int64_t *extent = &t.own.blocks.extent[0]
    cdef int64_t vector = sample.lanes * sample.item, number, z, at
    cdef const Phase *phase
    cdef StencilRows rows
    cdef Box part
    for number in range(phase_count(sample)):
        phase, at = &t.tables.phases[number], t.tables.start[number]
        if not phase_part(phase, &t.tile, &part):
            continue
        rows.rows, rows.width, rows.from_row = part.extent[1], part.extent[2], extent[2]
        rows.to_row, rows.to_pixel = sample.axis[1].stride * t.pixels.extent[2], sample.axis[2].stride
        rows.taps, rows.at = t.tables.start[number + 1] - at, t.tables.back + at
        for z in range(part.extent[0]):
            kernels.stencil[sample.compute](&rows, t.g + (v * t.own.g_apart + z * extent[1] * extent[2]) * vector,
                                            t.weights + v * t.bytes + (co * sample.taps + at) * vector,
                                            phase_sums(t, v, phase, z, 0, 0), co > 0)


cdef void add_nonfinite_taps(const LaneTask *t, int64_t co) noexcept nogil:
    """Add the products of inf and NaN among the weights, which may not meet the zeros around grad_output."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t number, i, group
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef double weight
    for number in range(phase_count(sample)):
        for i in range(t.tables.phases[number].tap_count):
            phase_tap(sample, &t.tables.phases[number], i, output, k)
            for group in range(t.group, t.group + t.groups):
                weight = load_pixel(problem, &problem.view[CONV_WEIGHT], group * sample.cout + co, 0, k)
                if is_nonfinite(weight):
                    add_lane_products(t, &t.tables.phases[number], group, co, output, weight)


cdef void add_lane_products(const LaneTask *t, const Phase *phase, int64_t group, int64_t co, const int64_t *output,
                            double weight) noexcept nogil:
    """Add the products of one weight with what a tile's pixels of one channel meet in grad_output."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t z, y, x, v = (group - t.group) // sample.lanes, lane = (group - t.group) % sample.lanes
    cdef int64_t o[3]
    cdef int64_t size[3]
    cdef Box part
    output_size(sample, size)
    if not phase_part(phase, &t.tile, &part):
        return
    for z in range(part.extent[0]):
        for y in range(part.extent[1]):
            for x in range(part.extent[2]):
                o[0], o[1] = z + t.tile.first[0] + output[0], y + t.tile.first[1] + output[1]
                o[2] = x + t.tile.first[2] + output[2]
                if is_inside(o, size):
                    add_one(sample, phase_sums(t, v, phase, z, y, x) + lane * sample.item,
                            weight * load_pixel(problem, &problem.view[CONV_GRAD_OUTPUT], t.tile.n,
                                                group * sample.cout + co, o))


cdef void tile_grad_weight(const LaneTask *t, int64_t v, int64_t co, char *products) noexcept nogil:
    """Write a tile's sums of grad_weight for a vector of channels, one vector for each tap."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const InputBlock *block = &t.own.blocks.input
    cdef const int64_t *extent = &t.own.blocks.extent[0]
    cdef const int64_t *low = &t.own.blocks.halo.low[0]
    cdef int64_t vector = sample.lanes * sample.item, z, g
    cdef StencilDotRows rows
    rows.rows, rows.width, rows.g_row = t.out.extent[1], t.out.extent[2], extent[2]
    rows.x_row, rows.x_pixel = block.pixel[1] * block.extent[2], block.pixel[2]
    rows.taps, rows.at = sample.taps, t.tables.forth
    memset(products, 0, sample.taps * vector)
    for z in range(t.out.extent[0]):
        g = v * t.own.g_apart + ((z - low[0]) * extent[1] - low[1]) * extent[2] - low[2]
        kernels.stencil_dot[sample.compute](
            &rows, t.g + g * vector, t.x + (v * t.own.x_apart + pixel_row(block, 0, z, 0)) * vector, products)


cdef void save_tile_input(const LaneTask *t) noexcept nogil:
    """Round a tile of grad_input to storage."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef int64_t size[3]
    cdef int64_t v, apart = t.own.sums_apart * sample.lanes * sample.item
    input_size(sample, size)
    if t.run.problem.accumulate:
        pack_lane_box(sample, out, size, &t.pixels, &channels, t.pixels.extent, t.own.sums_apart, t.old)
        for v in range(t.vectors):
            add_values(sample, t.old + v * apart, t.sums + v * apart, box_positions(&t.pixels) * sample.lanes)
    unpack_lane_box(sample, out, &t.pixels, &channels, t.own.sums_apart, t.own.stream, t.sums)


cdef void run_stencils(const LaneTask *t, char *products) noexcept nogil:
    """Compute both gradients on one tile; products: room for the tile's sums of grad_weight."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t co, v, bytes = sample.taps * sample.lanes * sample.item
    cdef bint of_input = t.of_input and box_positions(&t.pixels) > 0
    cdef bint of_weight = t.of_weight and box_positions(&t.out) > 0
    if t.of_weight and not of_weight:
        memset(products, 0, t.vectors * t.bytes)
    if of_weight:
        load_tile_input(t)
    for co in range(sample.cout):
        load_tile_output(t, co)
        for v in range(t.vectors):
            if of_input:
                tile_grad_input(t, v, co)
            if of_weight:
                tile_grad_weight(t, v, co, products + v * t.bytes + co * bytes)
        if of_input and t.nonfinite[co]:
            add_nonfinite_taps(t, co)
    if of_input:
        save_tile_input(t)


# ---- tasks

cdef void begin_lanes(const ConvRun *run, int64_t part, char *scratch, LaneTask *t) noexcept nogil:
    """Find the pieces of a task along the channels."""
    cdef const SampleGeometry *sample = run.sample
    t.run, t.own = run, <const Depthwise *>run.blocking.own
    t.of_input, t.of_weight = run.gradients & FOR_GRAD_INPUT, run.gradients & FOR_GRAD_WEIGHT
    t.group = part * t.own.vectors * sample.lanes
    t.groups = min(t.own.vectors * sample.lanes, sample.groups - t.group)
    t.vectors = ceil_div(t.groups, sample.lanes)
    t.bytes = sample.cout * sample.taps * sample.lanes * sample.item
    t.g, t.x = local_piece(run, STENCIL_G, scratch), local_piece(run, STENCIL_X, scratch)
    t.sums, t.old = local_piece(run, STENCIL_SUMS, scratch), local_piece(run, STENCIL_OLD, scratch)
    t.weights, t.products = local_piece(run, STENCIL_WEIGHTS, scratch), local_piece(run, STENCIL_PRODUCTS, scratch)
    t.totals = local_piece(run, STENCIL_TOTALS, scratch)


cdef void load_lane_weights(LaneTask *t, char *natural) noexcept nogil:
    """Load the weights in the tables' order; inf and NaN are replaced by what may meet zeros."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t vector = sample.lanes * sample.item, v, co, i
    cdef LaneChannels channels
    for co in range(sample.cout):
        channels = task_channels(t, co, sample.cout)
        load_lane_taps(sample, &t.run.problem.view[CONV_WEIGHT], &channels, sample.taps, natural)
        t.nonfinite[co] = replace_nonfinite_values(sample, natural, t.vectors * sample.taps * sample.lanes)
        for v in range(t.vectors):
            for i in range(t.tables.start[phase_count(sample)]):
                memcpy(t.weights + v * t.bytes + (co * sample.taps + i) * vector,
                       natural + (v * sample.taps + t.tables.order[i]) * vector, vector)


cdef void begin_totals(const LaneTask *t) noexcept nogil:
    """Start from zero, or (accumulating) from what grad_weight holds."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef LaneChannels channels
    cdef int64_t co
    memset(t.totals, 0, t.vectors * t.bytes)
    for co in range(sample.cout if t.run.problem.accumulate else 0):
        channels = task_channels(t, co, sample.cout)
        load_lane_taps(sample, &t.run.problem.view[CONV_GRAD_WEIGHT], &channels, sample.cout * sample.taps,
                       t.totals + co * (t.bytes // sample.cout))


cdef void save_totals(const LaneTask *t) noexcept nogil:
    """Round grad_weight to storage."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef LaneChannels channels
    cdef int64_t co
    for co in range(sample.cout):
        channels = task_channels(t, co, sample.cout)
        save_lane_taps(sample, &t.run.problem.view[CONV_GRAD_WEIGHT], &channels, sample.cout * sample.taps,
                       t.totals + co * (t.bytes // sample.cout))


cdef bint prepare_depthwise(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Fill the tables; or compute a tile of one sample for a task's channels, and keep its sums of grad_weight."""
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t tile = number // max(<int64_t>1, own.parts)
    cdef LaneTask t
    if not own.by_tiles:
        t.tables = lane_tables(run.sample, &run.blocking.shared, run.shared)
        fill_lane_tables(run.sample, &own.blocks, &t.tables)
        return False
    begin_lanes(run, number % own.parts, scratch, &t)
    t.tables = lane_tables(run.sample, &run.blocking.local, scratch)
    fill_lane_tables(run.sample, &own.blocks, &t.tables)
    if t.of_input:
        load_lane_weights(&t, local_piece(run, STENCIL_NATURAL, scratch))
    begin_tile(&t, tile // own.tiles, tile % own.tiles)
    run_stencils(&t, shared_piece(run, STENCIL_PARTS) + number * own.vectors * t.bytes)
    if own.stream:
        finish_streams()
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
        for number in range(t.own.tiles):
            begin_tile(t, n, number)
            run_stencils(t, t.products)
            if t.of_weight:
                add_values(t.run.sample, t.products, t.totals, t.vectors * t.bytes // t.run.sample.item)
                if box_positions(&t.out):
                    add_bias(t.run.problem, &t.out, bias)
    if t.own.stream:
        finish_streams()


cdef void depthwise_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run all samples of the channels of task `number`; or, where prepare has done so, join its sums of grad_weight."""
    cdef LaneTask t
    cdef BiasShare bias
    cdef int64_t n
    begin_lanes(run, number, scratch, &t)
    memset(&bias, 0, sizeof(bias))
    if t.of_weight:
        begin_totals(&t)
        bias = bias_share(run, t.group * run.sample.cout, t.groups * run.sample.cout, 0, 1,
                          local_piece(run, STENCIL_BIAS, scratch))
    if not t.own.by_tiles:
        t.tables = lane_tables(run.sample, &run.blocking.shared, run.shared)
        run_samples(&t, &bias, local_piece(run, STENCIL_NATURAL, scratch))
    elif t.of_weight:
        add_parts(&t, number)
        for n in range(run.problem.batch):
            add_sample_bias(run, n, &bias)
    if t.of_weight:
        save_totals(&t)
        save_bias(run.problem, &bias)


cdef void explain_depthwise(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                            size_t size) noexcept nogil:
    cdef const Depthwise *own = <const Depthwise *>blocking.own
    cdef const int64_t *extent = &own.blocks.tiling.extent[0]
    snprintf(text, size, b"channels are lanes, both gradients in one task: %lld of them, %lldx%lldx%lld output pixels "
             b"at a time, %s", <long long>(own.vectors * sample.lanes), <long long>extent[0], <long long>extent[1],
             <long long>extent[2], b"sums of grad_weight joined in a second round" if own.by_tiles
             else b"one sample after the other")


cdef ConvAlgorithm depthwise() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"depthwise", FOR_GRAD_INPUT | FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_depthwise, order_depthwise, block_depthwise
    row.prepare, row.task, row.explain = prepare_depthwise, depthwise_task, explain_depthwise
    return row
