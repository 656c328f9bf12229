# Scalar operands of float and double that register tiles read where they lie: no padding is among them, so that a
# packed block would be a copy. The values and the order of their products are those of the block.

cdef enum:
    COPIED_CHANNELS = 128   # of grad_output that are copied for narrow vectors, at least
    COPIED_COLUMNS = 192    # that meet them
    COPIED_BELOW = 256      # bytes from channel to channel: those of 7x7 pixels
    COPIED_FROM = 1600      # of 20x20


cdef bint of_whole_elements(const ConvProblem *problem, const ConvView *view) noexcept nogil:
    """Say whether a tensor is of the compute type, and every element at a multiple of its size."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t bits = <int64_t><uintptr_t>view.data | view.n | view.channel
    return sample.dtype == sample.compute \
        and (bits | view.space[0] | view.space[1] | view.space[2]) % sample.item == 0


cdef bint is_one_product(const SampleGeometry *sample) noexcept nogil:
    """Say whether a pixel is a product of the weights with one pixel, at most, of the image that is read."""
    return sample.taps == 1 and sample.folded == 1 and block_classes(sample) == 1


cdef int64_t elements_to(const SampleGeometry *sample, const ConvView *view, const int64_t *pixel) noexcept nogil:
    """Count the elements from a channel's first pixel to this one."""
    return (pixel[0] * view.space[0] + pixel[1] * view.space[1] + pixel[2] * view.space[2]) // sample.item


cdef bint follow_evenly(const Box *tile, int64_t next_sample, const int64_t *step) noexcept nogil:
    """Say whether all pixels of a tile lie at even distances; step: from pixel to pixel along each axis."""
    cdef int64_t row = tile.extent[2] * step[2]
    return (tile.extent[1] == 1 or step[1] == row) \
        and (tile.extent[0] == 1 or step[0] == row * tile.extent[1]) \
        and (tile.samples == 1 or next_sample == row * tile.extent[1] * tile.extent[0])


cdef bint find_even_pixels(const ConvView *view, const int64_t *size, const Box *box, const char **first,
                           int64_t *apart) noexcept nogil:
    """Find channel 0 of a box's first pixel, and the bytes from pixel to pixel; return False if pixels leave the
    tensor, or do not lie at even distances."""
    cdef int64_t step[3]
    cdef int64_t last[3]
    cdef int d
    first[0] = view.data + box.n * view.n
    for d in range(3):
        step[d] = box.step[d] * view.space[d]
        last[d] = box.first[d] + (box.extent[d] - 1) * box.step[d]
        first[0] += box.first[d] * view.space[d]
    apart[0] = step[2]
    return is_inside(box.first, size) and is_inside(last, size) and follow_evenly(box, view.n, step)


cdef int64_t row_offsets(const Box *tile, int64_t next_sample, const int64_t *step, int64_t *offset) noexcept nogil:
    """Write how far each row of a tile's pixels lies from the first one; return how many there are."""
    cdef int64_t n, z, y, count = 0
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                offset[count] = n * next_sample + z * step[0] + y * step[1]
                count += 1
    return count


# ---- the input as rows of grad_weight

