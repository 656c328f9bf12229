# Depthwise convolutions whose output has a pixel for every step of the input: image and gradient are flat planes, the input's
# taken apart into phases of the stride, a tap is one shift for all pixels of a plane, and bits say where it leaves the image.
cdef enum:
    PLANE_PIXELS = 1 << 16     # larger images leave L2
    PLANE_CHANNELS = 4         # outputs of one input channel
    PLANE_TAPS = 256
    PLANE_PHASES = 16


# What all threads share. Taps are ordered by the phase of the input pixels that they meet: those of phase p are
# [start[p], start[p + 1]).
ctypedef struct PlaneTables:
    int64_t *order     # tap numbers
    int64_t *shift
    uint16_t *bits     # [tap][vector]
    int64_t start[PLANE_PHASES + 1]


cdef int64_t plane_phases(const ConvPlan *plan) noexcept nogil:
    return plan.stride[0] * plan.stride[1] * plan.stride[2]


cdef bint fits_planes(ConvPlan *plan) noexcept nogil:
    """Whether both gradients run by planes; sets plan.reach then."""
    cdef int64_t pitch = 1, away
    cdef int d
    if plan.cin != 1 or plan.cout < 1 or plan.cout > PLANE_CHANNELS or plan.taps > PLANE_TAPS or plan.pixels_in < 1 \
            or plan.pixels_out < 1:
        return False
    plan.reach = 0
    for d in range(2, -1, -1):
        if plan.stride[d] > PLANE_PHASES or pieces(plan.size_in[d], plan.stride[d]) > plan.size_out[d]:
            return False
        away = max(plan.before[d], (plan.kernel[d] - 1) * plan.dilation[d] - plan.before[d]) // plan.stride[d] + 1
        if away > plan.size_out[d] + 1:
            return False
        plan.reach += away * pitch
        pitch *= plan.size_out[d]
        if pitch > PLANE_PIXELS:
            return False
    return plane_phases(plan) <= PLANE_PHASES and pitch * plane_phases(plan) <= PLANE_PIXELS


cdef int64_t plane_vectors(const ConvPlan *plan) noexcept nogil:
    return pieces(plan.pixels_out, kernels.gemm[plan.compute].lanes)


cdef int64_t plane_elements(const ConvPlan *plan) noexcept nogil:
    return plane_vectors(plan) * kernels.gemm[plan.compute].lanes


cdef int64_t plane_margin(const ConvPlan *plan) noexcept nogil:
    """Elements before the first and after the last plane that a tap may read."""
    return round_up(plan.reach, kernels.gemm[plan.compute].lanes)


cdef int64_t plane_bits_bytes(const ConvPlan *plan) noexcept nogil:
    return round_up(plan.taps * plane_vectors(plan) * <int64_t>sizeof(uint16_t), CONV_ALIGN)


cdef int64_t plane_shared_bytes(const ConvPlan *plan) noexcept nogil:
    return 2 * table_bytes(plan.taps) + plane_bits_bytes(plan)


cdef int64_t plane_thread_bytes(const ConvPlan *plan) noexcept nogil:
    return scratch_bytes(plan, plane_elements(plan) + 2 * plane_margin(plan)) \
        + scratch_bytes(plan, plane_phases(plan) * plane_elements(plan) + 2 * plane_margin(plan)) \
        + scratch_bytes(plan, plane_elements(plan)) + scratch_bytes(plan, plan.taps) \
        + scratch_bytes(plan, plan.taps * PLANE_CHANNELS) + stage_bytes(plan)


cdef int64_t floor_divide(int64_t a, int64_t b) noexcept nogil:
    return a // b if a >= 0 else -((b - 1 - a) // b)


