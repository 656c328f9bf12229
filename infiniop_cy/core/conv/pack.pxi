# Blocks for the micro-kernels, packed straight from strided tensors. A block is a box of positions, zeros where they
# lie outside of the tensor: either plane by plane, or with the channels side by side; VNNI packing puts pairs of
# bfloat16 side by side. Staging buffers hold a few rows between conversion and transposition.
cdef enum:
    STAGE_PIXELS = 256            # elements of a row of a staging buffer
    STAGE_ROW = 256 + 16          # elements from row to row: powers of two share cache sets
    MAX_MICRO_PANEL = 64          # columns
    VNNI_CHANNELS = 16            # channels that of_pixels takes at a time
    SHORT_ROW = 256               # bytes, which zeros and then pixels are written to in less time than to ends apart


cdef int64_t odd_lines(int64_t elements) noexcept nogil:
    """Return at least so many elements (of 4 bytes) that make an odd number of cache lines: powers of two share cache
    sets."""
    return round_up(elements, 2 * CONV_ALIGN_ELEMENTS) + CONV_ALIGN_ELEMENTS


cdef int64_t staging_elements(const SampleGeometry *sample) noexcept nogil:
    """Return how many elements of the compute type a staging buffer takes."""
    return sample.lanes * STAGE_ROW


cdef void merge_rows(const ConvView *view, const int64_t *size, Box *box, int64_t *row_size) noexcept nogil:
    """Make whole rows that follow each other in memory one row; row_size: the length of the tensor's rows then."""
    row_size[0] = size[2]
    if box.first[2] == 0 and box.extent[2] == size[2] and box.step[2] == 1 and box.step[1] == 1 and box.first[1] >= 0 \
            and box.first[1] + box.extent[1] <= size[1] and view.space[1] == size[2] * view.space[2]:
        box.first[2] = box.first[1] * size[2]
        box.extent[2] *= box.extent[1]
        row_size[0] = size[1] * size[2]
        box.first[1], box.extent[1] = 0, 1


cdef void drop_single_axes(const ConvView *view, const int64_t *size, Box *box, ConvView *left,
                           int64_t *left_size) noexcept nogil:
    """See a box that is one pixel wide, or one row high, as one of rows that lie along the axes before: many pixels of
    a row, and many rows of a plane, are packed at a time."""
    cdef int d, e, dropped
    left[0] = view[0]
    for d in range(3):
        left_size[d] = size[d]
    for d in range(2, 0, -1):
        for dropped in range(d):
            if box.extent[d] != 1 or not 0 <= box.first[d] < left_size[d]:
                break
            left.data += box.first[d] * left.space[d]
            for e in range(d, 0, -1):
                box.first[e], box.extent[e], box.step[e] = box.first[e - 1], box.extent[e - 1], box.step[e - 1]
                left.space[e], left_size[e] = left.space[e - 1], left_size[e - 1]
            box.first[0], box.extent[0], box.step[0] = 0, 1, 1
            left_size[0] = 1


# The part of one row of a box that lies in the tensor.
ctypedef struct RowPart:
    int64_t skip, inside
    char *source


