# Blocks of a depthwise convolution: the tile of a task with its halo, its lanes as many channels as a vector has, and
# the tables by which taps lead through them. The layout of a tensor decides how its pixels are moved, and nothing else.
cdef enum:
    STENCIL_TAPS = 256            # where sums of grad_weight are held, too; summed from zero at once, if they are many
    STENCIL_MOST_TAPS = 4096      # where they are not; or more, if a task's weights are at most
    STENCIL_VECTORS = 12288       # vectors, which with its blocks take a thread's share of the workspace
    STENCIL_PHASES = 64
    STENCIL_OUTPUTS = 8           # outputs of one input channel, where that has a group of its own
    STENCIL_GROUP = 16            # channels of a group
    AMX_LEAVES_GROUPS = 8         # ... of bfloat16 without a stride, at most, where there is AMX,
    AMX_LEAVES_ONE = 4            # and of a single group
    STENCIL_LINES = 2             # bytes of a pixel that a task reads where channels lie side by side, in cache lines
    GROUP_LINES = 4               # ... of groups of float32,
    GROUP_PIXEL_LINES = 8         # or the whole pixel, if it has no more
    DOT_LINES = 8                 # ... where it may sum grad_weight there,
    DOT_PIXEL_LINES = 16
    PIXEL_CHANNELS = 512          # of a task that computes them where they lie, at most
    STENCIL_BYTES = 2 << 20       # of all blocks of a task
    GROUP_TASK_PIXELS = 1600      # of a task that loads the weights of groups for several tiles, at most
    STENCIL_KEPT = 1 << 20        # a thread, of sums of grad_weight for the second round
    STENCIL_PIXELS = 2048         # steps of a tile
    STENCIL_POSITIONS = 10240     # of all blocks of a tile, for one vector of channels: they stay in L2
    STENCIL_MOST_POSITIONS = 32768  # where taps reach far
    STENCIL_HALO = 6              # positions packed for a step, above which larger blocks may pay,
    STENCIL_LARGE_TIME = 2        # whose positions take so many times as long

    # pieces of scratch; shared, or of a thread whose tasks are the first to need them:
    STENCIL_TABLE = 0
    STENCIL_PHASE_TABLE = 1
    # shared:
    STENCIL_PARTS = 2             # sums of grad_weight by (sample, tile, task along the channels)
    # of a thread:
    STENCIL_G = 2
    STENCIL_X = 3
    STENCIL_SUMS = 4
    STENCIL_OLD = 5
    STENCIL_NATURAL = 6
    STENCIL_WEIGHTS = 7
    STENCIL_PRODUCTS = 8
    STENCIL_TOTALS = 9
    STENCIL_BIAS = 10
    STENCIL_STAGE = 11


# Steps count grad_output's pixels and those of a phase of the input alike: step s is output pixel s, and the input
# pixels s * stride and on. A tile is a box of steps.
ctypedef struct LaneBlocks:
    int64_t steps[3]
    Tiling tiling
    Halo halo              # of a tile's steps, with the steps themselves
    int64_t extent[3]      # positions of grad_output's block
    InputBlock input
    int64_t pixels[3]      # of the input, under a tile


cdef void all_lanes_halo(const SampleGeometry *sample, Halo *halo) noexcept nogil:
    """Find what a tile's block has beside a pixel for each of its steps. The input of an output with a stride is not
    taken apart by classes: positions are whole vectors, so that it does no harm to step over some."""
    cdef int d
    all_phases_halo(sample, halo)
    for d in range(3):
        if sample.forward:
            halo.extra[d] = (sample.axis[d].kernel - 1) * sample.axis[d].dilation
            halo.low[d] = -sample.source[d].before if sample.source[d].classes > 1 else halo.low[d]
            continue
        if halo.low[d] > 0:
            halo.extra[d] += halo.low[d]
            halo.low[d] = 0
        halo.extra[d] = max(halo.extra[d], -halo.low[d])


cdef bint fit_lane_blocks(const SampleGeometry *sample, int64_t limit, LaneBlocks *blocks) noexcept nogil:
    """Lay out the blocks under the tile in `blocks`; return whether they have so few positions."""
    cdef int64_t positions
    cdef int d
    all_lanes_halo(sample, &blocks.halo)
    for d in range(3):
        if mul_overflows(blocks.tiling.extent[d] - 1, sample.source[d].step, &positions) \
                or add_overflows(positions + 1, blocks.halo.extra[d], &blocks.extent[d]):
            return False
        blocks.pixels[d] = min(sample.axis[d].size_in, blocks.tiling.extent[d] * sample.axis[d].stride)
    positions = sample_positions(blocks.extent, limit) + sample_positions(blocks.pixels, limit)
    if sample.forward:  # grad_weight has nothing to read
        blocks.input.plane = 0
        return positions <= limit
    return fill_input_block(sample, blocks.tiling.extent, 1, True, 1, limit, &blocks.input) \
        and positions + blocks.input.plane <= limit


