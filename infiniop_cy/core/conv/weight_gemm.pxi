# grad_weight as an implicit GEMM, for most convolutions: a task packs the input under a tile of output pixels with its
# halo, once for all taps; a tap is an offset into that block. Rows are scalars read where they lie: interleaved, so
# that memory is read in lines whatever the stride; or pairs of bfloat16 (weight_pairs.pxi).
cdef enum:
    WEIGHT_POSITIONS = 16384         # of a channel and sample in a packed block, at most,
    WEIGHT_LARGE_POSITIONS = 8192    # and of several samples, or of lines
    WEIGHT_BLOCK_ELEMENTS = 1 << 18  # of all its channels
    LINE_VECTORS = 5                 # of channels, with which lines are kept where vectors are wide


cdef bint weight_gemm_block(const SampleGeometry *sample, const SumOrder *order, bint *vnni,
                            InputBlock *block) noexcept nogil:
    """Lay out the input's block under a tile of one sample; return False where it is too large. vnni: whether by pairs
    of bfloat16."""
    vnni[0] = bfloat16_dot2(sample) and fill_input_block(sample, order.tile, 1, False, 1, WEIGHT_POSITIONS, block)
    return vnni[0] or fill_input_block(sample, order.tile, 1, True, 1, WEIGHT_POSITIONS, block)


