# What the two algorithms share whose rows are output pixels and whose columns are (ci, tap), as the weights lie: which
# taps meet the image at all, chunks of columns, and runs of them that lie evenly in memory.
#
# A line is all kx of one (ci, kz, ky), or, where channels lie side by side, all ci of one tap. A chunk is some lines,
# or a segment of one line that is long. No sum depends on which.
cdef enum:
    CHUNK_COLUMNS = 512     # (ci, tap) of a chunk, at most, where output pixels are few: weights are read in long rows
    NARROW_COLUMNS = 128    # where they are many: sums stay in the cache
    NARROW_PIXELS = 16      # are many
    CHUNK_PITCH = 656       # elements from row to row: columns and the widest register tile, an odd number of lines
    NARROW_PITCH = 272
    CHUNK_CHANNELS = 128    # output channels of a panel
    CHUNK_ROWS = 192        # output pixels of a tile
    OUTPUT_PITCH = 144      # elements from pixel to pixel of packed grad_output
    NEAR_PIXELS = 1 << 20   # bytes from pixel to pixel, at most, by which pixels outside of the image are counted, too


# The taps that lead from any output pixel to a box of the input, and those output pixels.
ctypedef struct TapBox:
    int64_t tap[3]
    int64_t taps[3]
    int64_t output[3]
    int64_t outputs[3]


ctypedef struct TapColumns:
    TapBox box
    int64_t ci_from, cis    # input channels of a group
    bint channels_last      # a line is all ci of one tap
    int64_t length          # columns of a line
    int64_t count[3]        # lines, along each axis that they have, the one that runs fastest first
    int64_t per_chunk       # lines of a chunk
    int64_t segments        # of a line
    int64_t chunks


ctypedef struct Chunk:
    int64_t line, lines
    int64_t first, length   # columns of each line
    int64_t columns


# How columns lie in some tensor: lines of `level` axes follow each other, so that their columns are `step` apart.
ctypedef struct LineRuns:
    int level
    int64_t step


cdef bint reach_taps(const SampleGeometry *sample, const int64_t *low, const int64_t *high,
                     TapBox *box) noexcept nogil:
    """Find the taps and output pixels that meet input pixels [low, high); return False if none do."""
    cdef const ConvAxis *axis
    cdef int64_t first, last
    cdef bint any = True
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        first = low[d] + axis.before - (axis.size_out - 1) * axis.stride
        last = high[d] - 1 + axis.before
        box.tap[d] = ceil_div(max(<int64_t>0, first), axis.dilation)
        box.taps[d] = max(<int64_t>0, min(axis.kernel - 1, floor_div(last, axis.dilation)) - box.tap[d] + 1)
        first = low[d] + axis.before - (axis.kernel - 1) * axis.dilation
        box.output[d] = ceil_div(max(<int64_t>0, first), axis.stride)
        box.outputs[d] = max(<int64_t>0, min(axis.size_out - 1, floor_div(last, axis.stride)) - box.output[d] + 1)
        any = any and box.taps[d] > 0 and box.outputs[d] > 0
    return any


cdef bint reach_image(const SampleGeometry *sample, TapBox *box) noexcept nogil:
    """Find the taps that meet the image; return False if none do."""
    cdef int64_t low[3]
    cdef int64_t high[3]
    memset(low, 0, sizeof(low))
    input_size(sample, high)
    return reach_taps(sample, low, high, box)


cdef int64_t box_taps(const TapBox *box) noexcept nogil:
    """Count the taps of a box."""
    return box.taps[0] * box.taps[1] * box.taps[2]


cdef int64_t chunk_columns(const SampleGeometry *sample) noexcept nogil:
    """Return the most columns of a chunk."""
    return NARROW_COLUMNS if sample.pixels_out >= NARROW_PIXELS else CHUNK_COLUMNS


cdef int64_t chunk_pitch(const SampleGeometry *sample) noexcept nogil:
    """Return the elements from row to row of a chunk."""
    return NARROW_PITCH if sample.pixels_out >= NARROW_PIXELS else CHUNK_PITCH


