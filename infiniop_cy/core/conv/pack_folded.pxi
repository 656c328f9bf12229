# Blocks of an image whose taps along the last axis count as channels (forward.pxi): a channel is one of the tensor's,
# read some pixels further on. Where its channels lie side by side, a position's are one line of memory.

cdef void stage_folded_row(const ConvProblem *problem, const Box *box, int64_t n, int64_t z, int64_t y, int64_t group,
                           int64_t co, int64_t channels, ConvertKernel load, int64_t item,
                           char *staging) noexcept nogil:
    """Stage one row of a box, of at most STAGE_PIXELS positions, for some co of which taps are some, as
    [co][STAGE_ROW], each between the zeros of its padding."""
    cdef const ConvView *view = &problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t size[3]
    cdef int64_t c, width = box.extent[2]
    cdef RowPart part
    cdef FoldedRun run
    cdef Box shifted = box[0]
    output_size(&problem.sample, size)
    for c in range(channels):
        folded_run(&problem.sample, group, co + c, 1, &run)
        shifted.first[2] = box.first[2] + run.shift
        part = row_part(view, size, size[2], &shifted, n, z, y)
        memset(staging, 0, part.skip * item)
        if part.inside:
            load(part.source + run.channel * view.channel, box.step[2] * view.space[2], staging + part.skip * item,
                 item, part.inside)
        memset(staging + (part.skip + part.inside) * item, 0, (width - part.skip - part.inside) * item)
        staging += STAGE_ROW * item


# A row of an image whose channels lie side by side, under taps that are channels, too: what a position meets are
# elements that follow each other.
ctypedef struct FoldedRow:
    const char *first          # of the row's elements; NULL: the row is padding
    int64_t elements
    int64_t position, step     # elements from the first one to those of the box's first position, and to the next one's
    int64_t skip, whole        # positions that meet padding, then those that meet none


cdef bint folds_in_line(const ConvProblem *problem) noexcept nogil:
    """Say whether the channels that stand for taps lie side by side, those of one tap after those of the other."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *view = &problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t item = itemsize_of(sample.dtype)
    return sample.folded > 1 and sample.fold_step == 1 and (view.channel == item or sample.cout == sample.folded) \
        and view.space[2] == sample.cout // sample.folded * item


cdef FoldedRow folded_row(const ConvProblem *problem, const Box *box, int64_t n, int64_t z, int64_t y) noexcept nogil:
    """Find one row of a box."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *view = &problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t channels = sample.cout // sample.folded, first = box.first[2], step = box.step[2]
    cdef int64_t size[3]
    cdef FoldedRow row
    output_size(sample, size)
    z, y = box.first[0] + z * box.step[0], box.first[1] + y * box.step[1]
    row.first = NULL
    row.elements, row.position, row.step = size[2] * channels, first * channels, step * channels
    row.skip = row.whole = 0
    if 0 <= z < size[0] and 0 <= y < size[1]:
        row.first = view.data + (box.n + n) * view.n + z * view.space[0] + y * view.space[1]
        row.skip = min(box.extent[2], max(<int64_t>0, ceil_div(-first, step)))
        row.whole = max(<int64_t>0, min(box.extent[2], floor_div(size[2] - sample.folded - first, step) + 1) - row.skip)
    return row


# ---- rows as lines

