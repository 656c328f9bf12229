# grad_input with pixels in lanes, for few input channels to a group: ci are the rows of a register tile (scalars of the
# packed weights) and the columns are positions of a packed block of grad_output, as they lie, those between the pixels
# too. No transposition; a tap is an unaligned load. All phases of the stride share one block. Groups of few channels
# that lie side by side are packed and saved some at a time.
#
# gemm has the same order of sums and computes what it is faster for: under one tap, where the channels of both tensors
# lie side by side, pixels in lanes would be two transpositions for a product of matrices as they lie; and under few
# taps, packing many channels takes longer than the products of empty lanes.
cdef enum:
    LANE_PIXELS = 1792        # of a tile; where the block that its taps reach is too large, as few as
    LANE_LEAST_PIXELS = 448
    LANE_FEWEST_PIXELS = 112  # where threads have no task, or tiles have rows of several planes
    LANE_SUMS = 1 << 15       # elements, or about, of all phases
    LANE_ROWS = 128           # of sums, all phases together
    LANE_POSITIONS = 4096     # of a packed block, at most; or more of them, of few channels:
    LANE_MAX_POSITIONS = 1 << 14
    LANE_ELEMENTS = 1 << 18   # of the block, or the sums, of several groups
    LANE_MOST_ELEMENTS = 3 << 18  # of the block of several samples
    LANE_FEWEST_CHANNELS = 4  # of a block
    LANE_DEPTH = 8            # output channels, at most, where the input channels fill a vector
    PACKED_CHANNELS = 3       # vectors of output channels, at least, whose packing takes longer than the products of
    PACKED_LINES_EMPTY = 5    # so many half vectors of empty lanes, all taps together, where they lie side by side,
    PACKED_PLANES_EMPTY = 2   # or else
    LONG_VECTOR = 16          # lanes; from here on two thirds of a vector are measured to be as good as a full one

    # pieces of scratch; shared:
    LANE_WEIGHTS = 0
    # of a thread:
    LANE_STAGED_WEIGHTS = 0
    LANE_BLOCK = 1
    LANE_SUMMED = 2
    LANE_STAGING = 3
    LANE_A_OFFSETS = 4
    LANE_B_OFFSETS = 5


ctypedef struct InputPixels:
    InputTiles gemm       # what gemm decides where it computes all; else it has no columns. It is where gemm looks
    WeightPanels weights  # a micro-panel holds the rows of a register tile
    Tiling tiling         # of the phases' grid
    int64_t tiles
    int64_t together      # groups of a task
    int64_t plane         # elements from channel to channel of a block
    int64_t pitch         # elements from row to row of sums


cdef bint pairs_in_lanes(const SampleGeometry *sample) noexcept nogil:
    """Say whether pairs of output channels are multiplied. Taps that count as channels are widened."""
    return bfloat16_dot2(sample) and sample.cout > 1 and sample.folded == 1


cdef const RegisterTile *pixels_tile(const SampleGeometry *sample) noexcept nogil:
    """Find the register tile whose rows suit the input channels."""
    cdef const RegisterTiles *tiles = &kernels.dot2 if pairs_in_lanes(sample) else &kernels.gemm[sample.compute]
    return &tiles.one_row if sample.cin == 1 else &tiles.few_rows


cdef int64_t pixels_rows(const SampleGeometry *sample) noexcept nogil:
    """Count the rows of sums of one phase: the input channels up to whole register tiles."""
    return round_up(sample.cin, pixels_tile(sample).rows)


cdef int64_t lane_positions(const SampleGeometry *sample, int64_t channels) noexcept nogil:
    """Return the most positions of a packed block of so many output channels."""
    return max(<int64_t>LANE_POSITIONS, min(<int64_t>LANE_MAX_POSITIONS, LANE_ELEMENTS // max(
        channels, phase_count(sample) * pixels_rows(sample))))


cdef bint block_fits(const SampleGeometry *sample, int64_t channels, const Tiling *tiling) noexcept nogil:
    """Say whether the packed block of a tile is small enough."""
    return halo_positions(sample, tiling.extent, LANE_MAX_POSITIONS) <= lane_positions(sample, channels)


