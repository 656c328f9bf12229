# bfloat16 by AMX: what its algorithms share. A product is 16 x 32 by 32 x 16 in one instruction, which adds even and
# odd steps apart in float32, then joins them, then adds them to the accumulator; subnormals count as 0. Columns go on
# over the positions between the rows of a tile: their sums are not saved (grad_input), or meet zeros of grad_output
# (grad_weight).
cdef enum:
    AMX_MIN_CHANNELS = 9       # fewer leave most of an instruction empty
    AMX_MAX_TAPS = 512
    AMX_MAX_PIXELS = 896       # of a tile of grad_input
    AMX_MIN_PIXELS = 224
    AMX_INPUT_BYTES = 1 << 19  # of its block and sums, or about
    AMX_POSITIONS = 4096       # of a packed block of grad_output, at most
    AMX_HALF = 16              # rows or columns of one instruction
    AMX_CELL = 1024            # bytes of 16 rows of a by 32 steps
    AMX_COLUMNS = 32           # AMX_SIDE, as a constant


cdef bint suits_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether a geometry has what all algorithms by AMX want."""
    if not sample.amx:
        why[0] = b"it multiplies bfloat16, on CPUs with AMX that the system grants"
        return False
    if sample.cin == 0 or sample.cout < AMX_MIN_CHANNELS:
        why[0] = b"few output channels to a group would leave most of an instruction empty"
        return False
    if sample.taps > AMX_MAX_TAPS:
        why[0] = b"there are too many taps"
        return False
    return True


cdef int64_t amx_chunks(const SampleGeometry *sample) noexcept nogil:
    """Count the chunks of output channels; the steps of one instruction are a chunk of AMX_STEPS."""
    return ceil_div(sample.cout, AMX_STEPS)


# ---- grad_input: weights in cells, [group][16 rows][panel of chunks][tap][chunk]; grad_output [pair of co][position]

cdef int64_t amx_panel(const SampleGeometry *sample, int64_t taps) noexcept nogil:
    """Count the chunks that follow each other under one tap: what their taps read stays in the first-level cache."""
    cdef int64_t panel = 2 if taps > 1 else 16
    while amx_chunks(sample) % panel:
        panel -= 1
    return panel


cdef int64_t amx_cell(const SampleGeometry *sample, int64_t taps, int64_t chunk, int64_t tap) noexcept nogil:
    """Count the bytes from the first cell of 16 rows to that of a chunk of co under a tap."""
    cdef int64_t panel = amx_panel(sample, taps)
    return (chunk // panel * panel * taps + tap * panel + chunk % panel) * AMX_CELL


cdef int64_t amx_half_bytes(const SampleGeometry *sample, int64_t taps) noexcept nogil:
    """Count the bytes of all cells of 16 rows."""
    return taps * amx_chunks(sample) * AMX_CELL


cdef void amx_input_steps(const SampleGeometry *sample, int64_t taps, int64_t plane,
                          AmxBatchReduce *steps) noexcept nogil:
    """Set the strides of a product of cells with a block whose pairs of channels are `plane` pairs apart."""
    steps.a_row, steps.a_step, steps.a_down = AMX_STEPS * 2, AMX_CELL, amx_half_bytes(sample, taps)
    steps.b_row, steps.b_right, steps.c_right = plane * 4, AMX_HALF * 4, AMX_HALF * 4
    steps.depth = amx_panel(sample, taps)


cdef void pack_amx_output(const ConvRun *run, const Box *block, int64_t channel, int64_t channels, char *to,
                          int64_t plane, char *staging) noexcept nogil:
    """Pack grad_output as [pair of co][position], with zeros up to a multiple of AMX_STEPS co."""
    cdef int64_t size[3]
    cdef int64_t pair
    output_size(run.sample, size)
    pack_vnni_planes(&run.problem.view[CONV_GRAD_OUTPUT], size, block, channel, channels, to, plane, False, staging)
    for pair in range(ceil_div(channels, 2), round_up(channels, AMX_STEPS) // 2):
        memset(to + pair * plane * 4, 0, plane * 4)


cdef void prefetch_next_block(const ConvRun *run, const Tiling *tiling, const Halo *halo, int64_t number, int64_t group,
                              int64_t calls, Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch the grad_output under the tile of that number of the phases' grid, if there is one."""
    cdef int64_t grid[3]
    cdef int64_t size[3]
    cdef Box next
    no_prefetch(prefetch)
    phase_grid(run.sample, grid)
    output_size(run.sample, size)
    if nth_tile(tiling, run.problem.batch, grid, number, &next):
        block_under(&next, halo, &next)
        plan_prefetch(run.problem, size, &next, group * run.sample.cout, min(run.order.channels, run.sample.cout),
                      calls, prefetch)


