# grad_input where its channels lie side by side, written from registers where all products are one block's; and that of
# one tap where the channels of both tensors do, some pixels at a time: they are read where they lie, or (pairs of
# bfloat16) put in order. The values and the order of their products are those of a packed block and of sums.
cdef enum:
    PIXELS_AT_ONCE = 64
    PIXELS_BYTES = 16384   # of what is kept of them between the tensors, at most


cdef bint both_lie_by_pixels(const ConvRun *run, const InputTile *t, const Box *block) noexcept nogil:
    """Say whether each pixel of a phase is a product of the weights with one pixel, and both lie as their channels side
    by side."""
    cdef const ConvProblem *problem = run.problem
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t item = itemsize_of(run.sample.dtype)
    cdef bint ready = bfloat16_dot2(run.sample) or (of_whole_elements(problem, g) and of_whole_elements(problem, out))
    return ready and run.sample.taps == 1 and t.phase.tap_count == 1 and run.sample.folded == 1 \
        and block_classes(run.sample) == 1 and not run.nonfinite and not problem.accumulate \
        and g.channel == item and out.channel == item and lies_in_output(run.sample, block)


cdef void lead_pixels(const ConvRun *run, InputTile *some, char *source, int64_t co, BatchReduce *steps) noexcept nogil:
    """Lead a step through a panel of co of some pixels: where they lie, or put in order first."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t count = min(run.order.channels, sample.cout - co)
    source += co * itemsize_of(sample.dtype)
    steps.count, steps.depth = 1, count
    some.a_offset[0] = some.b_offset[0] = 0
    if own.weights.ci.vnni:
        steps.depth = ceil_div(count, 2)
        kernels.vnni.of_lines(source, run.problem.view[CONV_GRAD_OUTPUT].space[2], some.block, some.indirection[1] * 2,
                              some.pixels, count)
    else:
        some.block = source


cdef void put_pixels(const ConvRun *run, const InputTile *some, BatchReduce *steps, char *to, int64_t to_step,
                     Prefetch *prefetch) noexcept nogil:
    """Write the products of some pixels, at least as many as register tiles have rows, from registers: a panel's last
    register tile may begin before the others have ended."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightPanels *weights = &(<const InputTiles *>run.blocking.own).weights
    cdef const RegisterTile *tile
    cdef int64_t item = itemsize_of(sample.dtype), columns = weights.ci.columns, p, i
    cdef bint past = run.problem.stream and (<uintptr_t>to | <uintptr_t>(to_step | columns * item)) % CONV_ALIGN == 0
    cdef char *weight
    for p in range(some.panels):
        weight = weight_panel(sample, weights, shared_piece(run, INPUT_WEIGHTS), some.sums.group, some.panel_from + p,
                              0) + some.phase.first_packed * steps.depth * columns * sample.item
        steps.columns = min(columns, some.sums.channels - p * columns)
        tile = register_tile(sample, &weights.ci, steps.columns)
        if steps.bias != NULL:
            load_output_bias(run.problem, some.sums.group * sample.cin + some.sums.ci_from + p * columns,
                             steps.columns, <char *>steps.bias)
        i = 0
        while i < some.pixels:
            i = min(i, some.pixels - tile.rows)
            prefetch_some(prefetch)
            tile.kernel(steps, some.block, some.indirection + i, weight, to + i * to_step + p * columns * item,
                        to_step // item, GEMM_PUT_PAST if past else GEMM_PUT)
            i += tile.rows


cdef bint puts_tile(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether a tile's products, all of one block and one panel of taps, can be written from registers, and its
    pixels follow each other in stretches that are long enough."""
    cdef const ConvProblem *problem = run.problem
    cdef const SampleGeometry *sample = run.sample
    cdef const MicroPanels *ci = &(<const InputTiles *>run.blocking.own).weights.ci
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t last_columns = t.sums.channels - (t.panels - 1) * ci.columns
    if out.channel != itemsize_of(sample.dtype) or run.nonfinite or problem.accumulate \
            or not (bfloat16_dot2(sample) or of_whole_elements(problem, out)):
        return False
    return sample.cout <= run.order.channels and 0 < t.phase.tap_count <= run.order.taps \
        and t.tile.extent[2] >= max(register_tile(sample, ci, ci.columns).rows,
                                    register_tile(sample, ci, last_columns).rows)


cdef void put_tile(const ConvRun *run, const InputTile *t, const BatchReduce *steps, Prefetch *prefetch) noexcept nogil:
    """Write the products of a tile, in one stretch where its pixels follow each other evenly, else row by row."""
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef double bias[BIAS_STAGED]
    cdef InputTile some = t[0]
    cdef BatchReduce all_steps = steps[0]
    cdef int64_t n, z, y
    cdef int64_t step[3]
    cdef int d
    for d in range(3):
        step[d] = out.space[d] * run.sample.axis[d].stride
    all_steps.bias = <const void *>bias if has_output_bias(run.problem) else NULL
    if follow_evenly(&t.tile, out.n, step):
        put_pixels(run, &some, &all_steps,
                   tile_row(run.problem, t.sums.group, &t.phase, &t.tile, t.sums.ci_from, 0, 0, 0), step[2], prefetch)
        return
    some.pixels = t.tile.extent[2]
    for n in range(t.tile.samples):
        for z in range(t.tile.extent[0]):
            for y in range(t.tile.extent[1]):
                put_pixels(run, &some, &all_steps,
                           tile_row(run.problem, t.sums.group, &t.phase, &t.tile, t.sums.ci_from, n, z, y), step[2],
                           prefetch)
                some.indirection += some.pixels


cdef char *pixel_of_tile(const ConvRun *run, const InputTile *t, int64_t number) noexcept nogil:
    """Find the pixel of that number of a tile in grad_input."""
    cdef int64_t row = number // t.tile.extent[2], plane = row // t.tile.extent[1]
    return tile_row(run.problem, t.sums.group, &t.phase, &t.tile, t.sums.ci_from, plane // t.tile.extent[0],
                    plane % t.tile.extent[0], row % t.tile.extent[1]) \
        + number % t.tile.extent[2] * run.sample.axis[2].stride * run.problem.view[CONV_GRAD_INPUT].space[2]


cdef void sum_pixels(const ConvRun *run, InputTile *some, BatchReduce *steps, char *source,
                     Prefetch *prefetch) noexcept nogil:
    """Add the products of some pixels, panel after panel of co."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t co = 0
    memset(some.sums.data, 0, some.pixels * some.sums.pixel_pitch * sample.item)
    repeat_last(some.indirection, some.pixels)
    while co < sample.cout:
        lead_pixels(run, some, source, co, steps)
        multiply_panels(run, some, steps, co, 0, prefetch)
        co += run.order.channels
    some.tile.samples = some.tile.extent[0] = some.tile.extent[1] = 1
    some.tile.extent[2] = some.pixels
    add_output_bias(run.problem, &some.sums, &some.tile, bfloat16_dot2(sample))


cdef void save_sums_of_pixels(const ConvRun *run, const InputTile *t, const InputTile *some, int64_t first,
                              bint even) noexcept nogil:
    """Save the sums of the tile's pixels from `first` on: at once where all follow each other evenly, else row by
    row."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t width = t.tile.extent[2], done = 0, n
    while done < some.pixels:
        n = some.pixels - done
        if not even:
            n = min(n, width - (first + done) % width)
        save_pixels(run.problem, some.sums.data + done * some.sums.pixel_pitch * sample.item, some.sums.pixel_pitch, n,
                    some.sums.channels, pixel_of_tile(run, t, first + done),
                    run.problem.view[CONV_GRAD_INPUT].space[2] * sample.axis[2].stride, itemsize_of(sample.dtype),
                    some.staging)
        done += n


cdef void multiply_stretch(const ConvRun *run, const InputTile *t, const BatchReduce *steps, char *source,
                           int64_t first, int64_t pixels, bint even) noexcept nogil:
    """Multiply the tile's pixels from `first` on, some at a time, by all panels, and write them, while the next ones
    are asked for. even: grad_input's pixels follow each other evenly; else they are rows."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef bint vnni = own.weights.ci.vnni
    cdef int64_t last_columns = t.sums.channels - (t.panels - 1) * own.weights.ci.columns
    cdef int64_t rows = register_tile(sample, &own.weights.ci, t.sums.channels).rows, item = itemsize_of(sample.dtype)
    cdef int64_t last_rows = register_tile(sample, &own.weights.ci, last_columns).rows
    cdef int64_t step = run.problem.view[CONV_GRAD_OUTPUT].space[2], apart = step // item
    cdef int64_t kept = t.sums.pixel_pitch * sample.item, chunk, calls, next, i
    cdef int64_t place[PIXELS_AT_ONCE + MAX_ROWS]
    cdef double bias[BIAS_STAGED]
    cdef bint put = sample.cout <= run.order.channels and (even or pixels <= t.tile.extent[2])
    cdef BatchReduce part = steps[0]
    cdef InputTile some = t[0]
    cdef Prefetch prefetch
    if vnni:  # an odd number of cache lines, since powers of two share cache sets
        apart = round_up(min(sample.cout, run.order.channels), CONV_ALIGN // 2) | CONV_ALIGN // 2
        kept = max(kept, apart * 2)
    chunk = rows * max(<int64_t>2, min(<int64_t>PIXELS_AT_ONCE, PIXELS_BYTES // kept) // rows)
    calls = t.panels * ceil_div(chunk, rows) * ceil_div(sample.cout, run.order.channels)
    part.bias = <const void *>bias if has_output_bias(run.problem) else NULL
    some.indirection = place
    for i in range(chunk + MAX_ROWS):
        place[i] = i * apart
    while pixels and not is_stopped(run):
        some.pixels = min(chunk, pixels)
        next = min(chunk, pixels - some.pixels)
        no_prefetch(&prefetch)
        if next:
            prefetch_pixels(source + some.pixels * step, step, next, sample.cout * item, calls, &prefetch)
        if put and some.pixels >= rows and some.pixels >= last_rows:
            lead_pixels(run, &some, source, 0, &part)
            put_pixels(run, &some, &part, pixel_of_tile(run, t, first),
                       run.problem.view[CONV_GRAD_INPUT].space[2] * sample.axis[2].stride, &prefetch)
        else:
            sum_pixels(run, &some, &part, source, &prefetch)
            save_sums_of_pixels(run, t, &some, first, even)
        source += some.pixels * step
        first += some.pixels
        pixels -= some.pixels


cdef bint rows_fill_tiles(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Say whether register tiles over one row of pixels at a time compute few of them twice."""
    cdef int64_t width = t.tile.extent[2]
    cdef int64_t rows = register_tile(run.sample, &(<const InputTiles *>run.blocking.own).weights.ci,
                                      t.sums.channels).rows
    return round_up(width, rows) * 8 <= width * 9 and run.sample.cout <= run.order.channels


cdef void multiply_by_pixels(const ConvRun *run, const InputTile *t, const Box *block,
                             const BatchReduce *steps) noexcept nogil:
    """Multiply and save a tile, in one stretch where its pixels follow each other evenly in grad_output, else row by
    row; these, too, where they go from registers to grad_input's rows."""
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t n, z, y, number = 0
    cdef int64_t step[3]
    cdef char *source = first_of_output(run, t, block)
    cdef bint even
    cdef int d
    for d in range(3):
        step[d] = out.space[d] * run.sample.axis[d].stride
    even = follow_evenly(&t.tile, out.n, step)
    if follow_evenly(&t.tile, g.n, g.space) and (even or not rows_fill_tiles(run, t)):
        multiply_stretch(run, t, steps, source, 0, t.pixels, even)
        return
    for n in range(t.tile.samples):
        for z in range(t.tile.extent[0]):
            for y in range(t.tile.extent[1]):
                multiply_stretch(run, t, steps, source + n * g.n + z * g.space[0] + y * g.space[1], number,
                                 t.tile.extent[2], even)
                number += t.tile.extent[2]
