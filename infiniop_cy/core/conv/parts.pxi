# float32 and float16 as sums of bfloat16, packed for AMX: each part as a block of its own, of planes or of pairs of
# planes.
cdef enum:
    PART_CHANNELS = 16    # that are staged together


# Where the parts of a packed block lie. Channels go one by one, 2 bytes for a position, or by pairs, 4 bytes.
ctypedef struct PartLayout:
    int64_t channels    # side by side: 1 or 2
    int64_t pitch       # bytes from (pair of) channel to (pair of) channel
    int64_t part        # bytes from part to part


cdef bint put_parts(int dtype, const PartLayout *layout, const char *low, const char *high, int64_t from_row, char *to,
                    int64_t rows, int64_t before, int64_t count, int64_t width) noexcept nogil:
    """Take rows of a channel, or of a pair of them, apart; return whether there were inf or NaN."""
    if layout.channels == 2:
        return kernels.parts[dtype].of_planes(low, high, from_row, to, layout.part, width * 4, rows, before, count,
                                              width)
    return kernels.parts[dtype].of_rows(low, from_row, to, layout.part, width * 2, rows, before, count, width)


cdef void zero_parts(int dtype, const PartLayout *layout, char *to, int64_t channels, int64_t positions) noexcept nogil:
    """Write zeros to some positions of all parts of some channels."""
    cdef int64_t unit, p
    for unit in range(ceil_div(channels, layout.channels) if positions else 0):
        for p in range(kernels.parts[dtype].parts):
            memset(to + unit * layout.pitch + p * layout.part, 0, positions * layout.channels * 2)


cdef bint stage_parts(int dtype, const PartLayout *layout, const ConvView *view, const char *source, int64_t step,
                      int64_t pixels, int64_t channels, char *to, char *stage) noexcept nogil:
    """Take pixels of some channels apart that do not lie side by side; return whether there were inf or NaN. stage:
    PART_CHANNELS rows."""
    cdef int64_t item = itemsize_of(dtype), i = 0, c, count, row = STAGE_ROW * item
    cdef bint nonfinite = False
    while i < pixels:
        count = min(<int64_t>STAGE_PIXELS, pixels - i)
        if view.channel == item:
            kernels.transpose[dtype](source + i * step, step, stage, row, channels, count)
        else:
            gather(kernels.convert[dtype][dtype], source + i * step, step, view.channel, count, channels, stage, item)
        c = 0
        while c < channels:
            nonfinite |= put_parts(dtype, layout, stage + c * row, stage + (c + 1) * row if c + 1 < channels else NULL,
                                   0, to + c // layout.channels * layout.pitch + i * layout.channels * 2, 1, 0, count,
                                   count)
            c += layout.channels
        i += STAGE_PIXELS
    return nonfinite


cdef bint pack_part_rows(int dtype, const PartLayout *layout, const ConvView *view, const char *source, int64_t step,
                         int64_t next, const RowsPart *part, int64_t channels, int64_t width, char *to,
                         char *stage) noexcept nogil:
    """Pack the rows of one plane that lie in the tensor, between zeros; return whether there were inf or NaN."""
    cdef int64_t h, position = layout.channels * 2, after = width - part.skip - part.inside
    cdef bint nonfinite = False
    if step == itemsize_of(dtype):  # then there is one unit of channels
        return put_parts(dtype, layout, source, source + view.channel if channels > 1 else NULL, next, to, part.rows,
                         part.skip, part.inside, width)
    for h in range(part.rows):
        zero_parts(dtype, layout, to, channels, part.skip)
        nonfinite |= stage_parts(dtype, layout, view, source, step, part.inside, channels, to + part.skip * position,
                                 stage)
        zero_parts(dtype, layout, to + (part.skip + part.inside) * position, channels, after)
        source += next
        to += width * position
    return nonfinite


cdef bint pack_parts(int dtype, const PartLayout *layout, const ConvView *view, const int64_t *size, const Box *whole,
                     int64_t channel, int64_t channels, char *to, char *stage) noexcept nogil:
    """Pack a box of float32 or float16 as parts of [channel][position], or of [pair of channels][position]. inf and NaN
    of float16 become tiny; return whether there were any."""
    cdef Box box = whole[0]
    cdef int64_t row_size, c = 0, n, d, z, many, step, next, width, plane, below
    cdef RowsPart part
    cdef char *at
    cdef bint nonfinite = False
    merge_rows(view, size, &box, &row_size)
    step, next, width = box.step[2] * view.space[2], box.step[1] * view.space[1], box.extent[2]
    part = rows_part(view, size, row_size, &box)
    below = box.extent[1] - part.top - part.rows
    plane = box.extent[1] * width
    while c < channels:
        many = min(layout.channels if step == itemsize_of(dtype) else <int64_t>PART_CHANNELS, channels - c)
        at = to + c // layout.channels * layout.pitch
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                if part.rows == 0 or z < 0 or z >= size[0]:
                    zero_parts(dtype, layout, at, many, plane)
                else:
                    zero_parts(dtype, layout, at, many, part.top * width)
                    nonfinite |= pack_part_rows(
                        dtype, layout, view, view.data + (box.n + n) * view.n + (channel + c) * view.channel
                        + z * view.space[0] + part.at, step, next, &part, many, width,
                        at + part.top * width * layout.channels * 2, stage)
                    zero_parts(dtype, layout, at + (part.top + part.rows) * width * layout.channels * 2, many,
                               below * width)
                at += plane * layout.channels * 2
        c += many
    return nonfinite