cdef bint input_lies_ready(const ConvProblem *problem) noexcept nogil:
    """Say whether the one tap of a kernel meets nothing but the input, and can be led through it. Pixels far apart are
    better copied, since each row of sums would ask for all their lines again."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *x = &problem.view[CONV_INPUT]
    cdef int64_t first[3]
    cdef int64_t last[3]
    cdef int64_t corner[3]
    cdef int64_t size[3]
    cdef int d
    if sample.taps != 1 or not of_whole_elements(problem, x) \
            or (x.space[2] != sample.item and x.channel != sample.item):
        return False
    input_size(sample, size)
    output_size(sample, last)
    for d in range(3):
        corner[d], last[d] = 0, last[d] - 1
    input_pixel(sample, corner, 0, first)
    input_pixel(sample, last, 0, corner)
    return is_inside(first, size) and is_inside(corner, size)


cdef void lead_through_input(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil:
    """Point a task's rows, and the steps through the pixels of a tile, at the input: one stretch where the pixels
    follow each other evenly, else one for each row of pixels."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef int64_t step[3]
    cdef int64_t first[3]
    cdef int64_t next_sample = x.n // sample.item, i
    cdef int d
    for d in range(3):
        step[d] = sample.axis[d].stride * x.space[d] // sample.item
    input_pixel(sample, tile.first, 0, first)
    t.input = x.data + tile.n * x.n + (t.group * sample.cin + t.row_from) * x.channel \
        + elements_to(sample, x, first) * sample.item
    for i in range(t.rows):
        t.indirection[i] = i * (x.channel // sample.item)
    steps.a_step = step[2]
    if follow_evenly(tile, next_sample, step):
        steps.count, steps.depth, t.a_offset[0] = 1, box_positions(tile), 0
    else:
        steps.count, steps.depth = row_offsets(tile, next_sample, step, t.a_offset), tile.extent[2]


# ---- grad_output as columns of grad_weight

cdef bint passes_end(const ConvRun *run, const WeightTile *t, const Box *tile) noexcept nogil:
    """Say whether whole vectors of a tile's channels would go on past grad_output's last element."""
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t size[3]
    cdef int64_t left = (run.sample.groups - t.group) * run.sample.cout - t.co_from - t.pitch
    cdef int d
    output_size(run.sample, size)
    left = left * g.channel + max(<int64_t>0, (run.problem.batch - 1) * g.n) \
        - max(tile.n * g.n, (tile.n + tile.samples - 1) * g.n)
    for d in range(3):
        left += max(<int64_t>0, (size[d] - 1) * g.space[d]) \
            - max(tile.first[d] * g.space[d], (tile.first[d] + tile.extent[d] - 1) * g.space[d])
    return left < 0


cdef bint lead_through_columns(const ConvRun *run, WeightTile *t, const Box *tile,
                               const BatchReduce *steps) noexcept nogil:
    """Point a task's columns, which fill its micro-panels, at a tile of grad_output whose channels lie side by side;
    return whether that can be done with the steps that the rows take."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t next_sample = g.n // sample.item
    cdef int64_t step[3]
    cdef int d
    if g.channel != sample.item or not of_whole_elements(run.problem, g) or (
            t.cos < t.pitch and passes_end(run, t, tile)):
        return False
    for d in range(3):
        step[d] = g.space[d] // sample.item
    if steps.count > 1:
        row_offsets(tile, next_sample, step, t.b_offset)
    elif follow_evenly(tile, next_sample, step):
        t.b_offset[0] = 0
    else:
        return False
    t.columns = g.data + tile.n * g.n + (t.group * sample.cout + t.co_from) * g.channel \
        + elements_to(sample, g, tile.first) * sample.item
    t.column_panel, t.column_pixel = own.co.columns, step[2]
    return True


# ---- grad_output as rows of grad_input

cdef bint lies_in_output(const SampleGeometry *sample, const Box *block) noexcept nogil:
    """Say whether a block has no padding."""
    cdef int64_t last[3]
    cdef int64_t size[3]
    cdef int d
    output_size(sample, size)
    for d in range(3):
        last[d] = block.first[d] + block.extent[d] - 1
    return is_inside(block.first, size) and is_inside(last, size)


cdef bint pays_for_copies(const ConvProblem *problem, int64_t columns) noexcept nogil:
    """Say whether tiles of narrow vectors take less from a packed copy of grad_output than from where it lies, which
    takes a cache line for each channel of a panel, so that panel and weights do not stay in 32 kB: where enough columns
    meet a copy, and pixels or channels do not lie as they happen to be read quickly (measured on Zen 3)."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    if has_wide_vectors(sample) or sample.cout < COPIED_CHANNELS or columns < COPIED_COLUMNS:
        return False
    return g.space[2] != sample.item or not COPIED_BELOW <= g.channel < COPIED_FROM


cdef bint output_lies_ready(const ConvProblem *problem, const Box *block, int64_t columns) noexcept nogil:
    """Say whether a block that meets so many columns has no padding, and its channels had better be led through where
    they lie."""
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    return of_whole_elements(problem, g) and spreads_over_sets(g.channel) and lies_in_output(&problem.sample, block) \
        and not pays_for_copies(problem, columns)


cdef char *first_of_output(const ConvRun *run, const InputTile *t, const Box *block) noexcept nogil:
    """Find the first channel of a block's first pixel."""
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    return g.data + block.n * g.n + t.sums.group * run.sample.cout * g.channel + block.first[0] * g.space[0] \
        + block.first[1] * g.space[1] + block.first[2] * g.space[2]


cdef void lead_through_output(const ConvRun *run, InputTile *t, const Box *block, BatchReduce *steps) noexcept nogil:
    """Point a tile's pixels, and the steps through the channels of the first panel, at grad_output."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t pixel = g.space[2] // sample.item, at, n, z, y, x, i = 0
    t.block = first_of_output(run, t, block)
    for n in range(t.tile.samples):
        for z in range(t.tile.extent[0]):
            for y in range(t.tile.extent[1]):
                at = (n * g.n + z * g.space[0] + y * g.space[1]) // sample.item
                for x in range(t.tile.extent[2]):
                    t.indirection[i] = at + x * pixel
                    i += 1
    repeat_last(t.indirection, i)
    steps.a_step = g.channel // sample.item