cdef bint channels_make_lines(const ConvProblem *problem, const ConvView *w, const ConvView *image) noexcept nogil:
    """Say whether all ci of a tap are a line: where they lie side by side in the weights and in the image, and are
    enough, or all taps follow each other."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = itemsize_of(sample.dtype)
    return sample.cin > 1 and (sample.pixels_out == 1 or 2 * sample.cin >= sample.lanes) \
        and w.channel == item and image.channel == item and image.space[2] >= sample.cin * item \
        and image.space[2] % item == 0 and image.space[2] <= NEAR_PIXELS


cdef void cut_chunks(const SampleGeometry *sample, TapColumns *columns) noexcept nogil:
    """Cut the columns of a box, ci_from, cis and channels_last into chunks."""
    cdef const TapBox *box = &columns.box
    cdef int64_t most = chunk_columns(sample), lines
    cdef bint channels_last = columns.channels_last
    columns.length = columns.cis if channels_last else box.taps[2]
    columns.count[0] = box.taps[2] if channels_last else box.taps[1]
    columns.count[1] = box.taps[1] if channels_last else box.taps[0]
    columns.count[2] = box.taps[0] if channels_last else columns.cis
    columns.per_chunk, columns.segments = 1, ceil_div(columns.length, most)
    if columns.segments == 1:
        columns.per_chunk, lines = most // columns.length, channel_lines(columns)
        if columns.per_chunk > lines:
            columns.per_chunk -= columns.per_chunk % lines  # all taps of some ci
    lines = columns.count[0] * columns.count[1] * columns.count[2]
    columns.chunks = ceil_div(lines, columns.per_chunk) * columns.segments


cdef int64_t channel_lines(const TapColumns *columns) noexcept nogil:
    """Count the lines along their first two axes: those of one ci, where they are lines of taps."""
    return columns.count[0] * columns.count[1]


cdef void nth_chunk(const SampleGeometry *sample, const TapColumns *columns, int64_t number,
                    Chunk *chunk) noexcept nogil:
    """Make the chunk of that number, which is below columns.chunks."""
    cdef int64_t most = chunk_columns(sample)
    chunk.line = number // columns.segments * columns.per_chunk
    chunk.lines = min(columns.per_chunk, channel_lines(columns) * columns.count[2] - chunk.line)
    chunk.first = number % columns.segments * most
    chunk.length = min(columns.length - chunk.first, most)
    chunk.columns = chunk.lines * chunk.length


cdef void line_begin(const TapColumns *columns, const Chunk *chunk, int64_t line, int64_t *ci,
                     int64_t *k) noexcept nogil:
    """Write the ci, of those from ci_from on, and the tap of the chunk's first column of a line."""
    cdef int64_t at[3]
    cdef int d
    at[0], at[1] = line % columns.count[0], line // columns.count[0] % columns.count[1]
    at[2] = line // channel_lines(columns)
    if columns.channels_last:
        ci[0], k[0], k[1], k[2] = chunk.first, at[2], at[1], at[0]
    else:
        ci[0], k[0], k[1], k[2] = at[2], at[1], at[0], chunk.first
    for d in range(3):
        k[d] += columns.box.tap[d]


cdef int64_t line_offset(const TapColumns *columns, const ConvView *w, const Chunk *chunk,
                         int64_t line) noexcept nogil:
    """Count the bytes from an output channel's first weight to the chunk's first of a line."""
    cdef int64_t ci
    cdef int64_t k[3]
    line_begin(columns, chunk, line, &ci, k)
    return (columns.ci_from + ci) * w.channel + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2]


cdef LineRuns line_runs(const TapColumns *columns, const Chunk *chunk, int64_t channel, const int64_t *space) noexcept \
        nogil:
    """Find how many lines follow each other where channels are `channel` and taps `space` apart along each axis."""
    cdef LineRuns runs
    cdef int64_t stride[3]
    cdef int64_t n = chunk.length
    runs.level, runs.step = 0, space[2]
    stride[0], stride[1], stride[2] = space[1], space[0], channel
    if columns.channels_last:
        runs.step, stride[0], stride[1], stride[2] = channel, space[2], space[1], space[0]
    while runs.level < 3:
        if columns.count[runs.level] > 1:
            if columns.segments > 1 or (n > 1 and stride[runs.level] != n * runs.step):
                break
            if n == 1:
                runs.step = stride[runs.level]
            n *= columns.count[runs.level]
        runs.level += 1
    return runs


cdef int64_t lines_of_run(const TapColumns *columns, const LineRuns *runs, const Chunk *chunk,
                          int64_t line) noexcept nogil:
    """Count the chunk's lines from this one on that follow each other."""
    cdef int64_t left = chunk.line + chunk.lines - line
    if runs.level == 0:
        return 1
    if runs.level == 1:
        return min(left, columns.count[0] - line % columns.count[0])
    return left if runs.level == 3 else min(left, channel_lines(columns) - line % channel_lines(columns))


