# inf and NaN that may not meet the zeros of padding. They are packed as a number that is nothing beside a real product,
# of their sign so that times inf it is right, and their real products are added afterwards: the sums that they reach
# are then inf or NaN, and no other sum has changed by a bit. To add such a product twice does no harm.
cdef extern from *:
    """
    static const double TINY = 0x1p-100;
    """
    const double TINY


ctypedef fused real:
    float
    double


cdef void replace_nonfinite(real *values, int64_t n) noexcept nogil:
    """Replace inf and NaN by TINY of their sign."""
    cdef int64_t i
    for i in range(n):
        if values[i] - values[i] != 0:
            values[i] = <real>(TINY if values[i] > 0 else -TINY)


cdef bint replace_nonfinite_values(const SampleGeometry *sample, char *values, int64_t n) noexcept nogil:
    """Replace inf and NaN among n values of the compute type by TINY of their sign; return whether there were any."""
    if not kernels.has_nonfinite[sample.compute](values, n):
        return False
    if sample.compute == DTYPE_F64:
        replace_nonfinite(<double *>values, n)
    else:
        replace_nonfinite(<float *>values, n)
    return True


cdef double load_weight(const ConvProblem *problem, int64_t group, int64_t co, int64_t ci,
                        const int64_t *k) noexcept nogil:
    """Load one weight of a group."""
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    return load_one(problem, w.data + group * w.group + weight_row(&problem.sample, w, co) + ci * w.channel
                    + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2])


cdef bint load_source(const ConvProblem *problem, int64_t n, int64_t group, int64_t co, const int64_t *position,
                      const int64_t *k, double *value) noexcept nogil:
    """Load what a position of a block holds in the class of tap k; return False where it is padding."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t size[3]
    cdef int64_t pixel[3]
    cdef FoldedRun run
    output_size(sample, size)
    folded_run(sample, group, co, 1, &run)
    source_pixel(sample, position, k, pixel)
    pixel[2] += run.shift
    if not is_inside(pixel, size):
        return False
    value[0] = load_pixel(problem, &problem.view[CONV_GRAD_OUTPUT], n, run.channel, pixel)
    return True


# Sums of grad_input: those of a pixel of the tile, for channels ci_from to ci_from + channels of a group. The pixels
# are laid out as the positions of a block with these extents.
ctypedef struct InputSums:
    char *data
    int64_t group, ci_from, channels
    int64_t extent[3]
    int64_t pixel_pitch, ci_pitch  # elements


cdef inline char *sum_of_pixel(const ConvProblem *problem, const InputSums *sums, int64_t n, int64_t z, int64_t y,
                               int64_t x) noexcept nogil:
    """Find the sum of a tile's pixel for the first of its channels."""
    return sums.data + (((n * sums.extent[0] + z) * sums.extent[1] + y) * sums.extent[2] + x) * sums.pixel_pitch \
        * problem.sample.item


cdef void add_tap_products(const ConvProblem *problem, const Box *tile, int64_t co, int64_t ci, const int64_t *output,
                           const int64_t *k, double weight, const InputSums *sums) noexcept nogil:
    """Add the products of one weight with the output pixels that a tile's pixels meet under its tap."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t n, z, y, x
    cdef int64_t o[3]
    cdef double value
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                for x in range(tile.extent[2]):
                    o[0], o[1] = tile.first[0] + z + output[0], tile.first[1] + y + output[1]
                    o[2] = tile.first[2] + x + output[2]
                    if load_source(problem, tile.n + n, sums.group, co, o, k, &value):
                        add_one(sample, sum_of_pixel(problem, sums, n, z, y, x) + ci * sums.ci_pitch * sample.item,
                                weight * value)


cdef void add_nonfinite_weights(const ConvProblem *problem, const Phase *phase, const Box *tile,
                                const InputSums *sums) noexcept nogil:
    """Add the products of inf and NaN weights to the sums of a phase's tile."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t tap, co, ci
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef double weight
    for tap in range(phase.tap_count):
        phase_tap(sample, phase, tap, output, k)
        for co in range(sample.cout):
            for ci in range(sums.channels):
                weight = load_weight(problem, sums.group, co, sums.ci_from + ci, k)
                if is_nonfinite(weight):
                    add_tap_products(problem, tile, co, ci, output, k, weight, sums)


