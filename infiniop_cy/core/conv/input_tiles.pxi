# What the two algorithms share whose register tiles of grad_input have pixels as rows and ci as columns, and whose
# steps go through the output channels of packed blocks: a task's tile, its sums and its scratch.
cdef enum:
    MIN_TILE_PIXELS = 224   # fewer would pack too much of a tile's edge twice, but where threads have no task;
    LEAST_TILE_PIXELS = 56
    GROUPS_BYTES = 128      # of a pixel's groups in one block, at most, where they share cache lines; where vectors
    NARROW_GROUPS = 1024    # are narrow, these, also where a group fills at most two lines,
    NARROW_GROUP = 128      # which would each be fetched with their neighbours (1.1 to 1.6 times as fast on Zen 3)

    # pieces of scratch; shared:
    INPUT_WEIGHTS = 0
    # of a thread:
    INPUT_STAGED_WEIGHTS = 0
    INPUT_BLOCK = 1
    INPUT_SUMS = 2
    INPUT_STAGING = 3
    INPUT_PLACES = 4
    INPUT_INDIRECTION = 5
    INPUT_A_OFFSETS = 6
    INPUT_B_OFFSETS = 7
    INPUT_ORDER = 8
    INPUT_SAVED = 9


ctypedef struct InputTiles:
    WeightPanels weights
    int64_t task_panels   # micro-panels of a task
    Tiling tiling         # of the pixels of a phase
    int64_t tiles         # of the largest phase
    int64_t phases        # of a tile, that one thread takes; if more than one, a tile's follow each other
    bint ordered          # pixels are put in another order (input_order.pxi)
    int64_t together      # groups of a task, packed as one block
    int64_t pitch         # elements from position to position of a block
    bint lines            # rows of a block are lines of an image, in which positions overlap (pack_folded.pxi)


# A task's part: a tile of one phase by the ci of some micro-panels.
ctypedef struct InputTile:
    int64_t number, panel_from, panels
    int64_t groups        # of which sums.group is the first, or the one that is multiplied
    int64_t pixels
    Phase phase
    Box tile
    InputSums sums
    char *scratch
    char *block
    char *staging
    int64_t *place
    int64_t *indirection
    int64_t *a_offset
    int64_t *b_offset


cdef int64_t block_pitch(const SampleGeometry *sample, const SumOrder *order) noexcept nogil:
    """Count the elements from position to position of a block: the output channels of a panel, up to a whole vector."""
    return round_up(order.channels, sample.lanes)


cdef int64_t most_groups_together(const ConvProblem *problem, const SumOrder *order, bint vnni) noexcept nogil:
    """Return how many groups whose channels share cache lines one block may hold: it takes little longer to pack than
    that of one of them."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t most = GROUPS_BYTES if has_wide_vectors(sample) else NARROW_GROUPS
    if not groups_alternate(problem) or sample.cout > order.channels or (vnni and sample.cout % 2):
        return 1
    return max(<int64_t>1, min(sample.groups, most // max(<int64_t>1, sample.cout * itemsize_of(sample.dtype))))


cdef void block_input_columns(const ConvProblem *problem, const SumOrder *order, InputTiles *own) noexcept nogil:
    """Cut the ci into micro-panels, and these into tasks of about WEIGHT_COLUMNS, and give a task one group."""
    cdef const SampleGeometry *sample = &problem.sample
    cut_columns(sample, sample.cin, bfloat16_dot2(sample), &own.weights.ci)
    own.weights.channels = order.channels
    own.together, own.lines, own.phases = 1, False, phases_of_lines(problem)
    own.pitch = block_pitch(sample, order)
    own.task_panels = min(own.weights.ci.count, max(<int64_t>1, WEIGHT_COLUMNS // own.weights.ci.columns))


cdef int64_t input_tile_tasks(const ConvProblem *problem, InputTiles *own) noexcept nogil:
    """Count the tasks; set own.tiles."""
    cdef int64_t grid[3]
    phase_grid(&problem.sample, grid)
    own.tiles = count_tiles(&own.tiling, problem.batch, grid)
    return ceil_div(problem.sample.groups, own.together) * ceil_div(own.weights.ci.count, own.task_panels) \
        * phase_count(&problem.sample) * own.tiles


cdef int64_t phases_of_lines(const ConvProblem *problem) noexcept nogil:
    """Count the phases of a tile that write to the same cache lines: two threads at once would wait for each other."""
    cdef int64_t step = problem.view[CONV_GRAD_INPUT].space[2]
    return max(<int64_t>1, problem.sample.axis[2].phases) if -CONV_ALIGN < step < CONV_ALIGN else 1


cdef int64_t input_tile_shares(const ConvProblem *problem, InputTiles *own) noexcept nogil:
    """Count what the threads have to share: tasks, or several that one thread takes."""
    return input_tile_tasks(problem, own) // own.phases


cdef void block_phases(const ConvProblem *problem, int threads, InputTiles *own, Blocking *blocking) noexcept nogil:
    """Give all phases of a tile to one thread, where there are tiles enough, since they read the same grad_output."""
    cdef int64_t all_phases = phase_count(&problem.sample), of_phase = 1  # tasks, one after the other
    if panels_alternate(own):
        of_phase *= ceil_div(own.weights.ci.count, own.task_panels)
    if groups_alternate(problem):
        of_phase *= ceil_div(problem.sample.groups, own.together)
    if blocking.tasks >= 4 * threads * all_phases * of_phase:
        own.phases = all_phases
    if own.phases > 1:
        blocking.tasks_at_once = own.phases * of_phase


cdef void book_input_tiles(const ConvProblem *problem, const SumOrder *order, int64_t positions, int threads,
                           InputTiles *own, Blocking *blocking) noexcept nogil:
    """Make room for blocks of at most so many positions, own.pitch elements apart."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t pixels = tiling_pixels(&own.tiling)
    cdef Scratch *local = &blocking.local
    own.weights.ready = ready_panels(problem, &own.weights.ci)
    book_weights(problem, &own.weights, INPUT_WEIGHTS, INPUT_STAGED_WEIGHTS, blocking)
    book(local, INPUT_BLOCK, positions * own.pitch, sample.item)
    book(local, INPUT_SUMS, (pixels + MAX_ROWS) * own.task_panels * own.weights.ci.columns, sample.item)
    book(local, INPUT_STAGING, staging_elements(sample), sample.item)
    book(local, INPUT_PLACES, positions, sizeof(int64_t))
    book(local, INPUT_INDIRECTION, pixels + MAX_ROWS, sizeof(int64_t))
    book(local, INPUT_A_OFFSETS, order.taps, sizeof(int64_t))
    book(local, INPUT_B_OFFSETS, order.taps, sizeof(int64_t))
    if own.ordered:
        book(local, INPUT_ORDER, pixels, sizeof(int64_t))
        book(local, INPUT_SAVED, SAVED_PIXELS * own.task_panels * own.weights.ci.columns, sample.item)
    blocking.tasks = input_tile_tasks(problem, own)
    block_phases(problem, threads, own, blocking)
    blocking.in_order = phase_count(sample) == 1 \
        and (sample.groups == 1 or groups_alternate(problem)) \
        and (own.weights.ci.count <= own.task_panels or panels_alternate(own))