# ---- grad_weight: the input as pairs of positions, grad_output as rows of positions

cdef enum:
    AMX_OUTPUT_ROWS = 256        # output channels of a task, at most
    AMX_OUTPUT_PIXELS = 2048     # of a tile, all its samples together
    AMX_OUTPUT_BYTES = 1 << 19   # of a block of grad_output
    AMX_SUM_BYTES = 5 << 17      # of a task's sums
    AMX_INPUT_POSITIONS = 8192   # of a channel of the input's block, all classes and samples together


# How the output pixels are cut, and the pitches of the packed blocks under a tile.
ctypedef struct AmxOutputTiles:
    Tiling tiling
    int64_t rows         # output channels of a task
    int64_t x_pitch      # bfloat16 from channel to channel of the input's block
    int64_t g_pitch      # bfloat16 from channel to channel of grad_output's
    int64_t panel_bytes  # pairs of positions by AMX_SIDE columns


cdef bint amx_input_block(const SampleGeometry *sample, const int64_t *extent, int64_t samples,
                          InputBlock *block) noexcept nogil:
    """Lay out the input's block under a tile class by class, samples at multiples of an instruction's steps; return
    False where it is too large. Rows are even where taps lie above each other, so that these begin at positions of one
    parity."""
    cdef int64_t positions
    if not fill_input_block(sample, extent, samples, False, AMX_STEPS, AMX_INPUT_POSITIONS, block):
        return False
    if sample.axis[0].kernel * sample.axis[1].kernel > 1:
        block.extent[2] = round_up(block.extent[2], 2)
    positions = sample_positions(block.extent, AMX_INPUT_POSITIONS)
    block.sample = round_up(positions, AMX_STEPS)
    block.plane = samples * block.sample
    return class_count(block) * positions <= AMX_INPUT_POSITIONS


cdef bint cut_amx_output(const SampleGeometry *sample, Tiling *tiling) noexcept nogil:
    """Find the largest tile of one sample whose block is small enough; return False where even a small tile's is
    not."""
    cdef int64_t size[3]
    cdef int64_t room = AMX_OUTPUT_BYTES // (2 * min(sample.cout, <int64_t>AMX_OUTPUT_ROWS))
    cdef int64_t pixels = min(<int64_t>AMX_OUTPUT_PIXELS, room)
    cdef InputBlock block
    output_size(sample, size)
    while pixels >= AMX_MIN_PIXELS:
        tile_grid(size, pixels, tiling)
        if amx_input_block(sample, tiling.extent, 1, &block):
            return True
        pixels //= 2
    return False


