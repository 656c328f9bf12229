# When output pixels and taps are multiplied as columns, and when input pixels are: an estimate of what either takes for
# one sample, in nanoseconds of one core with AVX-512 (only its ratios count), fitted to measurements of some hundred
# random geometries. It sees one sample's geometry, so that the choice does not depend on the batch, whose share in
# packing the weights is taken for that of WEIGHT_SAMPLES samples. The caller's rounding mode does not reach it
# (algorithm.pxi).
cdef enum:
    WEIGHT_SAMPLES = 8
    FEW_OUTPUTS = 16   # output channels, with fewer of which what a tap's row of pixels takes besides them is felt


cdef double products_by_phases(const SampleGeometry *sample) noexcept nogil:
    """Count the input pixels under all taps of their phases, those that meet padding, too."""
    cdef const ConvAxis *axis
    cdef ConvAxisPhase phase
    cdef double all_axes = 1, products
    cdef int64_t number, residue
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        products = 0
        if axis.phases <= axis.kernel:
            for number in range(axis.phases):
                phase = conv_axis_phase(axis[0], number)
                products += <double>phase.size * phase.taps
        else:
            for number in range(axis.kernel):
                residue = (number * axis.dilation - axis.before) % axis.stride
                residue += axis.stride if residue < 0 else 0
                products += (axis.size_in - 1 - residue) // axis.stride + 1 if residue < axis.size_in else 0
        all_axes *= products
    return all_axes


cdef double existing_products(const SampleGeometry *sample, int axes=3) noexcept nogil:
    """Count the input pixels under all taps, without those that meet padding; along the first axes only."""
    cdef const ConvAxis *axis
    cdef double all_axes = 1, products
    cdef int64_t k, begin, end
    cdef int d
    for d in range(axes):
        axis = &sample.axis[d]
        products = 0
        for k in range(axis.kernel):
            steps_inside(axis, 0, axis.size_out, k, &begin, &end)
            products += end - begin
        all_axes *= products
    return all_axes


cdef bint blocks_are_read_often(const SampleGeometry *sample, const Tiling *tiling, double times) noexcept nogil:
    """Say whether taps meet the positions of the blocks so many times, where padding is met by none."""
    return existing_products(sample) >= times * positions_of_tiles(sample, tiling)


cdef double multiply_adds(const SampleGeometry *sample, double products) noexcept nogil:
    """Estimate the time of register tiles that meet so many pixels under taps, for one output channel."""
    return products * ceil_div(sample.cin, sample.lanes) * 0.22


cdef double left_products(const SampleGeometry *sample) noexcept nogil:
    """Estimate which part of its products grad_input:gemm multiplies, and looks for: an order of pixels may leave
    padding out (input_order.pxi)."""
    cdef SumOrder order
    cdef double part
    order_panel(sample, &order)
    part = part_in_order(sample, &order)
    return min(1.0, 1.08 * part) if part < 1 and has_few_runs(sample) else 1


cdef double taps_time(const SampleGeometry *sample) noexcept nogil:
    """Estimate the time of grad_input:taps, which packs what each tap meets, for one output channel."""
    cdef double products = existing_products(sample)
    return multiply_adds(sample, products) + 0.5 * products + 1000.0 * sample.taps / max(<int64_t>1, sample.cout)


