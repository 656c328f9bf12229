# Register tiles over packed blocks, and the memory of the next block, asked for meanwhile.

# What the next block will be packed from: prefetched a little with every register tile, so that memory and arithmetic
# overlap.
ctypedef struct Ahead:
    char *source           # of one channel
    int64_t channel, channels
    int64_t bytes          # of a channel
    int64_t done           # bytes of the current channel
    int64_t per_call       # lines


cdef void look_ahead(const ConvPlan *plan, const ConvView *view, const int64_t *size, const Box *box, int64_t channel,
                     int64_t channels, int64_t calls, Ahead *ahead) noexcept nogil:
    """The box's first sample, where rows and channels follow each other in memory; the rest comes when it is packed."""
    cdef int64_t first[3]
    cdef int64_t last[3]
    cdef int64_t lines
    cdef int d
    ahead.channels = 0
    for d in range(3):
        first[d] = max(<int64_t>0, box.first[d])
        last[d] = min(size[d] - 1, box.first[d] + (box.extent[d] - 1) * box.step[d])
        if last[d] < first[d] or view.space[d] < 0:
            return
    ahead.source = view.data + box.n * view.n + channel * view.channel + first[0] * view.space[0] \
        + first[1] * view.space[1] + first[2] * view.space[2]
    ahead.bytes = (last[0] - first[0]) * view.space[0] + (last[1] - first[1]) * view.space[1] \
        + (last[2] - first[2]) * view.space[2] + 1
    if ahead.bytes > 2 * itemsize_of(plan.dtype) * (last[0] - first[0] + 1) * (last[1] - first[1] + 1) * (last[2] - first[2] + 1):
        return  # far from dense
    ahead.channel, ahead.channels, ahead.done = view.channel, channels, 0
    lines = channels * (ahead.bytes // CONV_ALIGN + 1)
    ahead.per_call = pieces(lines, max(<int64_t>1, calls))


cdef void go_ahead(Ahead *ahead) noexcept nogil:
    cdef int64_t i
    for i in range(ahead.per_call):
        if not ahead.channels:
            return
        prefetch_line(ahead.source + ahead.done)
        ahead.done += CONV_ALIGN
        if ahead.done >= ahead.bytes:
            ahead.done = 0
            ahead.source += ahead.channel
            ahead.channels -= 1


cdef const GemmTile *wide_tile(const ConvPlan *plan, const ConvCut *cut, bint pairs) noexcept nogil:
    if pairs:
        return &kernels.pairs.wide[cut.vectors]
    return &kernels.gemm[plan.compute].wide[cut.vectors]


cdef void multiply(const ConvPlan *plan, const GemmTile *tile, const GemmSteps *steps, const char *a, const int64_t *row,
                   int64_t rows, const char *b, char *c, int64_t c_row, bint chain, Ahead *ahead) noexcept nogil:
    """c += a b, by register tiles; `row` and c go on for CONV_ROWS more rows that nobody reads."""
    cdef int64_t i = 0
    while i < rows:
        go_ahead(ahead)
        tile.kernel(steps, a, row + i, b, c + i * c_row * plan.item, c_row, chain)
        i += tile.rows


cdef void repeat_last(int64_t *row, int64_t rows) noexcept nogil:
    """Something to read for the rows that nobody reads."""
    cdef int64_t i
    for i in range(rows, rows + CONV_ROWS):
        row[i] = row[rows - 1]