cdef int64_t tap_steps(const ConvPlan *plan, int64_t tap, int64_t *steps) noexcept nogil:
    """Output pixel o meets step o + steps of the input's phase, which is returned, under this tap."""
    cdef int64_t k[3]
    cdef int64_t phase = 0, move
    cdef int d
    for d in range(2, -1, -1):
        k[d] = tap % plan.kernel[d]
        tap //= plan.kernel[d]
    for d in range(3):
        move = k[d] * plan.dilation[d] - plan.before[d]
        steps[d] = floor_divide(move, plan.stride[d])
        phase = phase * plan.stride[d] + move - steps[d] * plan.stride[d]
    return phase


cdef int64_t phase_pixels(const ConvPlan *plan, int64_t phase, int64_t *first, int64_t *count) noexcept nogil:
    """The input pixels of a phase along each axis: the first, and how many there are; returns their number."""
    cdef int64_t all_of_them = 1
    cdef int d
    for d in range(2, -1, -1):
        first[d] = phase % plan.stride[d]
        phase //= plan.stride[d]
        count[d] = pieces(max(<int64_t>0, plan.size_in[d] - first[d]), plan.stride[d])
        all_of_them *= count[d]
    return all_of_them


cdef void set_bits(uint16_t *bits, int64_t lanes, int64_t first, int64_t last) noexcept nogil:
    """Pixels [first, last), `lanes` of them in each element."""
    cdef int64_t at = first // lanes
    while at * lanes < last:
        bits[at] |= ((1 << min(lanes, last - at * lanes)) - 1) & ~((1 << max(<int64_t>0, first - at * lanes)) - 1)
        at += 1


cdef void fill_plane_tables(const ConvPlan *plan, bint of_input, PlaneTables *tables) noexcept nogil:
    """of_input: taps lead from output pixels to the input's phases; otherwise from those to output pixels."""
    cdef int64_t vectors = plane_vectors(plan), lanes = kernels.gemm[plan.compute].lanes, phase, tap, at = 0, z, y, row
    cdef int64_t steps[3]
    cdef int64_t first[3]
    cdef int64_t count[3]
    cdef int64_t low[3]
    cdef int64_t high[3]
    cdef int d
    memset(tables.bits, 0, plan.taps * vectors * sizeof(uint16_t))
    for phase in range(plane_phases(plan)):
        tables.start[phase] = at
        phase_pixels(plan, phase, first, count)
        for tap in range(plan.taps):
            if tap_steps(plan, tap, steps) != phase:
                continue
            for d in range(3):
                if not of_input:
                    steps[d] = -steps[d]
                    count[d] = plan.size_out[d]
                low[d] = max(<int64_t>0, -steps[d])
                high[d] = min(plan.size_out[d], count[d] - steps[d])
            tables.order[at] = tap
            tables.shift[at] = (steps[0] * plan.size_out[1] + steps[1]) * plan.size_out[2] + steps[2]
            if of_input:
                tables.shift[at] += phase * plane_elements(plan)
            for z in range(low[0], high[0]):
                for y in range(low[1], high[1]):
                    row = (z * plan.size_out[1] + y) * plan.size_out[2]
                    if low[2] < high[2]:
                        set_bits(tables.bits + at * vectors, lanes, row + low[2], row + high[2])
            at += 1
    tables.start[plane_phases(plan)] = at


cdef void load_plane(const ConvPlan *plan, const ConvView *view, const int64_t *size, int64_t n, int64_t channel,
                     const int64_t *first, const int64_t *step, char *to) noexcept nogil:
    """As many pixels as there are outputs, as they follow each other; zeros outside and up to a whole vector."""
    cdef Box box
    cdef int d
    box.n, box.samples = n, 1
    for d in range(3):
        box.first[d], box.step[d], box.extent[d] = first[d], step[d], plan.size_out[d]
    pack_planes(plan.dtype, plan.compute, view, size, &box, channel, 1, to, 0)
    memset(to + plan.pixels_out * plan.item, 0, (plane_elements(plan) - plan.pixels_out) * plan.item)


