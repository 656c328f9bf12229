# The order in which an implicit GEMM multiplies a tile's pixels, where many of them meet padding: those that meet it
# under the same taps follow each other, so that register tiles leave these taps out. What is left out are zeros, which
# change no sum: sums begin at 0, and so none of them is ever -0.
cdef enum:
    ORDERED_CHANNELS = 32   # output channels, at least: with fewer, finding taps takes as long as multiplying them
    MAX_AXIS_RUNS = 7
    MAX_TAP_RUNS = MAX_AXIS_RUNS * MAX_AXIS_RUNS
    MAX_LEFT_TAPS = 128
    MAX_COUNTED_TAPS = 256  # along one axis, for which has_few_runs looks at all
    SAVED_PIXELS = 64       # put back into their own order at a time


# Pixels along one axis that meet no padding under the taps of ranks [first, last).
ctypedef struct AxisRun:
    int64_t end             # in the tile, one past its last pixel
    int64_t first, last


# Pixels of a tile, in the order of multiplication, that do so along all axes.
ctypedef struct TapRun:
    int64_t end
    int64_t first[3]
    int64_t last[3]


ctypedef struct PixelOrder:
    int count
    TapRun run[MAX_TAP_RUNS]
    int64_t *place          # of each pixel of the tile in the order


# The taps that are left for some pixels.
ctypedef struct LeftTaps:
    int64_t a_offset[MAX_LEFT_TAPS]
    int64_t b_offset[MAX_LEFT_TAPS]


cdef void count_products(const SampleGeometry *sample, int d, double *all_products, double *left) noexcept nogil:
    """Count the pixels under taps along one axis, of all phases, and those that meet no padding."""
    cdef const ConvAxis *axis = &sample.axis[d]
    cdef ConvAxisPhase phase
    cdef int64_t number, rank, output, k, first, end
    all_products[0] = left[0] = 0
    for number in range(axis.phases):
        phase = conv_axis_phase(axis[0], number)
        for rank in range(phase.taps):
            axis_tap(sample, &phase, d, rank, &output, &k)
            pixels_that_meet(sample, d, output, k, &first, &end)
            all_products[0] += phase.size
            left[0] += max(<int64_t>0, min(end, <int64_t>phase.size) - max(first, <int64_t>0))


cdef double without_padding(const SampleGeometry *sample) noexcept nogil:
    """Return which part of a tile's products meets no padding; 1 where most pixels meet no tap at all."""
    cdef double all_products = 1, left = 1, of_axis, left_of_axis
    cdef int d
    for d in range(3):
        if sample.axis[d].phases > sample.axis[d].kernel:
            return 1
        count_products(sample, d, &of_axis, &left_of_axis)
        all_products *= of_axis
        left *= left_of_axis
    return left / all_products if all_products > 0 else 1


cdef double part_in_order(const SampleGeometry *sample, const SumOrder *order) noexcept nogil:
    """Return which part of the products is left where leaving padding out is worth another order of pixels; 1 where it
    is not."""
    cdef double left
    if sample.taps == 1 or sample.cout < ORDERED_CHANNELS or order.taps > MAX_LEFT_TAPS:
        return 1
    left = without_padding(sample)
    return left if left <= 0.96 else 1


cdef int axis_runs(const SampleGeometry *sample, const ConvAxisPhase *phase, int d, int64_t from_pixel, int64_t pixels,
                   AxisRun *runs) noexcept nogil:
    """Cut some pixels of a phase along one axis into runs; return how many there are, 0 where they are too many."""
    cdef int64_t pixel = from_pixel, rank, output, k, first, end, next
    cdef int count = 0
    while pixel < from_pixel + pixels:
        if count == MAX_AXIS_RUNS:
            return 0
        next = from_pixel + pixels
        runs[count].first, runs[count].last = phase.taps, 0
        for rank in range(phase.taps):
            axis_tap(sample, phase, d, rank, &output, &k)
            pixels_that_meet(sample, d, output, k, &first, &end)
            if first <= pixel < end:
                runs[count].first, runs[count].last = min(runs[count].first, rank), rank + 1
                next = min(next, end)
            elif pixel < first:
                next = min(next, first)
        runs[count].end = next - from_pixel
        count += 1
        pixel = next
    return count


cdef bint has_few_runs(const SampleGeometry *sample) noexcept nogil:
    """Say whether a tile that covers the image is put in order: not where a kernel has so many taps that nearly every
    pixel meets others."""
    cdef AxisRun runs[MAX_AXIS_RUNS]
    cdef ConvAxisPhase phase
    cdef int64_t all_axes = 1, number
    cdef int d, count, most
    for d in range(3):
        most = 0
        for number in range(sample.axis[d].phases):
            phase = conv_axis_phase(sample.axis[d], number)
            if phase.taps > MAX_COUNTED_TAPS:  # planning takes no time either
                return False
            count = axis_runs(sample, &phase, d, 0, phase.size, runs)
            if count == 0:
                return False
            most = max(most, count)
        all_axes *= most
    return all_axes <= MAX_TAP_RUNS


