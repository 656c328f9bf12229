# grad_weight: rows are (ci, tap) of the input, scalars read where they lie in a packed block; columns are co of grad_output,
# packed side by side; the steps go through output pixels. Few co would leave lanes empty: then the lanes are pixels of both,
# each element is a dot product, and a strided input is taken apart into phases that are dense.

cdef bint weight_in_line(const ConvPlan *plan, const ConvView *w) noexcept nogil:
    """Whether the (ci, tap) of one output channel follow each other in memory."""
    cdef int64_t next = itemsize_of(plan.dtype)
    cdef int d
    for d in range(2, -1, -1):
        if plan.kernel[d] > 1 and w.space[d] != next:
            return False
        next *= plan.kernel[d]
    return plan.cin == 1 or w.channel == next


cdef void move_weights(const ConvPlan *plan, int64_t row_from, int64_t count, char *line, char *weights, bint loading) noexcept nogil:
    """(ci, tap) [row_from, +count) of one output channel, at `weights`, from or (loading) to contiguous values."""
    cdef const ConvView *w = &plan.view[CONV_GRAD_WEIGHT]
    cdef int64_t stored = itemsize_of(plan.dtype), step = w.space[2], i = 0, n, tap, k2
    cdef char *element
    while i < count:
        tap = (row_from + i) % plan.taps
        k2 = tap % plan.kernel[2]
        element = weights + (row_from + i) // plan.taps * w.channel + tap // (plan.kernel[2] * plan.kernel[1]) * w.space[0] \
            + tap // plan.kernel[2] % plan.kernel[1] * w.space[1] + k2 * w.space[2]
        n = min(plan.kernel[2] - k2, count - i)
        if weight_in_line(plan, &plan.view[CONV_GRAD_WEIGHT]):
            n, step = count, stored
        if loading:
            plan.load(element, step, line + i * plan.item, plan.item, n)
        else:
            plan.save(line + i * plan.item, plan.item, element, step, n)
        i += n


cdef void grad_weight_elements(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t rows, int64_t co_from,
                               int64_t channels, char *sums, int64_t pitch, char *stage, bint loading) noexcept nogil:
    """[row][pitch] sums to grad_weight, or (loading) from it."""
    cdef const ConvView *w = &plan.view[CONV_GRAD_WEIGHT]
    cdef int64_t item = plan.item, lanes = kernels.gemm[plan.compute].lanes, first, n, c, many, i
    cdef char *weights = w.data + (group * plan.cout + co_from) * w.n
    if plan.dtype == plan.compute and weight_in_line(plan, &plan.view[CONV_GRAD_WEIGHT]):
        weights += row_from * item
        if loading:
            kernels.transpose[plan.compute](weights, w.n, sums, pitch * item, rows, channels)
        else:
            kernels.transpose[plan.compute](sums, pitch * item, weights, w.n, channels, rows)
        return
    c = 0
    while c < channels:
        many = min(lanes, channels - c)
        first = 0
        while first < rows:
            n = min(<int64_t>CONV_STAGE, rows - first)
            if not loading:
                kernels.transpose[plan.compute](sums + (first * pitch + c) * item, pitch * item, stage,
                                                CONV_STAGE_LINE * item, many, n)
            for i in range(many):
                move_weights(plan, row_from + first, n, stage + i * CONV_STAGE_LINE * item, weights + (c + i) * w.n, loading)
            if loading:
                kernels.transpose[plan.compute](stage, CONV_STAGE_LINE * item, sums + (first * pitch + c) * item, pitch * item,
                                                n, many)
            first += CONV_STAGE
        c += lanes


cdef bint rows_in_line(const ConvPlan *plan) noexcept nogil:
    """Whether the pixels of a 1 x 1 convolution follow each other in memory from row to row, in input and grad_output."""
    cdef int d
    for d in range(1, 3):
        if plan.kernel[d] != 1 or plan.stride[d] != 1 or plan.size_in[d] != plan.size_out[d] or plan.before[d]:
            return False
    return plan.for_weight.tile[3] == plan.size_out[2] \
        and plan.view[CONV_INPUT].space[1] == plan.size_in[2] * plan.view[CONV_INPUT].space[2] \
        and plan.view[CONV_GRAD_OUTPUT].space[1] == plan.size_out[2] * plan.view[CONV_GRAD_OUTPUT].space[2]


