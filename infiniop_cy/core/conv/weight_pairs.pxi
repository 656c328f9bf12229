# grad_weight's operands as pairs of bfloat16 pixels that follow each other in a row of grad_output, the earlier one in
# the upper half of 32 bits. Rows read planes that lie from the end to the beginning, in which a pair may begin at any
# pixel; or lines, pairs of pixels channel by channel, where the input's channels lie side by side.
cdef enum:
    PAIR_MARGIN = 32   # bfloat16 before the first position of planes, which a pair of the last pixel may read


# A tile and what it is cut from; rows of pixels that follow each other in both tensors under the one tap of a kernel
# are one row, so that there is at most one odd one.
ctypedef struct PairTile:
    Box tile
    int64_t input_size[3]
    int64_t output_size[3]


cdef bint rows_are_one(const SampleGeometry *sample, const ConvView *x, const ConvView *g,
                       const Box *tile) noexcept nogil:
    """Say whether the rows of a tile's plane follow each other in both tensors, the same in both."""
    cdef int64_t width = sample.axis[2].size_out
    cdef int d
    for d in range(1, 3):
        if sample.axis[d].stride != 1 or sample.axis[d].before != 0 \
                or sample.axis[d].size_in != sample.axis[d].size_out:
            return False
    return sample.taps == 1 and tile.extent[2] == width and x.space[1] == width * x.space[2] \
        and g.space[1] == width * g.space[2]


