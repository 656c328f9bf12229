# float32 and float16 as sums of bfloat16, packed for AMX: each part as planes of its own.
cdef enum:
    PART_CHANNELS = 16    # that are staged together


# Where the parts of a packed block lie: bytes from channel to channel, and from part to part.
ctypedef struct PartLayout:
    int64_t pitch, part


cdef void zero_parts(int dtype, const PartLayout *layout, char *to, int64_t channels, int64_t positions) noexcept nogil:
    """Write zeros to some positions of all parts of some channels."""
    cdef int64_t c, p
    for c in range(channels if positions else 0):
        for p in range(kernels.parts[dtype].parts):
            memset(to + c * layout.pitch + p * layout.part, 0, positions * 2)


cdef void stage_pixels(int dtype, const ConvView *view, const char *source, int64_t step, int64_t count,
                       int64_t channels, char *stage) noexcept nogil:
    """Copy at most STAGE_PIXELS pixels that do not lie side by side as [channel][STAGE_ROW]."""
    cdef int64_t item = itemsize_of(dtype)
    if view.channel == item:
        kernels.transpose[dtype](source, step, stage, STAGE_ROW * item, channels, count)
    else:
        gather(kernels.convert[dtype][dtype], source, step, view.channel, count, channels, stage, item)


cdef int pack_part_rows(int dtype, const PartLayout *layout, const ConvView *view, const char *source, int64_t step,
                        int64_t next, const RowsPart *part, int64_t channels, int64_t width, char *to,
                        char *stage) noexcept nogil:
    """Pack the rows of one plane that lie in the tensor, between zeros; return what was found (survey.pxi). stage:
    PART_CHANNELS rows."""
    cdef const PartKernels *parts = &kernels.parts[dtype]
    cdef int64_t row = STAGE_ROW * itemsize_of(dtype), h, at, count, skip
    cdef int found = 0
    if step == itemsize_of(dtype):  # then there is one channel
        return parts.of_rows(source, next, to, layout.part, width * 2, AMX_LINE, part.rows, part.skip, part.inside,
                             width)
    for h in range(part.rows):
        at = 0
        while at < part.inside:  # the first piece takes the zeros before it, the last one those behind it
            count, skip = min(<int64_t>STAGE_PIXELS, part.inside - at), 0 if at else part.skip
            stage_pixels(dtype, view, source + at * step, step, count, channels, stage)
            found |= parts.of_rows(stage, row, to + (part.skip + at - skip) * 2, layout.part, layout.pitch,
                                   AMX_LINE, channels, skip, count,
                                   skip + count if at + count < part.inside else width - part.skip - at + skip)
            at += count
        source += next
        to += width * 2
    return found


cdef int pack_parts(int dtype, const PartLayout *layout, const ConvView *view, const int64_t *size, const Box *whole,
                    int64_t channel, int64_t channels, char *to, char *stage) noexcept nogil:
    """Pack a box of float32 or float16 as parts of [channel][position]. return what was
    found (survey.pxi)."""
    cdef Box box = whole[0]
    cdef int64_t row_size, c = 0, n, d, z, many, step, next, width, plane, below
    cdef RowsPart part
    cdef char *at
    cdef int found = 0
    merge_rows(view, size, &box, &row_size)
    step, next, width = box.step[2] * view.space[2], box.step[1] * view.space[1], box.extent[2]
    part = rows_part(view, size, row_size, &box)
    below = box.extent[1] - part.top - part.rows
    plane = box.extent[1] * width
    while c < channels:
        many = min(<int64_t>1 if step == itemsize_of(dtype) else <int64_t>PART_CHANNELS, channels - c)
        at = to + c * layout.pitch
        for n in range(box.samples):
            for d in range(box.extent[0]):
                z = box.first[0] + d * box.step[0]
                if part.rows == 0 or z < 0 or z >= size[0]:
                    zero_parts(dtype, layout, at, many, plane)
                else:
                    zero_parts(dtype, layout, at, many, part.top * width)
                    found |= pack_part_rows(
                        dtype, layout, view, view.data + (box.n + n) * view.n + (channel + c) * view.channel
                        + z * view.space[0] + part.at, step, next, &part, many, width,
                        at + part.top * width * 2, stage)
                    zero_parts(dtype, layout, at + (part.top + part.rows) * width * 2, many, below * width)
                at += plane * 2
        c += many
    return found
