# grad_input where its channels lie side by side, written from registers where all products are one block's; and that of
# one tap where the channels of both tensors do, some pixels at a time: they are read where they lie, or (pairs of
# bfloat16) put in order. The values and the order of their products are those of a packed block and of sums.
cdef enum:
    PIXELS_AT_ONCE = 64    # of float32 and float64, and more where what they meet has room in the first cache:
    MOST_AT_ONCE = 128     # at most; of pairs of bfloat16, these
    PIXELS_BYTES = 32768   # of their sums, or their stage, at most; of narrow vectors:
    NARROW_BYTES = 65536
    PAIRED_BYTES = 16384   # of pairs of bfloat16 in order, at most
    FIRST_CACHE = 32768
    STOP_AFTER = 1 << 20   # multiplications, before it is asked again whether to stop: to ask takes some ten ns


cdef bint both_lie_by_pixels(const ConvRun *run, const InputTile *t, const Box *block) noexcept nogil:
    """Say whether each pixel of a phase is a product of the weights with one pixel, and both lie as their channels side
    by side."""
    cdef const ConvProblem *problem = run.problem
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t item = itemsize_of(run.sample.dtype)
    cdef bint ready = bfloat16_dot2(run.sample) or (of_whole_elements(problem, g) and of_whole_elements(problem, out))
    return ready and is_one_product(run.sample) and t.phase.tap_count == 1 \
        and not run.nonfinite and not problem.accumulate \
        and g.channel == item and out.channel == item and lies_in_output(run.sample, block)


cdef int64_t source_of_pixel(const ConvRun *run, const InputTile *t, int64_t number) noexcept nogil:
    """Count the bytes from what the tile's first pixel meets in grad_output to what that of this number does."""
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t row = number // t.tile.extent[2], plane = row // t.tile.extent[1]
    return plane // t.tile.extent[0] * g.n + plane % t.tile.extent[0] * g.space[0] \
        + row % t.tile.extent[1] * g.space[1] + number % t.tile.extent[2] * g.space[2]


# Some pixels of a tile, from one on. What they meet, and where they lie in grad_input, follow each other evenly, or row
# by row.
ctypedef struct PixelStretch:
    int64_t first, pixels
    bint even_source, even


cdef int64_t even_pixels(const InputTile *t, int64_t number, int64_t left, bint even) noexcept nogil:
    """Count the pixels from that number on that follow each other evenly, of those that are left."""
    return left if even else min(left, t.tile.extent[2] - number % t.tile.extent[2])


cdef void point_pixels(const ConvRun *run, const InputTile *t, const PixelStretch *stretch, int64_t pixels,
                       int64_t *indirection) noexcept nogil:
    """Point the first pixels of a stretch, which are read where they lie, at what they meet."""
    cdef int64_t item = itemsize_of(run.sample.dtype), step = run.problem.view[CONV_GRAD_OUTPUT].space[2] // item
    cdef int64_t first = source_of_pixel(run, t, stretch.first), done = 0, from_first, n, i
    while done < pixels:
        n = even_pixels(t, stretch.first + done, pixels - done, stretch.even_source)
        from_first = (source_of_pixel(run, t, stretch.first + done) - first) // item
        for i in range(n):
            indirection[done + i] = from_first + i * step
        done += n


