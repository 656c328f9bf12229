# Boxes of positions, and grids of pixels cut into tiles: of any tensor, whatever its convolution.


# Positions of one tensor: first + i * step along each spatial axis, in `samples` samples from n on.
ctypedef struct Box:
    int64_t n, samples
    int64_t first[3]
    int64_t step[3]
    int64_t extent[3]


# How a grid of pixels is cut: so many samples, and so many pixels along each axis, in one tile.
ctypedef struct Tiling:
    int64_t samples
    int64_t extent[3]


# ---- numbers

cdef int64_t ceil_div(int64_t n, int64_t of) noexcept nogil:
    """Divide n >= 0, rounding up."""
    return n // of + (n % of != 0)


cdef int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    """Divide, rounding down also where a < 0."""
    return a // b if a >= 0 else -(-(a + 1) // b + 1)


cdef int64_t round_up(int64_t n, int64_t to) noexcept nogil:
    """Return the least multiple of `to` that is not below n."""
    return (n + to - 1) // to * to


# ---- boxes

cdef int64_t box_positions(const Box *box) noexcept nogil:
    """Count the positions in a box, those of all its samples together."""
    return box.samples * box.extent[0] * box.extent[1] * box.extent[2]


cdef int64_t sample_positions(const int64_t *extent, int64_t limit) noexcept nogil:
    """Count the positions of one sample with these extents; limit + 1 if there are more than the limit."""
    cdef int64_t positions = 1
    cdef int d
    for d in range(3):
        if extent[d] > limit or mul_overflows(positions, extent[d], &positions) or positions > limit:
            return limit + 1
    return positions


cdef int64_t positions_under(const Box *tile, const int64_t *extent) noexcept nogil:
    """Count the positions of a block with these extents from the first pixel of a tile's sample to its last."""
    return ((tile.extent[0] - 1) * extent[1] + tile.extent[1] - 1) * extent[2] + tile.extent[2]


cdef int64_t positions_of(const Box *part, const Box *block) noexcept nogil:
    """Count the positions of a block from the first pixel of a part to its last, samples following each other."""
    return (part.samples - 1) * (block.extent[0] * block.extent[1] * block.extent[2]) \
        + positions_under(part, block.extent)


cdef int64_t next_pixel(const Box *part, const Box *block, int64_t position) noexcept nogil:
    """Find the first position of a block, from that one on, that is a pixel of a part and not between pixels; where
    there is none, a position behind the last of them."""
    cdef int64_t x = position % block.extent[2], row = position // block.extent[2], y, plane, z, n
    if x >= part.extent[2]:
        row, x = row + 1, 0
    y, plane = row % block.extent[1], row // block.extent[1]
    if y >= part.extent[1]:
        plane, y, x = plane + 1, 0, 0
    z, n = plane % block.extent[0], plane // block.extent[0]
    if z >= part.extent[0]:
        n, z, y, x = n + 1, 0, 0, 0
    return ((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2] + x


# ---- tiles

cdef void tile_grid(const int64_t *size, int64_t pixels, Tiling *tiling) noexcept nogil:
    """Cut one sample into tiles of at most `pixels` pixels: whole rows and planes as far as they fit, else pieces of
    equal length."""
    cdef int64_t left = pixels, length
    cdef int d
    for d in range(2, -1, -1):
        length = max(<int64_t>1, size[d])
        tiling.extent[d] = ceil_div(length, ceil_div(length, left))
        left //= tiling.extent[d]
    tiling.samples = 1


cdef void tile_depth(const int64_t *size, int64_t pixels, Tiling *tiling) noexcept nogil:
    """Cut one sample into tiles of at most `pixels` pixels: whole rows, about as many planes of them as rows in a
    plane."""
    cdef int64_t rows, planes = 1
    tile_grid(size, pixels, tiling)
    rows = pixels // tiling.extent[2]
    while planes < size[0] and (planes + 1) * (planes + 1) <= rows:
        planes += 1
    tile_grid(size, pixels // planes, tiling)
    tiling.extent[0] = planes


cdef void one_sample_tiling(const int64_t *extent, Tiling *tiling) noexcept nogil:
    """Make tiles with these extents, of one sample each."""
    memcpy(tiling.extent, extent, sizeof(tiling.extent))
    tiling.samples = 1


cdef int64_t tiling_pixels(const Tiling *tiling) noexcept nogil:
    """Count the pixels of a whole tile."""
    return tiling.samples * tiling.extent[0] * tiling.extent[1] * tiling.extent[2]


cdef void join_samples(const int64_t *size, int64_t batch, int64_t samples, Tiling *tiling) noexcept nogil:
    """Let a tile that holds a whole sample hold at most so many of them."""
    cdef int d
    for d in range(3):
        if tiling.extent[d] < size[d]:
            return
    tiling.samples = max(<int64_t>1, min(batch, samples))


cdef void join_evenly(const int64_t *size, int64_t batch, int64_t samples, Tiling *tiling) noexcept nogil:
    """Do so with about as many in each tile."""
    join_samples(size, batch, samples, tiling)
    tiling.samples = ceil_div(batch, ceil_div(batch, tiling.samples)) if batch else 1


cdef int64_t count_tiles(const Tiling *tiling, int64_t batch, const int64_t *size) noexcept nogil:
    """Count the tiles of (batch, size) pixels."""
    return ceil_div(batch, tiling.samples) * ceil_div(size[0], tiling.extent[0]) * ceil_div(size[1], tiling.extent[1]) \
        * ceil_div(size[2], tiling.extent[2])


cdef bint nth_tile(const Tiling *tiling, int64_t batch, const int64_t *size, int64_t number, Box *tile) noexcept nogil:
    """Make the tile of that number of (batch, size) pixels; return False if there are fewer."""
    cdef int64_t count
    cdef int d
    for d in range(2, -1, -1):
        count = ceil_div(size[d], tiling.extent[d])
        if count == 0:
            return False
        tile.first[d] = number % count * tiling.extent[d]
        tile.extent[d] = min(tiling.extent[d], size[d] - tile.first[d])
        tile.step[d] = 1
        number //= count
    tile.n = number * tiling.samples
    tile.samples = min(tiling.samples, batch - tile.n)
    return tile.n < batch
