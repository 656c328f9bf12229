# Depthwise convolutions whose output is as large as their input: image and gradient are flat planes, a tap is one shift for
# all pixels, and bits say where it leaves the image.
cdef enum:
    PLANE_PIXELS = 1 << 16     # larger planes leave L2
    PLANE_CHANNELS = 4         # outputs of one input channel
    PLANE_TAPS = 256


cdef bint fits_planes(ConvPlan *plan) noexcept nogil:
    """Whether both gradients run by planes; sets plan.reach then."""
    cdef int64_t pitch = 1, away
    cdef int d
    if plan.cin != 1 or plan.cout < 1 or plan.cout > PLANE_CHANNELS or not 0 < plan.pixels_out <= PLANE_PIXELS \
            or plan.taps > PLANE_TAPS:
        return False
    plan.reach = 0
    for d in range(2, -1, -1):
        if plan.stride[d] != 1 or plan.size_in[d] != plan.size_out[d]:
            return False
        away = max(plan.before[d], (plan.kernel[d] - 1) * plan.dilation[d] - plan.before[d])
        if away >= plan.size_in[d]:
            return False
        plan.reach += away * pitch
        pitch *= plan.size_in[d]
    return True


cdef int64_t plane_vectors(const ConvPlan *plan) noexcept nogil:
    return pieces(plan.pixels_out, kernels.gemm[plan.compute].lanes)


cdef int64_t plane_bits_bytes(const ConvPlan *plan) noexcept nogil:
    return round_up(plan.taps * plane_vectors(plan) * <int64_t>sizeof(uint16_t), CONV_ALIGN)


cdef int64_t plane_bytes(const ConvPlan *plan) noexcept nogil:
    """Of one plane with what its taps reach on both sides."""
    cdef int64_t lanes = kernels.gemm[plan.compute].lanes
    return scratch_bytes(plan, plane_vectors(plan) * lanes + 2 * round_up(plan.reach, lanes))


cdef int64_t plane_thread_bytes(const ConvPlan *plan) noexcept nogil:
    return max(2 * plane_bytes(plan) + scratch_bytes(plan, plane_vectors(plan) * kernels.gemm[plan.compute].lanes)
               + 2 * scratch_bytes(plan, plan.taps * PLANE_CHANNELS), stage_bytes(plan))


cdef void tap_moves(const ConvPlan *plan, int64_t tap, int sign, int64_t *move) noexcept nogil:
    """How far the tap goes along each axis."""
    cdef int64_t k
    cdef int d
    for d in range(2, -1, -1):
        k = tap % plan.kernel[d]
        tap //= plan.kernel[d]
        move[d] = sign * (k * plan.dilation[d] - plan.before[d])


cdef void set_bits(uint16_t *bits, int64_t lanes, int64_t first, int64_t last) noexcept nogil:
    """Pixels [first, last), `lanes` of them in each element."""
    cdef int64_t at = first // lanes
    while at * lanes < last:
        bits[at] |= ((1 << min(lanes, last - at * lanes)) - 1) & ~((1 << max(<int64_t>0, first - at * lanes)) - 1)
        at += 1


cdef void plane_tables(const ConvPlan *plan, int sign, int64_t *shift, uint16_t *bits) noexcept nogil:
    """Shift and bits of all taps; sign 1 for pixels of the input, -1 for those of grad_output."""
    cdef int64_t vectors = plane_vectors(plan), lanes = kernels.gemm[plan.compute].lanes, tap, z, y, row
    cdef int64_t move[3]
    memset(bits, 0, plan.taps * vectors * sizeof(uint16_t))
    for tap in range(plan.taps):
        tap_moves(plan, tap, sign, move)
        shift[tap] = (move[0] * plan.size_in[1] + move[1]) * plan.size_in[2] + move[2]
        for z in range(max(<int64_t>0, -move[0]), plan.size_in[0] - max(<int64_t>0, move[0])):
            for y in range(max(<int64_t>0, -move[1]), plan.size_in[1] - max(<int64_t>0, move[1])):
                row = (z * plan.size_in[1] + y) * plan.size_in[2]
                set_bits(bits + tap * vectors, lanes, row + max(<int64_t>0, -move[2]),
                         row + plan.size_in[2] - max(<int64_t>0, move[2]))


cdef void load_plane(const ConvPlan *plan, const ConvView *view, int64_t n, int64_t channel, char *to) noexcept nogil:
    """Pixels as they follow each other, zeros up to a whole vector."""
    cdef int64_t lanes = kernels.gemm[plan.compute].lanes
    cdef Box box
    cdef int d
    box.n, box.samples = n, 1
    for d in range(3):
        box.first[d], box.step[d], box.extent[d] = 0, 1, plan.size_in[d]
    pack_planes(plan, view, plan.size_in, &box, channel, 1, to, 0)
    memset(to + plan.pixels_in * plan.item, 0, (plane_vectors(plan) * lanes - plan.pixels_in) * plan.item)


