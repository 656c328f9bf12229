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
    return 2 * (2 * table_bytes(plan.taps) + plane_bits_bytes(plan))


cdef int64_t plane_thread_bytes(const ConvPlan *plan) noexcept nogil:
    return scratch_bytes(plan, plane_elements(plan) + 2 * plane_margin(plan)) \
        + scratch_bytes(plan, plane_phases(plan) * plane_elements(plan) + 2 * plane_margin(plan)) \
        + scratch_bytes(plan, plane_phases(plan) * plane_elements(plan)) + scratch_bytes(plan, plane_elements(plan)) \
        + scratch_bytes(plan, plan.taps) + 2 * scratch_bytes(plan, plan.taps * PLANE_CHANNELS)


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


cdef bint plane_in_place(const ConvPlan *plan, const ConvView *view, const int64_t *size) noexcept nogil:
    """Whether a channel of this tensor lies in memory as a flat plane lies in scratch, and kernels leave the rest alone."""
    cdef int64_t next = plan.item
    cdef int d
    if plan.dtype != plan.compute or not kernels.stencil_in_place:
        return False
    for d in range(2, -1, -1):
        if size[d] != plan.size_out[d] or plan.stride[d] != 1 or (size[d] > 1 and view.space[d] != next):
            return False
        next *= size[d]
    return True


cdef void prefetch_plane(const ConvPlan *plan, const ConvView *view, int64_t pixels, int64_t n, int64_t channel) noexcept nogil:
    """As if the plane were contiguous; where it is not, it is little that is asked for in vain."""
    cdef char *at = view.data + n * view.n + channel * view.channel
    cdef char *end = at + pixels * itemsize_of(plan.dtype)
    while at < end:
        prefetch_line(at)
        at += CONV_ALIGN


cdef void save_phases(const ConvPlan *plan, int64_t group, int64_t n, char *sums, char *old) noexcept nogil:
    """One channel of grad_input, phase by phase."""
    cdef int64_t first[3]
    cdef int64_t count[3]
    cdef int64_t phase, at
    for phase in range(plane_phases(plan)):
        if not phase_pixels(plan, phase, first, count):
            continue
        at = phase * plane_elements(plan) * plan.item
        if plan.accumulate:
            load_plane(plan, &plan.view[CONV_GRAD_INPUT], plan.size_in, n, group, first, plan.stride, old)
            add_values(plan, old, sums + at, plan.pixels_out)
        save_plane(plan, n, group, first, count, sums + at)