cdef bint padding_costs_more(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_input would multiply so much padding that taps one by one take less."""
    return taps_time(sample) < 0.75 * multiply_adds(sample, products_by_phases(sample)) * left_products(sample)


cdef bint padding_fills_lanes(const SampleGeometry *sample) noexcept nogil:
    """Say whether pixels in lanes would be multiplied with so much padding that taps one by one take less."""
    cdef double time = products_by_phases(sample) * sample.cin / sample.lanes * 0.42
    return taps_time(sample) < 0.75 * time


cdef bint gaps_cost_more(const SampleGeometry *sample) noexcept nogil:
    """Say whether float32 by AMX, a product of which takes 0.6 of one by multiply-adds, would multiply so many
    positions between the rows of grad_output that the other algorithms take less, which leave padding out."""
    cdef double time = multiply_adds(sample, products_by_phases(sample))
    return 0.9 * min(taps_time(sample), time * left_products(sample)) < 0.6 * time * positions_to_pixels(sample)


# What the estimates count, of one group and sample.
ctypedef struct TapCounts:
    double cin, cout
    double vectors       # of cin
    double pixels, rows  # of the output
    double lines         # of taps, over all ci
    double columns       # vectors of (ci, tap) that meet the image
    double taps          # that do
    double weights, image  # vectors
    double read          # vectors of the image that taps read
    double packed        # of these, what grad_weight packs: nothing where it reads them where they lie
    double products      # input pixels by taps, as products_by_phases counts them
    double phases        # of the stride
    double reached       # phases that taps reach, for each of which grad_output is packed
    double pieces        # rows of the input that are written one by one, being apart


cdef bint count_taps(const SampleGeometry *sample, TapCounts *n) noexcept nogil:
    """Count; return False where there is nothing to multiply."""
    cdef TapBox box
    cdef int d
    if sample.pixels_in == 0 or sample.cin == 0 or sample.cout == 0 or not reach_image(sample, &box):
        return False
    n.cin, n.cout, n.vectors = sample.cin, sample.cout, ceil_div(sample.cin, sample.lanes)
    n.pixels, n.rows = sample.pixels_out, sample.axis[0].size_out * sample.axis[1].size_out
    n.taps, n.lines = box_taps(&box), box.taps[0] * box.taps[1] * sample.cin
    n.columns = ceil_div(<int64_t>(n.taps * n.cin), sample.lanes)
    n.weights, n.image = n.cin * sample.taps * n.cout / sample.lanes, n.cin * sample.pixels_in / sample.lanes
    n.products, n.phases, n.pieces = products_by_phases(sample), phase_count(sample), 0
    n.reached = 1
    for d in range(3):
        n.reached *= min(sample.axis[d].phases, sample.axis[d].kernel)
    n.read = n.image * n.reached / n.phases
    n.packed = 0 if sample.taps == 1 and sample.dtype == sample.compute else n.read
    if n.phases > 1:
        n.pieces = sample.pixels_in // ceil_div(sample.axis[2].size_in, sample.axis[2].stride)
    return True


cdef double col2im_time(const TapCounts *n) noexcept nogil:
    """Estimate grad_input:col2im."""
    cdef double time = n.pixels * n.columns * (0.35 * n.cout + 3) + n.weights * 7 / WEIGHT_SAMPLES + n.image * 8 + 90
    return time + n.lines * (3 * n.rows + (3.5 if n.phases == 1 else 8) * n.pixels) if n.pixels > 1 else time


cdef double lanes_of_pixels_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate grad_input:pixels, but for its weights."""
    cdef Tiling tiling
    cdef SumOrder order
    cdef double product, gaps, packed
    if pairs_in_lanes(sample):
        product = 0.24
    else:  # Of one channel each load of pixels is for one multiply-add.
        product = 0.95 if sample.cin == 1 and sample.cout <= STENCIL_OUTPUTS else 0.42
    fit_input_pixels(sample, &order, &tiling)
    gaps = max(0.0, lanes_multiplied(sample, &tiling) / sample.pixels_in - 1)
    packed = max(n.reached * read_positions(sample), positions_of_tiles(sample, &tiling))
    return n.products * (1 + 0.5 * gaps) * n.cin / sample.lanes * n.cout * product + packed * n.cout * 0.11 \
        + n.image * 18 + n.pieces * n.cin * 7 + n.phases * n.vectors * 8 + 200


cdef double read_positions(const SampleGeometry *sample) noexcept nogil:
    """Estimate how many pixels of grad_output, or an output's input, packing reads for a phase: of classes of taps
    those that they meet, else all."""
    cdef double positions = 1
    cdef Halo halo
    cdef int d
    for d in range(3):
        if class_halo(sample, d, &halo):
            positions *= <double>sample.source[d].classes * (sample.axis[d].size_in + halo.extra[d])
        else:
            positions *= sample.axis[d].size_out
    return positions


cdef double input_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate the first of grad_input's other algorithms that accepts."""
    cdef const char *why
    cdef double weights = sample.taps * n.cout * n.vectors / WEIGHT_SAMPLES * (2 if sample.forward else 1)
    cdef double packed = n.reached * read_positions(sample) * n.cout, rows = 0
    cdef double products = min(n.products, n.pixels * n.taps)
    cdef SumOrder order
    cdef Tiling tiling
    cdef int64_t positions
    if accepts_input_amx(sample, &why) or accepts_input_amx_fused(sample, &why):
        return n.products * n.vectors * n.cout * 0.065 + packed * 0.15 + n.image * 14 + n.pieces * n.cin * 9 \
            + n.phases * n.vectors * 45 + weights * 8 + 1200
    if accepts_input_pixels(sample, &why):
        return lanes_of_pixels_time(sample, n) + weights * 52
    if accepts_input_gemm(sample, &why):
        order_panel(sample, &order)
        input_gemm_pixels(sample, order.channels, &tiling, &positions)
        packed = n.reached * max(read_positions(sample), positions_of_tiles(sample, &tiling)) * n.cout
        return n.products * left_products(sample) * n.vectors * n.cout * (0.11 if bfloat16_dot2(sample) else 0.22) \
            + packed * 0.2 + n.image * 17 + n.pieces * n.cin * 9 + n.phases * n.vectors * 70 + weights * 12
    if sample.forward or n.cout < FEW_OUTPUTS:
        rows = existing_products(sample, 2) * sample.axis[2].kernel
    return products * n.cout * (n.vectors * 0.22 + 0.5) + rows * (60 + 4 * n.cout) + n.image * 17 \
        + n.pieces * n.cin * 32 + n.phases * n.vectors * 70 + weights * 21 + n.taps * (250 if sample.forward else 1000)


cdef bint col2im_pays(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_input takes less by col2im than by what else accepts it."""
    cdef TapCounts n
    return not count_taps(sample, &n) or col2im_time(&n) < input_time(sample, &n)


cdef double outer_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate grad_weight:outer."""
    cdef double blocks = ceil_div(sample.cout, OUTER_COS), time
    time = n.pixels * n.columns * (0.15 * round_up(sample.cout, 8) + 4 * blocks) + n.weights * 8 / WEIGHT_SAMPLES \
        + n.pixels * n.cout * max(<double>1, n.columns / 32) + 190
    if n.pixels > 1:
        time += blocks * n.lines * (6 * n.rows + (4.5 if sample.axis[2].dilation == 1 else 10) * n.pixels)
    return time


cdef double weight_dot_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate grad_weight:dot."""
    cdef double rows = n.cin * sample.taps
    return n.rows * ceil_div(sample.axis[2].size_out, sample.lanes) * rows * n.cout * 0.72 \
        + rows * n.cout * (13 + 0.3 * n.rows) + n.read * 8 + n.phases * n.cin * 36 + 260


cdef double weight_gemm_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate grad_weight:gemm."""
    cdef double rows = n.cin * sample.taps, product = 0.16 if bfloat16_dot2(sample) else 0.23
    return rows * n.pixels * ceil_div(sample.cout, sample.lanes) * product + n.pixels * n.cout * 0.6 + n.packed * 9 \
        + rows * (n.cout * 0.8 / WEIGHT_SAMPLES + n.rows * 0.7 + (3 if n.cout < FEW_OUTPUTS else 0)) + 130


cdef bint dot_products_pay(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_weight takes less by dot products than by gemm, or about as little; less, where pairs of
    bfloat16 fill more than a quarter of gemm's vectors."""
    cdef const char *why
    cdef double most = 0.8 if bfloat16_dot2(sample) and 4 * sample.cout > sample.lanes else 1.2
    cdef TapCounts n
    return not count_taps(sample, &n) \
        or not accepts_weight_gemm(sample, &why) or weight_dot_time(sample, &n) < most * weight_gemm_time(sample, &n)


cdef double weight_time(const SampleGeometry *sample, const TapCounts *n) noexcept nogil:
    """Estimate the first of grad_weight's other algorithms that accepts."""
    cdef const char *why
    cdef double rows = n.cin * sample.taps, vectors = ceil_div(sample.cout, sample.lanes)
    if accepts_weight_amx(sample, &why) or accepts_weight_amx_fused(sample, &why):
        return rows * n.pixels * vectors * 0.043 + n.pixels * n.cout * 0.4 + n.image * 11 \
            + rows * (n.cout * 1.2 / WEIGHT_SAMPLES + n.rows * 0.8 + 1) + 1500
    if accepts_weight_dot(sample, &why):
        return weight_dot_time(sample, n)
    if accepts_weight_gemm(sample, &why):
        return weight_gemm_time(sample, n)
    return rows * n.pixels * (vectors * 0.17 + 0.4) + n.pixels * n.cout * 0.5 \
        + rows * (n.cout * 1.3 / WEIGHT_SAMPLES + n.rows * 0.9 + 20)


cdef bint outer_products_pay(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_weight takes less by outer products than by what else accepts it; or about as little, where no
    task of gemm has all taps of a channel: where channels lie side by side it would write one number of each line."""
    cdef double most = 1.3 if sample.taps > WEIGHT_ROWS and sample.cin >= sample.lanes // 2 else 1
    cdef TapCounts n
    return not count_taps(sample, &n) or outer_time(sample, &n) < most * weight_time(sample, &n)


cdef double windows_time(const SampleGeometry *sample) noexcept nogil:
    """Estimate output:dot."""
    cdef double windows = sample.pixels_in, taps = sample.axis[2].kernel, lines = sample.cout * sample.taps / taps
    cdef double terms = sample.cout * sample.taps, vectors = terms / sample.lanes
    cdef double panels = ceil_div(<int64_t>lines, panel_lines(sample)), follow = sample.axis[2].size_in, line = 1.2
    follow = max(follow, min(lines, lines_that_follow(sample)))
    if taps == 1:
        line = 15  # pixels may lie apart
    elif sample.axis[2].dilation > 1:
        line = 9 + 0.55 * taps
    else:
        line += 1.7 * taps / sample.lanes
    return windows * (sample.cin * (0.5 * vectors + 5 * panels) + lines * (line + 9 / follow)) \
        + sample.cin * terms * 0.04 / WEIGHT_SAMPLES + 200


cdef double lanes_time(const SampleGeometry *sample) noexcept nogil:
    """Estimate output:depthwise, output:grouped and grad_input:depthwise, whose lanes are the channels of several
    groups."""
    cdef double products = products_by_phases(sample) * sample.cin * sample.cout
    cdef double weights = sample.taps * sample.cin * sample.cout, used = lane_channels(sample)
    used /= round_up(lane_channels(sample), sample.lanes)
    return (products * 0.35 + (sample.pixels_in * sample.cin + sample.pixels_out * sample.cout) * 4.0
            + weights * 20) / (sample.lanes * used) + 60


cdef bint lanes_pay(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_input takes less with the channels of several groups in the lanes than by what else accepts it;
    col2im of one channel takes half of its estimate where pixels are many."""
    cdef double time = lanes_time(sample)
    cdef TapCounts n
    return not count_taps(sample, &n) or (time < 0.45 * col2im_time(&n) and time < input_time(sample, &n))


cdef double classes_time(const SampleGeometry *sample) noexcept nogil:
    """Estimate what packing the input of an output by classes of taps takes more than else: rows of each class apart,
    or columns where rows have one pixel."""
    cdef int64_t classes = block_classes(sample)
    cdef double rows = 6.0 * classes * sample.axis[0].size_in
    if classes == 1:
        return 0
    return rows * sample.cout * (sample.axis[1].size_in if sample.axis[2].size_in > 1 else 1)


cdef bint windows_pay(const SampleGeometry *sample) noexcept nogil:
    """Say whether the output takes less by dot products of windows than by what else accepts it."""
    cdef TapCounts n
    return sample.pixels_in == 1 or (
        count_taps(sample, &n) and windows_time(sample) < input_time(sample, &n) + classes_time(sample))
