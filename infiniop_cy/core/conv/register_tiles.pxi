# Register tiles over packed blocks, and how columns are cut into micro-panels for them.
cdef enum:
    SPREAD_BYTES = 1024    # steps of multiples of this reach a few sets of a cache only
    MAX_ROWS = 12   # at least the rows of every register tile; indirection buffers and sums go on for so many


# Columns of a packed matrix: so many in a micro-panel, which a register tile covers.
ctypedef struct MicroPanels:
    int64_t columns     # of a micro-panel: whole vectors
    int64_t count
    int vectors         # of a micro-panel
    bint vnni           # steps are pairs of bfloat16


cdef bint has_wide_vectors(const SampleGeometry *sample) noexcept nogil:
    """Say whether vectors have 64 bytes, and so many registers that more taps share what is loaded, and that many
    tiles can ask for memory as they read."""
    return sample.lanes * sample.item == 64


cdef bint spreads_over_sets(int64_t step) noexcept nogil:
    """Say whether elements `step` bytes apart stay in the cache together."""
    return step % SPREAD_BYTES != 0 or step == 0


cdef bint bfloat16_dot2(const SampleGeometry *sample) noexcept nogil:
    """Say whether steps are pairs of bfloat16."""
    return sample.dtype == DTYPE_BF16 and sample.dot2


cdef void cut_columns(const SampleGeometry *sample, int64_t columns, bint vnni, MicroPanels *panels) noexcept nogil:
    """Cut columns into micro-panels, the last of which may have fewer vectors with columns: what is read for a product
    takes longer the narrower they are, and where rows lie apart. Wider ones than suit many columns, whose register
    tiles have few rows, pay where they leave no vector by itself."""
    cdef const RegisterTiles *tiles = &kernels.gemm[sample.compute]
    cdef int64_t vectors = max(<int64_t>1, ceil_div(columns, sample.lanes)), cost, least = -1
    cdef int width, last
    for width in range(tiles.panel_vectors, 0, -1):
        last = vectors % width
        cost = (vectors - last) * (100 + 20 // width + (5 if width > tiles.max_vectors else 0)) \
            + (last * (100 + 20 // last) + 42 if last else 0)
        if least < 0 or cost < least:
            least, panels.vectors = cost, width
    panels.columns = panels.vectors * sample.lanes
    panels.count = ceil_div(vectors, panels.vectors)
    panels.vnni = vnni


cdef const RegisterTile *register_tile(const SampleGeometry *sample, const MicroPanels *panels,
                                       int64_t columns) noexcept nogil:
    """Find the register tile for the vectors of a micro-panel of which so many columns, or more, are left."""
    cdef int64_t vectors = min(<int64_t>panels.vectors, max(<int64_t>1, ceil_div(columns, sample.lanes)))
    if panels.vnni:
        return &kernels.dot2.many_rows[vectors]
    return &kernels.gemm[sample.compute].many_rows[vectors]


cdef void multiply(const RegisterTile *tile, const BatchReduce *steps, const char *a, const int64_t *indirection,
                   int64_t rows, const char *b, char *c, int64_t c_row, int64_t item, bint accumulate,
                   Prefetch *prefetch) noexcept nogil:
    """Add a b to c by register tiles; the indirection buffer and c go on for MAX_ROWS more rows that nobody reads.
    c_row counts elements of `item` bytes. What is ahead in b the first register tile asks for."""
    cdef BatchReduce asking = steps[0]
    cdef int64_t i = 0
    while i < rows:
        prefetch_some(prefetch)
        tile.kernel(&asking, a, indirection + i, b, c + i * c_row * item, c_row, accumulate)
        asking.b_ahead = 0
        i += tile.rows


cdef void repeat_last(int64_t *indirection, int64_t rows) noexcept nogil:
    """Give the MAX_ROWS rows that nobody reads something to multiply."""
    cdef int64_t i
    for i in range(rows, rows + MAX_ROWS):
        indirection[i] = indirection[rows - 1]
