# The three gradients. Tasks are tiles of an output: no two write the same element, every element is summed
# in an order that depends on the geometry alone, and each is rounded to storage once.

cdef void tile_product(const ConvPlan *plan, GemmKernel kernel, int64_t depth, const char *a, int64_t a_block,
                       int64_t a_row, const char *b, char *c, int64_t rows, int64_t columns, int64_t c_row,
                       bint chain) noexcept nogil:
    """c += a b over panels; a_block: elements from mr rows of a to the next, a_row: from one row to the next."""
    cdef int64_t i, j, item = plan.item
    j = 0
    while j < columns:
        i = 0
        while i < rows:
            kernel(depth, a + i // plan.tile.mr * a_block * item, a_row, b + j * CONV_K * item,
                   c + (i * c_row + j) * item, c_row, chain)
            i += plan.tile.mr
        j += plan.tile.nr


cdef void grad_input_runs(const ConvPlan *plan, int64_t group, const Phase *phase, const Run *runs, int run_count,
                          char *tile, bint adding) noexcept nogil:
    """Write the tile to grad_input, or (adding) add grad_input to the tile."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t ci, i, step = plan.stride[2] * out.space[2]
    cdef char *to
    cdef char *row
    cdef const Run *run
    cdef int r
    for ci in range(plan.cin):
        for r in range(run_count):
            run = &runs[r]
            to = out.data + run.n * out.n + (group * plan.cin + ci) * out.channel \
                + (phase.first[0] + run.pixel[0] * plan.stride[0]) * out.space[0] \
                + (phase.first[1] + run.pixel[1] * plan.stride[1]) * out.space[1] \
                + (phase.first[2] + run.pixel[2] * plan.stride[2]) * out.space[2]
            row = tile + (ci * plan.columns_in + run.at) * plan.item
            if not adding:
                plan.save(row, plan.item, to, step, run.length)
                continue
            for i in range(run.length):
                add_to(plan, row + i * plan.item, load_one(plan, to + i * step))


cdef void grad_input_tile(const ConvPlan *plan, int64_t group, int64_t phase_number, int64_t tile_number,
                          const char *packed, bint nonfinite, char *scratch) noexcept nogil:
    """columns_in input pixels of one phase, flattened over the batch, by all channels of the group."""
    cdef char *panel = scratch
    cdef char *tile = panel + panel_bytes(plan, CONV_K * plan.columns_in)
    cdef Run *runs = <Run *>(tile + panel_bytes(plan, plan.rows_in * plan.columns_in))
    cdef int64_t first = tile_number * plan.columns_in, depth = 0, count, all_depth, block
    cdef int run_count
    cdef Phase phase
    cdef uint64_t float_state
    make_phase(plan, phase_number, &phase)
    count = min(plan.columns_in, plan.batch * phase.size[0] * phase.size[1] * phase.size[2] - first)
    if count <= 0:
        return
    float_state = enter_float_state()
    run_count = make_runs(first, count, phase.size, plan.tile.nr, runs)
    if count % plan.tile.nr:  # columns of the last panel that no run writes
        memset(panel + count // plan.tile.nr * CONV_K * plan.tile.nr * plan.item, 0, CONV_K * plan.tile.nr * plan.item)
    memset(tile, 0, plan.rows_in * plan.columns_in * plan.item)
    all_depth = phase.tap_count * plan.cout
    block = plan.taps * plan.cout * plan.tile.mr
    packed += (group * (plan.rows_in // plan.tile.mr) * block
               + phase.tap_offset * plan.cout * plan.tile.mr) * plan.item
    while depth < all_depth:
        pack_grad_output(plan, group, &phase, depth, min(all_depth, depth + CONV_K), runs, run_count, panel)
        tile_product(plan, plan.tile.kernel, min(<int64_t>CONV_K, all_depth - depth),
                     packed + depth * plan.tile.mr * plan.item, block, 0, panel, tile, plan.rows_in, count,
                     plan.columns_in, False)
        depth += CONV_K
    if nonfinite:
        add_nonfinite(plan, group, &phase, runs, run_count, tile)
    if plan.accumulate:
        grad_input_runs(plan, group, &phase, runs, run_count, tile, True)
    grad_input_runs(plan, group, &phase, runs, run_count, tile, False)
    leave_float_state(float_state)


cdef void run_grad_input(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t blocks = plan.rows_in // plan.tile.mr, phases = phase_count(plan), i, tasks
    cdef int64_t tiles, largest = plan.batch
    cdef int d
    cdef int nonfinite = 0
    for d in range(3):
        largest *= (plan.size_in[d] - 1) // plan.stride[d] + 1
    tiles = (largest + plan.columns_in - 1) // plan.columns_in
    tasks = plan.groups * phases * tiles
    if threads == 1:  # no OpenMP region at all: a forked child must not enter one
        for i in range(plan.groups * blocks):
            nonfinite |= pack_weight(plan, i // blocks, i % blocks, workspace)
        for i in range(tasks):
            grad_input_tile(plan, i // (phases * tiles), i // tiles % phases, i % tiles, workspace, nonfinite, scratch)
        return
    for i in prange(plan.groups * blocks, schedule="static", num_threads=threads):
        nonfinite |= pack_weight(plan, i // blocks, i % blocks, workspace)
    for i in prange(tasks, schedule="dynamic", num_threads=threads):
        grad_input_tile(plan, i // (phases * tiles), i // tiles % phases, i % tiles, workspace, nonfinite,
                        scratch + omp_get_thread_num() * plan.thread_bytes)


cdef void grad_weight_elements(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t rows,
                               int64_t column_from, int64_t columns, char *tile, bint loading) noexcept nogil:
    """Copy a tile to grad_weight, or (loading) from it."""
    cdef const ConvView *w = &plan.view[CONV_GRAD_WEIGHT]
    cdef int64_t i, j, n, column, tap, k2
    cdef char *at
    cdef char *element
    for i in range(rows):
        j = 0
        while j < columns:
            column = column_from + j
            tap = column % plan.taps
            k2 = tap % plan.kernel[2]
            n = min(plan.kernel[2] - k2, columns - j)
            element = w.data + (group * plan.cout + row_from + i) * w.n + column // plan.taps * w.channel \
                + tap // (plan.kernel[2] * plan.kernel[1]) * w.space[0] \
                + tap // plan.kernel[2] % plan.kernel[1] * w.space[1] + k2 * w.space[2]
            at = tile + (i * plan.columns_weight + j) * plan.item
            if loading:
                plan.load(element, w.space[2], at, plan.item, n)
            else:
                plan.save(at, plan.item, element, w.space[2], n)
            j += n


cdef void grad_weight_tile(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t column_from,
                           char *scratch) noexcept nogil:
    """rows_weight output channels by columns_weight (ci, tap), summed over all samples and output pixels.

    Samples are added one after the other to what is there, so a batch cut anywhere and accumulated gives the
    same bits. Images of few pixels share panels; their products then join the sum one by one (chain)."""
    cdef char *a = scratch
    cdef char *b = a + panel_bytes(plan, CONV_LINE * plan.rows_weight)
    cdef char *tile = b + panel_bytes(plan, CONV_K * plan.columns_weight)
    cdef char *stage = tile + panel_bytes(plan, plan.rows_weight * plan.columns_weight)
    cdef Run *runs = <Run *>(stage + panel_bytes(plan, CONV_LINE * plan.tile.lanes))
    cdef int64_t rows = min(plan.rows_weight, plan.cout - row_from)
    cdef int64_t columns = min(plan.columns_weight, plan.cin * plan.taps - column_from)
    cdef bint chain = plan.pixels_out < CONV_SHORT_IMAGE
    cdef int64_t piece = plan.batch * plan.pixels_out if chain else plan.pixels_out  # no panel crosses a piece
    cdef int64_t start = 0, first, depth
    cdef int run_count
    cdef uint64_t float_state = enter_float_state()
    memset(scratch, 0, <char *>runs - scratch)
    if plan.accumulate:
        grad_weight_elements(plan, group, row_from, rows, column_from, columns, tile, True)
    while start < plan.batch * plan.pixels_out:
        first = start
        while first < start + piece:
            depth = min(<int64_t>CONV_K, start + piece - first)
            run_count = make_runs(first, depth, plan.size_out, 0, runs)
            load_rows(plan, group, row_from, rows, runs, run_count, a)
            pack_columns(plan, group, column_from, columns, runs, run_count, depth, stage, b)
            tile_product(plan, plan.tile.by_rows, depth, a, CONV_LINE * plan.tile.mr, CONV_LINE, b, tile, rows, columns,
                         plan.columns_weight, chain)
            first += CONV_K
        start += piece
    grad_weight_elements(plan, group, row_from, rows, column_from, columns, tile, False)
    leave_float_state(float_state)


cdef void run_grad_weight(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t across = (plan.cin * plan.taps + plan.columns_weight - 1) // plan.columns_weight
    cdef int64_t down = (plan.cout + plan.rows_weight - 1) // plan.rows_weight
    cdef int64_t tasks = plan.groups * down * across, i
    if threads == 1:
        for i in range(tasks):
            grad_weight_tile(plan, i // (down * across), i // across % down * plan.rows_weight,
                             i % across * plan.columns_weight, scratch)
        return
    for i in prange(tasks, schedule="dynamic", num_threads=threads):
        grad_weight_tile(plan, i // (down * across), i // across % down * plan.rows_weight,
                         i % across * plan.columns_weight, scratch + omp_get_thread_num() * plan.thread_bytes)


cdef void grad_bias_channel(const ConvPlan *plan, int64_t channel, char *scratch) noexcept nogil:
    """One channel: panels of CONV_K pixels by the fixed tree of SumKernel, added in order, restarting per sample."""
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef Run *runs = <Run *>(scratch + panel_bytes(plan, CONV_K))
    cdef Run *run
    cdef char *element = plan.view[CONV_GRAD_BIAS].data + channel * plan.view[CONV_GRAD_BIAS].n
    cdef int64_t n, first, depth
    cdef int r, run_count
    cdef double total = 0
    cdef uint64_t float_state = enter_float_state()
    if plan.accumulate:
        total = load_one(plan, element)
    for n in range(plan.batch):
        first = 0
        while first < plan.pixels_out:
            depth = min(<int64_t>CONV_K, plan.pixels_out - first)
            run_count = make_runs(n * plan.pixels_out + first, depth, plan.size_out, 0, runs)
            for r in range(run_count):
                run = &runs[r]
                plan.load(g.data + n * g.n + channel * g.channel + run.pixel[0] * g.space[0]
                          + run.pixel[1] * g.space[1] + run.pixel[2] * g.space[2], g.space[2],
                          scratch + run.at * plan.item, plan.item, run.length)
            total += kernels.sum[plan.compute](scratch, depth)
            if plan.compute != DTYPE_F64:
                total = <float>total
            first += CONV_K
    save_one(plan, total, element)
    leave_float_state(float_state)


cdef void run_grad_bias(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t i
    if threads == 1:
        for i in range(plan.groups * plan.cout):
            grad_bias_channel(plan, i, scratch)
        return
    for i in prange(plan.groups * plan.cout, schedule="static", num_threads=threads):
        grad_bias_channel(plan, i, scratch + omp_get_thread_num() * plan.thread_bytes)


cdef void run_conv(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """All gradients whose view has data; workspace: plan.workspace_bytes at any address."""
    workspace += -<uintptr_t>workspace % CONV_ALIGN
    threads = min(threads, plan.threads)
    if plan.view[CONV_GRAD_INPUT].data != NULL and plan.pixels_in and plan.batch and plan.cin:
        run_grad_input(plan, workspace, threads)
    if plan.view[CONV_GRAD_WEIGHT].data != NULL and plan.cout and plan.cin:
        run_grad_weight(plan, workspace, threads)
    if plan.view[CONV_GRAD_BIAS].data != NULL:
        run_grad_bias(plan, workspace, threads)


cdef void conv_gradient_tensors(Tensor *tensors) noexcept nogil:
    """Descriptors' gradients: shaped like input, weight and (C_out), contiguous."""
    tensors[CONV_GRAD_INPUT] = tensors[CONV_INPUT]
    tensors[CONV_GRAD_WEIGHT] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS] = tensors[CONV_WEIGHT]
    tensors[CONV_GRAD_BIAS].ndim = min(1, tensors[CONV_WEIGHT].ndim)
    contiguous_strides(&tensors[CONV_GRAD_INPUT])
    contiguous_strides(&tensors[CONV_GRAD_WEIGHT])
    contiguous_strides(&tensors[CONV_GRAD_BIAS])


