# grad_input by col2im: rows are output pixels, columns (ci, tap) of the weights as they lie, sums over co; each product
# is then added to the pixel that it belongs to. So the cost follows the products that exist: for kernels about as large
# as the image, and for patches, whose pixels meet one tap each.
#
# A pixel's products are added tile of output pixels by tile, then tap by tap. A task has all output pixels that reach
# its part of the input, so that none of this depends on the parts.
cdef enum:
    COL2IM_PLANES = 1 << 17     # pixels of a task, or about
    COL2IM_MAX_PLANE = 1 << 18  # pixels of one channel of a task

    # pieces of a thread's scratch
    COL2IM_SUMS = 0
    COL2IM_WEIGHTS = 1
    COL2IM_OUTPUT = 2
    COL2IM_PRODUCTS = 3
    COL2IM_STAGING = 4
    COL2IM_PLACES = 5
    COL2IM_ROWS = 6

    COL2IM_FUSED = 8            # products of an element, at most, that are summed while they are added


ctypedef struct InputCol2im:
    Tiling tiling       # of output pixels
    int64_t samples     # of a task
    int64_t parts       # of the batch
    int64_t cis         # of a task
    int64_t blocks      # of ci
    int axis            # the input is cut along it
    int64_t slabs
    bint channels_last  # as lines of columns are, and sums


# A task's part, and where its scratch lies.
ctypedef struct Col2imTask:
    TapColumns columns
    int64_t group, n, samples
    int64_t low[3]      # input pixels
    int64_t extent[3]
    int64_t plane       # pixels
    int64_t channel     # how far sums are apart, in elements: of channels, and of pixels along each axis
    int64_t space[3]
    char *sums
    char *weights
    char *output
    char *products
    char *staging
    int64_t *place
    int64_t *rows
    int64_t packed_weights, packed_output  # what the scratch holds, by numbers; -1 for nothing


cdef int64_t col2im_slabs(const SampleGeometry *sample) noexcept nogil:
    """Count the slabs of an image that are needed to have planes that fit."""
    return max(<int64_t>1, ceil_div(sample.pixels_in, COL2IM_MAX_PLANE))


cdef int col2im_axis(const SampleGeometry *sample) noexcept nogil:
    """Find the axis along which the image is cut: the first of several pixels."""
    if sample.axis[0].size_in > 1:
        return 0
    return 1 if sample.axis[1].size_in > 1 else 2


cdef int64_t pixels_across(const SampleGeometry *sample, const ConvAxis *axis) noexcept nogil:
    """Return how many pixels of a channel each position along an axis has."""
    return sample.pixels_in // max(<int64_t>1, axis.size_in)


cdef int64_t slab_step(const SampleGeometry *sample, const ConvAxis *axis) noexcept nogil:
    """Return how many pixels of a channel the thinnest slab has, or all."""
    return min(axis.stride, axis.size_in) * pixels_across(sample, axis)


