# grad_input by AMX: what its algorithms share. Rows are positions of a packed block of grad_output, each with a chunk
# of AMX_STEPS output channels side by side in a cache line, so that every tap is a product of whole lines; columns are
# packed weights, AMX_SIDE to a panel. Some steps are multiplied with all positions before the next ones: shorter sums
# round less, and their weights stay in the nearer caches.
cdef enum:
    AMX_MAX_PIXELS = 896         # of a tile
    AMX_MIN_PIXELS = 224
    AMX_INPUT_BYTES = 1 << 20    # of its block and sums, or about, by its pixels
    AMX_BLOCK_BYTES = 7 << 19    # of these, by its positions, at most: many may be halos and gaps
    AMX_POSITIONS = 4096         # of a packed block of grad_output, at most
    AMX_LINE = 64                # bytes of a chunk of channels of one position
    AMX_SUM_ROW = 128            # bytes of the sums of one position, of one panel
    AMX_CHAIN_STEPS = 72         # summed from zero at once, at most
    PART_CHAIN_STEPS = 24        # the same where an element is several bfloat16, with the accuracy of float32
    AMX_STAGED_TAPS = 16         # taps of a chunk of weights that are staged together
    PART_APART = 16              # output channels from one to the other of a pair, of several parts each


cdef int64_t fit_amx_tiles(const SampleGeometry *sample, int64_t bytes, Tiling *tiling,
                           int64_t *positions) noexcept nogil:
    """Cut tiles of pixels that take so many bytes each, where there is no need for more tasks, whose block fits if it
    can; return their pixels, at most."""
    cdef int64_t pixels = max(<int64_t>AMX_MIN_PIXELS, min(<int64_t>AMX_MAX_PIXELS, AMX_INPUT_BYTES // bytes))
    return fit_tiles(sample, pixels, AMX_MIN_PIXELS, AMX_POSITIONS, tiling, positions)


cdef bint amx_block_fits(const SampleGeometry *sample, const Tiling *tiling, int64_t positions,
                         const char **why) noexcept nogil:
    """Say whether a tile's block has not too many positions, nor many more than its taps read."""
    if positions > AMX_POSITIONS or positions > sample.taps * tiling_pixels(tiling) + 3 * AMX_SIDE:
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    return True


cdef int64_t amx_step_bytes(const SampleGeometry *sample) noexcept nogil:
    """Count the bytes of the weights of one step: a chunk of co by a panel of columns, all parts."""
    return sample.parts * 2 * AMX_CELL


# Where the lines of grad_output's positions are: packed, or where they lie.
ctypedef struct AmxRows:
    const char *first    # of position 0, chunk 0
    int64_t row          # bytes from position to position,
    int64_t chunk        # from chunk to chunk of channels,
    int64_t part         # and from part to part


cdef AmxRows packed_rows(const SampleGeometry *sample, const char *block, int64_t positions) noexcept nogil:
    """Describe a packed block that has room for so many positions."""
    cdef AmxRows rows
    rows.first, rows.row, rows.part = block, AMX_LINE, positions * AMX_LINE
    rows.chunk = sample.parts * rows.part
    return rows


cdef bint find_pixels(const ConvRun *run, const Box *block, const char **first, int64_t *step) noexcept nogil:
    """Find channel 0 of the first of a block's pixels of grad_output, and the bytes from one to the next; return False
    unless they lie at even distances with their channels side by side, under one tap, without padding."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t size[3]
    cdef Box box
    if sample.taps > 1 or sample.folded > 1 or view.channel != itemsize_of(sample.dtype):
        return False
    output_size(sample, size)
    source_box(sample, block, 0, &box)
    return find_even_pixels(view, size, &box, first, step)


cdef bint find_rows(const ConvRun *run, const Box *block, int64_t channel, AmxRows *rows) noexcept nogil:
    """Find the lines of a block of grad_output, from that channel on, where they lie; return False unless they are as
    they would be packed: whole chunks of bfloat16 at even distances, under one tap, without padding."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    if sample.dtype != DTYPE_BF16 or sample.cout % AMX_STEPS or not find_pixels(run, block, &rows.first, &rows.row):
        return False
    rows.first += channel * view.channel
    rows.chunk, rows.part = AMX_LINE, 0
    return True


cdef void amx_pixel_steps(const SampleGeometry *sample, const AmxRows *rows, AmxBatchReduce *steps) noexcept nogil:
    """Set the strides of a product of positions with weights."""
    steps.depth, steps.parts = 1, sample.parts
    steps.a_row, steps.a_down, steps.a_step, steps.a_part = rows.row, AMX_HALF * rows.row, 0, rows.part
    steps.b_row, steps.b_right, steps.c_right, steps.b_part = AMX_HALF * 4, AMX_CELL, AMX_HALF * 4, 2 * AMX_CELL


# ---- grad_output, as [chunk of co][part][position]

cdef void zero_lines(const SampleGeometry *sample, char *to, int64_t positions, int64_t count) noexcept nogil:
    """Write zeros to some positions of all parts of a chunk."""
    cdef int64_t p
    for p in range(sample.parts if count else 0):
        memset(to + p * positions * AMX_LINE, 0, count * AMX_LINE)


cdef int pack_lines(const SampleGeometry *sample, const ConvView *view, const char *source, int64_t step,
                    int64_t count, int64_t channels, char *to, int64_t part, char *staging) noexcept nogil:
    """Pack pixels of one chunk that are `step` bytes apart. inf and NaN of float16 become tiny; return what was
    found (survey.pxi)."""
    cdef const PartKernels *parts = &kernels.parts[sample.dtype]
    cdef int64_t item = itemsize_of(sample.dtype), i = 0, n
    cdef int found = 0
    if step == item:
        return parts.of_pixels(source, view.channel, to, part, count, channels)
    if view.channel == item:
        return parts.of_lines(source, step, to, part, count, channels)
    while i < count:
        n = min(<int64_t>STAGE_PIXELS, count - i)
        gather(kernels.convert[sample.dtype][sample.dtype], source + i * step, step, view.channel, n, channels, staging,
               item)
        found |= parts.of_pixels(staging, STAGE_ROW * item, to + i * AMX_LINE, part, n, channels)
        i += STAGE_PIXELS
    return found


cdef int pack_amx_pixels(const ConvRun *run, const Box *block, int64_t behind, int64_t group, int64_t co,
                         int64_t channels, char *to, int64_t positions, char *staging) noexcept nogil:
    """Pack a block of grad_output for some co of a group, class after class of the taps that read it, with `behind`
    zeros behind it; positions: those that each part has room for. inf and NaN of float16 become tiny; return what
    was found (survey.pxi). staging: AMX_STEPS rows."""
    cdef int64_t number, chunk
    cdef Box box
    cdef int found = 0
    for number in range(block_classes(run.sample)):
        source_box(run.sample, block, number, &box)
        if run.sample.folded > 1:
            found |= pack_folded_box(run, &box, group, co, channels, to, positions, staging)
        else:
            found |= pack_amx_box(run, &box, group * run.sample.cout + co, channels, to, positions, staging)
        to += box_positions(block) * AMX_LINE
    for chunk in range(ceil_div(channels, AMX_STEPS)):
        zero_lines(run.sample, to + chunk * run.sample.parts * positions * AMX_LINE, positions, behind)
    return found


cdef int pack_folded_lines(const ConvRun *run, const FoldedRow *row, int64_t positions, int64_t co, int64_t channels,
                           char *to, int64_t part, char *staging) noexcept nogil:
    """Pack one row of a chunk of co that follow each other in memory."""
    cdef const PartKernels *parts = &kernels.parts[run.sample.dtype]
    cdef int64_t item = itemsize_of(run.sample.dtype), number, x
    cdef int found = 0
    if row.first == NULL:
        zero_lines(run.sample, to, part // AMX_LINE, positions)
        return 0
    if row.whole:
        found = parts.of_lines(row.first + (row.position + row.skip * row.step + co) * item, row.step * item,
                               to + row.skip * AMX_LINE, part, row.whole, channels)
    for number in range(positions - row.whole):
        x = number if number < row.skip else number + row.whole
        copy_folded(row, x, co, channels, item, staging)
        found |= parts.of_lines(staging, 0, to + x * AMX_LINE, part, 1, channels)
    return found


cdef int pack_folded_row(const ConvRun *run, const Box *box, int64_t n, int64_t z, int64_t y, int64_t group,
                         int64_t co, int64_t channels, char *to, int64_t part, char *staging) noexcept nogil:
    """Pack one row of a chunk of co, of which some are taps."""
    cdef int dtype = run.sample.dtype
    cdef int64_t item = itemsize_of(dtype), x = 0
    cdef Box piece = box[0]
    cdef FoldedRow line
    cdef int found = 0
    if folds_in_line(run.problem):
        line = folded_row(run.problem, box, n, z, y)
        return pack_folded_lines(run, &line, box.extent[2], co, channels, to, part, staging)
    while x < box.extent[2]:
        piece.first[2], piece.extent[2] = box.first[2] + x * box.step[2], min(<int64_t>STAGE_PIXELS, box.extent[2] - x)
        stage_folded_row(run.problem, &piece, n, z, y, group, co, channels, kernels.convert[dtype][dtype], item,
                         staging)
        found |= kernels.parts[dtype].of_pixels(staging, STAGE_ROW * item, to + x * AMX_LINE, part, piece.extent[2],
                                                channels)
        x += STAGE_PIXELS
    return found


cdef int pack_folded_box(const ConvRun *run, const Box *box, int64_t group, int64_t co, int64_t channels, char *to,
                         int64_t positions, char *staging) noexcept nogil:
    """Pack a box of grad_output, of which some co are taps, row by row."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t c = 0, row, planes = box.extent[0] * box.extent[1]
    cdef int found = 0
    while c < channels:
        for row in range(box.samples * planes):
            found |= pack_folded_row(
                run, box, row // planes, row % planes // box.extent[1], row % box.extent[1], group, co + c,
                min(<int64_t>AMX_STEPS, channels - c),
                to + (c // AMX_STEPS * sample.parts * positions + row * box.extent[2]) * AMX_LINE,
                positions * AMX_LINE, staging)
        c += AMX_STEPS
    return found


cdef int pack_amx_box(const ConvRun *run, const Box *block, int64_t channel, int64_t channels, char *to,
                      int64_t positions, char *staging) noexcept nogil:
    """Pack a box of grad_output, zeros where it leaves the image."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t size[3]
    cdef int64_t row_size, c = 0, many, n, d, z, h, width, after, step
    cdef RowsPart part
    cdef Box box = block[0]
    cdef const char *source
    cdef char *at
    cdef int found = 0
    output_size(sample, size)
    merge_rows(view, size, &box, &row_size)
    part = rows_part(view, size, row_size, &box)
    width, step = box.extent[2], box.step[2] * view.space[2]
    after = width - part.skip - part.inside
    while c < channels:
        many = min(<int64_t>AMX_STEPS, channels - c)
        at = to + c // AMX_STEPS * sample.parts * positions * AMX_LINE
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                source = view.data + (box.n + n) * view.n + (channel + c) * view.channel + z * view.space[0] + part.at
                for h in range(box.extent[1]):
                    if not part.top <= h < part.top + part.rows or not 0 <= z < size[0]:
                        zero_lines(sample, at, positions, width)
                    else:
                        zero_lines(sample, at, positions, part.skip)
                        found |= pack_lines(sample, view, source, step, part.inside, many,
                                            at + part.skip * AMX_LINE, positions * AMX_LINE, staging)
                        zero_lines(sample, at + (part.skip + part.inside) * AMX_LINE, positions, after)
                        source += box.step[1] * view.space[1]
                    at += width * AMX_LINE
        c += AMX_STEPS
    return found


cdef void prefetch_next_block(const ConvRun *run, const Tiling *tiling, const Halo *halo, int64_t number, int64_t group,
                              int64_t calls, Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch the grad_output under the tile of that number of the phases' grid, if there is one: in `calls`
    parts, or, where channels lie side by side, for ask_meanwhile."""
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t channels = min(run.order.channels, run.sample.cout), item = itemsize_of(run.sample.dtype)
    cdef int64_t grid[3]
    cdef int64_t size[3]
    cdef Box next
    no_prefetch(prefetch)
    phase_grid(run.sample, grid)
    output_size(run.sample, size)
    if run.sample.folded == 1 and nth_tile(tiling, run.problem.batch, grid, number, &next):
        block_under(&next, halo, &next)
        source_span(run.sample, &next, &next)
        if view.channel == item:
            plan_pixels(view, size, &next, group * run.sample.cout, channels * item, prefetch)
            prefetch.lines = 0
        else:
            plan_prefetch(run.problem, size, &next, group * run.sample.cout, channels, calls, prefetch)


# ---- weights, as steps of [part][half of the columns][pair of co][16 columns]

cdef bint put_weights(const ConvRun *run, const char *low, int64_t co_pitch, int64_t columns,
                      char *to) noexcept nogil:
    """Take the weights of AMX_STEPS co, co_pitch bytes apart, apart as AMX_HALF columns, zeros from `columns` on. inf
    and NaN become tiny; return whether there were any, or float32 numbers out of bounds."""
    cdef int dtype = run.sample.dtype
    cdef int64_t apart = co_pitch if run.sample.parts == 1 else PART_APART * co_pitch
    cdef int64_t next = 2 * co_pitch if run.sample.parts == 1 else co_pitch
    cdef int found = kernels.parts[dtype].of_planes(low, low + apart, next, to, 2 * AMX_CELL, AMX_HALF * 4,
                                                    AMX_STEPS // 2, 0, columns, AMX_HALF)
    if run.sample.parts == 1:
        return kernels.vnni.replace_nonfinite(to, AMX_CELL // 2)
    return found & UNFIT_FACTOR if dtype == DTYPE_F32 else found


# ---- products

# The products of one block of co, and what they are of.
ctypedef struct AmxPixelSteps:
    int64_t *a_offset     # of each step, in bytes
    int64_t *b_offset
    int64_t count
    AmxRows rows


cdef bint amx_block_is_large(const SampleGeometry *sample, const Tiling *tiling, int64_t chunks,
                             int64_t panels) noexcept nogil:
    """Say whether so many chunks of grad_output, packed, and the sums of so many panels are more than a thread has room
    for."""
    return block_positions(sample, tiling) * (chunks * sample.parts * AMX_LINE + panels * AMX_SUM_ROW) \
        > AMX_BLOCK_BYTES


cdef int64_t most_chain_steps(const SampleGeometry *sample) noexcept nogil:
    """Return how many steps are summed from zero at once, at most."""
    return AMX_CHAIN_STEPS if sample.parts == 1 else PART_CHAIN_STEPS


cdef int64_t chain_steps(const SampleGeometry *sample, int64_t count) noexcept nogil:
    """Return how many of so many steps are summed from zero at once."""
    return ceil_div(count, max(<int64_t>1, ceil_div(count, most_chain_steps(sample))))


cdef void multiply_amx_pixels(const SampleGeometry *sample, const AmxPixelSteps *all, int64_t positions,
                              const char *weights, int64_t columns, char *sums, bint adding, const char *then,
                              int64_t calls, Prefetch *prefetch) noexcept nogil:
    """Compute the sums of so many positions and columns, or (adding) add to them; some steps at a time are summed from
    zero. then: the weights that are multiplied afterwards, to be asked for; NULL where they stay in a cache. calls:
    products that share what is left to prefetch then."""
    cdef int64_t each = chain_steps(sample, all.count), s = 0
    cdef AmxBatchReduce steps
    amx_pixel_steps(sample, &all.rows, &steps)
    while s < all.count:
        steps.a_offset, steps.b_offset, steps.count = all.a_offset + s, all.b_offset + s, min(each, all.count - s)
        if then == NULL:
            ask_meanwhile(prefetch, calls, &steps.ahead)
        else:
            steps.ahead.at = weights + all.b_offset[s + each] if s + each < all.count else then
            steps.ahead.rows, steps.ahead.bytes = 1, each * amx_step_bytes(sample)
        prefetch_some(prefetch)
        kernels.amx.multiply(&steps, all.rows.first, positions, weights, columns, sums, AMX_SUM_ROW,
                             AMX_ADD_SUM if adding or s > 0 else AMX_SET)
        s += each