cdef RowPart row_part(const ConvView *view, const int64_t *size, int64_t row_size, const Box *box, int64_t n, int64_t d,
                      int64_t h) noexcept nogil:
    """Find what of row h of the box's plane d lies in the tensor."""
    cdef RowPart part
    cdef int64_t z = box.first[0] + d * box.step[0], y = box.first[1] + h * box.step[1], x = box.first[2]
    cdef int64_t step = box.step[2]
    cdef int64_t end
    part.skip = part.inside = 0
    part.source = NULL
    if z < 0 or z >= size[0] or y < 0 or y >= size[1]:
        return part
    part.skip = min(box.extent[2], ceil_div(-x, step)) if x < 0 else 0
    end = min(box.extent[2], (row_size - 1 - x) // step + 1) if x < row_size else 0
    part.inside = max(<int64_t>0, end - part.skip)
    if part.inside:
        part.source = view.data + (box.n + n) * view.n + z * view.space[0] + y * view.space[1] \
            + (x + part.skip * step) * view.space[2]
    return part


# The rows of a box that lie in the tensor, in any of its planes: [top, top + rows), each as RowPart says.
ctypedef struct RowsPart:
    int64_t top, rows, skip, inside
    int64_t at         # bytes from the plane's start to the first of these rows


cdef RowsPart rows_part(const ConvView *view, const int64_t *size, int64_t row_size, const Box *box) noexcept nogil:
    """Find the rows, and the stretch of each, that lie in the tensor, whatever the plane."""
    cdef RowsPart part
    cdef int64_t y = box.first[1], x = box.first[2], step = box.step[2]
    part.top = min(box.extent[1], ceil_div(-y, box.step[1])) if y < 0 else 0
    part.rows = max(<int64_t>0, min(box.extent[1], (size[1] - 1 - y) // box.step[1] + 1 if y < size[1] else 0)
                    - part.top)
    part.skip = min(box.extent[2], ceil_div(-x, step)) if x < 0 else 0
    part.inside = max(<int64_t>0, min(box.extent[2], (row_size - 1 - x) // step + 1 if x < row_size else 0) - part.skip)
    if not part.inside:
        part.rows = 0
    part.at = (y + part.top * box.step[1]) * view.space[1] + (x + part.skip * step) * view.space[2]
    return part


cdef void zero_planes(char *to, int64_t plane, int64_t planes, int64_t size) noexcept nogil:
    """Write `size` bytes of zeros to each plane."""
    cdef int64_t c
    for c in range(planes if size else 0):
        memset(to + c * plane, 0, size)


cdef void transpose_planes(TransposeKernel transpose, const ConvView *view, const int64_t *size, const Box *box,
                           const RowsPart *part, int64_t channel, int64_t channels, int64_t planes, char *to,
                           int64_t plane, int64_t item) noexcept nogil:
    """Pack so many planes, `plane` bytes apart, as elements of `item` bytes, of channels or pairs of channels that lie
    side by side, by transposing rows. Short rows begin as zeros, all at once."""
    cdef int64_t n, d, h, z, width = box.extent[2] * item, end = (part.skip + part.inside) * item
    cdef bint short_rows = width <= SHORT_ROW
    cdef const char *source
    for n in range(box.samples):
        for d in range(box.extent[0]):
            z = box.first[0] + d * box.step[0]
            if part.rows == 0 or not 0 <= z < size[0]:
                zero_planes(to, plane, planes, box.extent[1] * width)
                to += box.extent[1] * width
                continue
            source = view.data + (box.n + n) * view.n + channel * view.channel + z * view.space[0] + part.at
            if short_rows and part.inside < box.extent[2]:
                zero_planes(to, plane, planes, box.extent[1] * width)
            else:
                zero_planes(to, plane, planes, part.top * width)
                zero_planes(to + (part.top + part.rows) * width, plane, planes,
                            (box.extent[1] - part.top - part.rows) * width)
            to += part.top * width
            for h in range(part.rows):
                if not short_rows:
                    zero_planes(to, plane, planes, part.skip * item)
                    zero_planes(to + end, plane, planes, width - end)
                transpose(source + h * box.step[1] * view.space[1], box.step[2] * view.space[2],
                          to + part.skip * item, plane, channels, part.inside)
                to += width
            to += (box.extent[1] - part.top - part.rows) * width


cdef void pack_planes(int from_dtype, int to_dtype, const ConvView *tensor, const int64_t *size, const Box *whole,
                      int64_t channel, int64_t channels, char *to, int64_t plane) noexcept nogil:
    """Pack a box as [channel][position] of to_dtype, the storage or the compute type, channels `plane` elements
    apart."""
    cdef ConvView left
    cdef const ConvView *view = &left
    cdef int64_t left_size[3]
    cdef Box box = whole[0]
    cdef ConvertKernel load = kernels.convert[from_dtype][to_dtype]
    cdef PadKernel pad
    cdef int64_t row_size, c, n, d, h, z, item = itemsize_of(to_dtype), step, width, next, below
    cdef RowsPart part
    cdef char *first = to
    cdef char *source
    drop_single_axes(tensor, size, &box, &left, left_size)
    size = left_size
    merge_rows(view, size, &box, &row_size)
    step, next, width = box.step[2] * view.space[2], box.step[1] * view.space[1], box.extent[2] * item
    part = rows_part(view, size, row_size, &box)
    below = box.extent[1] - part.top - part.rows
    if view.channel == itemsize_of(from_dtype) and step != view.channel and channels > 1:
        transpose_planes(kernels.transpose[from_dtype] if from_dtype == to_dtype else
                         kernels.widen_transpose[from_dtype], view, size, &box, &part, channel, channels, channels, to,
                         plane * item, item)
        return
    for c in range(channels):
        to = first + c * plane * item
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                if part.rows == 0 or z < 0 or z >= size[0]:
                    memset(to, 0, box.extent[1] * width)
                    to += box.extent[1] * width
                    continue
                source = view.data + (box.n + n) * view.n + (channel + c) * view.channel + z * view.space[0] + part.at
                memset(to, 0, part.top * width)
                to += part.top * width
                if from_dtype == to_dtype and (step == item or (step == 8 and item == 4)):
                    pad = kernels.pad_rows if step == item else kernels.pad_every_other
                    pad(source, next, to, width, part.rows, part.skip * item, part.inside * item, width)
                    to += part.rows * width
                else:
                    for h in range(part.rows):
                        memset(to, 0, part.skip * item)
                        load(source + h * next, step, to + part.skip * item, item, part.inside)
                        memset(to + (part.skip + part.inside) * item, 0, width - (part.skip + part.inside) * item)
                        to += width
                memset(to, 0, below * width)
                to += below * width


cdef void pack_vnni_planes(const ConvView *tensor, const int64_t *size, const Box *whole, int64_t channel,
                           int64_t channels, char *to, int64_t plane, char *stage) noexcept nogil:
    """Pack a box of bfloat16 as [pair of channels][position], pairs of channels `plane` pairs apart, the earlier
    channel in the upper half."""
    cdef ConvView left
    cdef const ConvView *view = &left
    cdef int64_t left_size[3]
    cdef Box box = whole[0]
    cdef int64_t row_size, c, n, d, h, z, i, count, step, next, width, below
    cdef RowsPart part
    cdef char *at
    cdef char *pair[2]
    drop_single_axes(tensor, size, &box, &left, left_size)
    size = left_size
    merge_rows(view, size, &box, &row_size)
    step, next, width = box.step[2] * view.space[2], box.step[1] * view.space[1], box.extent[2] * 4
    part = rows_part(view, size, row_size, &box)
    below = box.extent[1] - part.top - part.rows
    if view.channel == 2 and step != view.channel and channels > 1:
        transpose_planes(kernels.vnni.transpose, view, size, &box, &part, channel, channels, ceil_div(channels, 2), to,
                         plane * 4, 4)
        return
    c = 0
    while c < channels:
        at = to + c // 2 * plane * 4
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                if part.rows == 0 or z < 0 or z >= size[0]:
                    memset(at, 0, box.extent[1] * width)
                    at += box.extent[1] * width
                    continue
                pair[1] = view.data + (box.n + n) * view.n + (channel + c) * view.channel \
                    + z * view.space[0] + part.at
                pair[0] = pair[1] + view.channel if c + 1 < channels else NULL
                memset(at, 0, part.top * width)
                at += part.top * width
                if step == 2:
                    kernels.vnni.of_planes(pair[0], pair[1], next, at, width, part.rows, part.skip, part.inside,
                                           box.extent[2])
                    at += part.rows * width
                else:
                    for h in range(part.rows):
                        memset(at, 0, part.skip * 4)
                        i = 0
                        while i < part.inside:
                            count = min(<int64_t>STAGE_PIXELS, part.inside - i)
                            stage_pair(pair, h * next + i * step, step, count, stage)
                            kernels.vnni.of_planes(stage, stage + STAGE_PIXELS * 2, 0, at + (part.skip + i) * 4, 0, 1,
                                                   0, count, count)
                            i += count
                        memset(at + (part.skip + part.inside) * 4, 0, width - (part.skip + part.inside) * 4)
                        at += width
                memset(at, 0, below * width)
                at += below * width
        c += 2


cdef void stage_pair(char **pair, int64_t at, int64_t step, int64_t count, char *stage) noexcept nogil:
    """Copy `count` pixels of two channels to rows of STAGE_PIXELS bfloat16; a channel that is NULL gives zeros."""
    cdef int i
    for i in range(2):
        if pair[i] != NULL:
            kernels.convert[DTYPE_BF16][DTYPE_BF16](pair[i] + at, step, stage + i * STAGE_PIXELS * 2, 2, count)
        else:
            memset(stage + i * STAGE_PIXELS * 2, 0, count * 2)


cdef void gather(ConvertKernel load, const char *source, int64_t step, int64_t channel, int64_t count, int64_t channels,
                 char *stage, int64_t item) noexcept nogil:
    """Load `count` pixels `step` bytes apart of `channels` channels `channel` bytes apart, as [channel][STAGE_ROW]."""
    cdef int64_t i
    for i in range(channels):
        load(source + i * channel, step, stage + i * STAGE_ROW * item, item, count)


cdef bint is_even(const int64_t *place, int64_t count) noexcept nogil:
    """Say whether increasing places, of which rows begin at even distances, all lie at even distances."""
    return count < 2 or place[count - 1] - place[0] == (count - 1) * (place[1] - place[0])


cdef void copy_lines(const ConvProblem *problem, const char *source, int64_t step, char *to, int64_t to_step,
                     int64_t count, int64_t channels, bint vnni) noexcept nogil:
    """Copy the channels, which lie side by side, of some pixels: (vnni) by pairs, as they are, or widened."""
    cdef int64_t item = problem.sample.item, i
    if vnni:
        kernels.vnni.of_lines(source, step, to, to_step, count, channels)
    elif problem.sample.dtype == problem.sample.compute:
        kernels.pad_rows(source, step, to, to_step, count, 0, channels * item, channels * item)
    else:
        for i in range(count):
            problem.load(source + i * step, itemsize_of(problem.sample.dtype), to + i * to_step, item, channels)


cdef void zip_lines(const char *source, int64_t step, int64_t count, int64_t channels, char *to,
                    int64_t row) noexcept nogil:
    """Pair lines of bfloat16 that are `step` bytes apart, element by element, the earlier in the upper half; after an
    odd one comes a line of zeros. row: bytes from pair to pair."""
    kernels.vnni.of_planes(source + step, source, 2 * step, to, row, count // 2, 0, channels, channels)
    if count % 2:
        kernels.vnni.of_planes(NULL, source + (count - 1) * step, 0, to + count // 2 * row, 0, 1, 0, channels, channels)


# Pixels of one channel that lie in rows: `width` of them `step` bytes apart in each.
ctypedef struct PixelRows:
    const char *source
    int64_t step, width
    int64_t next, rows     # bytes from row to row


cdef bint lies_in_stage(const ConvProblem *problem, int64_t step, int64_t channel, bint vnni) noexcept nogil:
    """Say whether pixels `step` and channels `channel` bytes apart are staged before they are transposed: neither lie
    side by side, or they are widened."""
    cdef int64_t stored = itemsize_of(problem.sample.dtype)
    return channel != stored and (step != stored or not (vnni or problem.sample.dtype == problem.sample.compute))


cdef void transpose_staged(const ConvProblem *problem, const PixelRows *all_rows, int64_t channel, int64_t channels,
                           char *to, const int64_t *place, bint vnni, char *stage) noexcept nogil:
    """Put pixels side by side as transpose_pixels does, by way of a stage that holds as many rows as fit, channel by
    channel: so memory is read in its order."""
    cdef ConvertKernel load = kernels.convert[DTYPE_BF16][DTYPE_BF16] if vnni else problem.load
    cdef PadKernel every_other = NULL  # rows at a time
    cdef TransposeToKernel transpose_to = kernels.vnni.of_channels if vnni \
        else kernels.transpose_to[problem.sample.compute]
    cdef int64_t item = 2 if vnni else problem.sample.item, lanes = problem.sample.lanes * (2 if vnni else 1)
    cdef int64_t x = 0, y, width, rows, c, many, i, r
    cdef const char *source
    if all_rows.step == 2 * item and (vnni or (problem.sample.dtype == problem.sample.compute and item == 4)):
        every_other = kernels.vnni.pad_every_other if vnni else kernels.pad_every_other
    while x < all_rows.width:
        width, y = min(<int64_t>STAGE_PIXELS, all_rows.width - x), 0
        while y < all_rows.rows:
            rows, c = 1, 0
            if width == all_rows.width:
                rows = min(STAGE_PIXELS // width, all_rows.rows - y)
            while c < channels:
                many = min(lanes, channels - c)
                for i in range(many):
                    source = all_rows.source + (c + i) * channel + y * all_rows.next + x * all_rows.step
                    if every_other != NULL:
                        every_other(source, all_rows.next, stage + i * STAGE_ROW * item, width * item, rows, 0,
                                    width * item, width * item)
                        continue
                    for r in range(rows):
                        load(source + r * all_rows.next, all_rows.step, stage + (i * STAGE_ROW + r * width) * item,
                             item, width)
                transpose_to(stage, STAGE_ROW * item, to + c * item, place + y * all_rows.width + x, rows * width,
                             many)
                c += lanes
            y += rows
        x += width


cdef void transpose_pixels(const ConvProblem *problem, const PixelRows *rows, int64_t channel, int64_t channels,
                           char *to, const int64_t *place, bint vnni, char *stage) noexcept nogil:
    """Put `channels` channels `channel` bytes apart of some pixels side by side at to + place[pixel]; in the compute
    type, or (vnni) in the storage type by pairs of channels. Rows follow each other, or are staged."""
    cdef int64_t count = rows.rows * rows.width, first = 0, n
    if lies_in_stage(problem, rows.step, channel, vnni):
        transpose_staged(problem, rows, channel, channels, to, place, vnni, stage)
    elif channel != itemsize_of(problem.sample.dtype):
        (kernels.vnni.of_channels if vnni else kernels.transpose_to[problem.sample.compute])(
            rows.source, channel, to, place, count, channels)
    else:
        n = count if is_even(place, count) else 1  # pixels at a time
        while first < count:
            copy_lines(problem, rows.source + first * rows.step, rows.step, to + place[first],
                       place[1] - place[0] if n > 1 else 0, n, channels, vnni)
            first += n


cdef void zero_pixels(char *to, int64_t pitch, int64_t count, int64_t channels, int64_t item) noexcept nogil:
    """Write zeros to `channels` elements of each of `count` positions, `pitch` elements apart."""
    cdef int64_t i
    if pitch == channels:
        memset(to, 0, count * channels * item)
        return
    for i in range(count):
        memset(to + i * pitch * item, 0, channels * item)


cdef void pack_channels(const ConvProblem *problem, const ConvView *tensor, const int64_t *size, const Box *whole,
                        int64_t channel, int64_t channels, char *to, int64_t pitch, bint vnni, char *stage,
                        int64_t *place) noexcept nogil:
    """Pack a box as [position][pitch], the channels side by side; some channels after the other, so that memory is read
    in lines. vnni: in the storage type, by pairs. place: room for the positions of one sample."""
    cdef int64_t n, d, h, x, item = 2 if vnni else problem.sample.item
    cdef int64_t count = channels, first = 0
    cdef int64_t width, rows, at_once = 1, part_rows, y
    cdef ConvView view
    cdef int64_t left_size[3]
    cdef Box box = whole[0]
    cdef RowPart part
    cdef PixelRows pixels
    cdef char *at
    drop_single_axes(tensor, size, &box, &view, left_size)
    size, rows = left_size, box.extent[1]
    pixels.step, pixels.next = box.step[2] * view.space[2], box.step[1] * view.space[1]
    if view.channel != itemsize_of(problem.sample.dtype):
        count = problem.sample.lanes * (2 if vnni else 1)
    if lies_in_stage(problem, pixels.step, view.channel, vnni) or (
            box.step[1] == 1 and box.step[2] == 1 and box.first[2] <= 0 and box.first[2] + box.extent[2] >= size[2]
            and view.space[1] == size[2] * view.space[2]):
        at_once = rows  # staged, or whole rows that follow each other
    while first < channels:
        count = min(count, channels - first)
        width = round_up(count, 2) if vnni else count
        at = to + first * item
        for n in range(box.samples):
            for d in range(box.extent[0]):
                h = 0
                while h < rows:
                    part = row_part(&view, size, size[2], &box, n, d, h)
                    part_rows = 1
                    while part.inside and part_rows < at_once - h \
                            and box.first[1] + (h + part_rows) * box.step[1] < size[1]:
                        part_rows += 1
                    for y in range(h, h + part_rows):
                        zero_pixels(at + y * box.extent[2] * pitch * item, pitch, part.skip, width, item)
                        zero_pixels(at + (y * box.extent[2] + part.skip + part.inside) * pitch * item, pitch,
                                    box.extent[2] - part.skip - part.inside, width, item)
                    if part.inside:
                        if first == 0:
                            for y in range(h, h + part_rows):
                                for x in range(part.inside):
                                    place[y * part.inside + x] = (y * box.extent[2] + part.skip + x) * pitch * item
                        pixels.source = part.source + (channel + first) * view.channel
                        pixels.rows, pixels.width = part_rows, part.inside
                        transpose_pixels(problem, &pixels, view.channel, count, at, place + h * part.inside, vnni,
                                         stage)
                    h += part_rows
                at += rows * box.extent[2] * pitch * item
        first += count
