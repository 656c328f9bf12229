# grad_weight by outer products: rows are co, columns (ci, tap) as the weights lie, steps are output pixels. A chunk of
# the input under all output pixels of a tile is packed line of taps by line. For kernels about as large as the image,
# and for patches.
cdef enum:
    OUTER_COS = 128         # rows summed together

    # pieces of a thread's scratch
    OUTER_INPUT = 0
    OUTER_OUTPUT = 1
    OUTER_SUMMED = 2
    OUTER_STAGING = 3
    OUTER_PLACES = 4
    OUTER_ROWS = 5
    OUTER_BIAS = 6


ctypedef struct WeightOuter:
    Tiling tiling       # of output pixels
    int64_t chunks      # of a task
    int64_t parts       # tasks of a group and some co by chunks
    int64_t cos         # of a task
    int64_t blocks      # of co


# A task's part, and where its scratch lies.
ctypedef struct OuterTask:
    TapColumns columns
    int64_t group, co_from, cos, part
    int64_t chunk, chunks
    char *input
    char *output
    char *sums
    char *staging
    int64_t *place
    int64_t *rows
    int64_t packed_input, packed_output  # what the scratch holds, by numbers; -1 for nothing


cdef void order_weight_outer(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum in tiles of at most CHUNK_ROWS output pixels; one by one where images are short."""
    cdef int64_t size[3]
    cdef Tiling tiling
    output_size(sample, size)
    tile_grid(size, CHUNK_ROWS, &tiling)
    order.tile, order.accumulate = tiling.extent, sample.pixels_out < SHORT_IMAGE


cdef bint accepts_weight_outer(const SampleGeometry *sample, const char **why) noexcept nogil:
    if not outer_products_pay(sample):
        why[0] = b"products by (input channel, tap) as rows take less"
        return False
    return True


cdef void all_columns(const ConvProblem *problem, TapColumns *columns) noexcept nogil:
    """Make the columns of all ci and taps."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int d
    columns.ci_from, columns.cis = 0, sample.cin
    for d in range(3):
        columns.box.tap[d] = columns.box.output[d] = 0
        columns.box.taps[d], columns.box.outputs[d] = sample.axis[d].kernel, sample.axis[d].size_out
    columns.channels_last = channels_make_lines(problem, &problem.view[CONV_GRAD_WEIGHT], &problem.view[CONV_INPUT])
    cut_chunks(sample, columns)


cdef bint only_inside(const SampleGeometry *sample) noexcept nogil:
    """Say whether there is one output pixel, all of whose taps are inside of the image."""
    cdef TapBox box
    return sample.pixels_out == 1 and sample.pixels_in > 0 and reach_image(sample, &box) \
        and box_taps(&box) == sample.taps


cdef void block_weight_outer(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                             Blocking *blocking) noexcept nogil:
    """Make tasks of some chunks by all co, or by fewer where threads would idle."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightOuter *own = <WeightOuter *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t size[3]
    cdef TapColumns columns
    all_columns(problem, &columns)
    output_size(sample, size)
    one_sample_tiling(order.tile, &own.tiling)
    if order.accumulate:
        join_samples(size, problem.batch, CHUNK_ROWS // sample.pixels_out, &own.tiling)
    own.cos, own.chunks = max(<int64_t>1, sample.cout), max(<int64_t>1, ceil_div(columns.chunks, 4 * threads))
    own.parts = max(<int64_t>1, ceil_div(columns.chunks, own.chunks))
    while threads > 1 and own.cos > 16 and sample.groups * own.parts * ceil_div(sample.cout, own.cos) < 2 * threads:
        own.cos = round_up(ceil_div(own.cos, 2), 8)
    own.blocks = ceil_div(sample.cout, own.cos)
    blocking.tasks = sample.groups * own.blocks * own.parts
    book(local, OUTER_INPUT, CHUNK_ROWS * chunk_pitch(sample), sample.item)
    book(local, OUTER_OUTPUT, CHUNK_ROWS * OUTPUT_PITCH, sample.item)
    book(local, OUTER_SUMMED, (OUTER_COS + MAX_ROWS) * chunk_pitch(sample), sample.item)
    book(local, OUTER_STAGING, staging_elements(sample), sample.item)
    book(local, OUTER_PLACES, CHUNK_ROWS, sizeof(int64_t))
    book(local, OUTER_ROWS, OUTER_COS + MAX_ROWS, sizeof(int64_t))
    book(local, OUTER_BIAS, own.cos, sizeof(double))


cdef void begin_outer(const ConvRun *run, int64_t number, char *scratch, OuterTask *t) noexcept nogil:
    """Begin task number (group, block of co, part of the chunks)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightOuter *own = <const WeightOuter *>run.blocking.own
    cdef int64_t i
    all_columns(run.problem, &t.columns)
    t.part = number % own.parts
    t.chunk, t.chunks = t.part * own.chunks, min(own.chunks, t.columns.chunks - t.part * own.chunks)
    number //= own.parts
    t.co_from, t.group = number % own.blocks * own.cos, number // own.blocks
    t.cos = min(own.cos, sample.cout - t.co_from)
    t.input, t.output = local_piece(run, OUTER_INPUT, scratch), local_piece(run, OUTER_OUTPUT, scratch)
    t.sums, t.staging = local_piece(run, OUTER_SUMMED, scratch), local_piece(run, OUTER_STAGING, scratch)
    t.place = <int64_t *>local_piece(run, OUTER_PLACES, scratch)
    t.rows = <int64_t *>local_piece(run, OUTER_ROWS, scratch)
    t.packed_input = t.packed_output = -1
    for i in range(OUTER_COS):
        t.rows[i] = i


cdef void take_line(const ConvProblem *problem, const OuterTask *t, const Box *tile, const Chunk *chunk, int64_t line,
                    char *to) noexcept nogil:
    """Pack the input under one line by a tile's output pixels, rows chunk_pitch elements apart."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *input = &problem.view[CONV_INPUT]
    cdef const ConvAxis *x = &sample.axis[2]
    cdef int64_t n, z, y, ci, pixel = 1
    cdef int64_t k[3]
    cdef int64_t i[3]
    cdef TapLine taps
    cdef char *plane
    cdef char *source
    line_begin(&t.columns, chunk, line, &ci, k)
    taps.taps, taps.pitch = chunk.length, input.space[2] // itemsize_of(sample.dtype)
    taps.tap_step = 1 if chunk.length == 1 or t.columns.channels_last else x.dilation
    if t.columns.channels_last:
        pixel, taps.pitch = taps.pitch, 1
    taps.rows, taps.row_step = tile.extent[2], x.stride * pixel
    taps.first = (tile.first[2] * x.stride + k[2] * x.dilation - x.before) * pixel
    for n in range(tile.n, tile.n + tile.samples):
        plane = input.data + n * input.n + (t.group * sample.cin + ci) * input.channel
        for z in range(tile.extent[0]):
            i[0] = (tile.first[0] + z) * sample.axis[0].stride + k[0] * sample.axis[0].dilation - sample.axis[0].before
            for y in range(tile.extent[1]):
                i[1] = (tile.first[1] + y) * sample.axis[1].stride + k[1] * sample.axis[1].dilation \
                    - sample.axis[1].before
                source, taps.size = plane, 0  # of padding
                if 0 <= i[0] < sample.axis[0].size_in and 0 <= i[1] < sample.axis[1].size_in:
                    source, taps.size = plane + i[0] * input.space[0] + i[1] * input.space[1], x.size_in * pixel
                kernels.take_taps[sample.dtype](&taps, source, to, chunk_pitch(sample))
                to += tile.extent[2] * chunk_pitch(sample) * sample.item


cdef void take_runs(const ConvProblem *problem, const OuterTask *t, const Box *tile, const Chunk *chunk) noexcept nogil:
    """Pack the input under one output pixel of each sample, as many lines at a time as follow each other."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *input = &problem.view[CONV_INPUT]
    cdef int64_t line = chunk.line, lines, ci, d, n, column = 0
    cdef int64_t k[3]
    cdef int64_t space[3]
    cdef LineRuns runs
    cdef char *from_pixel
    for d in range(3):
        space[d] = sample.axis[d].dilation * input.space[d]
    runs = line_runs(&t.columns, chunk, input.channel, space)
    while line < chunk.line + chunk.lines:
        line_begin(&t.columns, chunk, line, &ci, k)
        lines = lines_of_run(&t.columns, &runs, chunk, line)
        from_pixel = input.data + (t.group * sample.cin + ci) * input.channel
        for d in range(3):
            from_pixel += (k[d] * sample.axis[d].dilation - sample.axis[d].before) * input.space[d]
        for n in range(tile.samples):
            problem.load(from_pixel + (tile.n + n) * input.n, runs.step,
                         t.input + (n * chunk_pitch(sample) + column) * sample.item, sample.item, lines * chunk.length)
        column += lines * chunk.length
        line += lines


cdef void pack_chunk(const ConvProblem *problem, OuterTask *t, const Box *tile, const Chunk *chunk) noexcept nogil:
    """Pack a chunk of the input under a tile's output pixels as [pixel][column]."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t i
    if only_inside(sample):
        take_runs(problem, t, tile, chunk)
    else:
        for i in range(chunk.lines):
            take_line(problem, t, tile, chunk, chunk.line + i, t.input + i * chunk.length * sample.item)
    zero_columns(sample, chunk.columns, columns_packed(sample, chunk.columns), box_positions(tile), t.input)


cdef void sum_block(const ConvRun *run, OuterTask *t, int64_t number, const Chunk *chunk, int64_t co,
                    int64_t count) noexcept nogil:
    """Sum one chunk for some output channels over all samples and output pixels."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvProblem *problem = run.problem
    cdef const WeightOuter *own = <const WeightOuter *>run.blocking.own
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t first = t.group * sample.cout + t.co_from + co, tile_number = 0, i, at = 0
    cdef bint one_tile = problem.batch <= own.tiling.samples \
        and order_holds_image(sample, run.order), keep = one_tile and t.cos <= OUTER_COS
    cdef bint puts = one_tile and problem.batch * sample.pixels_out > 0 and not problem.accumulate
    cdef bint in_place = puts and lies_in_rows(problem, w, &t.columns, chunk)
    cdef int64_t to_row = chunk_pitch(sample)
    cdef char *to = t.sums
    cdef int64_t size[3]
    cdef BatchReduce steps
    cdef Box tile
    output_size(sample, size)
    if in_place:
        to, to_row = w.data + first * w.n + line_offset(&t.columns, w, chunk, chunk.line), w.n // sample.item
    if problem.accumulate:
        move_columns(problem, w, &t.columns, chunk, first, count, t.sums, True)
        zero_columns(sample, chunk.columns, columns_read(sample, count, chunk.columns), count, t.sums)
    elif not puts:
        zero_columns(sample, 0, columns_read(sample, count, chunk.columns), count, t.sums)
    steps.count, steps.a_offset, steps.b_offset = 1, &at, &at
    steps.a_ahead = steps.b_ahead = 0
    steps.a_step, steps.b_step = OUTPUT_PITCH, chunk_pitch(sample)
    repeat_last(t.rows, count)
    while not is_stopped(run) and nth_tile(&own.tiling, problem.batch, size, tile_number, &tile):
        if not one_tile or t.packed_input != number:
            pack_chunk(problem, t, &tile, chunk)
            t.packed_input = number
        if not keep or t.packed_output != tile_number:
            pack_channels(problem, &problem.view[CONV_GRAD_OUTPUT], size, &tile, first, count, t.output, OUTPUT_PITCH,
                          False, t.staging, t.place)
            t.packed_output = tile_number
        steps.depth = box_positions(&tile)
        if puts:
            put_chunk(sample, &steps, t.output, t.rows, count, t.input, chunk.columns, to, to_row,
                      run.order.accumulate, t.sums + OUTER_COS * chunk_pitch(sample) * sample.item)
        else:
            multiply_chunk(sample, &steps, t.output, t.rows, count, t.input, chunk.columns, t.sums,
                           run.order.accumulate)
        tile_number += 1
    for i in range(count, count + MAX_ROWS):
        t.rows[i] = i
    if not in_place:
        move_columns(problem, w, &t.columns, chunk, first, count, t.sums, False)


cdef bint order_holds_image(const SampleGeometry *sample, const SumOrder *order) noexcept nogil:
    """Say whether a tile has all output pixels of a sample."""
    return order.tile[0] * order.tile[1] * order.tile[2] == sample.pixels_out


cdef void weight_outer_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum a task's chunks, block of output channels by block."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightOuter *own = <const WeightOuter *>run.blocking.own
    cdef int64_t i, co, tile_number = 0
    cdef int64_t size[3]
    cdef OuterTask t
    cdef Chunk chunk
    cdef Box tile
    cdef BiasShare bias
    begin_outer(run, number, scratch, &t)
    output_size(sample, size)
    bias = bias_share(run, t.group * sample.cout + t.co_from, t.cos, t.part, own.parts,
                      local_piece(run, OUTER_BIAS, scratch))
    while bias.channels and nth_tile(&own.tiling, run.problem.batch, size, tile_number, &tile):
        add_bias(run.problem, &tile, &bias)
        tile_number += 1
    save_bias(run.problem, &bias)
    for i in range(t.chunk, t.chunk + t.chunks):
        nth_chunk(sample, &t.columns, i, &chunk)
        co = 0
        while co < t.cos:
            sum_block(run, &t, i, &chunk, co, min(<int64_t>OUTER_COS, t.cos - co))
            co += OUTER_COS


cdef void explain_weight_outer(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                               char *text, size_t size) noexcept nogil:
    cdef const WeightOuter *own = <const WeightOuter *>blocking.own
    snprintf(text, size, b"outer products of grad_output with the input under each output pixel, as the weights lie; "
             b"tiles of %lld x %lld x %lld x %lld output pixels, %lld chunks of at most %d columns and %lld of %lld "
             b"output channels a task%s", <long long>own.tiling.samples, <long long>own.tiling.extent[0],
             <long long>own.tiling.extent[1], <long long>own.tiling.extent[2], <long long>own.chunks,
             <int>chunk_columns(sample), <long long>own.cos, <long long>sample.cout,
             b"; products are added one by one, since images are short" if order.accumulate else b"")


cdef ConvAlgorithm weight_outer() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:outer", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_outer, order_weight_outer, block_weight_outer
    row.prepare, row.task, row.explain = nothing_to_prepare, weight_outer_task, explain_weight_outer
    return row
