# grad_weight of few channels, in two rounds: where there are fewer tasks than threads, or each would read all pixels of
# the other's channels again, a first round sums the tiles, whichever thread takes one, and keeps their sums; a second
# one adds them in the order of samples and tiles. So these sums are those of one round, bit for bit: there a tile has
# sums of its own, too.
cdef enum:
    PARTS_BYTES = 1 << 20   # a thread, of sums of tiles
    PARTS_TASKS = 4         # a thread, with more of which one round has enough
    PARTS_GROUPS = 8        # a thread, with as many of which one round has enough
    JOINS = 2               # a thread, of the second round
    JOINED_BYTES = 1 << 16  # of all tiles, by one of them, at least
    JOINED_AT_ONCE = 1024   # sums, which stay in the nearest cache while those of all tiles are added

    PARTS_KEPT = 0          # piece of shared scratch


# A part is one tile by one task; parts are numbered tile after tile. It keeps the sums of grad_bias, then its own.
ctypedef struct WeightParts:
    int64_t tasks        # of a tile
    int64_t bytes        # of a part; 0 where there is one round
    int64_t bias_bytes
    int64_t joins        # of the second round, by which the sums of a task are joined


cdef bint book_parts(const ConvProblem *problem, const SumOrder *order, const Tiling *tiling, int threads,
                     int64_t thread_bytes, int64_t sums_bytes, int64_t pieces, int64_t channels, WeightParts *parts,
                     Blocking *blocking) noexcept nogil:
    """Make room for the parts of parts.tasks, of so many bytes of sums and channels of grad_bias each, at most
    thread_bytes a thread, and let several units join a task's sums, which can be cut in so many pieces, where there are
    few tasks; return False where one round is better, or needed since products are added one by one."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t size[3]
    cdef int64_t tiles, bytes
    output_size(sample, size)
    tiles = count_tiles(tiling, problem.batch, size)
    parts.bias_bytes = round_up(tiling.extent[0] * channels * <int64_t>sizeof(double), CONV_ALIGN)
    parts.bytes = parts.bias_bytes + round_up(sums_bytes, CONV_ALIGN)
    if threads == 1 or order.accumulate or sample.groups >= PARTS_GROUPS * threads \
            or parts.tasks > max(<int64_t>PARTS_TASKS * threads, sample.groups) or tiles < 2 * threads \
            or mul_overflows(tiles * parts.tasks, parts.bytes, &bytes) or bytes > threads * thread_bytes:
        return False
    parts.joins = 1
    if parts.tasks % threads:
        parts.joins = max(<int64_t>1, min(min(pieces, bytes // parts.tasks // JOINED_BYTES),
                                          ceil_div(JOINS * threads, parts.tasks)))
    book(&blocking.shared, PARTS_KEPT, bytes, 1)
    blocking.prepares, blocking.in_order = tiles * parts.tasks, True
    return True


cdef double *part_bias(const ConvRun *run, const WeightParts *parts, int64_t number) noexcept nogil:
    """Find the sums of grad_bias that part number keeps."""
    return <double *>(shared_piece(run, PARTS_KEPT) + number * parts.bytes)


cdef char *part_sums(const ConvRun *run, const WeightParts *parts, int64_t number) noexcept nogil:
    """Find the sums that part number keeps."""
    return shared_piece(run, PARTS_KEPT) + number * parts.bytes + parts.bias_bytes


cdef int64_t piece_from(const WeightParts *parts, int64_t join, int64_t pieces) noexcept nogil:
    """Return the first of a task's pieces that a join adds; the next join's is where it ends."""
    return join * pieces // parts.joins


cdef void join_parts(const ConvRun *run, const WeightParts *parts, const Tiling *tiling, int64_t task, int64_t first,
                     int64_t n, char *sums, const BiasShare *bias) noexcept nogil:
    """Add n sums of each tile, from one on, and grad_bias's, that the first round has kept for a task."""
    cdef int64_t item = run.sample.item, done = 0, some, tile, tiles
    cdef int64_t size[3]
    cdef Box box
    output_size(run.sample, size)
    tiles = count_tiles(tiling, run.problem.batch, size)
    while done < n:
        some = min(<int64_t>JOINED_AT_ONCE, n - done)
        for tile in range(tiles):
            add_values(run.sample, part_sums(run, parts, tile * parts.tasks + task) + (first + done) * item,
                       sums + done * item, some)
        done += some
    for tile in range(tiles):
        nth_tile(tiling, run.problem.batch, size, tile, &box)
        join_bias(run.problem, part_bias(run, parts, tile * parts.tasks + task), box.extent[0], bias)
