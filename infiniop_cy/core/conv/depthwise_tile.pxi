# Both gradients of a depthwise or grouped convolution on one tile, for the input channels of a task.

ctypedef struct Depthwise:
    LaneBlocks blocks
    int64_t vectors        # of channels, one after the other in a task, which make lines of memory
    int64_t block_vectors  # of which so many are packed at a time
    int64_t g_apart, x_apart, sums_apart  # positions from a vector's block to the next one's
    int64_t each, parts    # channels of a task, tasks along them
    bint by_pixels         # an image's pixels are computed where they lie,
    bint staged            # or in rows by way of a stage
    bint by_lines          # tasks begin where lines of memory do
    int64_t tiles          # of a sample
    int64_t products       # vectors of a task's sums of grad_weight
    bint by_tiles          # prepare computes tiles of samples
    int64_t together       # of which a task takes so many
    bint keeps             # and keeps its sums of grad_weight


ctypedef struct LaneTask:
    const ConvRun *run
    const Depthwise *own
    LaneTables tables
    bint of_input, of_weight
    int64_t channel, channels, vectors  # of the input
    int64_t bytes          # of the weights or sums of a vector, by (output, tap)
    Box tile               # of steps; in one sample
    Box out                # what of it is in grad_output
    Box pixels             # the input's under it
    char *g
    char *x
    char *sums
    char *old
    char *weights
    char *stage            # of two rows of pixels
    char *products         # of one tile
    char *totals
    bint nonfinite[STENCIL_GROUP]  # whether there are inf or NaN among the weights of an output


cdef LaneChannels task_channels(const LaneTask *t, int64_t co, int64_t each) noexcept nogil:
    """Take output co of each of the task's input channels (each = cout), or those themselves (co = 0, each = 1)."""
    cdef LaneChannels channels
    channels.first, channels.each, channels.count = t.channel * each + co, each, t.channels
    return channels


cdef bint begin_tile(LaneTask *t, int64_t n, int64_t number) noexcept nogil:
    """Make the boxes of the tile of that number; return False where there are fewer."""
    if not nth_tile(&t.own.blocks.tiling, 1, t.own.blocks.steps, number, &t.tile):
        return False
    t.tile.n = n
    place_tile(t)
    return True


cdef void place_tile(LaneTask *t) noexcept nogil:
    """Find what of both images lies in a box of steps."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int d
    t.out, t.pixels = t.tile, t.tile
    for d in range(3):
        t.out.extent[d] = max(<int64_t>0, min(t.tile.extent[d], sample.axis[d].size_out - t.tile.first[d]))
        t.pixels.first[d] *= sample.axis[d].stride
        t.pixels.extent[d] = max(<int64_t>0, min(t.tile.extent[d] * sample.axis[d].stride,
                                                 sample.axis[d].size_in - t.pixels.first[d]))


cdef void load_tile_output(const LaneTask *t, int64_t co) noexcept nogil:
    """Pack grad_output under a tile, with its halo: output co of each channel, or all of groups of several."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef LaneChannels channels = task_channels(t, co, 1 if sample.cin > 1 else sample.cout)
    cdef int64_t size[3]
    cdef Box box = t.tile
    cdef int d
    output_size(sample, size)
    for d in range(3):
        box.first[d] = t.tile.first[d] * sample.source[d].step + t.own.blocks.halo.low[d]
        box.extent[d] = (t.tile.extent[d] - 1) * sample.source[d].step + 1 + t.own.blocks.halo.extra[d]
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


cdef int group_kernel(const SampleGeometry *sample) noexcept nogil:
    """Return the dtype by which groups of several channels are multiplied: bfloat16 where that is by pairs."""
    return DTYPE_BF16 if bfloat16_dot2(sample) else sample.compute


cdef void sum_lane_taps(const SampleGeometry *sample, const StencilRows *rows, const char *from_, const char *weights,
                        char *to, bint adding) noexcept nogil:
    """Write the sums of rows of pixels, or (adding) add to them: many taps a chain at a time."""
    cdef int64_t most = chained_taps(sample), first = 0
    cdef StencilRows chain = rows[0]
    cdef StencilSums how = STENCIL_SET
    if adding:
        how = STENCIL_ADD_SUM if most < sample.taps else STENCIL_ADD_PRODUCTS
    while first == 0 or first < rows.taps:
        chain.at, chain.taps = rows.at + first, min(most, rows.taps - first)
        kernels.stencil[sample.compute](&chain, from_, weights + first * sample.lanes * sample.item, to, how)
        how = STENCIL_ADD_SUM
        first += most