cdef bint prepare_input_weights(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the weights of one unit; return whether there was inf or NaN."""
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    return pack_weight_panels(run.problem, &own.weights, number, shared_piece(run, INPUT_WEIGHTS),
                              local_piece(run, INPUT_STAGED_WEIGHTS, scratch))


cdef bint panels_alternate(const InputTiles *own) noexcept nogil:
    """Say whether tasks of all micro-panels follow each other, so that those of the last, fewer ones are spread over
    the threads; else those of all tiles do, which read the same weights."""
    return own.weights.ci.count % own.task_panels != 0


cdef bint groups_alternate(const ConvProblem *problem) noexcept nogil:
    """Say whether tasks of one tile and all groups follow each other: where channels lie side by side, and those of a
    group fill no whole cache lines, or few, the groups share what is fetched, which had better still be there."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef bint few_lines = not has_wide_vectors(sample) and 0 < sample.cout * stored <= NARROW_GROUP
    return sample.groups > 1 \
        and ((problem.view[CONV_GRAD_OUTPUT].channel == stored and (few_lines or sample.cout * stored % CONV_ALIGN))
             or (problem.view[CONV_GRAD_INPUT].channel == stored and sample.cin * stored % CONV_ALIGN))


cdef int64_t group_of_task(const ConvProblem *problem, int64_t tasks, int64_t *number,
                           int64_t together=1) noexcept nogil:
    """Find the first group of a task, which takes so many, and its number among theirs. tasks: of one group."""
    cdef int64_t part = number[0] // tasks, parts = ceil_div(problem.sample.groups, together)
    if groups_alternate(problem):
        part = number[0] % parts
        number[0] //= parts
    else:
        number[0] %= tasks
    return part * together


cdef bint begin_input_tile(const ConvRun *run, int64_t number, char *scratch, InputTile *t) noexcept nogil:
    """Begin task number (groups, micro-panels, phase, tile), or (groups, phase, tile, micro-panels), with phases and
    tiles the other way round if one thread takes several phases; return False where the phase has no such tile."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t phases = phase_count(sample), parts = ceil_div(own.weights.ci.count, own.task_panels)
    cdef int64_t group = group_of_task(run.problem, parts * phases * own.tiles, &number, own.together)
    cdef int64_t outer = number // parts, part = number % parts
    cdef int64_t size[3]
    cdef int d
    if not panels_alternate(own):
        outer, part = number % (phases * own.tiles), number // (phases * own.tiles)
    t.number = outer // phases if own.phases > 1 else outer % own.tiles
    make_phase(sample, outer % phases if own.phases > 1 else outer // own.tiles, &t.phase)
    for d in range(3):
        size[d] = t.phase.axis[d].size
    if not nth_tile(&own.tiling, run.problem.batch, size, t.number, &t.tile):
        return False
    t.panel_from = part * own.task_panels
    t.panels = min(own.task_panels, own.weights.ci.count - t.panel_from)
    t.pixels = box_positions(&t.tile)
    t.scratch, t.block = scratch, local_piece(run, INPUT_BLOCK, scratch)
    t.staging = local_piece(run, INPUT_STAGING, scratch)
    t.place = <int64_t *>local_piece(run, INPUT_PLACES, scratch)
    t.indirection = <int64_t *>local_piece(run, INPUT_INDIRECTION, scratch)
    t.a_offset = <int64_t *>local_piece(run, INPUT_A_OFFSETS, scratch)
    t.b_offset = <int64_t *>local_piece(run, INPUT_B_OFFSETS, scratch)
    t.sums.data = local_piece(run, INPUT_SUMS, scratch)
    t.groups = min(own.together, sample.groups - group)
    t.sums.group, t.sums.ci_from = group, t.panel_from * own.weights.ci.columns
    t.sums.channels = min(t.panels * own.weights.ci.columns, sample.cin - t.sums.ci_from)
    t.sums.pixel_pitch, t.sums.ci_pitch = round_up(t.sums.channels, sample.lanes), 1
    t.sums.extent = t.tile.extent
    return True


cdef void clear_input_sums(const ConvRun *run, const InputTile *t) noexcept nogil:
    """Begin a task's sums, also those of rows that nobody reads."""
    memset(t.sums.data, 0, (t.pixels + MAX_ROWS) * t.sums.pixel_pitch * run.sample.item)


cdef void fill_indirection(const Box *tile, const int64_t *extent, int64_t pitch, int64_t *indirection) noexcept nogil:
    """Point each pixel of the tile at its position in a block with these extents, whose positions are `pitch` elements
    apart."""
    cdef int64_t n, z, y, x, i = 0
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                for x in range(tile.extent[2]):
                    indirection[i] = (((n * extent[0] + z) * extent[1] + y) * extent[2] + x) * pitch
                    i += 1
    repeat_last(indirection, i)


cdef const RegisterTile *tile_of_panel(const ConvRun *run, const InputTile *t, int64_t panel) noexcept nogil:
    """Find the register tile for one of a task's micro-panels."""
    cdef const MicroPanels *ci = &(<const InputTiles *>run.blocking.own).weights.ci
    return register_tile(run.sample, ci, t.sums.channels - panel * ci.columns)


cdef const char *weights_of_panel(const ConvRun *run, const InputTile *t, int64_t panel, int64_t co, int64_t tap,
                                  BatchReduce *steps) noexcept nogil:
    """Find the weights of one of a task's micro-panels for a block of co, from the phase's tap of that number on; set
    how far they are apart from step to step."""
    cdef const WeightPanels *weights = &(<const InputTiles *>run.blocking.own).weights
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    panel += t.panel_from
    if panel < weights.ready:
        steps.b_step = w.n // run.sample.item
        return w.data + t.sums.group * w.group + co * w.n + panel * weights.ci.columns * w.channel
    steps.b_step = weights.ci.columns
    return weight_panel(run.sample, weights, shared_piece(run, INPUT_WEIGHTS), t.sums.group, panel, co) \
        + (t.phase.first_packed + tap) * steps.depth * weights.ci.columns * run.sample.item


cdef void multiply_panels(const ConvRun *run, const InputTile *t, const BatchReduce *steps, int64_t co, int64_t tap,
                          Prefetch *prefetch) noexcept nogil:
    """Add the products of the block with the weights of a block of co, from the phase's tap of that number on."""
    cdef int64_t item = run.sample.item, columns = (<const InputTiles *>run.blocking.own).weights.ci.columns, p
    cdef BatchReduce here = steps[0]
    cdef const char *weight
    for p in range(t.panels):
        weight = weights_of_panel(run, t, p, co, tap, &here)
        multiply(tile_of_panel(run, t, p), &here, t.block, t.indirection, t.pixels, weight,
                 t.sums.data + p * columns * item, t.sums.pixel_pitch, item, False, prefetch)


cdef void begin_steps(const ConvRun *run, const InputTile *t, BatchReduce *steps) noexcept nogil:
    """Set how far a step of grad_output is (of weights: weights_of_panel), and where the offsets of the taps lie."""
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    steps.a_offset, steps.b_offset = t.a_offset, t.b_offset
    steps.a_step = 2 if own.weights.ci.vnni else 1
    steps.a_ahead = steps.b_ahead = 0


cdef void end_input_tile(const ConvRun *run, const InputTile *t, const int64_t *place) noexcept nogil:
    """Add the products of inf and NaN weights, of which there are none where (not NULL) pixels have places of their
    own, then save the tile."""
    if run.nonfinite:
        add_nonfinite_weights(run.problem, &t.phase, &t.tile, &t.sums)
    save_tile(run.problem, &t.phase, &t.tile, &t.sums, place,
              local_piece(run, INPUT_SAVED, t.scratch) if place != NULL else NULL, t.staging)