cdef int64_t lane_pixels(const SampleGeometry *sample) noexcept nogil:
    """Return the most pixels of a tile whose sums, of all phases, stay in the cache."""
    return min(<int64_t>LANE_PIXELS, LANE_SUMS // (phase_count(sample) * pixels_rows(sample)))


cdef int64_t cut_lane_rows(const SampleGeometry *sample, int64_t channels, Tiling *tiling) noexcept nogil:
    """Make tiles of whole rows and planes of one sample; if they can, their sums and the block of so many channels that
    their taps reach stay in the cache. Return the most pixels of a tile."""
    cdef int64_t grid[3]
    cdef int64_t pixels = lane_pixels(sample)
    phase_grid(sample, grid)
    tile_grid(grid, pixels, tiling)
    while pixels >= 2 * LANE_LEAST_PIXELS and not block_fits(sample, channels, tiling):
        pixels //= 2
        tile_grid(grid, pixels, tiling)
    return pixels


cdef int64_t cut_input_pixels(const SampleGeometry *sample, int64_t channels, Tiling *tiling) noexcept nogil:
    """Make tiles as cut_lane_rows does, or of some rows of several planes where blocks would else be too large."""
    cdef int64_t limit = lane_positions(sample, channels), pixels = cut_lane_rows(sample, channels, tiling)
    if block_fits(sample, channels, tiling):
        return pixels
    pixels = lane_pixels(sample)
    while tile_blocks(sample, pixels, limit, tiling) > limit and pixels >= 2 * LANE_FEWEST_PIXELS:
        pixels //= 2
    return pixels


cdef void fit_input_pixels(const SampleGeometry *sample, SumOrder *order, Tiling *tiling) noexcept nogil:
    """Find panels of several taps, of fewer channels than gemm's where their block would be too large, and tiles."""
    order_panel(sample, order)
    cut_input_pixels(sample, order.channels, tiling)
    while order.channels > LANE_FEWEST_CHANNELS and not block_fits(sample, order.channels, tiling):
        order_panel_of(sample, order.channels // 2, order)
        cut_input_pixels(sample, order.channels, tiling)


cdef void order_input_pixels(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum in panels whose block is small enough."""
    cdef Tiling tiling
    fit_input_pixels(sample, order, &tiling)


cdef bint lane_block_is_cut(const SampleGeometry *sample) noexcept nogil:
    """Say whether the blocks of gemm's panels under tiles of whole rows and planes would be too large."""
    cdef SumOrder order
    cdef Tiling tiling
    order_panel(sample, &order)
    cut_lane_rows(sample, order.channels, &tiling)
    return not block_fits(sample, order.channels, &tiling)


cdef bint accepts_input_pixels(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef Tiling tiling
    cdef SumOrder order
    cdef int64_t few = 2 * sample.lanes // 3 if sample.lanes >= LONG_VECTOR else sample.lanes
    if sample.cin == 0 or (sample.cin > few and (sample.cout > LANE_DEPTH or packs_small_blocks(sample))):
        why[0] = b"the input channels of a group fill a vector, or nearly so"
        return False
    if sample.pixels_in == 0 or phase_count(sample) > LANE_ROWS \
            or phase_count(sample) * pixels_rows(sample) > LANE_ROWS:
        why[0] = b"no input pixels, or phases of the stride by input channels are too many rows"
        return False
    fit_input_pixels(sample, &order, &tiling)
    if not block_fits(sample, order.channels, &tiling):
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    if gaps_fill_lanes(sample, &tiling, 0.4) \
            or (gaps_fill_lanes(sample, &tiling, 1.2) and packs_small_blocks(sample)):
        why[0] = b"most lanes would hold what lies between the rows of a tile"
        return False
    if not blocks_are_read_often(sample, &tiling, CUT_READS if lane_block_is_cut(sample) else 0.3):
        why[0] = b"taps meet so little of the image that packing all of it takes longer than the products"
        return False
    if padding_fills_lanes(sample):
        why[0] = b"most lanes would meet nothing but padding"
        return False
    return True


cdef double lanes_multiplied(const SampleGeometry *sample, const Tiling *tiling) noexcept nogil:
    """Count the positions of all tiles that are multiplied, those between the rows of a tile, too; those between its
    planes, if they are fewer than planes leave of their last vector."""
    cdef int64_t grid[3]
    cdef const int64_t *extent = &tiling.extent[0]
    cdef double plane, between
    cdef Halo halo
    all_phases_halo(sample, &halo)
    phase_grid(sample, grid)
    plane = <double>(extent[1] - 1) * (extent[2] + halo.extra[2]) + extent[2]
    between = <double>halo.extra[1] * (extent[2] + halo.extra[2]) + halo.extra[2]
    between = min(between, <double>(pixels_tile(sample).vectors * sample.lanes) / 2)
    return (extent[0] * plane + (extent[0] - 1) * between) * count_tiles(tiling, 1, grid) * phase_count(sample)


cdef bint gaps_fill_lanes(const SampleGeometry *sample, const Tiling *tiling, double cost) noexcept nogil:
    """Say whether vectors of positions take longer to multiply than vectors of channels, many of which are empty; cost:
    of one of positions, in those of channels."""
    cdef double positions = lanes_multiplied(sample, tiling)
    return positions > 1.5 * sample.pixels_in \
        and cost * positions * pixels_rows(sample) > <double>sample.pixels_in * round_up(sample.cin, sample.lanes)


cdef int64_t groups_together(const ConvProblem *problem, const SumOrder *order, int threads,
                             const InputPixels *own) noexcept nogil:
    """Return how many groups a task takes: as many as fit, of those whose channels lie side by side, so that they are
    moved by squares of pixels and channels; but not so many that threads have few tasks."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t most
    if not groups_alternate(problem) or sample.cout > order.channels \
            or (own.weights.ci.vnni and sample.cout % 2):
        return 1
    most = LANE_ELEMENTS // max(own.plane * sample.cout, phase_count(sample) * pixels_rows(sample) * own.pitch)
    return max(<int64_t>1, min(min(most, sample.groups), sample.groups * own.tiles // (4 * threads)))


cdef bint packing_outweighs(const ConvProblem *problem) noexcept nogil:
    """Say whether packing pixels in lanes takes longer than the products of the lanes that it fills: many channels are
    packed, few taps meet them, and few lanes of a vector of channels would be empty."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t empty = sample.taps * (round_up(sample.cin, sample.lanes) - sample.cin)
    cdef bint in_lines = problem.view[CONV_GRAD_OUTPUT].channel == itemsize_of(sample.dtype)
    cdef int64_t halves = PACKED_LINES_EMPTY if in_lines else PACKED_PLANES_EMPTY
    return 2 * empty <= halves * sample.lanes and sample.cout >= PACKED_CHANNELS * sample.lanes


cdef bint suits_gemm(const ConvProblem *problem, const SumOrder *order) noexcept nogil:
    """Say whether gemm computes all: float32 or float64 whose packing takes longer than what it saves, or one tap where
    channels lie side by side, which gemm reads and writes where they lie (measured with narrow vectors: 1.2 to 2.3
    times as fast). Its blocks, which hold fewer positions, must be small enough."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = itemsize_of(sample.dtype), positions
    cdef Tiling tiling
    if sample.dtype != sample.compute or has_wide_vectors(sample) or problem.accumulate:
        return False
    input_gemm_pixels(sample, order.channels, &tiling, &positions)
    if positions > most_gemm_positions(sample):
        return False
    if is_one_product(sample) and phase_count(sample) == 1:
        return problem.view[CONV_GRAD_OUTPUT].channel == item and problem.view[CONV_GRAD_INPUT].channel == item
    return packing_outweighs(problem)


cdef bint computes_by_gemm(const Blocking *blocking) noexcept nogil:
    """Say whether block has left all to gemm."""
    return (<const InputPixels *>blocking.own).gemm.weights.ci.columns > 0


cdef void join_lane_samples(const ConvProblem *problem, const SumOrder *order, int threads,
                            InputPixels *own) noexcept nogil:
    """Join small samples in one tile, but not so many that threads have few tasks; count the tiles."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t positions = block_positions(sample, &own.tiling)
    cdef int64_t sums = phase_count(sample) * pixels_rows(sample) * tiling_pixels(&own.tiling), most
    cdef int64_t grid[3]
    phase_grid(sample, grid)
    most = min(LANE_POSITIONS // positions, LANE_SUMS // sums)
    most = min(most, LANE_MOST_ELEMENTS // (positions * max(<int64_t>1, order.channels)))
    if threads > 1:
        most = min(most, problem.batch * sample.groups // (2 * threads))
    join_evenly(grid, problem.batch, most, &own.tiling)
    own.tiles = count_tiles(&own.tiling, problem.batch, grid)


cdef void block_input_pixels(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                             Blocking *blocking) noexcept nogil:
    """Make a micro-panel of the rows of a register tile, and join small samples in one tile, or make tiles smaller
    while there are too few for the threads."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputPixels *own = <InputPixels *>blocking.own
    cdef const RegisterTile *tile = pixels_tile(sample)
    cdef int64_t pixels, width = tile.vectors * sample.lanes
    cdef Scratch *local = &blocking.local
    if suits_gemm(problem, order):
        block_input_gemm(problem, order, gradients, threads, blocking)
        return
    own.weights.ci.columns, own.weights.ci.count = tile.rows, ceil_div(sample.cin, tile.rows)
    own.weights.ci.vnni = pairs_in_lanes(sample)
    own.weights.channels, own.weights.ready = order.channels, 0
    pixels = cut_input_pixels(sample, order.channels, &own.tiling)
    join_lane_samples(problem, order, threads, own)
    while threads > 1 and own.tiles * sample.groups < threads and pixels > LANE_FEWEST_PIXELS:
        pixels //= 2
        tile_blocks(sample, pixels, lane_positions(sample, order.channels), &own.tiling)
        join_lane_samples(problem, order, threads, own)
    own.plane = odd_lines(block_positions(sample, &own.tiling))
    own.pitch = own.plane + width
    own.together = groups_together(problem, order, threads, own)
    book_weights(problem, &own.weights, LANE_WEIGHTS, LANE_STAGED_WEIGHTS, blocking)
    book(local, LANE_BLOCK, own.plane * own.together * order.channels + width, sample.item)
    book(local, LANE_SUMMED, own.together * phase_count(sample) * pixels_rows(sample) * own.pitch, sample.item)
    book(local, LANE_STAGING, staging_elements(sample), sample.item)
    book(local, LANE_A_OFFSETS, order.taps, sizeof(int64_t))
    book(local, LANE_B_OFFSETS, order.taps, sizeof(int64_t))
    blocking.tasks = ceil_div(sample.groups, own.together) * own.tiles
    blocking.in_order = sample.groups == 1 or groups_alternate(problem)


cdef bint prepare_input_pixels(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the weights of one unit; return whether there was inf or NaN."""
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    if computes_by_gemm(run.blocking):
        return prepare_input_weights(run, number, scratch)
    return pack_weight_panels(run.problem, &own.weights, number, shared_piece(run, LANE_WEIGHTS),
                              local_piece(run, LANE_STAGED_WEIGHTS, scratch))


cdef void clear_phase(const ConvRun *run, const Box *block, const Box *part, char *sums) noexcept nogil:
    """Clear the vectors of sums that multiply_phase adds to."""
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef int64_t item = run.sample.item, at = 0, row, width = pixels_tile(run.sample).vectors * run.sample.lanes
    while at < positions_of(part, block):
        for row in range(pixels_rows(run.sample)):
            memset(sums + (row * own.pitch + at) * item, 0, width * item)
        at = next_pixel(part, block, at + width)


cdef void multiply_phase(const ConvRun *run, const Phase *phase, int64_t group, int64_t co, int64_t depth,
                         const Box *block, const Halo *halo, const Box *part, const char *b, char *sums,
                         char *scratch) noexcept nogil:
    """Add the products of one block of co, b, to the sums of one phase's part of a tile. Vectors between its pixels are
    left out."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef const RegisterTile *tile = pixels_tile(sample)
    cdef int64_t units = 2 if own.weights.ci.vnni else 1, columns = own.weights.ci.columns, item = sample.item, tap = 0
    cdef int64_t positions = positions_of(part, block), s, at, p
    cdef int64_t *a_offset = <int64_t *>local_piece(run, LANE_A_OFFSETS, scratch)
    cdef int64_t *b_offset = <int64_t *>local_piece(run, LANE_B_OFFSETS, scratch)
    cdef char *weights = shared_piece(run, LANE_WEIGHTS)
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef int64_t indirection[MAX_ROWS]
    cdef BatchReduce steps
    for s in range(MAX_ROWS):
        indirection[s] = units * s
    steps.a_offset, steps.b_offset, steps.depth = a_offset, b_offset, depth
    steps.a_ahead = steps.b_ahead = 0
    steps.a_step, steps.b_step = units * columns, own.plane
    while tap < phase.tap_count:
        steps.count = min(run.order.taps, phase.tap_count - tap)
        for s in range(steps.count):
            phase_tap(sample, phase, tap + s, output, k)
            a_offset[s] = s * depth * columns * units
            b_offset[s] = tap_place(sample, block, output, k, halo.low)
        at = 0
        while at < positions:
            for p in range(own.weights.ci.count):
                tile.kernel(&steps, weight_panel(sample, &own.weights, weights, group, p, co)
                            + (phase.first_packed + tap) * depth * columns * item, indirection, b + at * item,
                            sums + (p * columns * own.pitch + at) * item, own.pitch, False)
            at = next_pixel(part, block, at + tile.vectors * sample.lanes)
        tap += run.order.taps


cdef void pack_output_planes(const ConvRun *run, const Box *block, int64_t group, int64_t co, int64_t channels,
                             char *scratch) noexcept nogil:
    """Pack a block of grad_output for some co of a group, or all co of some groups (channels > cout), as
    [co][position], or by pairs of co. Zeros come after the positions, as far as register tiles read: what memory held
    might be subnormal, which takes long to multiply."""
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t size[3]
    cdef int64_t rows = ceil_div(channels, 2) if own.weights.ci.vnni else channels, c, number
    cdef int64_t plane = box_positions(block), used = plane * block_classes(run.sample)
    cdef int64_t width = pixels_tile(run.sample).vectors * run.sample.lanes, item = run.sample.item
    cdef char *to = local_piece(run, LANE_BLOCK, scratch)
    cdef Box box
    output_size(run.sample, size)
    for c in range(rows):
        memset(to + (c * own.plane + used) * item, 0, min(width, own.plane - used) * item)
    memset(to + rows * own.plane * item, 0, width * item)
    for number in range(block_classes(run.sample)):
        source_box(run.sample, block, number, &box)
        if own.weights.ci.vnni:
            pack_vnni_planes(g, size, &box, group * run.sample.cout + co, channels, to, own.plane,
                             local_piece(run, LANE_STAGING, scratch))
        elif channels > run.sample.cout:
            pack_planes(run.sample.dtype, run.sample.compute, g, size, &box, group * run.sample.cout, channels, to,
                        own.plane)
        else:
            pack_folded_planes(run.problem, &box, group, co, channels, to, own.plane)
        to += plane * item


ctypedef struct PixelsTask:
    int64_t group, groups
    Box tile, block
    Halo halo
    char *sums             # by (phase, group)


cdef char *sums_of(const ConvRun *run, const PixelsTask *t, int64_t phase, int64_t group) noexcept nogil:
    """Find the sums of the task's group of that number in one phase."""
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    return t.sums + (phase * own.together + group) * pixels_rows(run.sample) * own.pitch * run.sample.item


cdef void clear_lane_pixels(const ConvRun *run, const PixelsTask *t) noexcept nogil:
    """Clear a task's sums."""
    cdef int64_t p, g
    cdef Box part
    cdef Phase phase
    for p in range(phase_count(run.sample)):
        make_phase(run.sample, p, &phase)
        if phase_part(&phase, &t.tile, &part):
            for g in range(t.groups):
                clear_phase(run, &t.block, &part, sums_of(run, t, p, g))


cdef void sum_lane_pixels(const ConvRun *run, const PixelsTask *t, char *scratch) noexcept nogil:
    """Sum all products of a task."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef int64_t co = 0, count, depth, p, g
    cdef Box part
    cdef Phase phase
    while co < sample.cout:
        count = min(run.order.channels, sample.cout - co)
        depth = ceil_div(count, 2) if own.weights.ci.vnni else count
        pack_output_planes(run, &t.block, t.group, co, t.groups * count, scratch)
        for p in range(phase_count(sample)):
            make_phase(sample, p, &phase)
            if not phase_part(&phase, &t.tile, &part):
                continue
            for g in range(t.groups):
                multiply_phase(run, &phase, t.group + g, co, depth, &t.block, &t.halo, &part,
                               local_piece(run, LANE_BLOCK, scratch) + g * depth * own.plane * sample.item,
                               sums_of(run, t, p, g), scratch)
        co += run.order.channels


cdef void save_lane_pixels(const ConvRun *run, const PixelsTask *t, char *scratch) noexcept nogil:
    """Save a task's sums; those of several groups at once where there is nothing between them."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef int64_t p, g, saved
    cdef Box part, block = t.block
    cdef Phase phase
    cdef InputSums sums
    sums.extent, sums.pixel_pitch, sums.ci_pitch = block.extent, 1, own.pitch
    sums.ci_from = 0
    for p in range(phase_count(sample)):
        make_phase(sample, p, &phase)
        if not phase_part(&phase, &t.tile, &part):
            continue
        saved = t.groups if pixels_rows(sample) == sample.cin and not run.nonfinite else 1
        g = 0
        while g < t.groups:
            sums.group, sums.channels, sums.data = t.group + g, saved * sample.cin, sums_of(run, t, p, g)
            if run.nonfinite:
                add_nonfinite_weights(run.problem, &phase, &part, &sums)
            save_planes(run.problem, &phase, &part, &sums, local_piece(run, LANE_STAGING, scratch))
            g += saved


cdef void input_pixels_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task number (groups, tile), all phases of it."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputPixels *own = <const InputPixels *>run.blocking.own
    cdef int64_t grid[3]
    cdef PixelsTask t
    if computes_by_gemm(run.blocking):
        input_gemm_task(run, number, scratch)
        return
    phase_grid(sample, grid)
    t.group = group_of_task(run.problem, own.tiles, &number, own.together)
    t.groups = min(own.together, sample.groups - t.group)
    if not nth_tile(&own.tiling, run.problem.batch, grid, number, &t.tile):
        return
    all_phases_halo(sample, &t.halo)
    block_under(&t.tile, &t.halo, &t.block)
    t.sums = local_piece(run, LANE_SUMMED, scratch)
    clear_lane_pixels(run, &t)
    sum_lane_pixels(run, &t, scratch)
    save_lane_pixels(run, &t, scratch)


cdef void explain_input_pixels(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                               char *text, size_t size) noexcept nogil:
    cdef const InputPixels *own = <const InputPixels *>blocking.own
    if computes_by_gemm(blocking):
        explain_input_gemm(sample, order, blocking, text, size)
        return
    snprintf(text, size, b"pixels in lanes, since %lld channels to a group would leave some of %lld lanes empty; tiles "
             b"of %lld x %lld x %lld x %lld pixels of %lld phases; panels of %lld taps by %lld channels%s",
             <long long>sample.cin, <long long>sample.lanes, <long long>own.tiling.samples,
             <long long>own.tiling.extent[0], <long long>own.tiling.extent[1], <long long>own.tiling.extent[2],
             <long long>phase_count(sample), <long long>order.taps, <long long>order.channels,
             b"; pairs of bfloat16" if own.weights.ci.vnni else b"")
    explain_groups(own.together, text, size)


cdef ConvAlgorithm input_pixels() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:pixels", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_pixels, order_input_pixels, block_input_pixels
    row.prepare, row.task, row.explain = prepare_input_pixels, input_pixels_task, explain_input_pixels
    return row