cdef void plane_task(const ConvPlan *plan, int64_t group, int64_t from_n, int64_t to_n, const PlaneTables *back,
                     const PlaneTables *forth, char *scratch) noexcept nogil:
    """One input channel of some samples: grad_input (back is not NULL), each phase from the planes of grad_output; grad_weight
    (forth is not NULL), each sample's sum, added one after the other."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef const ConvView *gv = &plan.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *xv = &plan.view[CONV_INPUT]
    cdef int64_t vectors = plane_vectors(plan), elements = plane_elements(plan), margin = plane_margin(plan), n, co, phase, at
    cdef int64_t item = plan.item, from_co = group * plan.cout, phases = plane_phases(plan)
    cdef int64_t first[3]
    cdef int64_t count[3]
    cdef bint g_in_place = plane_in_place(plan, gv, plan.size_out), x_in_place = plane_in_place(plan, xv, plan.size_in)
    cdef bint out_in_place = plane_in_place(plan, out, plan.size_in) and not plan.accumulate
    cdef char *g_scratch = take(&scratch, scratch_bytes(plan, elements + 2 * margin)) + margin * item
    cdef char *x_scratch = take(&scratch, scratch_bytes(plan, phases * elements + 2 * margin)) + margin * item
    cdef char *sums_scratch = take(&scratch, scratch_bytes(plan, phases * elements))
    cdef char *old = take(&scratch, scratch_bytes(plan, elements))
    cdef char *natural = take(&scratch, scratch_bytes(plan, plan.taps))
    cdef char *weights = take(&scratch, scratch_bytes(plan, plan.taps * PLANE_CHANNELS))
    cdef char *products = scratch
    cdef char *g = g_scratch
    cdef char *x = x_scratch
    cdef char *sums = sums_scratch
    cdef double totals[PLANE_CHANNELS]
    cdef BiasShare bias
    cdef uint64_t float_state = enter_float_state()
    if back != NULL:
        for co in range(plan.cout):
            load_taps(plan, &plan.view[CONV_WEIGHT], from_co + co, back.order, natural, weights + co * plan.taps * item)
    if forth != NULL:
        bias = bias_share(plan, from_co, plan.cout, 0, 1, totals)
        memset(products, 0, plan.cout * plan.taps * item)
        for co in range(plan.cout if plan.accumulate else 0):
            load_taps(plan, &plan.view[CONV_GRAD_WEIGHT], from_co + co, forth.order, natural, products + co * plan.taps * item)
    for n in range(from_n, to_n):
        if forth != NULL:
            if n + 1 < to_n:
                prefetch_plane(plan, xv, plan.pixels_in, n + 1, group)
            if x_in_place:
                x = xv.data + n * xv.n + group * xv.channel
            for phase in range(0 if x_in_place else phases):
                phase_pixels(plan, phase, first, count)
                if forth.start[phase] < forth.start[phase + 1]:
                    load_plane(plan, xv, plan.size_in, n, group, first, plan.stride, x + phase * elements * item)
        if back != NULL and out_in_place:
            sums = out.data + n * out.n + group * out.channel
        for co in range(plan.cout):
            if n + 1 < to_n:
                prefetch_plane(plan, gv, plan.pixels_out, n + 1, from_co + co)
            if g_in_place:
                g = gv.data + n * gv.n + (from_co + co) * gv.channel
            else:
                load_output_plane(plan, n, from_co + co, g)
            for phase in range(phases if back != NULL else 0):
                at = back.start[phase]
                kernels.stencil[plan.compute](plan.pixels_out, g, back.shift + at, weights + (co * plan.taps + at) * item,
                                              back.start[phase + 1] - at, back.bits + at * vectors, vectors,
                                              sums + phase * elements * item, co > 0)
            if forth != NULL:
                kernels.stencil_dot[plan.compute](plan.pixels_out, g, x, forth.shift, plan.taps, forth.bits, vectors,
                                                  products + co * plan.taps * item)
        if back != NULL and not out_in_place:
            save_phases(plan, group, n, sums, old)
        if forth != NULL:
            add_sample_bias(plan, n, bias.channel, bias.channels, totals)
    if forth != NULL:
        for co in range(plan.cout):
            save_taps(plan, from_co + co, forth.order, products + co * plan.taps * item, natural)
        save_bias(plan, bias.channel, bias.channels, totals)
    leave_float_state(float_state)


cdef void run_plane_tasks(const ConvPlan *plan, const PlaneTables *back, const PlaneTables *forth, int64_t samples, char *scratch,
                          int threads) noexcept nogil:
    """Tasks number (group, part of the batch), each of at most so many samples."""
    cdef int64_t parts = max(<int64_t>1, pieces(plan.batch, samples)), i  # no samples still make a grad_weight
    if threads == 1:
        for i in range(plan.groups * parts):
            plane_task(plan, i // parts, i % parts * samples, min(plan.batch, (i % parts + 1) * samples), back, forth, scratch)
        return
    for i in prange(plan.groups * parts, schedule="static", num_threads=threads):
        plane_task(plan, i // parts, i % parts * samples, min(plan.batch, (i % parts + 1) * samples), back, forth,
                   scratch + omp_get_thread_num() * plan.thread_bytes)


cdef void take_plane_tables(const ConvPlan *plan, bint of_input, char **shared, PlaneTables *tables) noexcept nogil:
    tables.order = <int64_t *>take(shared, table_bytes(plan.taps))
    tables.shift = <int64_t *>take(shared, table_bytes(plan.taps))
    tables.bits = <uint16_t *>take(shared, plane_bits_bytes(plan))
    fill_plane_tables(plan, of_input, tables)


cdef void run_planes(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """grad_input and grad_weight, together where there are channels enough to share among the threads."""
    cdef char *shared = workspace
    cdef char *scratch = workspace + plan.packed_bytes
    cdef bint with_input = plan.view[CONV_GRAD_INPUT].data != NULL, with_weight = plan.view[CONV_GRAD_WEIGHT].data != NULL
    cdef int64_t all_samples = max(<int64_t>1, plan.batch)
    cdef PlaneTables back, forth
    if with_input:
        take_plane_tables(plan, False, &shared, &back)
    if with_weight:
        take_plane_tables(plan, True, &shared, &forth)
    if with_input and with_weight and (threads == 1 or plan.groups >= 8 * threads):
        run_plane_tasks(plan, &back, &forth, all_samples, scratch, threads)
        return
    if with_input:
        run_plane_tasks(plan, &back, NULL, pieces(all_samples, pieces(8 * threads, plan.groups)), scratch, threads)
    if with_weight:
        run_plane_tasks(plan, NULL, &forth, all_samples, scratch, threads)