cdef void load_output_plane(const ConvPlan *plan, int64_t n, int64_t channel, char *to) noexcept nogil:
    cdef int64_t zero[3]
    cdef int64_t one[3]
    cdef int d
    for d in range(3):
        zero[d], one[d] = 0, 1
    load_plane(plan, &plan.view[CONV_GRAD_OUTPUT], plan.size_out, n, channel, zero, one, to)


cdef void save_plane(const ConvPlan *plan, int64_t n, int64_t channel, const int64_t *first, const int64_t *count,
                     const char *values) noexcept nogil:
    """The pixels of one phase of grad_input."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t rows = count[1], length = count[2], z, y
    cdef char *to
    if out.space[1] * plan.stride[1] == length * out.space[2] * plan.stride[2] and length == plan.size_out[2] \
            and rows == plan.size_out[1]:
        rows, length = 1, rows * length
    for z in range(count[0]):
        for y in range(rows):
            to = out.data + n * out.n + channel * out.channel + (first[0] + z * plan.stride[0]) * out.space[0] \
                + (first[1] + y * plan.stride[1]) * out.space[1] + first[2] * out.space[2]
            plan.save(values + (z * plan.size_out[1] + y) * plan.size_out[2] * plan.item, plan.item, to,
                      plan.stride[2] * out.space[2], length)


cdef void load_taps(const ConvPlan *plan, const ConvView *w, int64_t co, const int64_t *order, char *natural, char *to) noexcept nogil:
    """The weights of one output channel in the tables' order."""
    cdef int64_t k0, k1, i
    cdef char *at = natural
    for k0 in range(plan.kernel[0]):
        for k1 in range(plan.kernel[1]):
            plan.load(w.data + co * w.n + k0 * w.space[0] + k1 * w.space[1], w.space[2], at, plan.item, plan.kernel[2])
            at += plan.kernel[2] * plan.item
    for i in range(plan.taps):
        memcpy(to + i * plan.item, natural + order[i] * plan.item, plan.item)


cdef void save_taps(const ConvPlan *plan, int64_t co, const int64_t *order, const char *sums, char *natural) noexcept nogil:
    cdef const ConvView *w = &plan.view[CONV_GRAD_WEIGHT]
    cdef int64_t i
    for i in range(plan.taps):
        memcpy(natural + order[i] * plan.item, sums + i * plan.item, plan.item)
    move_weights(plan, 0, plan.taps, natural, w.data + co * w.n, False)


cdef void plane_grad_input(const ConvPlan *plan, int64_t group, int64_t n, const PlaneTables *tables, char *scratch) noexcept nogil:
    """One channel of one sample: each phase from the planes of grad_output."""
    cdef int64_t vectors = plane_vectors(plan), co, phase, at, from_co = group * plan.cout, item = plan.item
    cdef int64_t first[3]
    cdef int64_t count[3]
    cdef char *g = take(&scratch, scratch_bytes(plan, plane_elements(plan) + 2 * plane_margin(plan)))
    cdef char *phases = take(&scratch, scratch_bytes(plan, plane_phases(plan) * plane_elements(plan) + 2 * plane_margin(plan)))
    cdef char *old = take(&scratch, scratch_bytes(plan, plane_elements(plan)))
    cdef char *natural = take(&scratch, scratch_bytes(plan, plan.taps))
    cdef char *sums
    cdef uint64_t float_state = enter_float_state()
    g += plane_margin(plan) * item
    for co in range(plan.cout):
        load_taps(plan, &plan.view[CONV_WEIGHT], from_co + co, tables.order, natural, scratch)
        load_output_plane(plan, n, from_co + co, g)
        for phase in range(plane_phases(plan)):
            at = tables.start[phase]
            kernels.stencil[plan.compute](vectors, g, tables.shift + at, scratch + at * item, tables.start[phase + 1] - at,
                                          tables.bits + at * vectors, vectors, phases + phase * plane_elements(plan) * item, co > 0)
    for phase in range(plane_phases(plan)):
        if not phase_pixels(plan, phase, first, count):
            continue
        sums = phases + phase * plane_elements(plan) * item
        if plan.accumulate:
            load_plane(plan, &plan.view[CONV_GRAD_INPUT], plan.size_in, n, group, first, plan.stride, old)
            add_values(plan, old, sums, plan.pixels_out)
        save_plane(plan, n, group, first, count, sums)
    leave_float_state(float_state)