cdef void order_input_col2im(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum panels of output channels; add in tiles of output pixels."""
    cdef int64_t size[3]
    cdef Tiling tiling
    output_size(sample, size)
    tile_grid(size, CHUNK_ROWS, &tiling)
    order.channels, order.taps, order.tile = even_channels(sample.cout, CHUNK_CHANNELS), 1, tiling.extent


cdef bint accepts_input_col2im(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef const ConvAxis *axis = &sample.axis[col2im_axis(sample)]
    if col2im_slabs(sample) > 1 and ((axis.kernel - 1) * axis.dilation >= axis.stride
                                     or slab_step(sample, axis) > COL2IM_MAX_PLANE):
        why[0] = b"the image is too large"
        return False
    if not col2im_pays(sample):
        why[0] = b"products by input pixels take less"
        return False
    return True


cdef int axis_of_slabs(const SampleGeometry *sample) noexcept nogil:
    """Find the axis along which an image whose channels are lines is cut: the first whose thinnest slab has room for
    all channels, so that no two tasks write to the same lines; the usual one, where there is none."""
    cdef const ConvAxis *axis
    cdef int d
    for d in range(col2im_axis(sample), 3):
        axis = &sample.axis[d]
        if slab_step(sample, axis) * sample.cin <= 2 * COL2IM_PLANES and slab_step(sample, axis) < sample.pixels_in \
                and (col2im_slabs(sample) == 1 or (axis.kernel - 1) * axis.dilation < axis.stride):
            return d
    return col2im_axis(sample)


cdef int64_t slab_windows(const ConvAxis *axis) noexcept nogil:
    """Count the pixels of an axis that the first tap of a window may meet, the image being followed by padding."""
    return ceil_div(axis.size_in + axis.before, axis.stride)


cdef int64_t slab_begin(const ConvAxis *axis, int64_t slabs, int64_t number) noexcept nogil:
    """Find the pixel at which a slab begins: where a window of the first tap does, unless there are more slabs."""
    cdef int64_t windows = slab_windows(axis)
    if number == 0 or number == slabs:
        return axis.size_in if number else 0
    if slabs > windows:
        return number * axis.size_in // slabs
    return max(<int64_t>0, number * windows // slabs * axis.stride - axis.before)


cdef void slab_of(const SampleGeometry *sample, const InputCol2im *own, int64_t number, int64_t *low,
                  int64_t *high) noexcept nogil:
    """Write the input pixels [low, high) of a slab."""
    memset(low, 0, 3 * sizeof(int64_t))
    input_size(sample, high)
    low[own.axis] = slab_begin(&sample.axis[own.axis], own.slabs, number)
    high[own.axis] = slab_begin(&sample.axis[own.axis], own.slabs, number + 1)


cdef bint slabs_are_cheap(const SampleGeometry *sample, const InputCol2im *own) noexcept nogil:
    """Say whether the slabs together have not many more products than the image has."""
    cdef int64_t low[3]
    cdef int64_t high[3]
    cdef int64_t number, products = 0
    cdef int d = own.axis
    cdef TapBox box
    for number in range(own.slabs):
        slab_of(sample, own, number, low, high)
        if low[d] < high[d] and reach_taps(sample, low, high, &box):
            products += box.taps[d] * box.outputs[d]
    reach_image(sample, &box)
    return 3 * products <= 4 * box.taps[d] * box.outputs[d]


cdef int64_t col2im_tasks(const ConvProblem *problem, InputCol2im *own) noexcept nogil:
    """Count the tasks; set own.parts and own.blocks."""
    own.parts = ceil_div(problem.batch, own.samples)
    own.blocks = ceil_div(problem.sample.cin, own.cis)
    return own.parts * problem.sample.groups * own.blocks * own.slabs


cdef int64_t slab_plane(const SampleGeometry *sample, const InputCol2im *own) noexcept nogil:
    """Return the most pixels of one channel of a slab."""
    cdef int64_t low[3]
    cdef int64_t high[3]
    cdef int64_t number, most = 0
    for number in range(own.slabs):
        slab_of(sample, own, number, low, high)
        most = max(most, high[own.axis] - low[own.axis])
    return max(<int64_t>1, most * pixels_across(sample, &sample.axis[own.axis]))


cdef void cut_slabs(const SampleGeometry *sample, int64_t slabs, InputCol2im *own) noexcept nogil:
    """Cut the image into so many slabs, if that is more than there are and does not cost many products."""
    cdef const ConvAxis *axis = &sample.axis[own.axis]
    cdef int64_t before = own.slabs
    own.slabs = max(before, min(slabs, axis.size_in))
    if own.slabs > before and not slabs_are_cheap(sample, own):
        own.slabs = max(before, min(own.slabs - 1, slab_windows(axis)))
    if own.slabs > before and not slabs_are_cheap(sample, own):
        own.slabs = before


cdef void cut_slabs_for_tasks(const ConvProblem *problem, int64_t tasks, InputCol2im *own) noexcept nogil:
    """Cut the image into slabs until there are so many tasks, while that is cheap."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t slabs = own.slabs - 1
    while slabs < own.slabs and col2im_tasks(problem, own) < tasks:
        slabs = own.slabs
        cut_slabs(sample, slabs + 1, own)


cdef void block_input_col2im(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                             Blocking *blocking) noexcept nogil:
    """Give a task as many samples as a tile holds, so that weights are read once, and as many channels as fit; fewer
    channels, then slabs of the image, then fewer samples while there are too few tasks for the threads. Channels that
    are lines are not cut but where slabs would cost."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputCol2im *own = <InputCol2im *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t size[3]
    cdef int64_t least, plane, samples, most
    output_size(sample, size)
    own.axis, own.slabs = col2im_axis(sample), col2im_slabs(sample)
    own.channels_last = channels_make_lines(problem, &problem.view[CONV_WEIGHT], &problem.view[CONV_GRAD_INPUT])
    if own.channels_last:
        own.axis = axis_of_slabs(sample)
    most = 2 * COL2IM_PLANES if own.channels_last else COL2IM_PLANES
    least = min(sample.cin, max(ceil_div(64, sample.taps), sample.lanes if own.channels_last else 1))
    one_sample_tiling(order.tile, &own.tiling)
    join_samples(size, problem.batch, CHUNK_ROWS // max(<int64_t>1, tiling_pixels(&own.tiling)), &own.tiling)
    samples, plane = max(<int64_t>1, own.tiling.samples), min(sample.pixels_in, MAX_CHANNELS)
    if own.channels_last:
        cut_slabs(sample, ceil_div(samples * plane * sample.cin, COL2IM_PLANES), own)
    cut_slabs(sample, ceil_div(plane * (sample.cin if own.channels_last else least), COL2IM_PLANES), own)
    plane = slab_plane(sample, own)
    own.samples = own.tiling.samples = max(<int64_t>1, min(samples, most // (
        plane * (sample.cin if own.channels_last else 1))))
    own.cis = max(<int64_t>1, min(sample.cin, most // (own.samples * plane)))
    if own.channels_last and own.cis < sample.cin:
        own.cis = min(sample.cin, round_up(own.cis, sample.lanes))
    least = max(<int64_t>1, min(own.cis, least))
    if threads > 1 and own.channels_last:
        cut_slabs_for_tasks(problem, 4 * threads, own)
    while threads > 1 and own.cis > least and col2im_tasks(problem, own) < (1 if own.channels_last else 4) * threads:
        own.cis = ceil_div(own.cis, 2)
    if threads > 1:
        cut_slabs_for_tasks(problem, threads, own)
    while threads > 1 and own.samples > 1 and col2im_tasks(problem, own) < threads:
        own.samples = own.tiling.samples = ceil_div(own.samples, 2)
    blocking.tasks = col2im_tasks(problem, own)
    book(local, COL2IM_SUMS, own.samples * own.cis * plane + sample.lanes, sample.item)
    book(local, COL2IM_WEIGHTS, order.channels * chunk_pitch(sample), sample.item)
    book(local, COL2IM_OUTPUT, CHUNK_ROWS * OUTPUT_PITCH, sample.item)
    book(local, COL2IM_PRODUCTS, (CHUNK_ROWS + MAX_ROWS) * chunk_pitch(sample), sample.item)
    book(local, COL2IM_STAGING, staging_elements(sample), sample.item)
    book(local, COL2IM_PLACES, CHUNK_ROWS, sizeof(int64_t))
    book(local, COL2IM_ROWS, CHUNK_ROWS + MAX_ROWS, sizeof(int64_t))


cdef void begin_col2im(const ConvRun *run, int64_t number, char *scratch, Col2imTask *t) noexcept nogil:
    """Begin task number (group, block of ci, slab, part of the batch), its sums zero; where channels are lines, number
    (group, slab, part, block), since all blocks write to the same ones."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputCol2im *own = <const InputCol2im *>run.blocking.own
    cdef int64_t high[3]
    cdef int64_t tasks = own.parts * own.slabs, block
    cdef int d
    t.group = number // (tasks * own.blocks)
    number %= tasks * own.blocks
    if own.channels_last:
        block, number = number % own.blocks, number // own.blocks
    else:
        block, number = number // tasks, number % tasks
    t.n = number % own.parts * own.samples
    t.samples = max(<int64_t>0, min(own.samples, run.problem.batch - t.n))
    slab_of(sample, own, number // own.parts, t.low, high)
    t.columns.ci_from = block * own.cis
    t.columns.cis = min(own.cis, sample.cin - t.columns.ci_from)
    t.plane = 1
    for d in range(3):
        t.extent[d] = max(<int64_t>0, high[d] - t.low[d])
        t.plane *= t.extent[d]
    if t.samples == 0:
        t.plane = 0
    t.columns.chunks, t.columns.channels_last = 0, own.channels_last
    if t.plane and reach_taps(sample, t.low, high, &t.columns.box):
        cut_chunks(sample, &t.columns)
    t.channel = 1 if own.channels_last else t.plane
    t.space[2] = t.columns.cis if own.channels_last else 1
    t.space[1] = t.extent[2] * t.space[2]
    t.space[0] = t.extent[1] * t.space[1]
    t.sums, t.weights = local_piece(run, COL2IM_SUMS, scratch), local_piece(run, COL2IM_WEIGHTS, scratch)
    t.output, t.products = local_piece(run, COL2IM_OUTPUT, scratch), local_piece(run, COL2IM_PRODUCTS, scratch)
    t.staging = local_piece(run, COL2IM_STAGING, scratch)
    t.place = <int64_t *>local_piece(run, COL2IM_PLACES, scratch)
    t.rows = <int64_t *>local_piece(run, COL2IM_ROWS, scratch)
    t.packed_weights = t.packed_output = -1
    memset(t.sums, 0, (t.samples * t.columns.cis * t.plane + sample.lanes) * sample.item)


cdef bint clip_tile(const TapBox *box, Box *tile) noexcept nogil:
    """Cut from a tile the output pixels that reach nothing of the task's; return whether any are left."""
    cdef int64_t first, last
    cdef int d
    for d in range(3):
        first = max(tile.first[d], box.output[d])
        last = min(tile.first[d] + tile.extent[d], box.output[d] + box.outputs[d])
        if last <= first:
            return False
        tile.first[d], tile.extent[d] = first, last - first
    return True


cdef void pack_weights(const ConvRun *run, Col2imTask *t, int64_t number, const Chunk *chunk, int64_t co,
                       int64_t count) noexcept nogil:
    """Pack a chunk of some output channels' weights, unless the scratch holds it."""
    if t.packed_weights == number and count == run.sample.cout:
        return
    t.packed_weights = number
    move_columns(run.problem, &run.problem.view[CONV_WEIGHT], &t.columns, chunk, t.group * run.sample.cout + co, count,
                 t.weights, True)
    zero_columns(run.sample, chunk.columns, columns_packed(run.sample, chunk.columns), count, t.weights)


cdef void pack_outputs(const ConvRun *run, Col2imTask *t, const Box *tile, int64_t tile_number, int64_t co,
                       int64_t count) noexcept nogil:
    """Pack some channels of a tile's output pixels, unless the scratch holds them."""
    cdef int64_t size[3]
    if t.packed_output == tile_number and count == run.sample.cout:
        return
    t.packed_output = tile_number
    output_size(run.sample, size)
    pack_channels(run.problem, &run.problem.view[CONV_GRAD_OUTPUT], size, tile, t.group * run.sample.cout + co, count,
                  t.output, OUTPUT_PITCH, False, t.staging, t.place)


cdef char *chunk_weights(const ConvProblem *problem, const Col2imTask *t, const Chunk *chunk) noexcept nogil:
    """Find a chunk of the weights of the group's first output channel."""
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    return w.data + t.group * problem.sample.cout * w.n + line_offset(&t.columns, w, chunk, chunk.line)


cdef bint weights_in_place(const ConvProblem *problem, const Col2imTask *t, const Chunk *chunk,
                           int64_t rows, int64_t last) noexcept nogil:
    """Say whether a chunk of the weights is read where it lies, up to the output channel `last` of all groups': for few
    rows, where register tiles read nothing else, or past the chunk what lies before the end of the next channel's. The
    bits are the same."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t past = (columns_read(sample, rows, chunk.columns) - chunk.columns) * sample.item
    return rows <= kernels.gemm[sample.compute].many_rows[1].rows \
        and (past == 0 or (past <= w.n and last + 1 < sample.groups * sample.cout)) \
        and lies_in_rows(problem, w, &t.columns, chunk)


cdef void multiply_weights(const ConvRun *run, Col2imTask *t, const Box *tile, int64_t tile_number, int64_t number,
                           const Chunk *chunk) noexcept nogil:
    """Sum the products of a tile's output pixels with a chunk of the weights over all output channels."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t rows = box_positions(tile), co = 0, count, i, at = 0, pitch = chunk_pitch(sample)
    cdef bint in_place
    cdef char *weights
    cdef BatchReduce steps
    zero_columns(sample, 0, columns_read(sample, rows, chunk.columns), rows, t.products)
    for i in range(rows):
        t.rows[i] = i * OUTPUT_PITCH
    repeat_last(t.rows, rows)
    steps.count, steps.a_offset, steps.b_offset, steps.a_step, steps.b_step = 1, &at, &at, 1, pitch
    steps.a_ahead = steps.b_ahead = 0
    while co < sample.cout:
        count = min(run.order.channels, sample.cout - co)
        in_place = weights_in_place(run.problem, t, chunk, rows, t.group * sample.cout + co + count - 1)
        pack_outputs(run, t, tile, tile_number, co, count)
        weights, steps.b_step = t.weights, pitch
        if in_place:
            weights = chunk_weights(run.problem, t, chunk) + co * run.problem.view[CONV_WEIGHT].n
            steps.b_step = run.problem.view[CONV_WEIGHT].n // sample.item
        else:
            pack_weights(run, t, number, chunk, co, count)
        steps.depth = count
        multiply_chunk(sample, &steps, t.output, t.rows, rows, weights, chunk.columns, t.products, False)
        co += run.order.channels


cdef void add_line(const SampleGeometry *sample, const Col2imTask *t, const Box *tile, const Chunk *chunk, int64_t line,
                   const char *values, bint fused) noexcept nogil:
    """Add the products of one line, or (fused) of its weights, to the pixels that a tile's output pixels reach."""
    cdef const ConvAxis *x = &sample.axis[2]
    cdef int64_t n, z, y, iz, iy, ci, item = sample.item, pitch = chunk_pitch(sample), row = 0
    cdef int64_t k[3]
    cdef char *to
    cdef TapLine taps
    line_begin(&t.columns, chunk, line, &ci, k)
    taps.rows, taps.row_step, taps.taps = tile.extent[2], x.stride * t.space[2], chunk.length
    taps.tap_step = 1 if chunk.length == 1 or t.columns.channels_last else x.dilation
    taps.first = (tile.first[2] * x.stride + k[2] * x.dilation - x.before - t.low[2]) * t.space[2]
    taps.size, taps.pitch = t.extent[2] * t.space[2], 1
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            iz = (tile.first[0] + z) * sample.axis[0].stride + k[0] * sample.axis[0].dilation - sample.axis[0].before \
                - t.low[0]
            for y in range(tile.extent[1]):
                iy = (tile.first[1] + y) * sample.axis[1].stride + k[1] * sample.axis[1].dilation \
                    - sample.axis[1].before - t.low[1]
                to = t.sums + ((tile.n - t.n + n) * t.columns.cis * t.plane + ci * t.channel + iz * t.space[0]
                               + iy * t.space[1]) * item
                if not (0 <= iz < t.extent[0] and 0 <= iy < t.extent[1]):
                    pass
                elif fused:
                    kernels.add_products[sample.compute](&taps, t.output + row * OUTPUT_PITCH * item, OUTPUT_PITCH,
                                                         sample.cout, values, pitch, to)
                else:
                    kernels.add_taps[sample.compute](&taps, values + row * pitch * item, pitch, to)
                row += tile.extent[2]


cdef void add_lines(const SampleGeometry *sample, const Col2imTask *t, const Box *tile, const Chunk *chunk,
                    bint fused) noexcept nogil:
    """Add the products of a chunk, line by line."""
    cdef int64_t i
    for i in range(chunk.lines):
        add_line(sample, t, tile, chunk, chunk.line + i,
                 (t.weights if fused else t.products) + i * chunk.length * sample.item, fused)


cdef void add_runs(const SampleGeometry *sample, const Col2imTask *t, const Box *tile,
                   const Chunk *chunk) noexcept nogil:
    """Add the products of a chunk with the only output pixel, as many lines at a time as follow each other in the
    image."""
    cdef int64_t line = chunk.line, lines, ci, d, item = sample.item
    cdef int64_t k[3]
    cdef int64_t space[3]
    cdef const char *products = t.products
    cdef LineRuns runs
    cdef TapLine taps
    for d in range(3):
        space[d] = sample.axis[d].dilation * t.space[d]
    runs = line_runs(&t.columns, chunk, t.channel, space)
    taps.rows, taps.row_step, taps.pitch = tile.samples, t.columns.cis * t.plane, 1
    taps.tap_step, taps.size = runs.step, t.samples * t.columns.cis * t.plane
    while line < chunk.line + chunk.lines:
        line_begin(&t.columns, chunk, line, &ci, k)
        lines = lines_of_run(&t.columns, &runs, chunk, line)
        taps.taps, taps.first = lines * chunk.length, (tile.n - t.n) * t.columns.cis * t.plane + ci * t.channel
        for d in range(3):
            taps.first += (k[d] * sample.axis[d].dilation - sample.axis[d].before - t.low[d]) * t.space[d]
        kernels.add_taps[sample.compute](&taps, products, chunk_pitch(sample), t.sums)
        products += taps.taps * item
        line += lines


cdef bint sums_while_adding(const SampleGeometry *sample) noexcept nogil:
    """Say whether products are summed while they are added: few, whole lines of them."""
    cdef int64_t taps = sample.axis[2].kernel
    return sample.pixels_out > 1 and sample.axis[2].dilation == 1 \
        and 0 < sample.cout * round_up(taps, sample.lanes) <= COL2IM_FUSED * taps


cdef void add_chunk(const ConvRun *run, Col2imTask *t, const Box *tile, int64_t tile_number,
                    int64_t number) noexcept nogil:
    """Multiply a tile's output pixels with a chunk of the weights, and add the products to the pixels that they
    reach."""
    cdef const SampleGeometry *sample = run.sample
    cdef Chunk chunk
    nth_chunk(sample, &t.columns, number, &chunk)
    if sums_while_adding(sample):
        pack_outputs(run, t, tile, tile_number, 0, sample.cout)
        pack_weights(run, t, number, &chunk, 0, sample.cout)
        add_lines(sample, t, tile, &chunk, True)
        return
    multiply_weights(run, t, tile, tile_number, number, &chunk)
    if sample.pixels_out > 1:
        add_lines(sample, t, tile, &chunk, False)
    else:
        add_runs(sample, t, tile, &chunk)


cdef void save_col2im(const ConvRun *run, const Col2imTask *t) noexcept nogil:
    """Save a task's sums, as many at a time as follow each other in grad_input."""
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t count[4]
    cdef int64_t stride[4]
    cdef int64_t n, i, j, k, many = 1, step = run.sample.item
    cdef const char *sums = t.sums
    cdef char *first = out.data + (t.group * run.sample.cin + t.columns.ci_from) * out.channel
    cdef int d, axis = 3
    if t.columns.channels_last:
        axis = 0
    count[axis], stride[axis] = t.columns.cis, out.channel
    for d in range(3):
        axis = 3 - d if t.columns.channels_last else 2 - d
        count[axis], stride[axis] = t.extent[d], out.space[d]
        first += t.low[d] * out.space[d]
    axis = 0
    while axis < 4 and (count[axis] == 1 or many == 1 or stride[axis] == many * step):
        if many == 1:
            step = stride[axis]
        many *= count[axis]
        count[axis] = 1
        axis += 1
    for n in range(t.n, t.n + t.samples):
        for i in range(count[3]):
            for j in range(count[2]):
                for k in range(count[1]):
                    save_row(run.problem, <char *>sums,
                             first + n * out.n + i * stride[3] + j * stride[2] + k * stride[1], step, many, t.staging)
                    sums += many * run.sample.item


cdef void input_col2im_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Multiply chunk by chunk for each tile of the task's samples, then save all sums."""
    cdef const InputCol2im *own = <const InputCol2im *>run.blocking.own
    cdef int64_t tile_number = 0, i
    cdef int64_t size[3]
    cdef Col2imTask t
    cdef Box tile
    begin_col2im(run, number, scratch, &t)
    if t.plane == 0:
        return
    output_size(run.sample, size)
    while t.columns.chunks and not is_stopped(run) and nth_tile(&own.tiling, t.samples, size, tile_number, &tile):
        tile.n += t.n
        if clip_tile(&t.columns.box, &tile):
            for i in range(t.columns.chunks):
                add_chunk(run, &t, &tile, tile_number, i)
        tile_number += 1
    save_col2im(run, &t)


cdef void explain_input_col2im(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                               char *text, size_t size) noexcept nogil:
    cdef const InputCol2im *own = <const InputCol2im *>blocking.own
    snprintf(text, size, b"col2im: products of output pixels with the weights as they lie, added to the pixels that "
             b"they reach; tiles of %lld x %lld x %lld x %lld output pixels, %lld of %lld input channels and one of "
             b"%lld slabs a task; panels of %lld channels", <long long>own.tiling.samples,
             <long long>own.tiling.extent[0], <long long>own.tiling.extent[1], <long long>own.tiling.extent[2],
             <long long>own.cis, <long long>sample.cin, <long long>own.slabs, <long long>order.channels)


cdef ConvAlgorithm input_col2im() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:col2im", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_col2im, order_input_col2im, block_input_col2im
    row.prepare, row.task, row.explain = nothing_to_prepare, input_col2im_task, explain_input_col2im
    return row
