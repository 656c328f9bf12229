# grad_weight where rows and columns are read where they lie, channels side by side: chunk after chunk of pixels, each
# of which all rows and columns meet while it is in the caches.
cdef enum:
    WEIGHT_CHUNK = 64      # pixels
    WEIGHT_STRETCHES = 16  # of such pixels, at most
    WEIGHT_WHOLE = 256     # pixels of a tile that is one chunk, at most,
    WEIGHT_WHOLE_ROWS = 64   # and its rows, at least
    WEIGHT_CALLS = 16      # register tiles of a chunk, with fewer of which prefetching between them holds up the loads
    WEIGHT_MEMORY = 4 << 20  # bytes of both images, with more of which they do not stay in the caches


# A part of the only stretch of a tile's pixels, or some stretches.
ctypedef struct WeightChunk:
    BatchReduce steps
    int64_t a_offset[WEIGHT_STRETCHES]
    int64_t b_offset[WEIGHT_STRETCHES]


cdef void take_chunk(const WeightTile *t, const BatchReduce *steps, int64_t first, int64_t many,
                     WeightChunk *chunk) noexcept nogil:
    """Take `many` pixels of the only stretch from `first` on, or stretches."""
    cdef int64_t s
    chunk.steps = steps[0]
    chunk.steps.a_offset, chunk.steps.b_offset = chunk.a_offset, chunk.b_offset
    if steps.count == 1:
        chunk.steps.depth = min(many, steps.depth - first)
        chunk.a_offset[0] = t.a_offset[0] + first * steps.a_step
        chunk.b_offset[0] = t.b_offset[0] + first * steps.b_step
        return
    chunk.steps.count = min(many, steps.count - first)
    for s in range(chunk.steps.count):
        chunk.a_offset[s], chunk.b_offset[s] = t.a_offset[first + s], t.b_offset[first + s]


cdef void copy_columns(const ConvRun *run, const WeightTile *t, WeightChunk *chunk) noexcept nogil:
    """Copy the columns of a chunk side by side, as [micro-panel][pixel][co], and let it read them there."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = run.sample.item, columns = own.co.columns, depth = chunk.steps.depth, p, s
    for s in range(chunk.steps.count):
        for p in range(t.panels):
            kernels.pad_rows(t.columns + (chunk.b_offset[s] + p * columns) * item, chunk.steps.b_step * item,
                             t.output + (p * chunk.steps.count + s) * depth * columns * item, columns * item, depth, 0,
                             min(columns, t.cos - p * columns) * item, columns * item)
        chunk.b_offset[s] = s * depth * columns
    chunk.steps.b_step = columns


cdef void prefetch_chunk(const ConvRun *run, const WeightTile *t, const WeightChunk *chunk, int64_t calls,
                         Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch a chunk in `calls` parts. prefetch: two for each stretch."""
    cdef const BatchReduce *steps = &chunk.steps
    cdef int64_t item = run.sample.item, s
    for s in range(2 * steps.count):
        if s % 2:
            prefetch_pixels(t.columns + chunk.b_offset[s // 2] * item, steps.b_step * item, steps.depth, t.cos * item,
                            calls, &prefetch[s])
        else:
            prefetch_pixels(t.input + chunk.a_offset[s // 2] * item, steps.a_step * item, steps.depth, t.rows * item,
                            calls, &prefetch[s])
        if s:
            prefetch[s].lines += prefetch[s - 1].lines
            prefetch[s - 1].then = &prefetch[s]
    for s in range(2 * steps.count):
        prefetch[s].lines = prefetch[2 * steps.count - 1].lines


cdef bint tiles_ask(const ConvRun *run, int64_t calls) noexcept nogil:
    """Say whether register tiles had better ask for the next chunk as they read this one, `calls` of them a chunk: of
    images that come from memory, not from a cache."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t elements = sample.cin * sample.pixels_in + sample.cout * sample.pixels_out
    return run.problem.batch * sample.groups * elements * sample.item >= WEIGHT_MEMORY \
        and (calls < WEIGHT_CALLS or has_wide_vectors(sample))


cdef bint takes_whole_tile(const ConvRun *run, const WeightTile *t, const BatchReduce *steps) noexcept nogil:
    """Say whether a tile is one chunk: of few pixels, so that sums are read and written once and not every WEIGHT_CHUNK
    pixels, and of enough rows to be worth a copy of its columns, of which the first cache would not hold so many lines
    apart. Wide vectors were not measured."""
    return steps.count == 1 and steps.depth <= WEIGHT_WHOLE and t.rows >= WEIGHT_WHOLE_ROWS \
        and not has_wide_vectors(run.sample)


cdef void multiply_chunks(const ConvRun *run, const WeightTile *t, const BatchReduce *steps,
                          Prefetch *next_tile) noexcept nogil:
    """Add the products of the rows and columns of a tile where both lie pixel by pixel: all of some pixels, while the
    next ones, or those of the next tile, are asked for. Unless products are added one by one anyway, a tile has sums
    of its own, so that no bit depends on where it is cut."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = sample.item, first = 0, last = steps.depth if steps.count == 1 else steps.count, p
    cdef int64_t many = WEIGHT_CHUNK, panel = t.column_panel
    cdef int64_t calls = t.panels * ceil_div(t.rows, register_tile(sample, &own.co, t.cos).rows)
    cdef char *sums = t.sums if t.chains else t.chained
    cdef bint whole = takes_whole_tile(run, t, steps)
    cdef bint copies = whole or not spreads_over_sets(steps.b_step * item)
    cdef bint asks = steps.count == 1 and not copies and tiles_ask(run, calls)
    cdef Prefetch ahead[2 * WEIGHT_STRETCHES]
    cdef WeightChunk chunk
    if whole:
        many = steps.depth
    elif steps.count > 1:
        many = max(<int64_t>1, min(<int64_t>WEIGHT_STRETCHES, WEIGHT_CHUNK // steps.depth))
    if not t.chains:
        memset(t.chained, 0, t.rows * t.pitch * item)
    while first < last:
        no_prefetch(&ahead[0])
        if not asks and calls >= WEIGHT_CALLS and first + many < last:
            take_chunk(t, steps, first + many, many, &chunk)
            prefetch_chunk(run, t, &chunk, calls, ahead)
        take_chunk(t, steps, first, many, &chunk)
        if copies:
            copy_columns(run, t, &chunk)
            panel = chunk.steps.count * chunk.steps.depth * own.co.columns
        elif asks:
            chunk.steps.a_ahead, chunk.steps.b_ahead = many * steps.a_step, many * steps.b_step
        for p in range(t.panels):
            multiply(register_tile(sample, &own.co, t.cos - p * own.co.columns), &chunk.steps, t.input, t.indirection,
                     t.rows, (t.output if copies else t.columns) + p * panel * item, sums + p * own.co.columns * item,
                     t.pitch, item, True, next_tile if whole else &ahead[0])
            chunk.steps.a_ahead = 0
        first += many
    if not t.chains:
        add_values(sample, t.chained, t.sums, t.rows * t.pitch)
