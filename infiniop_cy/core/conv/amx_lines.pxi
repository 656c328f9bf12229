# grad_weight's operands that are packed from memory at once, not by way of planes: of one tap, where pixels follow each
# other evenly and they or channels lie side by side; of several taps, where channels do. They hold the same numbers.
cdef enum:
    LISTED_ROW = 14      # pixels of a tile's row, with fewer of which planes take less
    LINE_PIXELS = 64     # whose channels are taken half a panel at a time, while they are in the nearest cache

cdef extern from *:
    """
    enum : int64_t { NO_LINE = INT64_MIN };
    """
    const int64_t NO_LINE  # of a position that is no pixel: zeros


# The pixels of a tile, which follow each other evenly.
ctypedef struct PixelLines:
    const char *first        # channel 0 of the first one
    int64_t step, next       # bytes from pixel to pixel, and from sample to sample
    int64_t channel          # and from channel to channel
    int64_t samples, pixels  # and pixels of each
    int64_t room             # positions of each in a block, a multiple of AMX_STEPS


cdef bint has_channel_lines(const ConvRun *run, const ConvView *view) noexcept nogil:
    """Say whether the channels of a pixel are a line of memory."""
    return view.channel == itemsize_of(run.sample.dtype)


cdef bint find_lines(const ConvRun *run, const ConvView *view, const int64_t *size, const Box *box, int64_t room,
                     PixelLines *lines) noexcept nogil:
    """Find the pixels of a box under one tap; return False if they do not follow each other evenly, leave the tensor,
    or neither they nor their channels lie side by side."""
    cdef Box one = box[0]
    one.samples = 1
    if run.sample.taps > 1 or not find_even_pixels(view, size, &one, &lines.first, &lines.step):
        return False
    lines.next, lines.channel, lines.room = view.n, view.channel, room
    lines.samples, lines.pixels = box.samples, box_positions(&one)
    return has_channel_lines(run, view) or lines.step == itemsize_of(run.sample.dtype)


# ---- grad_output, as [AMX_HALF co][step][part][co][position of the step], zeros behind each sample's pixels

cdef void place_cells(int64_t channels, int64_t cells, int64_t *place) noexcept nogil:
    """Find where channels of grad_output go in a step, in bytes. cells: bytes of AMX_HALF co."""
    cdef int64_t c
    for c in range(channels):
        place[c] = c // AMX_HALF * cells + c % AMX_HALF * AMX_LINE