cdef void lead_pixels(const ConvRun *run, const InputTile *t, const PixelStretch *stretch, char *first_source,
                      int64_t co, InputTile *some, BatchReduce *steps) noexcept nogil:
    """Lead a step through a panel of co of some pixels: where they lie, or put in order first. first_source: what the
    tile's first pixel meets."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t count = min(run.order.channels, sample.cout - co), pitch = some.indirection[1] * 2, done = 0, n
    first_source += co * itemsize_of(sample.dtype)
    steps.count, steps.depth = 1, count
    some.a_offset[0] = some.b_offset[0] = 0
    if not own.weights.ci.vnni:
        some.block = first_source + source_of_pixel(run, t, stretch.first)
        return
    steps.depth = ceil_div(count, 2)
    while done < some.pixels:
        n = even_pixels(t, stretch.first + done, some.pixels - done, stretch.even_source)
        kernels.vnni.of_lines(first_source + source_of_pixel(run, t, stretch.first + done),
                              run.problem.view[CONV_GRAD_OUTPUT].space[2], some.block + done * pitch, pitch, n, count)
        done += n


cdef void put_pixels(const ConvRun *run, const InputTile *some, BatchReduce *steps, char *to, int64_t to_step,
                     bint past, Prefetch *prefetch, Unsent *unsent) noexcept nogil:
    """Write the products of some pixels, at least as many as register tiles have rows, from registers: a panel's last
    register tile may begin before the others have ended. past: past the caches, as far as they are whole lines; a panel
    of fewer columns would write parts of them, which takes far longer."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightPanels *weights = &(<const InputTiles *>run.blocking.own).weights
    cdef const RegisterTile *tile
    cdef int64_t item = itemsize_of(sample.dtype), columns = weights.ci.columns, p, i
    cdef const char *weight
    past = past and (<uintptr_t>to | <uintptr_t>(to_step | columns * item)) % CONV_ALIGN == 0
    for p in range(some.panels):
        weight = weights_of_panel(run, some, p, 0, 0, steps)
        steps.columns = min(columns, some.sums.channels - p * columns)
        tile = register_tile(sample, &weights.ci, steps.columns)
        if steps.bias != NULL:
            load_output_bias(run.problem, some.sums.group * sample.cin + some.sums.ci_from + p * columns,
                             steps.columns, <char *>steps.bias)
        i = 0
        while i < some.pixels:
            i = min(i, some.pixels - tile.rows)
            prefetch_some(prefetch)
            send(unsent, unsent.share)
            tile.kernel(steps, some.block, some.indirection + i, weight, to + i * to_step + p * columns * item,
                        to_step // item, GEMM_PUT_PAST if past and steps.columns == columns else GEMM_PUT)
            i += tile.rows


cdef int64_t most_tile_rows(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Count the rows of the larger one of a task's register tiles: of a whole micro-panel and of the last one."""
    cdef const MicroPanels *ci = &(<const InputTiles *>run.blocking.own).weights.ci
    return max(register_tile(run.sample, ci, t.sums.channels).rows,
               register_tile(run.sample, ci, t.sums.channels - (t.panels - 1) * ci.columns).rows)


cdef int64_t written_step(const ConvRun *run) noexcept nogil:
    """Count the bytes from a pixel of a phase to the next one of its row in grad_input."""
    return run.problem.view[CONV_GRAD_INPUT].space[2] * run.sample.axis[2].stride


cdef bint written_evenly(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether a tile's pixels follow each other evenly in grad_input."""
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t step[3]
    cdef int d
    for d in range(3):
        step[d] = out.space[d] * run.sample.axis[d].stride
    return follow_evenly(&t.tile, out.n, step)


cdef char *pixel_of_tile(const ConvRun *run, const InputTile *t, int64_t number) noexcept nogil:
    """Find the pixel of that number of a tile in grad_input."""
    cdef int64_t row = number // t.tile.extent[2], plane = row // t.tile.extent[1]
    return tile_row(run.problem, t.sums.group, &t.phase, &t.tile, t.sums.ci_from, plane // t.tile.extent[0],
                    plane % t.tile.extent[0], row % t.tile.extent[1]) + number % t.tile.extent[2] * written_step(run)


cdef bint puts_tile(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether a tile's products, all of one block and one panel of taps, can be written from registers, and its
    pixels follow each other in stretches that are long enough."""
    cdef const ConvProblem *problem = run.problem
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    if out.channel != itemsize_of(sample.dtype) or run.nonfinite or problem.accumulate \
            or not (bfloat16_dot2(sample) or of_whole_elements(problem, out)):
        return False
    return 0 < sample.cout <= run.order.channels and 0 < t.phase.tap_count <= run.order.taps \
        and t.tile.extent[2] >= most_tile_rows(run, t)


cdef void put_tile(const ConvRun *run, const InputTile *t, const BatchReduce *steps, Prefetch *prefetch) noexcept nogil:
    """Write the products of a tile, in one stretch where its pixels follow each other evenly, else row by row."""
    cdef double bias[BIAS_STAGED]
    cdef InputTile some = t[0]
    cdef BatchReduce all_steps = steps[0]
    cdef int64_t number = 0
    cdef Unsent nothing
    send_nothing(&nothing)
    all_steps.bias = <const void *>bias if has_output_bias(run.problem) else NULL
    if not written_evenly(run, t):
        some.pixels = t.tile.extent[2]
    while number < t.pixels:
        put_pixels(run, &some, &all_steps, pixel_of_tile(run, t, number), written_step(run), run.problem.stream,
                   prefetch, &nothing)
        some.indirection += some.pixels
        number += some.pixels


cdef void sum_pixels(const ConvRun *run, const InputTile *t, const PixelStretch *stretch, char *first_source,
                     InputTile *some, BatchReduce *steps, Prefetch *prefetch) noexcept nogil:
    """Add the products of some pixels, panel after panel of co, and save their sums."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t co = 0, done = 0, n, pitch = some.sums.pixel_pitch
    memset(some.sums.data, 0, some.pixels * pitch * sample.item)
    repeat_last(some.indirection, some.pixels)
    while co < sample.cout:
        lead_pixels(run, t, stretch, first_source, co, some, steps)
        multiply_panels(run, some, steps, co, 0, prefetch)
        co += run.order.channels
    some.tile.samples = some.tile.extent[0] = some.tile.extent[1] = 1
    some.tile.extent[2] = some.pixels
    add_output_bias(run.problem, &some.sums, &some.tile, bfloat16_dot2(sample))
    while done < some.pixels:
        n = even_pixels(t, stretch.first + done, some.pixels - done, stretch.even)
        save_pixels(run.problem, some.sums.data + done * pitch * sample.item, pitch, n, some.sums.channels,
                    pixel_of_tile(run, t, stretch.first + done), written_step(run), itemsize_of(sample.dtype),
                    some.staging)
        done += n


cdef bint leaves_by_stage(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether pixels that follow each other without a gap go past the caches by way of a stage, since they, or
    their panels, fill no cache lines, or the array does not begin with one: NumPy's memory begins 16 or 32 bytes behind
    a line, so that vectors would be stored across lines, which takes about twice as long."""
    cdef int64_t item = itemsize_of(run.sample.dtype), pixel = t.sums.channels * item
    cdef int64_t panel = (<const InputTiles *>run.blocking.own).weights.ci.columns * item
    cdef uintptr_t first = <uintptr_t>run.problem.view[CONV_GRAD_INPUT].data
    return run.problem.stream and written_step(run) == pixel and (first | pixel | panel) % CONV_ALIGN != 0


cdef int64_t half_stage(const ConvRun *run, int64_t most) noexcept nogil:
    """Return the bytes of half a stage of so many pixels, with room for what is left of those before."""
    return round_up(most * written_step(run), CONV_ALIGN) + CONV_ALIGN


cdef void put_staged_pixels(const ConvRun *run, const InputTile *some, BatchReduce *steps, char *to, int64_t calls,
                            Prefetch *prefetch, Unsent *unsent) noexcept nogil:
    """Write the products of some pixels to one half of the stage, while the other half is sent; then begin to send
    these. calls: the register tiles of as many pixels as a half has room for."""
    put_pixels(run, some, steps, unsent.stage, written_step(run), False, prefetch, unsent)
    send(unsent, unsent.bytes)
    begin_sending(to, some.pixels * written_step(run), calls, unsent)


cdef int64_t most_at_once(const ConvRun *run, int64_t kept, int64_t paired) noexcept nogil:
    """Return the most pixels that are multiplied by all panels before the next ones are. kept, paired: bytes of the
    sums of each, and of its pairs of bfloat16, 0 without them. The weights are read again for every so many, so that
    more pay for narrow vectors, whose register tiles have few columns, as far as the second cache holds them (1.02 to
    1.2 times as fast on Zen 3)."""
    cdef int64_t pixels, read = min(run.sample.cout, run.order.channels) * run.sample.item
    if paired:
        return min(<int64_t>MOST_AT_ONCE, min(PIXELS_BYTES // kept, PAIRED_BYTES // paired))
    if has_wide_vectors(run.sample):
        return min(<int64_t>PIXELS_AT_ONCE, PIXELS_BYTES // kept)
    pixels = max(<int64_t>PIXELS_AT_ONCE, min(<int64_t>MOST_AT_ONCE, FIRST_CACHE // max(<int64_t>1, read)))
    return min(pixels, NARROW_BYTES // kept)


cdef void multiply_stretch(const ConvRun *run, const InputTile *t, const BatchReduce *steps, char *first_source,
                           PixelStretch stretch) noexcept nogil:
    """Multiply a stretch of pixels, some at a time, by all panels, and write them, while the next ones are asked
    for."""
    cdef const SampleGeometry *sample = run.sample
    cdef const MicroPanels *ci = &(<const InputTiles *>run.blocking.own).weights.ci
    cdef int64_t rows = register_tile(sample, ci, t.sums.channels).rows, item = itemsize_of(sample.dtype)
    cdef int64_t step = run.problem.view[CONV_GRAD_OUTPUT].space[2], kept = t.sums.pixel_pitch * sample.item
    cdef int64_t apart = step // item, chunk, calls, next, i, unasked = 0
    cdef int64_t place[MOST_AT_ONCE + MAX_ROWS]
    cdef double bias[BIAS_STAGED]
    cdef bint put = sample.cout <= run.order.channels and stretch.even, stages
    cdef Unsent unsent
    cdef BatchReduce part = steps[0]
    cdef InputTile some = t[0]
    cdef Prefetch prefetch
    if ci.vnni:  # an odd number of cache lines, since powers of two share cache sets
        apart = round_up(min(sample.cout, run.order.channels), CONV_ALIGN // 2) | CONV_ALIGN // 2
    chunk = rows * max(<int64_t>2, most_at_once(run, kept, apart * 2 if ci.vnni else 0) // rows)
    calls = t.panels * ceil_div(chunk, rows) * ceil_div(sample.cout, run.order.channels)
    part.bias = <const void *>bias if has_output_bias(run.problem) else NULL
    stages = put and leaves_by_stage(run, t) \
        and CONV_ALIGN + 2 * half_stage(run, chunk) <= t.pixels * t.sums.pixel_pitch * sample.item
    begin_stage(some.sums.data, half_stage(run, chunk), &unsent)  # in the room for sums, where it is used
    some.indirection = place
    for i in range(chunk + MAX_ROWS):
        place[i] = i * apart
    while stretch.pixels:
        unasked += chunk * sample.cout * t.sums.channels
        if unasked >= STOP_AFTER:
            unasked = 0
            if is_stopped(run):
                break
        some.pixels = min(chunk, stretch.pixels)
        next = even_pixels(t, stretch.first + some.pixels, min(chunk, stretch.pixels - some.pixels),
                           stretch.even_source)
        no_prefetch(&prefetch)
        if next:
            prefetch_pixels(first_source + source_of_pixel(run, t, stretch.first + some.pixels), step, next,
                            sample.cout * item, calls, &prefetch)
        if not ci.vnni and not stretch.even_source:
            point_pixels(run, t, &stretch, some.pixels, place)
        if put and some.pixels >= most_tile_rows(run, t):
            lead_pixels(run, t, &stretch, first_source, 0, &some, &part)
            if stages:
                put_staged_pixels(run, &some, &part, pixel_of_tile(run, t, stretch.first), calls, &prefetch, &unsent)
            else:
                put_pixels(run, &some, &part, pixel_of_tile(run, t, stretch.first), written_step(run),
                           run.problem.stream, &prefetch, &unsent)
        else:
            finish_sending(&unsent)  # from where the sums go
            sum_pixels(run, t, &stretch, first_source, &some, &part, &prefetch)
        stretch.first += some.pixels
        stretch.pixels -= some.pixels
    finish_sending(&unsent)


cdef bint rows_fill_tiles(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether register tiles over one row of pixels at a time compute few of them twice."""
    cdef int64_t width = t.tile.extent[2]
    cdef int64_t rows = register_tile(run.sample, &(<const InputTiles *>run.blocking.own).weights.ci,
                                      t.sums.channels).rows
    return round_up(width, rows) * 8 <= width * 9


cdef void multiply_by_pixels(const ConvRun *run, const InputTile *t, const Box *block,
                             const BatchReduce *steps) noexcept nogil:
    """Multiply and save a tile: row by row where grad_input's rows lie apart and can be written from registers, else in
    one stretch."""
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef char *first_source = first_of_output(run, t, block)
    cdef PixelStretch stretch
    stretch.first, stretch.pixels = 0, t.pixels
    stretch.even_source, stretch.even = follow_evenly(&t.tile, g.n, g.space), written_evenly(run, t)
    if stretch.even or run.sample.cout > run.order.channels or not rows_fill_tiles(run, t):
        multiply_stretch(run, t, steps, first_source, stretch)
        return
    stretch.pixels, stretch.even_source, stretch.even = t.tile.extent[2], True, True
    while stretch.first < t.pixels:
        multiply_stretch(run, t, steps, first_source, stretch)
        stretch.first += stretch.pixels