cdef void make_pair_tile(const ConvRun *run, const Box *tile, PairTile *pairs) noexcept nogil:
    """See a tile and its tensors so."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t width = sample.axis[2].size_out
    pairs.tile = tile[0]
    input_size(sample, pairs.input_size)
    output_size(sample, pairs.output_size)
    if rows_are_one(sample, &run.problem.view[CONV_INPUT], &run.problem.view[CONV_GRAD_OUTPUT], tile):
        pairs.tile.first[1], pairs.tile.first[2] = 0, tile.first[1] * width
        pairs.tile.extent[1], pairs.tile.extent[2] = 1, tile.extent[1] * width
        pairs.input_size[2] = pairs.output_size[2] = sample.axis[1].size_out * width
        pairs.input_size[1] = pairs.output_size[1] = 1


# ---- grad_output as columns

cdef void pair_gathered(const ConvView *view, const char *source, int64_t step, int64_t pixels, int64_t channels,
                        char *to, int64_t columns, char *stage) noexcept nogil:
    """Pair pixels that do not lie side by side, nor do their channels, by way of a stage."""
    cdef int64_t staged[VNNI_CHANNELS]
    cdef int64_t first = 0, count, c, many
    for c in range(VNNI_CHANNELS):
        staged[c] = c * STAGE_ROW * 2
    while first < pixels:
        count = min(<int64_t>STAGE_PIXELS, pixels - first)
        c = 0
        while c < channels:
            many = min(<int64_t>VNNI_CHANNELS, channels - c)
            gather(kernels.convert[DTYPE_BF16][DTYPE_BF16], source + c * view.channel + first * step, step,
                   view.channel, count, many, stage, 2)
            kernels.vnni.of_pixels[1](stage, staged, to + (first // 2 * columns + c) * 4, columns * 4, count, many)
            c += VNNI_CHANNELS
        first += STAGE_PIXELS


cdef void pack_pair_columns(const ConvView *view, const int64_t *size, const Box *box, int64_t channel,
                            int64_t channels, char *to, int64_t columns, char *stage) noexcept nogil:
    """Pack rows of bfloat16 inside the tensor as [pair of pixels][columns]; a zero makes odd rows even."""
    cdef int64_t n, d, h, c, step = box.step[2] * view.space[2], pixels = box.extent[2]
    cdef int64_t apart[MAX_MICRO_PANEL]
    cdef char *source
    for c in range(channels):
        apart[c] = c * view.channel
    for n in range(box.samples):
        for d in range(box.extent[0]):
            for h in range(box.extent[1]):
                source = row_part(view, size, size[2], box, n, d, h).source + channel * view.channel
                if step == 2:
                    kernels.vnni.of_pixels[1](source, apart, to, columns * 4, pixels, channels)
                elif view.channel == 2:
                    zip_lines(source, step, pixels, channels, to, columns * 4)
                else:
                    pair_gathered(view, source, step, pixels, channels, to, columns, stage)
                to += ceil_div(pixels, 2) * columns * 4


# ---- the input as rows: planes

cdef void reverse_row(const char *source, int64_t step, char *end, const RowsPart *part, int64_t width) noexcept nogil:
    """Pack one row so, whose first pixel ends there."""
    cdef int64_t rest = width - part.skip - part.inside
    memset(end - part.skip * 2, 0, part.skip * 2)
    kernels.convert[DTYPE_BF16][DTYPE_BF16](source + (part.inside - 1) * step, -step,
                                            end - (part.skip + part.inside) * 2, 2, part.inside)
    memset(end - width * 2, 0, rest * 2)


cdef void pack_reversed(const ConvView *view, const int64_t *size, const Box *box, int64_t channel, int64_t channels,
                        char *to, int64_t plane) noexcept nogil:
    """Pack a box of bfloat16 as [channel][position], channels `plane` elements apart, positions from the last to the
    first: so pairs of pixels have the earlier one in the upper half, wherever they begin."""
    cdef int64_t c, n, d, h, z, step = box.step[2] * view.space[2], next = box.step[1] * view.space[1]
    cdef int64_t width = box.extent[2]
    cdef RowsPart part = rows_part(view, size, size[2], box)
    cdef int64_t below = box.extent[1] - part.top - part.rows
    cdef const char *source
    cdef char *at
    for c in range(channels):
        at = to + (c * plane + box_positions(box)) * 2
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                if part.rows == 0 or z < 0 or z >= size[0]:
                    at -= box.extent[1] * width * 2
                    memset(at, 0, box.extent[1] * width * 2)
                    continue
                at -= part.top * width * 2
                memset(at, 0, part.top * width * 2)
                source = view.data + (box.n + n) * view.n + (channel + c) * view.channel + z * view.space[0] + part.at
                if step == 2 or step == 4:
                    kernels.vnni.reverse(source, next, step, at, part.rows, part.skip, part.inside, width)
                else:
                    for h in range(part.rows):
                        reverse_row(source + h * next, step, at - h * width * 2, &part, width)
                at -= (part.rows + below) * width * 2
                memset(at, 0, below * width * 2)


cdef void lead_through_planes(const Box *tile, const InputBlock *block, const WeightTile *t,
                              BatchReduce *steps) noexcept nogil:
    """Lead the steps through pairs of pixels of planes that are reversed, one stretch for each row."""
    cdef int64_t n, z, y
    steps.count, steps.depth, steps.a_step = 0, ceil_div(tile.extent[2], 2), -2
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                t.a_offset[steps.count] = PAIR_MARGIN + block.plane - 2 - pixel_row(block, n, z, y)
                steps.count += 1


cdef int64_t pack_pair_planes(const ConvRun *run, WeightTile *t, const PairTile *pairs,
                              BatchReduce *steps) noexcept nogil:
    """Pack the channels that a task's rows read as planes, class by class; return how many numbers they are."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t c, classes
    cdef InputBlock block
    cdef Box box
    fill_input_block(sample, pairs.tile.extent, pairs.tile.samples, False, 1, MAX_CHANNELS, &block)
    memset(t.input, 0, PAIR_MARGIN * 2)
    classes = class_count(&block)
    for c in range(classes):
        class_box(sample, &block, &pairs.tile, c, &box)
        pack_reversed(&run.problem.view[CONV_INPUT], pairs.input_size, &box, t.group * sample.cin + t.ci_from, t.cis,
                      t.input + (PAIR_MARGIN + c * block.plane) * 2, classes * block.plane)
    point_rows(run, t, &block, -1, classes * block.plane)
    lead_through_planes(&pairs.tile, &block, t, steps)
    return PAIR_MARGIN + t.cis * classes * block.plane


# ---- the input as rows: lines