cdef void transpose_cells(const char *source, int64_t step, int64_t pixels, int64_t room, int64_t channels,
                          int64_t cells, char *to) noexcept nogil:
    """Pack some pixels of bfloat16 whose channels lie side by side."""
    cdef int64_t place[AMX_MOST_ROWS]
    cdef int64_t s, c, many
    place_cells(channels, cells, place)
    for s in range(room // AMX_STEPS):
        many = max(<int64_t>0, min(<int64_t>AMX_STEPS, pixels - s * AMX_STEPS))
        for c in range(channels if many < AMX_STEPS else 0):
            memset(to + place[c], 0, AMX_LINE)
        if many:
            kernels.transpose_to[DTYPE_BF16](source, step, to, place, channels, many)
        source += AMX_STEPS * step
        to += AMX_CELL


cdef int part_cells(const ConvRun *run, const char *first, const int64_t *line, int64_t pixels, int64_t channels,
                    int64_t cells, char *to) noexcept nogil:
    """Pack a step of float32 or float16 whose channels lie side by side: at most AMX_STEPS pixels, of which each lies
    so far from the first one, or is NO_LINE. All of their channels, so that memory is read from its beginning to its
    end. Return what was found."""
    cdef int64_t item = itemsize_of(run.sample.dtype), c = 0
    cdef int found = 0
    while c < channels:
        found |= kernels.parts[run.sample.dtype].of_columns(first + c * item, line, pixels,
                                                            min(<int64_t>AMX_HALF, channels - c), to, AMX_CELL)
        to += cells
        c += AMX_HALF
    return found


cdef int part_line_cells(const ConvRun *run, const PixelLines *lines, const char *source, int64_t channels,
                         int64_t cells, char *to) noexcept nogil:
    """Pack one sample of several parts to a number; return what was found."""
    cdef int64_t next = run.sample.parts * AMX_CELL, i, x = 0, c = 0
    cdef int64_t line[AMX_STEPS]
    cdef int found = 0
    if lines.step != itemsize_of(run.sample.dtype):
        for i in range(AMX_STEPS):
            line[i] = i * lines.step
        while x < lines.room:
            found |= part_cells(run, source + x * lines.step, line, lines.pixels - x, channels, cells,
                                to + x // AMX_STEPS * next)
            x += AMX_STEPS
        return found
    while c < channels:
        found |= kernels.parts[run.sample.dtype].of_rows(
            source + c * lines.channel, lines.channel, to + c // AMX_HALF * cells, AMX_CELL, AMX_LINE, next,
            min(<int64_t>AMX_HALF, channels - c), 0, lines.pixels, lines.room)
        c += AMX_HALF
    return found


cdef int pack_line_cells(const ConvRun *run, const PixelLines *lines, int64_t channel, int64_t channels,
                         int64_t cells, char *to) noexcept nogil:
    """Pack grad_output. cells: bytes of AMX_HALF co. inf and NaN of float16 become tiny; return what was found
    (survey.pxi)."""
    cdef int64_t n
    cdef int found = 0
    cdef const char *source = lines.first + channel * lines.channel
    for n in range(lines.samples):
        if run.sample.dtype == DTYPE_BF16 and lines.channel == 2:
            transpose_cells(source, lines.step, lines.pixels, lines.room, channels, cells, to)
        else:
            found |= part_line_cells(run, lines, source, channels, cells, to)
        source += lines.next
        to += lines.room // AMX_STEPS * run.sample.parts * AMX_CELL
    return found


# ---- the input, as [part][half of the columns][pair of positions][column], zeros behind each sample's pixels

cdef int64_t half_panel(const SampleGeometry *sample, int64_t channel, int64_t half_bytes) noexcept nogil:
    """Find where the columns of a channel's half of a panel begin, in bytes; those of its other parts follow after two
    halves each."""
    return (channel // AMX_SIDE * 2 * sample.parts + channel // AMX_HALF % 2) * half_bytes


cdef int pair_pixels(const ConvRun *run, const PixelLines *lines, const char *source, int64_t channels, char *to,
                     int64_t half_bytes) noexcept nogil:
    """Put pairs of one sample's pixels side by side; behind an odd one comes a zero. Return whether there were inf and
    NaN of float16."""
    cdef const PartKernels *parts = &kernels.parts[run.sample.dtype]
    cdef bint in_rows = lines.step == itemsize_of(run.sample.dtype)
    cdef int64_t pairs = lines.pixels // 2, c = 0, many
    cdef const char *last = source + (lines.pixels - 1) * lines.step
    cdef char *at
    cdef int found = 0
    if not in_rows:
        found = parts.of_line_pairs(source, lines.step, to, half_bytes, pairs, channels)
    while c < channels and (in_rows or lines.pixels % 2):
        at, many = to + half_panel(run.sample, c, half_bytes), min(<int64_t>AMX_HALF, channels - c)
        if in_rows:
            found |= parts.of_row_pairs(source + c * lines.channel, lines.channel, at, 2 * half_bytes, many,
                                        lines.pixels)
        else:
            found |= parts.of_planes(last + c * lines.channel, NULL, 0, at + pairs * AMX_LINE, 2 * half_bytes, AMX_LINE,
                                     1, 0, many, AMX_HALF)
        c += AMX_HALF
    return found


cdef int pack_line_pairs(const ConvRun *run, const PixelLines *lines, int64_t channel, int64_t channels,
                         int64_t positions, int64_t half_bytes, char *to) noexcept nogil:
    """Pack the input of some panels, and zeros up to `positions`. inf and NaN become tiny; return what was found
    (survey.pxi)."""
    cdef int64_t n, c = 0, filled = ceil_div(lines.pixels, 2)
    cdef const char *source = lines.first + channel * lines.channel
    cdef char *at = to
    cdef int found = 0
    for n in range(lines.samples):
        found |= pair_pixels(run, lines, source, channels, at, half_bytes)
        zero_pairs(run.sample, lines.room // 2 - filled, channels, half_bytes, at + filled * AMX_LINE)
        source += lines.next
        at += lines.room // 2 * AMX_LINE
    filled = lines.samples * (lines.room // 2)
    zero_pairs(run.sample, positions // 2 - filled, channels, half_bytes, at)
    while c < channels and run.sample.parts == 1:
        found |= kernels.vnni.replace_nonfinite(to + c // AMX_HALF * half_bytes, positions // 2 * 2 * AMX_HALF)
        c += AMX_HALF
    return found


# ---- lines that do not follow each other evenly: of several taps, whose blocks have gaps and padding

cdef void list_lines(const ConvView *view, const int64_t *size, const Box *box, int64_t sample,
                     int64_t *line) noexcept nogil:
    """Find where the pixel of each position lies, in bytes from the first one of the tensor; samples have so many
    positions."""
    cdef int64_t n, z, y, x, i = 0, row, first, last, width = box.extent[2], apart = box.step[2] * view.space[2]
    cdef int64_t inside = max(<int64_t>0, min(width, -floor_div(box.first[2], box.step[2])))
    cdef int64_t end = max(inside, min(width, -floor_div(box.first[2] - size[2], box.step[2])))
    cdef int64_t at[3]
    for n in range(box.samples):
        for z in range(box.extent[0]):
            at[0] = box.first[0] + z * box.step[0]
            for y in range(box.extent[1]):
                at[1], at[2] = box.first[1] + y * box.step[1], 0
                row = (box.n + n) * view.n + at[0] * view.space[0] + at[1] * view.space[1] \
                    + box.first[2] * view.space[2]
                first, last = (inside, end) if is_inside(at, size) else (width, width)
                for x in range(first):
                    line[i + x] = NO_LINE
                for x in range(first, last):
                    line[i + x] = row + x * apart
                for x in range(last, width):
                    line[i + x] = NO_LINE
                i += width
        while i < (n + 1) * sample:
            line[i] = NO_LINE
            i += 1


cdef int64_t even_lines(const int64_t *line, int64_t step, int64_t most, int64_t *apart) noexcept nogil:
    """Count the lines from the first on, `step` entries from one to the next, that lie as far apart as the first two,
    or are all missing."""
    cdef int64_t count = 1
    apart[0] = 0
    if line[0] == NO_LINE:
        while count < most and line[count * step] == NO_LINE:
            count += 1
        return count
    if most > 1 and line[step] != NO_LINE:
        apart[0] = line[step] - line[0]
    while count < most and line[count * step] != NO_LINE \
            and line[count * step] == line[(count - 1) * step] + apart[0]:
        count += 1
    return count


cdef const char *find_line(const char *first, int64_t line) noexcept nogil:
    """Return where a line is; NULL if it is missing."""
    if line == NO_LINE:
        return NULL
    return first + line


cdef void stage_listed(const int64_t *line, const char *first, int64_t item, int64_t channel, int64_t channels,
                       int64_t positions, char *staging) noexcept nogil:
    """Copy at most STAGE_PIXELS pixels that lie side by side, but for gaps, of channels that far apart, as rows."""
    cdef int64_t row = STAGE_ROW * item, i = 0, many, apart, c
    while i < positions:
        many = even_lines(line + i, 1, positions - i, &apart)
        if line[i] != NO_LINE and apart != item:  # a row's last pixel, and the next row's first one
            many = 1
        for c in range(channels):
            if line[i] == NO_LINE:
                memset(staging + c * row + i * item, 0, many * item)
            else:
                memcpy(staging + c * row + i * item, first + line[i] + c * channel, many * item)
        i += many


cdef int part_listed_cells(const ConvRun *run, const int64_t *line, const ConvView *view, int64_t channel,
                           int64_t channels, int64_t positions, int64_t cells, char *to, char *staging) noexcept nogil:
    """Pack grad_output, whose pixels or channels lie side by side, as pack_line_cells does; positions: a multiple of
    AMX_STEPS. Return what was found."""
    cdef int dtype = run.sample.dtype
    cdef int64_t item = itemsize_of(dtype), next = run.sample.parts * AMX_CELL, c = 0, x = 0, many, rows
    cdef const char *first = view.data + channel * view.channel
    cdef int found = 0
    if has_channel_lines(run, view):
        while x < positions:
            found |= part_cells(run, first, line + x, AMX_STEPS, channels, cells, to + x // AMX_STEPS * next)
            x += AMX_STEPS
        return found
    while c < channels:
        x, rows = 0, min(<int64_t>AMX_HALF, channels - c)
        while x < positions:
            many = min(<int64_t>STAGE_PIXELS, positions - x)
            stage_listed(line + x, first + c * view.channel, item, view.channel, rows, many, staging)
            found |= kernels.parts[dtype].of_rows(staging, STAGE_ROW * item, to + x // AMX_STEPS * next, AMX_CELL,
                                                  AMX_LINE, next, rows, 0, many, many)
            x += many
        to += cells
        c += AMX_HALF
    return found


cdef int put_pairs(const ConvRun *run, const char *first, const int64_t *line, int64_t apart, int64_t pairs,
                   int64_t channels, int64_t half_bytes, char *to) noexcept nogil:
    """Put some pairs of lines side by side, which lie that far apart; return what was found."""
    cdef int64_t step = AMX_HALF * itemsize_of(run.sample.dtype), c = 0
    cdef int found = 0
    while c < channels:
        found |= kernels.parts[run.sample.dtype].of_planes(
            find_line(first, line[0]), find_line(first, line[1]), apart, to, 2 * half_bytes, AMX_LINE, pairs, 0,
            min(<int64_t>AMX_HALF, channels - c), AMX_HALF)
        first += step
        to += half_bytes
        c += AMX_HALF
    return found


cdef void zero_pairs(const SampleGeometry *sample, int64_t pairs, int64_t channels, int64_t half_bytes,
                     char *to) noexcept nogil:
    """Write zeros for some pairs of lines of some panels, all parts of them."""
    cdef int64_t c = 0, part
    while c < channels and pairs:
        for part in range(sample.parts):
            memset(to + half_panel(sample, c, half_bytes) + part * 2 * half_bytes, 0, pairs * AMX_LINE)
        c += AMX_HALF


cdef int pair_listed_lines(const ConvRun *run, const int64_t *line, const char *first, int64_t positions,
                           int64_t channels, int64_t half_bytes, char *to) noexcept nogil:
    """Put pairs of lines side by side, channel by channel, as [part][half of the columns][pair][column]. first: where
    the channels of the tensor's first pixel are. inf and NaN of float16 become tiny; return what was found
    (survey.pxi)."""
    cdef int64_t i = 0, low, high, many
    cdef int found = 0
    while i < positions // 2:
        many = even_lines(line, 2, min(<int64_t>LINE_PIXELS // 2, positions // 2 - i), &low)
        many = even_lines(line + 1, 2, many, &high)
        if line[0] == NO_LINE and line[1] == NO_LINE:
            zero_pairs(run.sample, many, channels, half_bytes, to)
        else:
            if line[0] == NO_LINE:
                low = high
            elif line[1] != NO_LINE and low != high:
                many = 1
            found |= put_pairs(run, first, line, low, many, channels, half_bytes, to)
        i += many
        line += 2 * many
        to += many * AMX_LINE
    return found


cdef int pack_listed_pairs(const ConvRun *run, const int64_t *line, int64_t channel, int64_t channels,
                           int64_t positions, int64_t half_bytes, bint odd, char *to) noexcept nogil:
    """Pack the input as pairs of positions, once from the first one on and (odd) once from the second. inf and NaN
    become tiny; return what was found (survey.pxi)."""
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef const char *first = x.data + channel * x.channel
    cdef int64_t halves = ceil_div(channels, AMX_HALF), half, copy
    cdef char *at
    cdef int found = 0
    for copy in range(2 if odd else 1):
        at = to + copy * run.sample.parts * 2 * half_bytes
        found |= pair_listed_lines(run, line + copy, first, positions - 2 * copy, channels, half_bytes, at)
        for half in range(halves if run.sample.parts == 1 else 0):
            found |= kernels.vnni.replace_nonfinite(at + half * half_bytes, (positions // 2 - copy) * 2 * AMX_HALF)
    return found


cdef int64_t staged_line_bytes(int64_t channels) noexcept nogil:
    """Count the bytes from line to line of bfloat16 that are staged together."""
    return round_up(2 * channels, CONV_ALIGN)


cdef int64_t amx_packing_bytes(const SampleGeometry *sample, int64_t rows) noexcept nogil:
    """Count the bytes that packing takes, of planes or of a step's lines of so many co."""
    return max(staging_elements(sample) * 4, AMX_STEPS * staged_line_bytes(rows))


cdef void pack_listed_cells(const int64_t *line, const char *first, int64_t channels, int64_t steps, int64_t cells,
                            char *to, char *staging) noexcept nogil:
    """Pack grad_output of bfloat16 as [AMX_HALF co][step][co][position of the step]. cells: bytes of AMX_HALF co;
    staging: room for the lines of a step that do not follow each other evenly."""
    cdef int64_t place[AMX_MOST_ROWS]
    cdef int64_t row = staged_line_bytes(channels), s, i, many, apart
    cdef const char *source
    place_cells(channels, cells, place)
    for s in range(steps):
        many = even_lines(line, 1, AMX_STEPS, &apart)
        if many == AMX_STEPS and line[0] != NO_LINE:
            source = first + line[0]
        else:
            for i in range(AMX_STEPS):
                if line[i] == NO_LINE:
                    memset(staging + i * row, 0, 2 * channels)
                else:
                    memcpy(staging + i * row, first + line[i], 2 * channels)
            source, apart = staging, row
        kernels.transpose_to[DTYPE_BF16](source, apart, to, place, channels, AMX_STEPS)
        line += AMX_STEPS
        to += AMX_CELL