cdef int64_t folded_step(const SampleGeometry *sample) noexcept nogil:
    """Count the elements of a line from position to position, of which taps meet more."""
    return sample.source[2].step * (sample.cout // sample.folded)


cdef int64_t folded_tail(const SampleGeometry *sample) noexcept nogil:
    """Count the positions that a line goes on for after its last one, for what taps meet of that."""
    return ceil_div(sample.folded, sample.source[2].step) - 1


cdef bint packs_folded_lines(const ConvProblem *problem, const SumOrder *order, bint vnni) noexcept nogil:
    """Say whether rows are packed as they lie, channels side by side, so that positions share what they meet: a copy of
    each position's own would be several times as long. Pixels that lie side by side have all their channels in one
    panel then, since these are put side by side first."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef bint pixels = sample.fold_step == 1 and sample.cout <= order.channels \
        and problem.view[CONV_GRAD_OUTPUT].space[2] == itemsize_of(sample.dtype)
    return not vnni and sample.dtype == sample.compute and (folds_in_line(problem) or pixels) \
        and folded_step(sample) <= block_pitch(sample, order)


cdef void pack_rows_as_lines(const ConvProblem *problem, const Box *box, int64_t co, int64_t elements,
                             char *to) noexcept nogil:
    """Pack each row of a box as a line of so many elements: from what the first position meets as its channel co on,
    zeros where there is padding."""
    cdef int64_t item = problem.sample.item, channels = problem.sample.cout // problem.sample.folded, number, first, end
    cdef int64_t planes = box.extent[0] * box.extent[1]
    cdef bint side_by_side = folds_in_line(problem)
    cdef FoldedRow row
    for number in range(box.samples * planes):
        row = folded_row(problem, box, number // planes, number % planes // box.extent[1], number % box.extent[1])
        if row.first == NULL:
            memset(to, 0, elements * item)
        elif side_by_side:
            copy_folded(&row, 0, co, elements, item, to)
        else:
            first = min(elements, max(<int64_t>0, -row.position))
            end = max(first, min(elements, row.elements - row.position))
            memset(to, 0, first * item)
            kernels.transpose[problem.sample.dtype](
                row.first + (row.position + first) // channels * item, problem.view[CONV_GRAD_OUTPUT].channel,
                to + first * item, channels * item, (end - first) // channels, channels)
            memset(to + end * item, 0, (elements - end) * item)
        to += elements * item


# ---- positions one by one

cdef void copy_folded(const FoldedRow *row, int64_t position, int64_t co, int64_t count, int64_t item,
                      char *to) noexcept nogil:
    """Copy some co of one position, zeros where there is padding."""
    cdef int64_t from_element = row.position + position * row.step + co
    cdef int64_t skip = min(count, max(<int64_t>0, -from_element))
    cdef int64_t end = max(skip, min(count, row.elements - from_element))
    memset(to, 0, skip * item)
    if end > skip:
        memcpy(to + skip * item, row.first + (from_element + skip) * item, (end - skip) * item)
    memset(to + end * item, 0, (count - end) * item)


cdef void pack_folded_pixels(const ConvProblem *problem, const FoldedRow *row, int64_t positions, int64_t co,
                             int64_t count, char *to, int64_t pitch, bint vnni, char *stage) noexcept nogil:
    """Pack one row for some co as [position][pitch]. stage: room for one position."""
    cdef int64_t stored = itemsize_of(problem.sample.dtype), item = stored if vnni else problem.sample.item
    cdef int64_t to_step = pitch * item, x, number
    cdef const char *source
    if row.first == NULL:
        zero_pixels(to, pitch, positions, round_up(count, 2) if vnni else count, item)
        return
    source = row.first + ((row.position + row.skip * row.step + co) * stored if row.whole else 0)
    copy_lines(problem, source, row.step * stored, to + row.skip * to_step, to_step, row.whole, count, vnni)
    for number in range(positions - row.whole):
        x = number if number < row.skip else number + row.whole
        copy_folded(row, x, co, count, stored, stage)
        copy_lines(problem, stage, 0, to + x * to_step, 0, 1, count, vnni)


cdef void pack_folded_in_line(const ConvProblem *problem, const Box *box, int64_t co, int64_t count, char *to,
                              int64_t pitch, bint vnni, char *stage) noexcept nogil:
    """Pack a box of some co that lie side by side."""
    cdef int64_t item = 2 if vnni else problem.sample.item, planes = box.extent[0] * box.extent[1], number
    cdef FoldedRow row
    for number in range(box.samples * planes):
        row = folded_row(problem, box, number // planes, number % planes // box.extent[1], number % box.extent[1])
        pack_folded_pixels(problem, &row, box.extent[2], co, count, to + number * box.extent[2] * pitch * item, pitch,
                           vnni, stage)


cdef void zip_folded_row(const ConvProblem *problem, const Box *box, FoldedRow *row, char *to) noexcept nogil:
    """Put the channels of a row side by side, as far as some positions meet it."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *view = &problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t stored = itemsize_of(sample.dtype), channels = sample.cout // sample.folded
    cdef int64_t begin = max(<int64_t>0, box.first[2])
    cdef int64_t end = min(sample.axis[2].size_out, box.first[2] + (box.extent[2] - 1) * box.step[2] + sample.folded)
    if row.first == NULL or end <= begin:
        return
    kernels.transpose[sample.dtype](row.first + begin * stored, view.channel, to, channels * stored, end - begin,
                                    channels)
    row.first = to - begin * channels * stored


cdef void pack_folded_zipped(const ConvProblem *problem, const Box *box, int64_t co, int64_t count, char *to,
                             int64_t pitch, bint vnni, char *stage) noexcept nogil:
    """Pack a box, row by row, of pixels that lie side by side: their channels are put so first, once for all taps."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = 2 if vnni else sample.item, planes = box.extent[0] * box.extent[1], number, x = 0, most
    cdef int64_t room = staging_elements(sample) - sample.cout
    cdef Box piece = box[0]
    cdef FoldedRow row
    most = (room // (sample.cout // sample.folded) - sample.folded) // box.step[2] + 1
    while x < box.extent[2]:
        piece.first[2], piece.extent[2] = box.first[2] + x * box.step[2], min(most, box.extent[2] - x)
        for number in range(box.samples * planes):
            row = folded_row(problem, &piece, number // planes, number % planes // box.extent[1],
                             number % box.extent[1])
            zip_folded_row(problem, &piece, &row, stage)
            pack_folded_pixels(problem, &row, piece.extent[2], co, count,
                               to + (number * box.extent[2] + x) * pitch * item, pitch, vnni,
                               stage + room * itemsize_of(sample.dtype))
        x += most


cdef bint folds_zipped(const ConvProblem *problem, const Box *box) noexcept nogil:
    """Say whether a row's pixels lie side by side, and what at least one position meets has room in a stage."""
    cdef const SampleGeometry *sample = &problem.sample
    return sample.fold_step == 1 and problem.view[CONV_GRAD_OUTPUT].space[2] == itemsize_of(sample.dtype) \
        and 2 * sample.cout + box.step[2] * (sample.cout // sample.folded) <= staging_elements(sample)


cdef void pack_folded_channels(const ConvProblem *problem, const Box *box, int64_t group, int64_t co, int64_t count,
                               char *to, int64_t pitch, bint vnni, char *stage, int64_t *place) noexcept nogil:
    """Pack a box of grad_output for some co of a group as pack_channels does; where taps are folded, row by row."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef ConvertKernel load = kernels.convert[DTYPE_BF16][DTYPE_BF16] if vnni else problem.load
    cdef TransposeToKernel transpose_to = kernels.vnni.of_channels if vnni else kernels.transpose_to[sample.compute]
    cdef int64_t item = 2 if vnni else sample.item, lanes = sample.lanes * (2 if vnni else 1)
    cdef int64_t size[3]
    cdef int64_t x = 0, c, many, row, i, planes = box.extent[0] * box.extent[1]
    cdef Box piece = box[0]
    output_size(sample, size)
    if sample.folded == 1:
        pack_channels(problem, &problem.view[CONV_GRAD_OUTPUT], size, box, group * sample.cout + co, count, to, pitch,
                      vnni, stage, place)
        return
    if folds_in_line(problem):
        pack_folded_in_line(problem, box, co, count, to, pitch, vnni, stage)
        return
    if folds_zipped(problem, box):
        pack_folded_zipped(problem, box, co, count, to, pitch, vnni, stage)
        return
    for i in range(min(<int64_t>STAGE_PIXELS, box.extent[2])):
        place[i] = i * pitch * item
    while x < box.extent[2]:
        piece.first[2], piece.extent[2] = box.first[2] + x * box.step[2], min(<int64_t>STAGE_PIXELS, box.extent[2] - x)
        for row in range(box.samples * planes):
            c = 0
            while c < count:
                many = min(lanes, count - c)
                stage_folded_row(problem, &piece, row // planes, row % planes // box.extent[1], row % box.extent[1],
                                 group, co + c, many, load, item, stage)
                transpose_to(stage, STAGE_ROW * item, to + ((row * box.extent[2] + x) * pitch + c) * item, place,
                             piece.extent[2], many)
                c += lanes
        x += STAGE_PIXELS


cdef void pack_folded_planes(const ConvProblem *problem, const Box *box, int64_t group, int64_t co, int64_t count,
                             char *to, int64_t plane) noexcept nogil:
    """Pack a box of grad_output for some co of a group as pack_planes does, tap after tap where these are folded."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t done = 0
    cdef int64_t size[3]
    cdef FoldedRun run
    cdef Box shifted
    output_size(sample, size)
    while done < count:
        folded_run(sample, group, co + done, count - done, &run)
        shifted = box[0]
        shifted.first[2] += run.shift
        pack_planes(sample.dtype, sample.compute, &problem.view[CONV_GRAD_OUTPUT], size, &shifted, run.channel,
                    run.channels, to + done * plane * sample.item, plane)
        done += run.channels
