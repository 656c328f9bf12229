# What the tasks of grad_weight by AMX share where the batch is one tile, as of late layers, whose images are small and
# whose weights are many: there each number would be packed by many tasks, and is packed once, before them.
cdef enum:
    SHARED_ROWS = 64        # co of a unit
    SHARED_READ_TIME = 120  # of an element that another thread has packed, as in amx_cut.pxi
    SHARED_BYTES = 1 << 20  # a thread, above those of the weights

    # pieces of what tasks share
    SHARED_CELLS = 0
    SHARED_PAIRS = 1
    SHARED_FOUND = 2


cdef void share_operands(const ConvProblem *problem, int threads, double time, WeightAmx *own,
                         Blocking *blocking) noexcept nogil:
    """Let tasks share what is packed, where all then take less than this time, and it not much more room than the
    weights, packed, do."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightAmx sharing = own[0]
    cdef int64_t rows = ceil_div(sample.cout, SHARED_ROWS), units = rows + own.panels
    cdef int64_t cells = rows * (SHARED_ROWS // AMX_HALF) * own.tiles.g_cells
    cdef int64_t pairs = own.panels * own.panel_bytes, weights
    cdef double packing = sample.groups * (amx_packing_time(problem, sample.cout, sample.cin) / threads
                                           + <double>SHARED_READ_TIME * (sample.cin + sample.cout))
    cdef double multiplying
    if mul_overflows(sample.cin * sample.cout, sample.taps * amx_element_bytes(sample), &weights) \
            or cells + pairs > weights + threads * SHARED_BYTES // sample.groups:
        return
    multiplying = cut_amx_tasks(problem, threads, False, AMX_OUTPUT_ROWS, &sharing.tiles.rows, &sharing.task_panels)
    if multiplying < 0 or packing + multiplying >= time:
        return
    own[0] = sharing
    own.shared_rows = rows
    book(&blocking.shared, SHARED_CELLS, sample.groups, cells)
    book(&blocking.shared, SHARED_PAIRS, sample.groups, pairs)
    book(&blocking.shared, SHARED_FOUND, sample.groups, units)
    blocking.prepares = sample.groups * units


cdef char *shared_cells(const ConvRun *run, int64_t group, int64_t co) noexcept nogil:
    """Find the packed grad_output from one co of a group on, a multiple of AMX_HALF."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    return shared_piece(run, SHARED_CELLS) \
        + (group * own.shared_rows * (SHARED_ROWS // AMX_HALF) + co // AMX_HALF) * own.tiles.g_cells


cdef char *shared_pairs(const ConvRun *run, int64_t group, int64_t panel) noexcept nogil:
    """Find the packed input of a panel of ci."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    return shared_piece(run, SHARED_PAIRS) \
        + (group * own.panels + panel) * own.panel_bytes


cdef char *shared_found(const ConvRun *run, int64_t group, int64_t unit) noexcept nogil:
    """Find what packing a unit has found: NONFINITE_..., or 0."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    return shared_piece(run, SHARED_FOUND) + group * (own.shared_rows + own.panels) + unit


cdef void pack_shared_unit(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack unit number (group, SHARED_ROWS co or a panel of ci)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t units = own.shared_rows + own.panels, unit = number % units, group = number // units, first
    cdef int64_t size[3]
    cdef int found
    cdef Box tile
    cdef InputBlock block
    output_size(sample, size)
    if is_stopped(run) or not nth_tile(&own.tiles.tiling, run.problem.batch, size, 0, &tile):
        return
    amx_input_block(sample, tile.extent, tile.samples, &block)
    if unit < own.shared_rows:
        first = unit * SHARED_ROWS
        found = pack_amx_cells(run, &block, &tile, group * sample.cout + first,
                               min(<int64_t>SHARED_ROWS, sample.cout - first), True, shared_cells(run, group, first),
                               scratch)
    else:
        first = (unit - own.shared_rows) * AMX_SIDE
        found = pack_amx_pairs(run, &block, &tile, group * sample.cin + first,
                               min(<int64_t>AMX_SIDE, sample.cin - first), True,
                               place_amx_taps(run, &block, scratch), False,
                               shared_pairs(run, group, first // AMX_SIDE), scratch)
    shared_found(run, group, unit)[0] = found


cdef int shared_task_cells(const ConvRun *run, const WeightAmxTask *t, const char **g) noexcept nogil:
    """Find the rows of a task; return NONFINITE_OUTPUT where there were inf or NaN."""
    cdef const char *found = shared_found(run, t.group, 0)
    cdef int64_t co = t.co_from - t.group * run.sample.cout, unit
    cdef int all = 0
    g[0] = shared_cells(run, t.group, co)
    for unit in range(co // SHARED_ROWS, ceil_div(co + t.cos, SHARED_ROWS)):
        all |= found[unit]
    return all


cdef int shared_task_pairs(const ConvRun *run, const WeightAmxTask *t, int64_t panel,
                           const char **pairs) noexcept nogil:
    """Find the columns of a task's panel; return NONFINITE_INPUT where there were inf or NaN."""
    panel += t.ci_from // AMX_SIDE
    pairs[0] = shared_pairs(run, t.group, panel)
    return shared_found(run, t.group, (<const WeightAmx *>run.blocking.own).shared_rows + panel)[0]