cdef int64_t packed_positions(const LaneBlocks *blocks) noexcept nogil:
    """Count the positions that all tiles of a sample pack together, about."""
    return count_tiles(&blocks.tiling, 1, blocks.steps) \
        * (sample_positions(blocks.extent, STENCIL_MOST_POSITIONS) + blocks.input.plane)


cdef bint cut_lane_tiles(const SampleGeometry *sample, int64_t limit, LaneBlocks *blocks) noexcept nogil:
    """Cut the steps into tiles whose blocks have at most so many positions; return False where none is small enough."""
    cdef int64_t pixels = STENCIL_PIXELS
    cdef int64_t plane[3]
    cdef LaneBlocks through
    while True:
        tile_grid(blocks.steps, pixels, &blocks.tiling)
        if fit_lane_blocks(sample, limit, blocks):
            break
        pixels //= 2
        if pixels < 16:
            return False
    plane[0], plane[1], plane[2] = 1, blocks.steps[1], blocks.steps[2]
    through = blocks[0]  # rows of all planes, instead of some planes with their halo
    tile_grid(plane, max(<int64_t>1, pixels // blocks.steps[0]), &through.tiling)
    through.tiling.extent[0] = blocks.steps[0]
    if fit_lane_blocks(sample, limit, &through) and packed_positions(&through) < packed_positions(blocks):
        blocks[0] = through
    return True


cdef int64_t lane_channels(const SampleGeometry *sample) noexcept nogil:
    """Count the input channels of all groups."""
    return sample.groups * sample.cin


cdef bint make_lane_blocks(const SampleGeometry *sample, LaneBlocks *blocks) noexcept nogil:
    """Lay out tiles and their blocks, larger ones than stay in L2 where small ones would mostly be halo; return False
    where taps reach too far."""
    cdef LaneBlocks large
    cdef int d
    phase_grid(sample, blocks.steps)
    for d in range(3):
        if not sample.forward:
            blocks.steps[d] = max(blocks.steps[d], sample.axis[d].size_out)
    large = blocks[0]
    if not cut_lane_tiles(sample, STENCIL_POSITIONS, blocks):
        return cut_lane_tiles(sample, STENCIL_MOST_POSITIONS, blocks)
    if packed_positions(blocks) > STENCIL_HALO * sample_positions(blocks.steps, STENCIL_MOST_POSITIONS) \
            and cut_lane_tiles(sample, STENCIL_MOST_POSITIONS, &large) \
            and STENCIL_LARGE_TIME * packed_positions(&large) < packed_positions(blocks):
        blocks[0] = large
    return True


# Taps are ordered by the phase of the input pixels that they meet: those of phase p are [start[p], start[p + 1]); taps
# that meet padding alone are in none.
ctypedef struct LaneTables:
    int64_t *order       # the numbers of these taps
    int64_t *back        # how far their pixels of grad_output's block lie from the tile's first one
    int64_t *forth       # how far the pixels of the input's block lie from its first one, by the number of a tap
    int64_t *start
    Phase *phases


cdef LaneTables lane_tables(const SampleGeometry *sample, const Scratch *scratch, char *memory) noexcept nogil:
    """Find the tables in scratch."""
    cdef LaneTables tables
    tables.order = <int64_t *>(memory + scratch.at[STENCIL_TABLE])
    tables.back = tables.order + sample.taps
    tables.forth = tables.back + sample.taps
    tables.start = tables.forth + sample.taps
    tables.phases = <Phase *>(memory + scratch.at[STENCIL_PHASE_TABLE])
    return tables


cdef void book_lane_tables(const SampleGeometry *sample, Scratch *scratch) noexcept nogil:
    """Make room for the tables."""
    book(scratch, STENCIL_TABLE, 3 * sample.taps + phase_count(sample) + 1, sizeof(int64_t))
    book(scratch, STENCIL_PHASE_TABLE, phase_count(sample), sizeof(Phase))


cdef bint taps_share_pixels(const SampleGeometry *sample) noexcept nogil:
    """Say whether a tap along the last axis meets, under a step, what the one before it in its class meets under the
    next step: of an output with a stride, whose taps are by class then."""
    return sample.source[2].classes > 1 and sample.source[2].hop == 1


cdef int64_t taps_of_class(const SampleGeometry *sample, int64_t tap_class) noexcept nogil:
    """Count the taps along the last axis that are of a class."""
    return (sample.axis[2].kernel - 1 - tap_class) // sample.source[2].classes + 1


cdef int64_t tap_by_class(const SampleGeometry *sample, int64_t i) noexcept nogil:
    """Return the i-th tap along the last axis, class by class, the last one of each first."""
    cdef int64_t tap_class = 0, count = taps_of_class(sample, 0)
    while i >= count:
        i, tap_class = i - count, tap_class + 1
        count = taps_of_class(sample, tap_class)
    return tap_class + (count - 1 - i) * sample.source[2].classes


cdef int64_t lane_tap(const SampleGeometry *sample, const LaneBlocks *blocks, const Phase *phase, int64_t i,
                      int64_t *output) noexcept nogil:
    """Return the number of the phase's i-th tap, where positions fall from tap to tap of a row, or of a class of it, as
    group_stencil.h and stencil_pixels.h have it. output: how far what it meets lies from the pixel of a step."""
    cdef int64_t k[3]
    cdef int d
    phase_tap(sample, phase, phase.tap_count - 1 - i if sample.forward else i, output, k)
    if sample.forward:
        if taps_share_pixels(sample):
            k[2] = tap_by_class(sample, i % sample.axis[2].kernel)
        for d in range(3):
            output[d] = k[d] * sample.axis[d].dilation + blocks.halo.low[d]
    return (k[0] * sample.axis[1].kernel + k[1]) * sample.axis[2].kernel + k[2]


cdef void fill_lane_tables(const SampleGeometry *sample, const LaneBlocks *blocks, LaneTables *tables) noexcept nogil:
    """Fill the tables of all tiles."""
    cdef int64_t number, i, tap, at = 0
    cdef int64_t output[3]
    cdef Box block
    memcpy(block.extent, blocks.extent, sizeof(block.extent))
    for number in range(phase_count(sample)):
        tables.start[number] = at
        make_phase(sample, number, &tables.phases[number])
        for i in range(tables.phases[number].tap_count):
            tables.order[at] = lane_tap(sample, blocks, &tables.phases[number], i, output)
            tables.back[at] = block_offset(&block, output, blocks.halo.low)
            at += 1
    tables.start[phase_count(sample)] = at
    for tap in range(0 if sample.forward else sample.taps):
        tap_position(sample, &blocks.input, tap, &tables.forth[tap])


# ---- boxes of pixels, moved in and out

# Channels of a tensor, those of a vector `each` apart.
ctypedef struct LaneChannels:
    int64_t first, each, count


cdef void set_lane_rows(const ConvView *view, int64_t step_y, int64_t step_x, const LaneChannels *channels,
                        int64_t apart, LaneRows *rows) noexcept nogil:
    """Set how the rows of a tensor lie, and that blocks of a vector of channels are `apart` pixels apart."""
    memset(rows, 0, sizeof(LaneRows))
    rows.pixel, rows.row, rows.channel = step_x * view.space[2], step_y * view.space[1], channels.each * view.channel
    rows.channels, rows.apart = channels.count, apart


cdef void pack_lane_box(const SampleGeometry *sample, const ConvView *view, const int64_t *size, const Box *box,
                        const LaneChannels *channels, const int64_t *extent, int64_t apart, char *to) noexcept nogil:
    """Pack the box of one sample as [vector of channels][position][lane], zeros where it lies outside of the tensor.
    extent: of the block that it is the beginning of; apart: positions from vector to vector."""
    cdef RowsPart part = rows_part(view, size, size[2], box)
    cdef LaneRows rows
    cdef int64_t d, z
    set_lane_rows(view, box.step[1], box.step[2], channels, apart, &rows)
    rows.pitch = extent[2]
    for d in range(box.extent[0]):
        z = box.first[0] + d * box.step[0]
        rows.rows, rows.above, rows.width, rows.before = part.rows, part.top, part.inside, part.skip
        if part.rows == 0 or not 0 <= z < size[0]:
            rows.rows, rows.above, rows.width, rows.before = 0, 0, 0, 0
        rows.below, rows.after = box.extent[1] - rows.above - rows.rows, box.extent[2] - rows.before - rows.width
        kernels.pack_lanes[sample.dtype](
            view.data + box.n * view.n + channels.first * view.channel + z * view.space[0] + part.at, &rows, to)
        to += extent[1] * extent[2] * sample.lanes * sample.item


cdef void unpack_lane_box(const SampleGeometry *sample, const ConvView *view, const Box *box,
                          const LaneChannels *channels, int64_t apart, bint stream,
                          const char *block) noexcept nogil:
    """Round a box of one sample, all inside the tensor and without steps, to storage. block: as large as the box,
    those of a vector of channels `apart` positions apart; stream: past the caches, where that can be."""
    cdef LaneRows rows
    cdef int64_t z
    set_lane_rows(view, 1, 1, channels, apart, &rows)
    rows.stream = stream
    rows.rows, rows.width, rows.pitch = box.extent[1], box.extent[2], box.extent[2]
    for z in range(box.extent[0]):
        kernels.unpack_lanes[sample.dtype](
            block, &rows, view.data + box.n * view.n + channels.first * view.channel
            + (box.first[0] + z) * view.space[0] + box.first[1] * view.space[1] + box.first[2] * view.space[2])
        block += box.extent[1] * box.extent[2] * sample.lanes * sample.item