cdef void zip_row(const RowPart *part, int64_t channel, int64_t step, int64_t pixels, int64_t apart, int64_t every,
                  int64_t channels, char *to, int64_t pitch) noexcept nogil:
    """Write the pair of every such pixel of a row with the one `apart` pixels on, as [pair][pitch]; zeros stand for
    padding, and for what comes after the row."""
    cdef int64_t end = part.skip + part.inside, x = 0, i, next, count
    cdef int64_t bounds[4]
    cdef const char *low
    cdef const char *high
    bounds[0], bounds[1], bounds[2], bounds[3] = part.skip, end, part.skip - apart, end - apart
    while x < pixels:
        next = pixels
        for i in range(4):
            if bounds[i] > x:
                next = min(next, bounds[i])
        count = ceil_div(next - x, every)
        high = part.source + channel + (x - part.skip) * step if part.skip <= x < end else NULL
        low = part.source + channel + (x + apart - part.skip) * step if part.skip <= x + apart < end else NULL
        if high != NULL or low != NULL:
            kernels.vnni.of_planes(low, high, every * step, to, pitch * 4, count, 0, channels, pitch)
        else:
            memset(to, 0, count * pitch * 4)
        to += count * pitch * 4
        x += count * every


cdef void lead_through_lines(const Box *tile, const InputBlock *block, const WeightTile *t, bint one_tap, int64_t pair,
                             BatchReduce *steps) noexcept nogil:
    """Lead the steps through pairs, `pair` numbers apart: those of one tap follow each other, others are one stretch
    for each row."""
    cdef int64_t rows = tile.samples * tile.extent[0] * tile.extent[1], i
    steps.depth = ceil_div(tile.extent[2], 2)
    if one_tap:
        steps.count, steps.depth, steps.a_step, t.a_offset[0] = 1, steps.depth * rows, pair, 0
        return
    steps.count, steps.a_step = rows, 2 * block.pixel[2] * pair
    for i in range(rows):
        t.a_offset[i] = pair * pixel_row(block, i // (tile.extent[1] * tile.extent[0]),
                                         i // tile.extent[1] % tile.extent[0], i % tile.extent[1])


cdef int64_t pack_pair_lines(const ConvRun *run, WeightTile *t, const PairTile *pairs, int64_t pitch,
                             BatchReduce *steps) noexcept nogil:
    """Pack the channels that a task's rows read, of all its groups, as [pair][channel]: under one tap pairs of the
    tile's pixels, else those that begin at any position; return how many numbers they are."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef bint one_tap = sample.taps == 1
    cdef int64_t every = 2 if one_tap else 1, channel = (t.group * sample.cin + t.ci_from) * 2, n, d, h
    cdef char *to = t.input
    cdef InputBlock block
    cdef Box box
    cdef RowPart part
    fill_input_block(sample, pairs.tile.extent, pairs.tile.samples, not one_tap, 1, MAX_CHANNELS, &block)
    class_box(sample, &block, &pairs.tile, 0, &box)
    for n in range(box.samples):
        for d in range(box.extent[0]):
            for h in range(box.extent[1]):
                part = row_part(x, pairs.input_size, pairs.input_size[2], &box, n, d, h)
                zip_row(&part, channel, box.step[2] * x.space[2], box.extent[2], block.pixel[2], every,
                        t.groups * t.cis, to, pitch)
                to += ceil_div(box.extent[2], every) * pitch * 4
    point_rows(run, t, &block, 2 * pitch, 2)
    lead_through_lines(&pairs.tile, &block, t, one_tap, 2 * pitch, steps)
    return (to - t.input) // 2


cdef bint pack_pair_rows(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil:
    """Pack the channels that a task's rows read, in lines or in planes; see PackRows."""
    cdef int64_t pitch = line_pitch(run.problem, run.order, True, t.groups * t.cis), numbers
    cdef PairTile pairs
    make_pair_tile(run, tile, &pairs)
    if pitch:
        numbers = pack_pair_lines(run, t, &pairs, pitch, steps)
    else:
        numbers = pack_pair_planes(run, t, &pairs, steps)
    # inf and NaN must not meet the zero of an odd row; whether there is one in this layout must not show.
    return tile.extent[2] % 2 and kernels.vnni.replace_nonfinite(t.input, numbers)