cdef bint fits_amx_output(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether there is a tile of output pixels whose block is small enough."""
    cdef Tiling tiling
    why[0] = b"the block that the taps of a tile reach is too large"
    return cut_amx_output(sample, &tiling)


cdef void order_amx_output(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Add the products of tiles of output pixels one by one to what is there."""
    cdef Tiling tiling
    cut_amx_output(sample, &tiling)
    order.tile, order.accumulate = tiling.extent, True


cdef void block_amx_output(const ConvProblem *problem, const SumOrder *order, AmxOutputTiles *tiles) noexcept nogil:
    """Make tiles of several samples where these are small, and give tasks as many rows as there may be."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t size[3]
    cdef int64_t positions, pixels
    cdef InputBlock block
    output_size(sample, size)
    tiles.rows = min(sample.cout, <int64_t>AMX_OUTPUT_ROWS)
    one_sample_tiling(order.tile, &tiles.tiling)
    amx_input_block(sample, order.tile, 1, &block)
    pixels = min(<int64_t>AMX_OUTPUT_PIXELS, AMX_OUTPUT_BYTES // (2 * tiles.rows))
    join_samples(size, problem.batch, min(pixels // tiling_pixels(&tiles.tiling),
                                          AMX_INPUT_POSITIONS // (class_count(&block) * block.sample)), &tiles.tiling)
    amx_input_block(sample, order.tile, tiles.tiling.samples, &block)
    positions = class_count(&block) * block.plane + AMX_STEPS  # zeros at the end
    tiles.x_pitch = 2 * odd_lines(ceil_div(positions, 2))
    tiles.g_pitch = 2 * odd_lines(ceil_div(block.plane, 2))
    tiles.panel_bytes = positions // 2 * AMX_SIDE * 4


cdef bint uneven_tasks(int64_t tasks, int threads) noexcept nogil:
    """Say whether some thread would wait long for another's last task."""
    return tasks % threads != 0 and tasks < 4 * threads


cdef bint next_amx_tile(const ConvRun *run, const AmxOutputTiles *tiles, int64_t number, int64_t group, int64_t co_from,
                        int64_t cos, int64_t calls, Box *tile, InputBlock *block, bint *fresh,
                        Prefetch *prefetch) noexcept nogil:
    """Make the tile of that number, the input's block under it, and the prefetch of the tile after it; return False if
    there are fewer. fresh: whether the block is laid out differently from what `block` was, so that its zeros are yet
    to be written."""
    cdef int64_t size[3]
    cdef InputBlock before = block[0]
    cdef Box next
    output_size(run.sample, size)
    if not nth_tile(&tiles.tiling, run.problem.batch, size, number, tile):
        return False
    amx_input_block(run.sample, tile.extent, tile.samples, block)
    fresh[0] = number == 0 or memcmp(&before, block, sizeof(InputBlock)) != 0
    no_prefetch(prefetch)
    if nth_tile(&tiles.tiling, run.problem.batch, size, number + 1, &next):
        plan_prefetch(run.problem, size, &next, group * run.sample.cout + co_from, cos, calls, prefetch)
    return True


cdef int64_t amx_depth(const Box *tile, const InputBlock *block) noexcept nogil:
    """Count the instructions that go through the positions of a tile: all of its samples but the last, and the last
    one's pixels."""
    return (tile.samples - 1) * block.sample // AMX_STEPS + ceil_div(positions_under(tile, block.extent), AMX_STEPS)


cdef int64_t amx_tap_position(const SampleGeometry *sample, const InputBlock *block, int64_t tap) noexcept nogil:
    """Return the position of the whole block that the tile's first pixel meets under a tap."""
    cdef int64_t in_class, tap_class = tap_position(sample, block, tap, &in_class)
    return tap_class * block.plane + in_class


cdef void amx_weight_steps(int64_t g_pitch, int64_t depth, const int64_t *zero, AmxBatchReduce *steps) noexcept nogil:
    """Set the strides of a product of rows of grad_output with pairs of positions by AMX_SIDE columns."""
    steps.count, steps.depth, steps.a_offset, steps.b_offset = 1, depth, zero, zero
    steps.a_row, steps.a_down, steps.a_step = g_pitch * 2, g_pitch * 2 * AMX_HALF, AMX_STEPS * 2
    steps.b_row, steps.b_right, steps.c_right = AMX_SIDE * 4, AMX_HALF * 4, AMX_HALF * 4


cdef void pack_amx_samples(const ConvView *view, const int64_t *size, const Box *box, int64_t sample_positions,
                           int64_t channel, int64_t channels, bint fresh, char *to, int64_t pitch) noexcept nogil:
    """Pack a box of bfloat16 as [channel][sample][position], samples `sample_positions` apart, with zeros between them
    (written if fresh)."""
    cdef Box one = box[0]
    cdef int64_t n, c, positions = box.extent[0] * box.extent[1] * box.extent[2]
    one.samples = 1
    for n in range(box.samples):
        one.n = box.n + n
        pack_planes(DTYPE_BF16, DTYPE_BF16, view, size, &one, channel, channels, to + n * sample_positions * 2, pitch)
        for c in range(channels if fresh and positions < sample_positions else 0):
            memset(to + (c * pitch + n * sample_positions + positions) * 2, 0, (sample_positions - positions) * 2)


cdef void pack_amx_input(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel,
                         int64_t channels, bint fresh, int64_t pitch, char *to) noexcept nogil:
    """Pack the input as [ci][class][sample][position], with zeros up to `pitch` (written if fresh)."""
    cdef int64_t size[3]
    cdef int64_t number, c, positions = class_count(block) * block.plane
    cdef Box box
    input_size(run.sample, size)
    for number in range(class_count(block)):
        class_box(run.sample, block, tile, number, &box)
        pack_amx_samples(&run.problem.view[CONV_INPUT], size, &box, block.sample, channel, channels, fresh,
                         to + number * block.plane * 2, pitch)
    for c in range(channels if fresh else 0):
        memset(to + (c * pitch + positions) * 2, 0, (pitch - positions) * 2)


cdef void pack_amx_rows(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel, int64_t channels,
                        bint fresh, int64_t pitch, char *to) noexcept nogil:
    """Pack grad_output as [co][sample][position], zeros where the block has no pixel of the tile."""
    cdef Box box = tile[0]
    cdef int64_t end[3]
    cdef int d
    for d in range(3):
        end[d] = tile.first[d] + tile.extent[d]
        box.extent[d] = block.extent[d]
    pack_amx_samples(&run.problem.view[CONV_GRAD_OUTPUT], end, &box, block.sample, channel, channels, fresh, to, pitch)
