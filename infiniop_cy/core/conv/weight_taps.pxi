# grad_weight of kernels whose taps meet much padding: the rows of a tap are multiplied only with the output pixels
# under which it meets the input. What is left out are zeros, which change no sum but -0, so that all sums are added to
# 0 in the end; and where inf or NaN in grad_output meet them, tiles are multiplied as a whole.
cdef enum:
    MOST_TAPS_APART = 20
    CHANNELS_APART = 32   # of a tap, at least: they fill register tiles
    TAP_ROWS = 24         # a multiple of the rows of every register tile


cdef bint taps_meet_padding(const SampleGeometry *sample) noexcept nogil:
    """Say whether so many products are with padding that it pays to take taps one by one, each of whose channels then
    fill register tiles."""
    return sample.taps > 1 and sample.cin >= CHANNELS_APART and sample.taps <= MOST_TAPS_APART \
        and existing_products(sample) * 10 <= 9.0 * sample.taps * sample.pixels_out


cdef int64_t tap_steps(const ConvRun *run, const WeightTile *t, const Box *tile, int64_t tap,
                       BatchReduce *steps) noexcept nogil:
    """Leave the steps, rows of a tile's pixels or pairs of these, that a tap meets the input under; return how many
    there are."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t first[3]
    cdef int64_t end[3]
    cdef int64_t k[3]
    cdef int64_t per_step = 2 if (<const WeightTiles *>run.blocking.own).co.vnni else 1, n, z, y, x, count = 0, number
    cdef int d
    tap_index(sample, tap, k)
    for d in range(3):
        steps_inside(&sample.axis[d], tile.first[d], tile.extent[d], k[d], &first[d], &end[d])
    x = first[2] // per_step
    for n in range(tile.samples):
        for z in range(first[0], end[0]):
            for y in range(first[1], end[1]):
                number = (n * tile.extent[0] + z) * tile.extent[1] + y
                t.tap_a_offset[count] = t.a_offset[number] + x * steps.a_step
                t.tap_b_offset[count] = t.b_offset[number] + x * steps.b_step
                count += 1
    steps.a_offset, steps.b_offset = t.tap_a_offset, t.tap_b_offset
    steps.depth = ceil_div(end[2], per_step) - x
    steps.count = count if end[2] > first[2] else 0
    return steps.count


cdef bint columns_are_finite(const ConvRun *run, const WeightTile *t, const BatchReduce *steps) noexcept nogil:
    """Say whether there is neither inf nor NaN in the packed columns of a tile."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t count = steps.count * steps.depth * own.co.columns, p
    cdef Magnitudes found
    memset(&found, 0, sizeof(found))
    for p in range(t.panels):
        if own.co.vnni:
            kernels.scan[DTYPE_BF16](t.columns + p * t.column_panel * 4, 2 * count, &found)
        else:
            found.nonfinite |= kernels.has_nonfinite[run.sample.compute](
                t.columns + p * t.column_panel * run.sample.item, count)
    return not found.nonfinite


cdef bint multiply_taps(const ConvRun *run, const WeightTile *t, const Box *tile, const BatchReduce *steps,
                        Prefetch *prefetch) noexcept nogil:
    """Add the products of the rows and packed columns of a tile, tap by tap; return False where that may not be, or
    would write to the next tap's rows."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = sample.item, columns = own.co.columns, number, rows, i, p
    cdef int64_t place[WEIGHT_ROWS + MAX_ROWS]
    cdef TapRows of_tap
    cdef BatchReduce some
    if not own.by_taps or (own.taps_lead and t.cis % TAP_ROWS) \
            or steps.count != tile.samples * tile.extent[0] * tile.extent[1] \
            or not columns_are_finite(run, t, steps):
        return False
    for number in range(tap_count_of(run, t)):
        of_tap = tap_rows(run, t, number)
        some = steps[0]
        if tap_steps(run, t, tile, of_tap.tap, &some) == 0:
            continue
        rows = ceil_div(of_tap.end - of_tap.first, of_tap.step)
        for i in range(rows):
            place[i] = t.indirection[of_tap.first + i * of_tap.step]
        repeat_last(place, rows)
        for p in range(t.panels):
            multiply(register_tile(sample, &own.co, t.cos - p * columns), &some, t.input, place, rows,
                     t.columns + p * t.column_panel * item,
                     t.sums + (of_tap.first * t.pitch + p * columns) * item, of_tap.step * t.pitch, item, t.chains,
                     prefetch)
    return True


cdef void add_zeros(const ConvRun *run, const WeightTile *t) noexcept nogil:
    """Let a task's sums that are -0 be 0."""
    memset(t.staging, 0, t.pitch * run.sample.item)
    kernels.add_to_rows[run.sample.compute](t.staging, t.sums, t.pitch, t.rows, t.pitch, False)
