# grad_weight by AMX: what its algorithms share. Rows are planes of grad_output, columns are planes of the input as
# pairs of positions, and steps are positions.
cdef enum:
    AMX_OUTPUT_PIXELS = 2048     # of a tile, all its samples together
    AMX_SHORT_IMAGE = 128        # as SHORT_IMAGE, of bfloat16, whose results are rounded more than their sums
    AMX_OUTPUT_BYTES = 1 << 19   # of a block of grad_output
    AMX_SUM_BYTES = 5 << 17      # of a task's sums
    AMX_MANY_CLASSES = 16        # of the input's pixels by their place under a stride


# How the output pixels are cut, and the pitches of the packed blocks under a tile.
ctypedef struct AmxOutputTiles:
    Tiling tiling
    int64_t rows         # output channels of a task
    int64_t x_pitch      # bfloat16 from channel to channel of the input's block
    int64_t g_pitch      # bfloat16 from channel to channel of grad_output's, while it is packed
    int64_t g_cells      # bytes of AMX_HALF channels of grad_output, packed
    int64_t half_bytes   # pairs of positions by AMX_HALF columns, of one part


cdef int64_t amx_input_positions(const SampleGeometry *sample) noexcept nogil:
    """Return how many positions a channel of the input's block may have, all classes and samples together: more where
    channels are few and classes many, of which each has few."""
    cdef const char *why
    cdef int64_t classes = 1
    cdef int d
    if sample.parts > 1:
        return 4096
    if not has_few_inputs(sample, &why):
        return 8192
    for d in range(3):
        classes *= min(sample.axis[d].period, sample.axis[d].kernel, <int64_t>AMX_MANY_CLASSES)
    return 32768 if classes >= AMX_MANY_CLASSES else 8192


cdef bint amx_input_block(const SampleGeometry *sample, const int64_t *extent, int64_t samples,
                          InputBlock *block) noexcept nogil:
    """Lay out the input's block under a tile class by class, samples at multiples of an instruction's steps; return
    False where it is too large. Rows are even where that lets all taps begin at positions of one parity."""
    cdef int64_t positions
    cdef const ConvAxis *axis = &sample.axis[2]
    cdef bint even
    if not fill_input_block(sample, extent, samples, False, AMX_STEPS, amx_input_positions(sample), block):
        return False
    even = sample.axis[0].kernel * sample.axis[1].kernel > 1 and (axis.kernel <= axis.period or axis.hop % 2 == 0)
    share_input_zeros(sample, extent, even, block)
    positions = sample_positions(block.extent, amx_input_positions(sample))
    block.sample = round_up(positions, AMX_STEPS)
    block.plane = samples * block.sample
    return class_count(block) * positions <= amx_input_positions(sample)


cdef bint cut_amx_output(const SampleGeometry *sample, Tiling *tiling) noexcept nogil:
    """Find the largest tile of one sample whose block is small enough; return False where even a small tile's is
    not."""
    cdef int64_t size[3]
    cdef int64_t room = AMX_OUTPUT_BYTES // (amx_element_bytes(sample) * min(sample.cout, <int64_t>AMX_OUTPUT_ROWS))
    cdef int64_t pixels = min(<int64_t>AMX_OUTPUT_PIXELS, room)
    cdef InputBlock block
    output_size(sample, size)
    while pixels >= AMX_MIN_PIXELS:
        tile_grid(size, pixels, tiling)
        if amx_input_block(sample, tiling.extent, 1, &block):
            return True
        pixels //= 2
    return False


cdef int64_t amx_block_positions(const InputBlock *block) noexcept nogil:
    """Count the positions of a channel of the input's block, with the zeros that an instruction meets behind it."""
    return class_count(block) * block.plane + round_up(block.behind, 2) + AMX_STEPS


cdef int64_t positions_under_tile(const Tiling *tiling, const InputBlock *block) noexcept nogil:
    """Count the positions of a block from the first pixel of a tile of one sample to its last."""
    cdef Box tile
    memcpy(tile.extent, tiling.extent, sizeof(tile.extent))
    return positions_under(&tile, block.extent)