cdef int64_t place_run(const InputTile *t, const Box *block, int64_t pitch, const AxisRun **runs, const int *number,
                       int64_t done, int64_t *place) noexcept nogil:
    """Put the pixels of one run of each axis into the order, after `done` others; return how many there are then."""
    cdef int64_t n, z, y, x
    cdef int64_t first[3]
    cdef int64_t end[3]
    cdef int d
    for d in range(3):
        first[d], end[d] = runs[d][number[d] - 1].end if number[d] else 0, runs[d][number[d]].end
    for n in range(t.tile.samples):
        for z in range(first[0], end[0]):
            for y in range(first[1], end[1]):
                for x in range(first[2], end[2]):
                    t.indirection[done] = (((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2] + x) \
                        * pitch
                    place[((n * t.tile.extent[0] + z) * t.tile.extent[1] + y) * t.tile.extent[2] + x] = done
                    done += 1
    return done


cdef bint order_pixels(const ConvRun *run, const InputTile *t, const Box *block, int64_t pitch,
                       PixelOrder *order) noexcept nogil:
    """Put a tile's pixels in order, and point each at its position in a block; return False where theirs is as
    good."""
    cdef AxisRun runs[3][MAX_AXIS_RUNS]
    cdef const AxisRun *of_axis[3]
    cdef int counts[3]
    cdef int number[3]
    cdef int64_t done = 0
    cdef int d, i
    for d in range(3):
        counts[d] = axis_runs(run.sample, &t.phase.axis[d], d, t.tile.first[d], t.tile.extent[d], runs[d])
        of_axis[d] = runs[d]
    order.count = counts[0] * counts[1] * counts[2]
    order.place = <int64_t *>local_piece(run, INPUT_ORDER, t.scratch)
    if order.count <= 1 or order.count > MAX_TAP_RUNS:
        return False
    for i in range(order.count):
        number[0] = i // (counts[1] * counts[2])
        number[1], number[2] = i // counts[2] % counts[1], i % counts[2]
        done = place_run(t, block, pitch, of_axis, number, done, order.place)
        order.run[i].end = done
        for d in range(3):
            order.run[i].first[d], order.run[i].last[d] = runs[d][number[d]].first, runs[d][number[d]].last
    repeat_last(t.indirection, done)
    return True


cdef void leave_taps(const InputTile *t, const PixelOrder *order, int number, int64_t end, int64_t tap,
                     const BatchReduce *steps, LeftTaps *left, BatchReduce *some) noexcept nogil:
    """Leave of the steps, the phase's taps from that number on, those under which any pixel meets no padding from a run
    of that number on to the end-th pixel."""
    cdef TapRun all_runs = order.run[number]
    cdef int64_t rank, rest, s, count = 0
    cdef bint inside
    cdef int d
    while order.run[number].end < end:
        number += 1
        for d in range(3):
            if order.run[number].first[d] < order.run[number].last[d]:
                all_runs.first[d] = min(all_runs.first[d], order.run[number].first[d])
                all_runs.last[d] = max(all_runs.last[d], order.run[number].last[d])
    for s in range(steps.count):
        rest, inside = tap + s, True
        for d in range(2, -1, -1):
            rank = rest % t.phase.axis[d].taps
            rest //= t.phase.axis[d].taps
            inside = inside and all_runs.first[d] <= rank < all_runs.last[d]
        if inside:
            left.a_offset[count], left.b_offset[count] = steps.a_offset[s], steps.b_offset[s]
            count += 1
    some[0] = steps[0]
    some.count, some.a_offset, some.b_offset = count, left.a_offset, left.b_offset


cdef void multiply_in_order(const ConvRun *run, const InputTile *t, const PixelOrder *order, const BatchReduce *steps,
                            int64_t co, int64_t tap, Prefetch *prefetch) noexcept nogil:
    """Do as multiply_panels, without most of the padding."""
    cdef int64_t item = run.sample.item, columns, p, i, end
    cdef int number, known
    cdef const RegisterTile *tile
    cdef const char *weight
    cdef LeftTaps left
    cdef BatchReduce here = steps[0], some
    columns = (<const InputTiles *>run.blocking.own).weights.ci.columns
    for p in range(t.panels):
        tile, weight = tile_of_panel(run, t, p), weights_of_panel(run, t, p, co, tap, &here)
        i = number = 0
        known = -1
        while i < t.pixels:
            end = min(i + tile.rows, t.pixels)
            while order.run[number].end <= i:
                number += 1
            if number != known or order.run[number].end < end:
                leave_taps(t, order, number, end, tap, &here, &left, &some)
                known = number if order.run[number].end >= end else -1
            prefetch_some(prefetch)
            if some.count:
                tile.kernel(&some, t.block, t.indirection + i, weight,
                            t.sums.data + (i * t.sums.pixel_pitch + p * columns) * item, t.sums.pixel_pitch, False)
            i += tile.rows