cdef int64_t pack_input(const ConvPlan *plan, const int64_t *size, int64_t group, int64_t row_from, int64_t rows,
                        const Box *tile, bint pairs, int64_t *row, int64_t *segment, GemmSteps *steps, char *to) noexcept nogil:
    """The input under the rows by the tile's output pixels; where each row begins, and where the pixels' rows do. pairs: rows
    of bfloat16 from their end to their beginning, phase by phase of their stride. Returns the elements written."""
    cdef const ConvView *x = &plan.view[CONV_INPUT]
    cdef int64_t pixels = box_size(tile), phases = 1, phase, plane, i, tap, n, z, y
    cdef int64_t ci_from = row_from // plan.taps, ci_to = (row_from + rows - 1) // plan.taps
    cdef int64_t k[3]
    cdef int64_t step[3]
    cdef int64_t apart[3]
    cdef Box block = tile[0]
    cdef int d
    steps.segments, steps.length = 1, pixels
    steps.a_step = 1
    segment[0] = 0
    plane = pixels
    if plan.for_weight.shifted:
        for d in range(3):
            block.step[d] = sample_step(plan, d)
            block.first[d] = tile.first[d] * plan.stride[d] - plan.before[d]
            step[d] = plan.stride[d] // block.step[d]
            apart[d] = plan.dilation[d] // block.step[d] if plan.kernel[d] > 1 else 0
            block.extent[d] = (tile.extent[d] - 1) * step[d] + (plan.kernel[d] - 1) * apart[d] + 1
        if pairs:
            phases = step[2]
            block.step[2] *= phases
            block.extent[2] = round_up(tile.extent[2], 2) + (plan.kernel[2] - 1) * apart[2] // phases
            plane = phases * box_size(&block)
            for phase in range(phases):
                pack_backwards(plan, x, size, &block, group * plan.cin + ci_from, ci_to - ci_from + 1,
                               to + phase * box_size(&block) * 2, plane)
                block.first[2] += sample_step(plan, 2)
        else:
            plane = box_size(&block)
            pack_planes(plan.dtype, plan.compute, x, size, &block, group * plan.cin + ci_from, ci_to - ci_from + 1, to, plane)
        if pairs or block.extent[1] != tile.extent[1] or block.extent[2] != tile.extent[2] or (
                tile.samples * tile.extent[0] > 1 and block.extent[0] != tile.extent[0]):  # else the pixels are one line
            steps.segments, steps.length, steps.a_step = 0, tile.extent[2], step[2]
            if pairs:
                steps.length, steps.a_step = pieces(tile.extent[2], 2), -2
            for n in range(tile.samples):
                for z in range(tile.extent[0]):
                    for y in range(tile.extent[1]):
                        segment[steps.segments] = ((n * block.extent[0] + z * step[0]) * block.extent[1] + y * step[1]) \
                            * block.extent[2] + (block.extent[2] - 2 if pairs else 0)
                        steps.segments += 1
    for i in range(rows):
        tap = (row_from + i) % plan.taps
        k[0], k[1] = tap // (plan.kernel[2] * plan.kernel[1]), tap // plan.kernel[2] % plan.kernel[1]
        k[2] = tap % plan.kernel[2]
        if plan.for_weight.shifted:
            row[i] = ((row_from + i) // plan.taps - ci_from) * plane + (k[0] * apart[0] * block.extent[1] + k[1] * apart[1]) \
                * block.extent[2]
            if pairs:
                row[i] += k[2] * apart[2] % phases * (plane // phases) - k[2] * apart[2] // phases
            else:
                row[i] += k[2] * apart[2]
        else:
            row[i] = i * pixels
            for d in range(3):
                block.step[d] = plan.stride[d]
                block.first[d] = tile.first[d] * plan.stride[d] + k[d] * plan.dilation[d] - plan.before[d]
            pack_planes(plan.dtype, plan.compute, x, size, &block, group * plan.cin + (row_from + i) // plan.taps, 1,
                        to + i * pixels * plan.item, pixels)
    repeat_last(row, rows)
    return plane * (ci_to - ci_from + 1)


cdef void grad_weight_tile(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t sliver_from, char *scratch) noexcept nogil:
    """Some (ci, tap) by the output channels of some slivers, summed over all samples and output pixels.

    Samples are added one after the other to what is there, so a batch cut anywhere and accumulated gives the
    same bits. Images of few pixels share panels; their products then join the sum one by one (chain)."""
    cdef const ConvCut *cut = &plan.for_weight
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef const GemmTile *wide
    cdef int64_t item = plan.item, rows = min(cut.rows, plan.cin * plan.taps - row_from)
    cdef int64_t slivers = min(cut.task_slivers, cut.slivers - sliver_from), c_row = slivers * cut.columns
    cdef int64_t co_from = sliver_from * cut.columns, channels = min(c_row, plan.cout - co_from)
    cdef int64_t number = 0, pixels, s, first, count
    cdef bint chain = plan.pixels_out < CONV_SHORT_IMAGE, line = rows_in_line(plan), pairs
    cdef int64_t size_in[3]
    cdef int64_t size_out[3]
    cdef char *a = take(&scratch, scratch_bytes(plan, cut.positions * (cut.rows // plan.taps + 2) if cut.shifted
                                                else cut.pixels * cut.rows))
    cdef char *b = take(&scratch, scratch_bytes(plan, cut.pixels * cut.task_slivers * cut.columns))
    cdef char *sums = take(&scratch, scratch_bytes(plan, (cut.rows + CONV_ROWS) * cut.task_slivers * cut.columns))
    cdef char *stage = take(&scratch, stage_bytes(plan))
    cdef int64_t *place = <int64_t *>take(&scratch, table_bytes(cut.pixels))
    cdef int64_t *row = <int64_t *>take(&scratch, table_bytes(cut.rows + CONV_ROWS))
    cdef int64_t *a_segment = <int64_t *>take(&scratch, table_bytes(cut.pixels))
    cdef int64_t *b_segment = <int64_t *>take(&scratch, table_bytes(cut.pixels))
    cdef BiasShare bias = bias_share(plan, group * plan.cout + co_from, channels, row_from // cut.rows,
                                     pieces(plan.cin * plan.taps, cut.rows),
                                     <double *>take(&scratch, bias_bytes(cut.task_slivers * cut.columns)))
    cdef Box tile, next
    cdef Ahead ahead
    cdef GemmSteps steps
    cdef int d
    cdef uint64_t float_state = enter_float_state()
    for d in range(3):
        size_in[d], size_out[d] = plan.size_in[d], plan.size_out[d]
    if line:
        size_in[2], size_in[1] = size_in[1] * size_in[2], 1
        size_out[2], size_out[1] = size_out[1] * size_out[2], 1
    steps.a_segment, steps.b_segment = a_segment, b_segment
    steps.b_step = cut.columns
    memset(sums, 0, rows * c_row * item)
    if plan.accumulate:
        grad_weight_elements(plan, group, row_from, rows, co_from, channels, sums, c_row, stage, True)
    while plan.pixels_out and nth_tile(cut, plan.batch, plan.size_out, number, &tile):
        pixels = box_size(&tile)
        add_bias(plan, &tile, bias.channel, bias.channels, bias.totals)
        if line:
            tile.first[2], tile.extent[2] = tile.first[1] * plan.size_out[2], tile.extent[1] * tile.extent[2]
            tile.first[1], tile.extent[1] = 0, 1
        pairs = cut.pairs
        count = pack_input(plan, size_in, group, row_from, rows, &tile, pairs, row, a_segment, &steps, a)
        if pairs and tile.extent[2] % 2 and kernels.pairs.has_nonfinite(a, count):  # they must not meet the zero of an odd row
            pairs = False
            pack_input(plan, size_in, group, row_from, rows, &tile, pairs, row, a_segment, &steps, a)
        wide = wide_tile(plan, cut, pairs)
        for s in range(steps.segments):
            b_segment[s] = s * steps.length * cut.columns
        for s in range(slivers):
            first, count = co_from + s * cut.columns, min(cut.columns, channels - s * cut.columns)
            if pairs:
                pack_pixel_pairs(plan, g, size_out, &tile, group * plan.cout + first, count,
                                 b + s * pixels * cut.columns * item, cut.columns, stage)
            else:
                pack_channels(plan, g, size_out, &tile, group * plan.cout + first, count,
                              b + s * pixels * cut.columns * item, cut.columns, False, stage, place)
        ahead.channels = 0
        if nth_tile(cut, plan.batch, plan.size_out, number + 1, &next):
            look_ahead(plan, g, plan.size_out, &next, group * plan.cout + co_from, channels,
                       slivers * pieces(rows, wide.rows), &ahead)
        for s in range(slivers):
            multiply(plan, wide, &steps, a, row, rows, b + s * pixels * cut.columns * item,
                     sums + s * cut.columns * item, c_row, chain, &ahead)
        number += 1
    grad_weight_elements(plan, group, row_from, rows, co_from, channels, sums, c_row, stage, False)
    save_bias(plan, bias.channel, bias.channels, bias.totals)
    leave_float_state(float_state)


cdef void pack_phases(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t rows, const Box *tile, int64_t *row,
                      Box *block, char *to) noexcept nogil:
    """The input under the rows by the tile's output pixels, as [ci][phase][position]; where each row begins."""
    cdef const ConvView *x = &plan.view[CONV_INPUT]
    cdef int64_t ci_from = row_from // plan.taps, ci_to = (row_from + rows - 1) // plan.taps, plane, i, tap, r
    cdef int64_t phases = plan.for_weight.phases, rest
    cdef int64_t step[3]
    cdef int64_t k[3]
    cdef int64_t residue[3]
    cdef Box phase
    cdef int d
    block[0] = tile[0]
    for d in range(3):
        step[d] = plan.stride[d] // sample_step(plan, d)
        if plan.kernel[d] > 1:
            block.extent[d] += (plan.kernel[d] - 1) * (plan.dilation[d] // sample_step(plan, d)) // step[d]
        block.step[d] = plan.stride[d]
    plane = box_size(block)
    phase = block[0]
    for r in range(phases):
        rest = r
        for d in range(2, -1, -1):
            phase.first[d] = tile.first[d] * plan.stride[d] - plan.before[d] + rest % step[d] * sample_step(plan, d)
            rest //= step[d]
        pack_planes(plan.dtype, plan.compute, x, plan.size_in, &phase, group * plan.cin + ci_from, ci_to - ci_from + 1, to + r * plane * plan.item,
                    phases * plane)
    for i in range(rows):
        tap = (row_from + i) % plan.taps
        k[0], k[1] = tap // (plan.kernel[2] * plan.kernel[1]), tap // plan.kernel[2] % plan.kernel[1]
        k[2] = tap % plan.kernel[2]
        for d in range(3):
            k[d] = k[d] * (plan.dilation[d] // sample_step(plan, d)) if plan.kernel[d] > 1 else 0
            residue[d] = k[d] % step[d]
            k[d] //= step[d]
        row[i] = ((((row_from + i) // plan.taps - ci_from) * step[0] + residue[0]) * step[1] + residue[1]) * step[2] * plane \
            + residue[2] * plane + (k[0] * block.extent[1] + k[1]) * block.extent[2] + k[2]
    for i in range(rows, rows + DOT_ROWS):
        row[i] = row[rows - 1]


cdef void grad_weight_across(const ConvPlan *plan, int64_t group, int64_t row_from, char *scratch) noexcept nogil:
    """Some (ci, tap) by all output channels of the group. Tiles never cross samples, so a batch may be cut anywhere."""
    cdef const ConvCut *cut = &plan.for_weight
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef const GemmTiles *tiles = &kernels.gemm[plan.compute]
    cdef int64_t item = plan.item, rows = min(cut.rows, plan.cin * plan.taps - row_from), number = 0, z, i, co, pixels, lines
    cdef int64_t length, line, plane
    cdef char *a = take(&scratch, scratch_bytes(plan, cut.phases * cut.positions * (cut.rows // plan.taps + 2) + tiles.lanes))
    cdef char *b = take(&scratch, scratch_bytes(plan, cut.pixels * plan.cout + tiles.lanes))
    cdef char *sums = take(&scratch, scratch_bytes(plan, cut.rows * plan.cout))  # [co][row]
    cdef int64_t *row = <int64_t *>take(&scratch, table_bytes(cut.rows + DOT_ROWS))
    cdef BiasShare bias = bias_share(plan, group * plan.cout, plan.cout, row_from // cut.rows, pieces(plan.cin * plan.taps, cut.rows),
                                     <double *>take(&scratch, bias_bytes(plan.cout)))
    cdef Box tile, block
    cdef uint64_t float_state = enter_float_state()
    memset(sums, 0, rows * plan.cout * item)
    if plan.accumulate:
        for co in range(plan.cout):
            move_weights(plan, row_from, rows, sums + co * rows * item,
                         plan.view[CONV_GRAD_WEIGHT].data + (group * plan.cout + co) * plan.view[CONV_GRAD_WEIGHT].n, True)
    while plan.pixels_out and nth_tile(cut, plan.batch, plan.size_out, number, &tile):
        pixels = box_size(&tile)
        add_bias(plan, &tile, bias.channel, bias.channels, bias.totals)
        pack_phases(plan, group, row_from, rows, &tile, row, &block, a)
        pack_planes(plan.dtype, plan.compute, g, plan.size_out, &tile, group * plan.cout, plan.cout, b, pixels)
        lines, length, line = tile.extent[1], tile.extent[2], block.extent[2]
        plane = block.extent[1] * block.extent[2]
        if line == length:
            lines, length = 1, lines * length
        for co in range(plan.cout):
            for z in range(tile.extent[0]):
                i = 0
                while i < rows:
                    kernels.dot[plan.compute](lines, length, b + (co * pixels + z * lines * length) * item, length,
                                              a + z * plane * item, line, row + i, min(<int64_t>DOT_ROWS, rows - i),
                                              sums + (co * rows + i) * item)
                    i += DOT_ROWS
        number += 1
    for co in range(plan.cout):
        move_weights(plan, row_from, rows, sums + co * rows * item,
                     plan.view[CONV_GRAD_WEIGHT].data + (group * plan.cout + co) * plan.view[CONV_GRAD_WEIGHT].n, False)
    save_bias(plan, bias.channel, bias.channels, bias.totals)
    leave_float_state(float_state)


cdef void grad_weight_task(const ConvPlan *plan, int64_t task, int64_t down, int64_t across, char *scratch) noexcept nogil:
    """Task number (group, slivers, rows)."""
    cdef const ConvCut *cut = &plan.for_weight
    if cut.across:
        grad_weight_across(plan, task // down, task % down * cut.rows, scratch)
    else:
        grad_weight_tile(plan, task // (across * down), task % down * cut.rows, task // down % across * cut.task_slivers, scratch)


cdef void run_grad_weight(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_weight
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t down = pieces(plan.cin * plan.taps, cut.rows), across = pieces(cut.slivers, cut.task_slivers), i
    cdef int64_t tasks = grad_weight_tasks(plan)
    if threads == 1:
        for i in range(tasks):
            grad_weight_task(plan, i, down, across, scratch)
        return
    for i in prange(tasks, schedule="dynamic", num_threads=threads):
        grad_weight_task(plan, i, down, across, scratch + omp_get_thread_num() * plan.thread_bytes)