cdef void save_plane(const ConvPlan *plan, int64_t n, int64_t channel, const char *values) noexcept nogil:
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t rows = plan.size_in[1], length = plan.size_in[2], z, y
    if out.space[1] == length * out.space[2]:
        rows, length = 1, rows * length
    for z in range(plan.size_in[0]):
        for y in range(rows):
            plan.save(values, plan.item, out.data + n * out.n + channel * out.channel + z * out.space[0] + y * out.space[1],
                      out.space[2], length)
            values += length * plan.item


cdef void load_taps(const ConvPlan *plan, const ConvView *w, int64_t co, char *to) noexcept nogil:
    cdef int64_t k0, k1
    for k0 in range(plan.kernel[0]):
        for k1 in range(plan.kernel[1]):
            plan.load(w.data + co * w.n + k0 * w.space[0] + k1 * w.space[1], w.space[2], to, plan.item, plan.kernel[2])
            to += plan.kernel[2] * plan.item


cdef void plane_grad_input(const ConvPlan *plan, int64_t group, int64_t n, const int64_t *shift, const uint16_t *bits,
                           char *scratch) noexcept nogil:
    """One plane of grad_input, from those of grad_output."""
    cdef int64_t vectors = plane_vectors(plan), lanes = kernels.gemm[plan.compute].lanes, co
    cdef char *g = take(&scratch, plane_bytes(plan)) + round_up(plan.reach, lanes) * plan.item
    cdef char *old = take(&scratch, plane_bytes(plan))
    cdef char *sums = take(&scratch, scratch_bytes(plan, vectors * lanes))
    cdef uint64_t float_state = enter_float_state()
    for co in range(group * plan.cout, (group + 1) * plan.cout):
        load_taps(plan, &plan.view[CONV_WEIGHT], co, scratch)
        load_plane(plan, &plan.view[CONV_GRAD_OUTPUT], n, co, g)
        kernels.stencil[plan.compute](vectors, g, shift, scratch, plan.taps, bits, vectors, sums, co > group * plan.cout)
    if plan.accumulate:
        load_plane(plan, &plan.view[CONV_GRAD_INPUT], n, group, old)
        add_values(plan, old, sums, plan.pixels_in)
    save_plane(plan, n, group, sums)
    leave_float_state(float_state)


cdef void plane_grad_weight(const ConvPlan *plan, int64_t group, const int64_t *shift, const uint16_t *bits,
                            char *scratch) noexcept nogil:
    """The weights of one input channel: each sample's sum, added one after the other."""
    cdef const ConvView *w = &plan.view[CONV_GRAD_WEIGHT]
    cdef int64_t lanes = kernels.gemm[plan.compute].lanes, n, co, one = plan.taps * plan.item
    cdef char *g = take(&scratch, plane_bytes(plan))
    cdef char *x = take(&scratch, plane_bytes(plan)) + round_up(plan.reach, lanes) * plan.item
    cdef char *sums = scratch
    cdef uint64_t float_state = enter_float_state()
    memset(sums, 0, plan.cout * one)
    for co in range(plan.cout):
        if plan.accumulate:
            load_taps(plan, w, group * plan.cout + co, sums + co * one)
    for n in range(plan.batch):
        load_plane(plan, &plan.view[CONV_INPUT], n, group, x)
        for co in range(plan.cout):
            load_plane(plan, &plan.view[CONV_GRAD_OUTPUT], n, group * plan.cout + co, g)
            kernels.stencil_dot[plan.compute](plane_vectors(plan), g, x, shift, plan.taps, bits, plane_vectors(plan),
                                              sums + co * one)
    for co in range(plan.cout):
        move_weights(plan, 0, plan.taps, sums + co * one, w.data + (group * plan.cout + co) * w.n, False)
    leave_float_state(float_state)


cdef void run_planes(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """grad_input and grad_weight."""
    cdef char *shared = workspace
    cdef int64_t *shift = <int64_t *>take(&shared, table_bytes(plan.taps))
    cdef uint16_t *bits = <uint16_t *>take(&shared, plane_bits_bytes(plan))
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t i
    if plan.view[CONV_GRAD_INPUT].data != NULL:
        plane_tables(plan, -1, shift, bits)
        if threads == 1:
            for i in range(plan.groups * plan.batch):
                plane_grad_input(plan, i // plan.batch, i % plan.batch, shift, bits, scratch)
        else:
            for i in prange(plan.groups * plan.batch, schedule="static", num_threads=threads):
                plane_grad_input(plan, i // plan.batch, i % plan.batch, shift, bits,
                                 scratch + omp_get_thread_num() * plan.thread_bytes)
    if plan.view[CONV_GRAD_WEIGHT].data != NULL:
        plane_tables(plan, 1, shift, bits)
        if threads == 1:
            for i in range(plan.groups):
                plane_grad_weight(plan, i, shift, bits, scratch)
        else:
            for i in prange(plan.groups, schedule="static", num_threads=threads):
                plane_grad_weight(plan, i, shift, bits, scratch + omp_get_thread_num() * plan.thread_bytes)