cdef bint keeps_lines(const ConvProblem *problem, bint pairs) noexcept nogil:
    """Say whether blocks keep channels that lie side by side in lines, if they fit. With wide vectors single channels
    of few lines are transposed in less time than their products take longer by lines, each of whose steps reads another
    line."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t least = sample.lanes // 2
    if not pairs and has_wide_vectors(sample):
        least = LINE_VECTORS * sample.lanes
    return problem.view[CONV_INPUT].channel == itemsize_of(sample.dtype) and sample.cin >= least


cdef int64_t line_pitch(const ConvProblem *problem, const SumOrder *order, bint pairs,
                        int64_t channels) noexcept nogil:
    """Return the elements, or pairs, from position to position of a block that keeps the lines of so many channels that
    lie side by side, so that they need not be transposed: an odd number of cache lines, since powers of two share cache
    sets; or 0 where blocks are planes, pixel by pixel. Lines of the one or two channels that a task with many taps may
    take would be nearly empty, and many of any length too large for the cache."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputBlock block
    if not keeps_lines(problem, pairs) or (not pairs and channels < sample.lanes // 2):
        return 0
    # Pairs of one tap are of the tile's pixels alone.
    if not (pairs and sample.taps == 1) \
            and not fill_input_block(sample, order.tile, 1, True, 1, WEIGHT_LARGE_POSITIONS, &block):
        return 0
    return round_up(channels, CONV_ALIGN_ELEMENTS) | CONV_ALIGN_ELEMENTS


cdef bint accepts_weight_gemm(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef SumOrder order
    cdef InputBlock block
    cdef bint vnni
    order_weight_pixels(sample, &order)
    if not weight_gemm_block(sample, &order, &vnni, &block):
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    if class_count(&block) * block.plane > sample.taps * order.tile[0] * order.tile[1] * order.tile[2]:
        why[0] = b"the block that the taps of a tile reach has more positions than they read"
        return False
    return True


cdef void block_weight_gemm(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                            Blocking *blocking) noexcept nogil:
    """Make tasks of boxes of taps where that pays, or of all taps."""
    cdef WeightGemm *own = <WeightGemm *>blocking.own
    cdef InputBlock block
    cdef bint vnni, by_taps = taps_meet_padding(&problem.sample)
    weight_gemm_block(&problem.sample, order, &vnni, &block)
    if cut_tap_boxes(problem, threads, &own.boxes) and block_boxes(problem, order, vnni, by_taps, blocking):
        return
    own.boxes.taps[0] = 0
    block_taps(problem, order, vnni, by_taps, threads, blocking)


cdef bint block_boxes(const ConvProblem *problem, const SumOrder *order, bint vnni, bint by_taps,
                      Blocking *blocking) noexcept nogil:
    """Make tasks of the boxes that were cut; return False, and leave blocking as it is, unless the last boxes, which
    may be smaller, need no other blocks than the first: they keep lines, too, and a task has all rows."""
    cdef WeightGemm *own = <WeightGemm *>blocking.own
    cdef Blocking unblocked = blocking[0]
    cdef ConvProblem part
    problem_of_box(problem, &own.boxes, 0, &part)
    block_taps(&part, order, vnni, by_taps, 1, blocking)
    if (keeps_lines(&part, vnni) and not line_pitch(&part, order, vnni, part.sample.cin)) \
            or (own.tiles.rows < part.sample.cin * part.sample.taps and part.sample.taps > 1):
        blocking[0] = unblocked
        return False
    own.boxes.tasks = blocking.tasks
    blocking.tasks *= own.boxes.count[0] * own.boxes.count[1] * own.boxes.count[2]
    return True


cdef void block_taps(const ConvProblem *problem, const SumOrder *order, bint vnni, bint by_taps, int threads,
                     Blocking *blocking) noexcept nogil:
    """Bound a task's rows and a tile's samples by the size of the packed block."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightTiles *own = <WeightTiles *>blocking.own
    cdef InputBlock block
    cdef int64_t positions, channels, elements
    fill_input_block(sample, order.tile, 1, not vnni, 1, WEIGHT_POSITIONS, &block)
    if vnni and sample.taps > 1 and line_pitch(problem, order, True, sample.cin):
        fill_input_block(sample, order.tile, 1, True, 1, WEIGHT_LARGE_POSITIONS, &block)
    positions = class_count(&block) * block.plane
    block_weight_tiles(problem, order, vnni, by_taps,
                       sample.taps * max(<int64_t>1, WEIGHT_BLOCK_ELEMENTS // positions),
                       max(<int64_t>1, WEIGHT_LARGE_POSITIONS // positions), threads, own, blocking)
    positions *= own.tiling.samples
    if line_pitch(problem, order, vnni, sample.cin) and not (<WeightGemm *>blocking.own).boxes.taps[0]:
        join_groups(problem, threads, own)
    channels = own.together * (own.rows // sample.taps + 2)
    if vnni:
        elements = PAIR_MARGIN + positions * max(channels, 2 * line_pitch(problem, order, True, channels))
    else:
        elements = positions * max(channels, line_pitch(problem, order, False, channels))
    book_weight_tiles(sample, own, positions, elements, 2 if vnni else sample.item, blocking)


cdef void row_steps(const Box *tile, const InputBlock *block, const WeightTile *t, BatchReduce *steps) noexcept nogil:
    """Lead the steps through the pixels of a tile in a block: one stretch where they follow each other, else one for
    each row."""
    cdef int64_t n, z, y
    steps.count, steps.depth, steps.a_step, t.a_offset[0] = 1, box_positions(tile), 1, 0
    if block.extent[1] == tile.extent[1] and block.extent[2] == tile.extent[2] and (
            tile.samples * tile.extent[0] == 1 or block.extent[0] == tile.extent[0]):
        return
    steps.count, steps.depth, steps.a_step = 0, tile.extent[2], block.pixel[2]
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                t.a_offset[steps.count] = pixel_row(block, n, z, y)
                steps.count += 1


cdef void point_rows(const ConvRun *run, const WeightTile *t, const InputBlock *block, int64_t position,
                     int64_t channel) noexcept nogil:
    """Point each row at what it reads of a block, which is so many elements from position to position, and from channel
    to channel."""
    cdef int64_t number, in_class, place, i
    cdef TapRows rows
    for number in range(tap_count_of(run, t)):
        rows = tap_rows(run, t, number)
        place = tap_position(run.sample, block, rows.tap, &in_class) * block.plane  # 0 where there is but one class
        place += in_class * position + rows.ci * channel
        i = rows.first
        while i < rows.end:
            t.indirection[i] = place
            place += channel
            i += rows.step


cdef void pack_input_lines(const ConvRun *run, WeightTile *t, const Box *tile, int64_t pitch,
                           BatchReduce *steps) noexcept nogil:
    """Pack the channels that a task's rows read, of all its groups, as [position][channel], as they lie."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t size[3]
    cdef int64_t s
    cdef InputBlock block
    cdef Box box
    input_size(sample, size)
    fill_input_block(sample, tile.extent, tile.samples, True, 1, MAX_CHANNELS, &block)
    class_box(sample, &block, tile, 0, &box)
    pack_channels(run.problem, &run.problem.view[CONV_INPUT], size, &box, t.group * sample.cin + t.ci_from,
                  t.groups * t.cis, t.input, pitch, False, t.staging, t.place)
    point_rows(run, t, &block, pitch, 1)
    row_steps(tile, &block, t, steps)
    steps.a_step *= pitch
    for s in range(steps.count):
        t.a_offset[s] *= pitch


cdef bint pack_input_block(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil:
    """Pack the channels that a task's rows read, or lead the steps through them where they lie; see PackRows."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef int64_t pitch
    cdef int64_t size[3]
    cdef InputBlock block
    cdef Box box
    if own.co.vnni:
        return pack_pair_rows(run, t, tile, steps)
    if input_lies_ready(run.problem):
        lead_through_input(run, t, tile, steps)
        return False
    pitch = line_pitch(run.problem, run.order, False, t.groups * t.cis)
    if pitch:
        pack_input_lines(run, t, tile, pitch, steps)
        return False
    input_size(sample, size)
    fill_input_block(sample, tile.extent, tile.samples, True, 1, MAX_CHANNELS, &block)
    class_box(sample, &block, tile, 0, &box)
    pack_planes(sample.dtype, sample.compute, x, size, &box, t.group * sample.cin + t.ci_from, t.cis, t.input,
                block.plane)
    point_rows(run, t, &block, 1, block.plane)
    row_steps(tile, &block, t, steps)
    return False


cdef bint prepare_weight_gemm(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    return prepare_weight_tiles(run, number, scratch, pack_input_block)


cdef void weight_gemm_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run a task of all taps; or of a box of them, as one of the convolution that has no others."""
    cdef const WeightGemm *own = <const WeightGemm *>run.blocking.own
    cdef ConvProblem of_box
    cdef ConvRun part = run[0]
    if own.boxes.taps[0] == 0:
        weight_tiles_task(run, number, scratch, pack_input_block)
        return
    problem_of_box(run.problem, &own.boxes, number // own.boxes.tasks, &of_box)
    part.problem, part.sample = &of_box, &of_box.sample
    if number >= own.boxes.tasks:  # grad_bias goes along with the first one
        part.gradients &= ~FOR_GRAD_BIAS
    if number % own.boxes.tasks < weight_tasks(part.sample, &own.tiles):
        weight_tiles_task(&part, number % own.boxes.tasks, scratch, pack_input_block)


cdef void explain_weight_gemm(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                              size_t size) noexcept nogil:
    cdef const WeightTiles *own = <const WeightTiles *>blocking.own
    snprintf(text, size, b"implicit GEMM: taps are offsets into a packed block of the input; tiles of %lld x %lld x "
             b"%lld x %lld pixels, %lld of %lld rows and %lld of %lld columns a task%s%s%s%s",
             <long long>own.tiling.samples, <long long>own.tiling.extent[0], <long long>own.tiling.extent[1],
             <long long>own.tiling.extent[2], <long long>own.rows, <long long>(sample.cin * sample.taps),
             <long long>(own.task_panels * own.co.columns), <long long>(own.co.count * own.co.columns),
             b"; products are added one by one, since images are short" if order.accumulate else b"",
             b"; tile by tile, then joined" if own.parts.bytes else b"",
             b"; pairs of bfloat16" if own.co.vnni else b"",
             b"; all channels of a box of taps" if (<const WeightGemm *>blocking.own).boxes.taps[0] else b"")


cdef ConvAlgorithm weight_gemm() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:gemm", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_gemm, order_weight_pixels, block_weight_gemm
    row.prepare, row.task, row.explain = prepare_weight_gemm, weight_gemm_task, explain_weight_gemm
    return row
