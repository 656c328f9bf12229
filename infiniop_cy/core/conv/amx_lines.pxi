# grad_weight's bfloat16 operands of one tap, where channels lie side by side: cells and pairs of positions are packed
# from lines of memory at once, not by way of planes. They hold the same numbers.
cdef enum:
    LINE_PIXELS = 64     # whose channels are taken half a panel at a time, while they are in the nearest cache


# The pixels of a tile, which follow each other evenly.
ctypedef struct PixelLines:
    const char *first        # channel 0 of the first one
    int64_t step, next       # bytes from pixel to pixel, and from sample to sample
    int64_t samples, pixels  # and pixels of each
    int64_t room             # positions of each in a block, a multiple of AMX_STEPS


cdef bint may_have_lines(const ConvRun *run, const ConvView *view) noexcept nogil:
    """Say whether a tensor's tiles are read by lines wherever their pixels follow each other evenly."""
    return run.sample.taps == 1 and run.sample.dtype == DTYPE_BF16 and view.channel == 2


cdef bint find_lines(const ConvView *view, const int64_t *size, const Box *box, int64_t room,
                     PixelLines *lines) noexcept nogil:
    """Find the pixels of a box; return False if they do not follow each other evenly, or leave the tensor."""
    cdef int64_t step[3]
    cdef int64_t last[3]
    cdef Box one = box[0]
    cdef int d
    one.samples = 1
    lines.first = view.data + box.n * view.n
    for d in range(3):
        step[d] = box.step[d] * view.space[d]
        last[d] = box.first[d] + (box.extent[d] - 1) * box.step[d]
        lines.first += box.first[d] * view.space[d]
    lines.step, lines.next, lines.room = step[2], view.n, room
    lines.samples, lines.pixels = box.samples, box_positions(&one)
    return is_inside(box.first, size) and is_inside(last, size) and follow_evenly(&one, 0, step)


cdef void pack_line_cells(const PixelLines *lines, int64_t channel, int64_t channels, int64_t cells,
                          char *to) noexcept nogil:
    """Pack grad_output as [AMX_HALF co][step][co][position of the step], zeros behind each sample's pixels. cells:
    bytes of AMX_HALF co."""
    cdef int64_t place[AMX_OUTPUT_ROWS]
    cdef int64_t n, s, c, many
    cdef const char *source
    for c in range(channels):
        place[c] = c // AMX_HALF * cells + c % AMX_HALF * AMX_LINE
    for n in range(lines.samples):
        source = lines.first + n * lines.next + channel * 2
        for s in range(lines.room // AMX_STEPS):
            many = max(<int64_t>0, min(<int64_t>AMX_STEPS, lines.pixels - s * AMX_STEPS))
            for c in range(channels if many < AMX_STEPS else 0):
                memset(to + place[c], 0, AMX_LINE)
            if many:
                kernels.transpose_to[DTYPE_BF16](source, lines.step, to, place, channels, many)
            source += AMX_STEPS * lines.step
            to += AMX_CELL


cdef void pair_lines(const char *source, int64_t step, int64_t pixels, int64_t channels, char *to) noexcept nogil:
    """Put pairs of pixels side by side, channel by channel, as AMX_HALF columns; behind an odd one comes a zero."""
    cdef const PartKernels *parts = &kernels.parts[DTYPE_BF16]
    parts.of_planes(source, source + step, 2 * step, to, 0, AMX_LINE, pixels // 2, 0, channels, AMX_HALF)
    if pixels % 2:
        parts.of_planes(source + (pixels - 1) * step, NULL, 0, to + pixels // 2 * AMX_LINE, 0, AMX_LINE, 1, 0, channels,
                        AMX_HALF)


cdef bint pack_line_pairs(const PixelLines *lines, int64_t channel, int64_t channels, int64_t positions,
                          int64_t half_bytes, char *to) noexcept nogil:
    """Pack the input as [half of the columns][pair of positions][column], zeros behind each sample's pixels and up to
    `positions`. inf and NaN become tiny; return whether there were any."""
    cdef int64_t halves = ceil_div(channels, AMX_HALF), n, x, half, many, filled = ceil_div(lines.pixels, 2)
    cdef const char *source
    cdef char *at
    cdef bint nonfinite = False
    for n in range(lines.samples):
        source = lines.first + n * lines.next + channel * 2
        at = to + n * (lines.room // 2) * AMX_LINE
        x = 0
        while x < lines.pixels:
            many = min(<int64_t>LINE_PIXELS, lines.pixels - x)
            for half in range(halves):
                pair_lines(source + x * lines.step + half * AMX_HALF * 2, lines.step, many,
                           min(<int64_t>AMX_HALF, channels - half * AMX_HALF),
                           at + half * half_bytes + x // 2 * AMX_LINE)
            x += many
        for half in range(halves):
            memset(at + half * half_bytes + filled * AMX_LINE, 0, (lines.room // 2 - filled) * AMX_LINE)
    for half in range(halves):
        at = to + half * half_bytes
        filled = lines.samples * (lines.room // 2)
        memset(at + filled * AMX_LINE, 0, (positions // 2 - filled) * AMX_LINE)
        nonfinite |= kernels.vnni.replace_nonfinite(at, positions // 2 * 2 * AMX_HALF)
    return nonfinite