cdef bint fits_amx_output(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether there is a tile of output pixels whose block is small enough."""
    cdef Tiling tiling
    why[0] = b"the block that the taps of a tile reach is too large"
    return cut_amx_output(sample, &tiling)


cdef void order_amx_output(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum tiles of output pixels of one sample from zero; where images are short, add their products one by one."""
    cdef Tiling tiling
    cut_amx_output(sample, &tiling)
    order.tile = tiling.extent
    order.accumulate = sample.pixels_out < (AMX_SHORT_IMAGE if sample.parts == 1 else SHORT_IMAGE)


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
    pixels = min(<int64_t>AMX_OUTPUT_PIXELS, AMX_OUTPUT_BYTES // (amx_element_bytes(sample) * tiles.rows))
    if order.accumulate:
        pixels = min(pixels // tiling_pixels(&tiles.tiling),
                     amx_input_positions(sample) // (class_count(&block) * block.sample))
        join_samples(size, problem.batch, pixels, &tiles.tiling)
    amx_input_block(sample, order.tile, tiles.tiling.samples, &block)
    positions = amx_block_positions(&block)
    tiles.x_pitch = 2 * odd_lines(ceil_div(positions, 2))
    tiles.g_pitch = 2 * odd_lines(ceil_div(block.plane, 2))
    tiles.g_cells = ceil_div(block.plane, AMX_STEPS) * sample.parts * AMX_CELL
    tiles.half_bytes = positions // 2 * AMX_HALF * 4


cdef bint uneven_tasks(int64_t tasks, int threads) noexcept nogil:
    """Say whether some thread would wait long for another's last task."""
    return tasks % threads != 0 and tasks < 4 * threads


cdef void add_amx_products(const ConvRun *run, const AmxBatchReduce *steps, const char *a, int64_t rows, const char *b,
                           int64_t columns, char *sums, int64_t row_bytes, bint setting) noexcept nogil:
    """Add the products of some rows to sums, or (setting) begin sums: all at once, or one by one where the order is
    that."""
    kernels.amx.multiply(steps, a, rows, b, columns, sums, row_bytes, AMX_SET if setting else
                         AMX_ADD_PRODUCTS if run.order.accumulate else AMX_ADD_SUM)


cdef bint next_amx_tile(const ConvRun *run, const AmxOutputTiles *tiles, int64_t number, int64_t group, int64_t co_from,
                        int64_t cos, int64_t calls, Box *tile, InputBlock *block, bint *fresh,
                        Prefetch *prefetch) noexcept nogil:
    """Make the tile of that number, the input's block under it, and the prefetch of the tile after it; return False if
    there are fewer. fresh: whether the block is laid out differently from what `block` was, so that its zeros are yet
    to be written; under one tap the tile before may have been packed without planes, which have none then."""
    cdef int64_t size[3]
    cdef InputBlock before = block[0]
    cdef Box next
    output_size(run.sample, size)
    if is_stopped(run) or not nth_tile(&tiles.tiling, run.problem.batch, size, number, tile):
        return False
    amx_input_block(run.sample, tile.extent, tile.samples, block)
    fresh[0] = number == 0 or run.sample.taps == 1 or memcmp(&before, block, sizeof(InputBlock)) != 0
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


cdef void amx_weight_steps(const SampleGeometry *sample, const AmxOutputTiles *tiles, int64_t depth,
                           const int64_t *zero, AmxBatchReduce *steps) noexcept nogil:
    """Set the strides of a product of cells of grad_output with pairs of positions by twice AMX_HALF columns."""
    steps.count, steps.depth, steps.a_offset, steps.b_offset = 1, depth, zero, zero
    steps.a_row, steps.a_down, steps.a_step = AMX_STEPS * 2, tiles.g_cells, sample.parts * AMX_CELL
    steps.b_row, steps.b_right, steps.c_right = AMX_HALF * 4, tiles.half_bytes, AMX_HALF * 4
    steps.parts, steps.a_part, steps.b_part = sample.parts, AMX_CELL, 2 * tiles.half_bytes
    steps.ahead.rows = 0


# A block of planes for grad_weight: [part][channel][sample][position].
ctypedef struct AmxPlanes:
    int64_t sample      # positions from sample to sample
    int64_t pitch       # positions from channel to channel
    int64_t part        # bytes from part to part
    bint fresh          # whether the zeros between samples are yet to be written


cdef void zero_between(const SampleGeometry *sample, const AmxPlanes *planes, int64_t channels, int64_t at,
                       int64_t count, char *to) noexcept nogil:
    """Write `count` zeros from position `at` of all parts of some channels on, if they are yet to be written."""
    cdef int64_t p, c
    for p in range(sample.parts if planes.fresh and count else 0):
        for c in range(channels):
            memset(to + p * planes.part + (c * planes.pitch + at) * 2, 0, count * 2)


cdef int pack_amx_samples(const SampleGeometry *sample, const ConvView *view, const int64_t *size, const Box *box,
                          int64_t channel, int64_t channels, const AmxPlanes *planes, char *to,
                          char *staging) noexcept nogil:
    """Pack a box as planes, with zeros between samples. inf and NaN of float16 become tiny; return what was found
    (survey.pxi)."""
    cdef Box one = box[0]
    cdef int64_t n, positions = box.extent[0] * box.extent[1] * box.extent[2]
    cdef PartLayout layout
    cdef int found = 0
    layout.pitch, layout.part = planes.pitch * 2, planes.part
    one.samples = 1
    for n in range(box.samples):
        one.n = box.n + n
        if sample.parts == 1:
            pack_planes(DTYPE_BF16, DTYPE_BF16, view, size, &one, channel, channels, to + n * planes.sample * 2,
                        planes.pitch)
        else:
            found |= pack_parts(sample.dtype, &layout, view, size, &one, channel, channels,
                                to + n * planes.sample * 2, staging)
        zero_between(sample, planes, channels, n * planes.sample + positions, planes.sample - positions, to)
    return found


cdef int pack_amx_input(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel,
                        int64_t channels, AmxPlanes *planes, char *to, char *staging) noexcept nogil:
    """Pack the input as [part][ci][class][sample][position], with zeros up to the pitch. inf and NaN become tiny;
    return what was found (survey.pxi)."""
    cdef int64_t size[3]
    cdef int64_t number, positions = class_count(block) * block.plane
    cdef Box box
    cdef int found = 0
    input_size(run.sample, size)
    planes.sample = block.sample
    for number in range(class_count(block)):
        class_box(run.sample, block, tile, number, &box)
        found |= pack_amx_samples(run.sample, &run.problem.view[CONV_INPUT], size, &box, channel, channels, planes,
                                  to + number * block.plane * 2, staging)
    zero_between(run.sample, planes, channels, positions, planes.pitch - positions, to)
    if run.sample.parts == 1:
        found = kernels.vnni.replace_nonfinite(to, channels * planes.pitch)
    return found


cdef void copy_cells(const AmxPlanes *planes, int64_t parts, int64_t channels, int64_t steps, const char *from_,
                     char *to) noexcept nogil:
    """Copy the planes of at most AMX_HALF channels to [step][part][channel], AMX_STEPS positions of each to a line."""
    cdef int64_t s, p, c
    for s in range(steps):
        for p in range(parts):
            for c in range(channels):
                memcpy(to + ((s * parts + p) * AMX_HALF + c) * AMX_STEPS * 2,
                       from_ + p * planes.part + (c * planes.pitch + s * AMX_STEPS) * 2, AMX_STEPS * 2)


cdef void block_of_outputs(const Box *tile, const InputBlock *block, Box *box, int64_t *end) noexcept nogil:
    """Make the box of grad_output that a block has positions for: rows go on behind a tile, where there are zeros from
    `end` on."""
    cdef int d
    box[0] = tile[0]
    for d in range(3):
        end[d] = tile.first[d] + tile.extent[d]
        box.extent[d] = block.extent[d]


cdef int pack_amx_rows(const ConvRun *run, const AmxOutputTiles *tiles, const InputBlock *block, const Box *tile,
                       int64_t channel, int64_t channels, bint fresh, char *planes_to, char *to,
                       char *staging, int64_t *line) noexcept nogil:
    """Pack grad_output as [AMX_HALF co][step][part][co][position of the step], zeros where the block has no pixel of
    the tile. inf and NaN of float16 become tiny; return what was found (survey.pxi). planes_to: AMX_HALF planes,
    whose zeros stay from tile to tile; line: room for the positions of the block."""
    cdef Box box
    cdef int64_t end[3]
    cdef int64_t c = 0, many
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef AmxPlanes planes
    cdef PixelLines lines
    cdef int found = 0
    output_size(run.sample, end)
    if find_lines(run, view, end, tile, block.sample, &lines):
        return pack_line_cells(run, &lines, channel, channels, tiles.g_cells, to)
    block_of_outputs(tile, block, &box, end)
    if has_channel_lines(run, view) and run.sample.parts == 1:
        list_lines(view, end, &box, block.sample, line)
        pack_listed_cells(line, view.data + channel * view.channel, channels, block.plane // AMX_STEPS,
                          tiles.g_cells, to, staging)
        return 0
    if run.sample.parts > 1 and tile.extent[2] >= LISTED_ROW \
            and (has_channel_lines(run, view) or view.space[2] == itemsize_of(run.sample.dtype)):
        list_lines(view, end, &box, block.sample, line)
        return part_listed_cells(run, line, view, channel, channels, block.plane, tiles.g_cells, to, staging)
    planes.sample, planes.pitch, planes.fresh = block.sample, tiles.g_pitch, fresh
    planes.part = AMX_HALF * tiles.g_pitch * 2
    while c < channels:
        many = min(<int64_t>AMX_HALF, channels - c)
        found |= pack_amx_samples(run.sample, view, end, &box, channel + c, many, &planes, planes_to, staging)
        copy_cells(&planes, run.sample.parts, many, ceil_div(block.plane, AMX_STEPS), planes_to,
                   to + c // AMX_HALF * tiles.g_cells)
        c += AMX_HALF
    return found


cdef void pair_positions(const ConvRun *run, const AmxOutputTiles *tiles, const AmxPlanes *planes, const char *x,
                         const int64_t *apart, int64_t positions, int64_t count, char *to) noexcept nogil:
    """Put pairs of positions of at most AMX_SIDE planes side by side, as [part][half of the columns][pair][column];
    apart: where each plane begins, in bytes."""
    cdef int64_t p, half
    for p in range(run.sample.parts):
        for half in range(ceil_div(count, AMX_HALF)):
            kernels.vnni.of_pixels[0](x + p * planes.part, apart + half * AMX_HALF,
                                      to + (2 * p + half) * tiles.half_bytes, AMX_HALF * 4, positions,
                                      min(<int64_t>AMX_HALF, count - half * AMX_HALF))