cdef bint lies_in_rows(const ConvProblem *problem, const ConvView *w, const TapColumns *columns,
                       const Chunk *chunk) noexcept nogil:
    """Say whether the chunk's columns of each output channel lie side by side in weights of the compute type."""
    cdef LineRuns runs
    if problem.sample.dtype != problem.sample.compute or w.n % problem.sample.item:
        return False
    runs = line_runs(columns, chunk, w.channel, w.space)
    return runs.step == problem.sample.item and lines_of_run(columns, &runs, chunk, chunk.line) == chunk.lines


cdef bint has_whole_channels(const ConvProblem *problem, const ConvView *w, const TapColumns *columns,
                             const Chunk *chunk) noexcept nogil:
    """Say whether a chunk of lines of taps has all of its ci, several of both, in weights whose ci lie side by
    side."""
    cdef int64_t lines = channel_lines(columns)
    return not columns.channels_last and lines * chunk.length > 1 and w.channel == itemsize_of(problem.sample.dtype) \
        and chunk.lines % lines == 0 and chunk.line % lines == 0 and chunk.lines > lines


cdef bint offsets_of_taps(const ConvView *w, const TapColumns *columns, const Chunk *chunk, int64_t taps, int64_t cis,
                          int64_t *offset) noexcept nogil:
    """Write how many bytes each tap of all ci is from an output channel's first weight; return whether the taps follow
    each other."""
    cdef Chunk tap_of_line = chunk[0]
    cdef bint in_line = True
    cdef int64_t tap
    for tap in range(taps):
        tap_of_line.first = chunk.first + tap % chunk.length
        offset[tap] = line_offset(columns, w, &tap_of_line, chunk.line + tap // chunk.length)
        in_line = in_line and offset[tap] == offset[0] + tap * cis * w.channel
    return in_line


cdef void move_taps(const ConvProblem *problem, const ConvView *w, const int64_t *offset, bint in_line, int64_t taps,
                    int64_t cis, char *channel, char *values, bint loading) noexcept nogil:
    """Move all ci of some taps of an output channel, whose first weight is there, to weights or (loading) back."""
    cdef int64_t item = problem.sample.item, pieces = 1 if in_line else taps, count = taps * cis // pieces, i
    for i in range(pieces):
        if loading:
            problem.load(channel + offset[i], w.channel, values + i * count * item, item, count)
        else:
            problem.save(values + i * count * item, item, channel + offset[i], w.channel, count)


cdef void move_channels(const ConvProblem *problem, const ConvView *w, const TapColumns *columns, const Chunk *chunk,
                        int64_t channel, int64_t channels, char *values, bint loading) noexcept nogil:
    """Do what move_columns does by transpositions of ci that lie side by side."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t cis = chunk.lines // channel_lines(columns), taps = chunk.columns // cis, co, item = sample.item
    cdef int64_t offset[CHUNK_COLUMNS]
    cdef char staged[CHUNK_COLUMNS * 8]
    cdef bint in_line = offsets_of_taps(w, columns, chunk, taps, cis, offset)
    cdef bint in_place = in_line and sample.dtype == sample.compute and of_whole_elements(problem, w)
    cdef char *at
    cdef char *source
    for co in range(channels):
        at = w.data + (channel + co) * w.n
        source = at + offset[0] if in_place else staged
        if loading:
            if not in_place:
                move_taps(problem, w, offset, in_line, taps, cis, at, staged, True)
            kernels.transpose[sample.compute](source, cis * item, values, taps * item, cis, taps)
        else:
            kernels.transpose[sample.compute](values, taps * item, source, cis * item, taps, cis)
            if not in_place:
                move_taps(problem, w, offset, in_line, taps, cis, at, staged, False)
        values += chunk_pitch(sample) * item


cdef void move_columns(const ConvProblem *problem, const ConvView *w, const TapColumns *columns, const Chunk *chunk,
                       int64_t channel, int64_t channels, char *values, bint loading) noexcept nogil:
    """Move the chunk's columns of output channels [channel, +channels), of all groups', from rows of values chunk_pitch
    elements apart to weights, or (loading) back."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef LineRuns runs = line_runs(columns, chunk, w.channel, w.space)
    cdef int64_t line = chunk.line, lines, count, co, pitch = chunk_pitch(sample) * sample.item
    cdef char *at
    if has_whole_channels(problem, w, columns, chunk):
        move_channels(problem, w, columns, chunk, channel, channels, values, loading)
        return
    while line < chunk.line + chunk.lines:
        lines = lines_of_run(columns, &runs, chunk, line)
        count = lines * chunk.length
        at = w.data + channel * w.n + line_offset(columns, w, chunk, line)
        for co in range(channels):
            if loading:
                problem.load(at + co * w.n, runs.step, values + co * pitch, sample.item, count)
            else:
                problem.save(values + co * pitch, sample.item, at + co * w.n, runs.step, count)
        values += count * sample.item
        line += lines


cdef const RegisterTile *tile_for(const SampleGeometry *sample, int64_t rows, int64_t columns) noexcept nogil:
    """Find the register tile for so many rows and columns. All give the same bits."""
    cdef const RegisterTiles *tiles = &kernels.gemm[sample.compute]
    cdef int64_t vectors = ceil_div(columns, sample.lanes)
    if vectors > tiles.max_vectors and rows <= tiles.few_rows.rows:
        return &tiles.one_row if rows == 1 else &tiles.few_rows
    vectors = min(vectors, <int64_t>tiles.max_vectors)
    if rows == 1:
        return &tiles.row[vectors]
    return &tiles.many_rows[vectors]


cdef int64_t columns_read(const SampleGeometry *sample, int64_t rows, int64_t columns) noexcept nogil:
    """Count the columns that the register tiles for so many rows read and write."""
    cdef const RegisterTile *tile
    cdef int64_t j = 0
    while j < columns:
        tile = tile_for(sample, rows, columns - j)
        j += tile.vectors * sample.lanes
    return j


cdef int64_t columns_packed(const SampleGeometry *sample, int64_t columns) noexcept nogil:
    """Count the columns that register tiles read, whatever the rows are."""
    cdef const RegisterTiles *tiles = &kernels.gemm[sample.compute]
    return max(columns_read(sample, 1, columns), max(columns_read(sample, 2, columns),
                                                     columns_read(sample, tiles.few_rows.rows + 1, columns)))


cdef void multiply_chunk(const SampleGeometry *sample, const BatchReduce *steps, const char *a,
                         const int64_t *indirection, int64_t rows, const char *b, int64_t columns, char *c,
                         bint accumulate) noexcept nogil:
    """Add a b to c, rows of c chunk_pitch elements apart."""
    cdef const RegisterTile *tile
    cdef int64_t j = 0, pitch = chunk_pitch(sample)
    cdef Prefetch prefetch
    no_prefetch(&prefetch)
    while j < columns:
        tile = tile_for(sample, rows, columns - j)
        multiply(tile, steps, a, indirection, rows, b + j * sample.item, c + j * sample.item, pitch, sample.item,
                 accumulate, &prefetch)
        j += tile.vectors * sample.lanes


cdef void put_chunk(const SampleGeometry *sample, BatchReduce *steps, const char *a, const int64_t *indirection,
                    int64_t rows, const char *b, int64_t columns, char *c, int64_t c_row, bint accumulate,
                    char *spare) noexcept nogil:
    """Write what multiply_chunk would make of zeros to c, rows c_row elements apart. spare: MAX_ROWS rows of a chunk,
    for register tiles with more rows than c."""
    cdef const RegisterTile *tile
    cdef int64_t j = 0, i, pitch = chunk_pitch(sample), item = sample.item
    cdef int end = GEMM_PUT_CHAIN if accumulate else GEMM_PUT
    steps.bias = NULL
    while j < columns:
        tile = tile_for(sample, rows, columns - j)
        steps.columns = min(columns - j, tile.vectors * sample.lanes)
        i = 0
        while i + tile.rows <= rows:
            tile.kernel(steps, a, indirection + i, b + j * item, c + (i * c_row + j) * item, c_row, end)
            i += tile.rows
        if i < rows:
            tile.kernel(steps, a, indirection + i, b + j * item, spare, pitch, end)
            kernels.pad_rows(spare, pitch * item, c + (i * c_row + j) * item, c_row * item, rows - i, 0,
                             steps.columns * item, steps.columns * item)
        j += steps.columns


cdef void zero_columns(const SampleGeometry *sample, int64_t first, int64_t last, int64_t rows,
                       char *values) noexcept nogil:
    """Write zeros to columns [first, last) of each row."""
    cdef int64_t pitch = chunk_pitch(sample), row
    for row in range(rows if first < last else 0):
        memset(values + (row * pitch + first) * sample.item, 0, (last - first) * sample.item)