cdef void add_value_products(const ConvProblem *problem, const Phase *phase, const Box *tile, int64_t n, int64_t co,
                             int64_t number, const int64_t *o, double value, const InputSums *sums) noexcept nogil:
    """Add the products of one value of grad_output, at position o of the class of that number, with the weights of the
    taps that lead from it to a tile's pixels."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t tap, ci
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef int64_t at[3]
    cdef int d
    for tap in range(phase.tap_count):
        phase_tap(sample, phase, tap, output, k)
        for d in range(3):
            at[d] = o[d] - output[d] - tile.first[d]
        if tap_class(sample, k) != number or not is_inside(at, tile.extent):
            continue
        for ci in range(sums.channels):
            add_one(sample, sum_of_pixel(problem, sums, n, at[0], at[1], at[2]) + ci * sums.ci_pitch * sample.item,
                    value * load_weight(problem, sums.group, co, sums.ci_from + ci, k))


cdef void add_nonfinite_outputs(const ConvProblem *problem, const Phase *phase, const Box *tile,
                                const InputSums *sums) noexcept nogil:
    """Add the products of inf and NaN in grad_output to the sums of a phase's tile."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t number, n, co, z, y, x
    cdef int64_t o[3]
    cdef int64_t k[3]
    cdef double value
    cdef Box block
    cdef Halo halo
    phase_halo(sample, phase, &halo)
    block_under(tile, &halo, &block)
    for number in range(block_classes(sample)):
        k[0] = number // (sample.source[1].classes * sample.source[2].classes)
        k[1], k[2] = number // sample.source[2].classes % sample.source[1].classes, number % sample.source[2].classes
        for n in range(tile.samples):
            for co in range(sample.cout):
                for z in range(block.extent[0]):
                    for y in range(block.extent[1]):
                        for x in range(block.extent[2]):
                            o[0], o[1], o[2] = block.first[0] + z, block.first[1] + y, block.first[2] + x
                            if load_source(problem, tile.n + n, sums.group, co, o, k, &value) \
                                    and is_nonfinite(value):
                                add_value_products(problem, phase, tile, n, co, number, o, value, sums)


# Sums of grad_weight: those of (co, tap) for output channels co_from to co_from + cos of a group.
ctypedef struct WeightSums:
    char *data
    int64_t group, co_from, cos
    int64_t co_pitch, tap_pitch  # elements


# What a tile may hold: nonfinite numbers of the input, or of grad_output.
cdef enum:
    NONFINITE_INPUT = 1
    NONFINITE_OUTPUT = 2


cdef void add_pixel_to_weights(const ConvProblem *problem, int64_t n, int64_t ci, const int64_t *o, int64_t tap,
                               int nonfinite, char *to, const WeightSums *sums) noexcept nogil:
    """Add the products of one output pixel with the input pixel under a tap, 0 where that is padding, if one of the two
    is inf or NaN of the kinds asked for."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t i[3]
    cdef int64_t size[3]
    cdef int64_t co
    cdef double x = 0, g
    cdef bint all_outputs
    input_size(sample, size)
    input_pixel(sample, o, tap, i)
    if is_inside(i, size):
        x = load_pixel(problem, &problem.view[CONV_INPUT], n, sums.group * sample.cin + ci, i)
    all_outputs = nonfinite & NONFINITE_INPUT and is_nonfinite(x)
    if not all_outputs and not nonfinite & NONFINITE_OUTPUT:
        return
    for co in range(sums.cos):
        g = load_pixel(problem, &problem.view[CONV_GRAD_OUTPUT], n, sums.group * sample.cout + sums.co_from + co, o)
        if all_outputs or is_nonfinite(g):
            add_one(sample, to + co * sums.co_pitch * sample.item, x * g)


cdef void add_nonfinite_products(const ConvProblem *problem, const Box *tile, int64_t ci, int64_t tap_from,
                                 int64_t tap_to, int nonfinite, const WeightSums *sums) noexcept nogil:
    """Add the products with inf and NaN of one input channel, or with those of grad_output, under taps [tap_from,
    tap_to); sums.data: where the sums of tap_from lie."""
    cdef int64_t tap, n, z, y, x
    cdef int64_t o[3]
    for tap in range(tap_from, tap_to):
        for n in range(tile.n, tile.n + tile.samples):
            for z in range(tile.extent[0]):
                for y in range(tile.extent[1]):
                    for x in range(tile.extent[2]):
                        o[0], o[1], o[2] = tile.first[0] + z, tile.first[1] + y, tile.first[2] + x
                        add_pixel_to_weights(problem, n, ci, o, tap, nonfinite,
                                             sums.data + (tap - tap_from) * sums.tap_pitch * problem.sample.item, sums)