cdef void plane_grad_weight(const ConvPlan *plan, int64_t group, const PlaneTables *tables, char *scratch) noexcept nogil:
    """The weights of one input channel: each sample's sum, added one after the other."""
    cdef int64_t n, co, phase, one = plan.taps * plan.item, from_co = group * plan.cout
    cdef int64_t first[3]
    cdef int64_t count[3]
    cdef char *g = take(&scratch, scratch_bytes(plan, plane_elements(plan) + 2 * plane_margin(plan)))
    cdef char *x = take(&scratch, scratch_bytes(plan, plane_phases(plan) * plane_elements(plan) + 2 * plane_margin(plan)))
    cdef char *natural = take(&scratch, scratch_bytes(plan, plan.taps))
    cdef char *sums = scratch
    cdef double totals[PLANE_CHANNELS]
    cdef BiasShare bias = bias_share(plan, from_co, plan.cout, 0, 1, totals)
    cdef uint64_t float_state = enter_float_state()
    x += plane_margin(plan) * plan.item
    memset(sums, 0, plan.cout * one)
    for co in range(plan.cout):
        if plan.accumulate:
            load_taps(plan, &plan.view[CONV_GRAD_WEIGHT], from_co + co, tables.order, natural, sums + co * one)
    for n in range(plan.batch):
        add_sample_bias(plan, n, bias.channel, bias.channels, totals)
        for phase in range(plane_phases(plan)):
            phase_pixels(plan, phase, first, count)
            if tables.start[phase] < tables.start[phase + 1]:
                load_plane(plan, &plan.view[CONV_INPUT], plan.size_in, n, group, first, plan.stride,
                           x + phase * plane_elements(plan) * plan.item)
        for co in range(plan.cout):
            load_output_plane(plan, n, from_co + co, g)
            kernels.stencil_dot[plan.compute](plane_vectors(plan), g, x, tables.shift, plan.taps, tables.bits,
                                              plane_vectors(plan), sums + co * one)
    for co in range(plan.cout):
        save_taps(plan, from_co + co, tables.order, sums + co * one, natural)
    save_bias(plan, bias.channel, bias.channels, totals)
    leave_float_state(float_state)


cdef void run_planes(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """grad_input and grad_weight."""
    cdef char *shared = workspace
    cdef char *scratch = workspace + plan.packed_bytes
    cdef PlaneTables tables
    cdef int64_t i
    tables.order = <int64_t *>take(&shared, table_bytes(plan.taps))
    tables.shift = <int64_t *>take(&shared, table_bytes(plan.taps))
    tables.bits = <uint16_t *>take(&shared, plane_bits_bytes(plan))
    if plan.view[CONV_GRAD_INPUT].data != NULL:
        fill_plane_tables(plan, False, &tables)
        if threads == 1:
            for i in range(plan.groups * plan.batch):
                plane_grad_input(plan, i // plan.batch, i % plan.batch, &tables, scratch)
        else:
            for i in prange(plan.groups * plan.batch, schedule="static", num_threads=threads):
                plane_grad_input(plan, i // plan.batch, i % plan.batch, &tables,
                                 scratch + omp_get_thread_num() * plan.thread_bytes)
    if plan.view[CONV_GRAD_WEIGHT].data != NULL:
        fill_plane_tables(plan, True, &tables)
        if threads == 1:
            for i in range(plan.groups):
                plane_grad_weight(plan, i, &tables, scratch)
        else:
            for i in prange(plan.groups, schedule="static", num_threads=threads):
                plane_grad_weight(plan, i, &tables, scratch + omp_get_thread_num() * plan.thread_bytes)