cdef int bind_conv(const ConvPlan *plan, const Tensor *described, char **data, char *workspace, ConvPlan *bound,
                   Failure *failure) noexcept nogil:
    """A descriptor's plan with these addresses; gradients whose address is NULL are left out. A workspace of NULL
    is not checked."""
    cdef Tensor tensors[CONV_TENSORS]
    cdef Tensor *present[CONV_TENSORS]
    cdef int64_t byte = 1
    cdef int i
    bound[0] = plan[0]
    for i in range(CONV_TENSORS):
        tensors[i] = described[i]
        tensors[i].data = bound.view[i].data = data[i]
        present[i] = &tensors[i] if data[i] != NULL else NULL
        if i < CONV_BIAS and data[i] == NULL and has_elements(&tensors[i]):
            return fail(failure, Rule.NULL_DATA, i)
    if check_conv_addresses(present, failure):
        return failure.rule
    for i in range(CONV_TENSORS):
        if workspace != NULL and present[i] != NULL and views_overlap(
                workspace, 1, &bound.workspace_bytes, &byte, 1,
                present[i].data, present[i].ndim, present[i].shape, present[i].strides, itemsize_of(present[i].dtype)):
            return fail(failure, Rule.PARTIAL_OVERLAP, CONV_WORKSPACE, i)
    return Rule.PASSED


cdef int run_conv_on(const ConvPlan *plan, const Tensor *described, char **data, char *workspace, int threads,
                     Failure *failure) noexcept nogil:
    """Bind and run; a workspace of NULL only checks. Several threads may run one plan, each with its own workspace."""
    cdef ConvPlan bound
    if bind_conv(plan, described, data, workspace, &bound, failure):
        return failure.rule
    if workspace != NULL:
        run_conv(&bound, workspace, threads)
    return Rule.PASSED