cdef void tile_grad_input(const LaneTask *t, int64_t v, int64_t co) noexcept nogil:
    """Add the products of one output of each of a vector's channels, or of all of a group, to the sums of a tile's
    grad_input, phase by phase."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const int64_t *extent = &t.own.blocks.extent[0]
    cdef int64_t vector = sample.lanes * sample.item, number, z, at
    cdef char *from_g
    cdef char *weights
    cdef const Phase *phase
    cdef StencilRows rows
    cdef LaneGroups groups
    cdef Box part
    groups.channels, groups.apart = sample.cin, sample.taps
    for number in range(phase_count(sample)):
        phase, at = &t.tables.phases[number], t.tables.start[number]
        if not phase_part(phase, &t.tile, &part):
            continue
        rows.rows, rows.width, rows.from_row = part.extent[1], part.extent[2], sample.source[1].step * extent[2]
        rows.from_pixel = sample.source[2].step
        rows.to_row, rows.to_pixel = sample.axis[1].stride * t.pixels.extent[2], sample.axis[2].stride
        rows.taps, rows.at = t.tables.start[number + 1] - at, t.tables.back + at
        for z in range(part.extent[0]):
            from_g = t.g + (v * t.own.g_apart + z * sample.source[0].step * extent[1] * extent[2]) * vector
            weights = t.weights + v * t.bytes + (co * sample.taps + at) * vector
            if sample.cin > 1:
                kernels.group_stencil[group_kernel(sample)](&rows, &groups, from_g, weights,
                                                            phase_sums(t, v, phase, z, 0, 0))
            else:
                sum_lane_taps(sample, &rows, from_g, weights, phase_sums(t, v, phase, z, 0, 0), co > 0)


cdef void add_nonfinite_taps(const LaneTask *t, int64_t co) noexcept nogil:
    """Add the products of inf and NaN among the weights, which may not meet the zeros around grad_output."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t number, i, channel
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef double weight
    for number in range(phase_count(sample)):
        for i in range(t.tables.phases[number].tap_count):
            phase_tap(sample, &t.tables.phases[number], i, output, k)
            for channel in range(t.channel, t.channel + t.channels):
                weight = load_weight(problem, channel // sample.cin, co, channel % sample.cin, k)
                if is_nonfinite(weight):
                    add_lane_products(t, &t.tables.phases[number], channel, co, output, k, weight)


cdef void add_lane_products(const LaneTask *t, const Phase *phase, int64_t channel, int64_t co, const int64_t *output,
                            const int64_t *k, double weight) noexcept nogil:
    """Add the products of one weight with what a tile's pixels of one input channel meet in grad_output."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t z, y, x, v = (channel - t.channel) // sample.lanes, lane = (channel - t.channel) % sample.lanes
    cdef int64_t o[3]
    cdef double value
    cdef Box part
    if not phase_part(phase, &t.tile, &part):
        return
    for z in range(part.extent[0]):
        for y in range(part.extent[1]):
            for x in range(part.extent[2]):
                o[0], o[1] = z + t.tile.first[0] + output[0], y + t.tile.first[1] + output[1]
                o[2] = x + t.tile.first[2] + output[2]
                if load_source(problem, t.tile.n, channel // sample.cin, co, o, k, &value):
                    add_one(sample, phase_sums(t, v, phase, z, y, x) + lane * sample.item, weight * value)


cdef void tile_grad_weight(const LaneTask *t, int64_t v, int64_t co, char *products) noexcept nogil:
    """Write a tile's sums of grad_weight for a vector of channels, one vector for each tap; or for all outputs of its
    groups, one after the other."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const InputBlock *block = &t.own.blocks.input
    cdef const int64_t *extent = &t.own.blocks.extent[0]
    cdef const int64_t *low = &t.own.blocks.halo.low[0]
    cdef int64_t vector = sample.lanes * sample.item, z
    cdef char *from_g
    cdef char *from_x
    cdef StencilDotRows rows
    cdef LaneGroups groups
    groups.channels, groups.apart = sample.cin, sample.taps
    rows.rows, rows.width, rows.g_row = t.out.extent[1], t.out.extent[2], extent[2]
    rows.x_row, rows.x_pixel = block.pixel[1] * block.extent[2], block.pixel[2]
    rows.taps, rows.at = sample.taps, t.tables.forth
    memset(products, 0, sample.cin * sample.taps * vector)
    for z in range(t.out.extent[0]):
        from_g = t.g + (v * t.own.g_apart + ((z - low[0]) * extent[1] - low[1]) * extent[2] - low[2]) * vector
        from_x = t.x + (v * t.own.x_apart + pixel_row(block, 0, z, 0)) * vector
        if sample.cin > 1:
            kernels.group_stencil_dot[group_kernel(sample)](&rows, &groups, from_g, from_x, products)
        else:
            kernels.stencil_dot[sample.compute](&rows, from_g, from_x, products)


cdef void add_lane_bias(const LaneTask *t) noexcept nogil:
    """Add the bias to a tile of an output, if there is one."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t v, vector = sample.lanes * sample.item
    cdef double staged[BIAS_STAGED]
    if not has_output_bias(t.run.problem):
        return
    for v in range(t.vectors):
        load_output_bias(t.run.problem, t.channel + v * sample.lanes, min(sample.lanes, t.channels - v * sample.lanes),
                         <char *>staged)
        kernels.add_to_rows[sample.compute](<char *>staged, t.sums + v * t.own.sums_apart * vector, sample.lanes,
                                            box_positions(&t.pixels), sample.lanes, False)


cdef void save_tile_input(const LaneTask *t) noexcept nogil:
    """Round a tile of grad_input to storage."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef int64_t size[3]
    cdef int64_t v, apart = t.own.sums_apart * sample.lanes * sample.item
    input_size(sample, size)
    add_lane_bias(t)
    if t.run.problem.accumulate:
        pack_lane_box(sample, out, size, &t.pixels, &channels, t.pixels.extent, t.own.sums_apart, t.old)
        for v in range(t.vectors):
            add_values(sample, t.old + v * apart, t.sums + v * apart, box_positions(&t.pixels) * sample.lanes)
    unpack_lane_box(sample, out, &t.pixels, &channels, t.own.sums_apart, t.run.problem.stream, t.sums)


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
    for co in range(sample.cout if sample.cin == 1 else 1):
        load_tile_output(t, co)
        for v in range(t.vectors):
            if of_input:
                tile_grad_input(t, v, co)
            if of_weight:
                tile_grad_weight(t, v, co, products + v * t.bytes + co * bytes)
    for co in range(sample.cout if of_input else 0):
        if t.nonfinite[co]:
            add_nonfinite_taps(t, co)
    if of_input:
        save_tile_input(t)
