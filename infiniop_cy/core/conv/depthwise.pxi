# Depthwise convolutions whose output has a pixel for every step of each phase of the input: images and gradients are
# flat planes, the input's taken apart into phases of the stride, a tap is one shift for all pixels of a plane, and bits
# say where it leaves the image. Both gradients of a channel are one task where there are channels enough.
cdef enum:
    PLANE_PIXELS = 1 << 16     # larger images leave L2
    PLANE_CHANNELS = 4         # outputs of one input channel
    PLANE_TAPS = 256
    PLANE_PHASES = 16

    # pieces of scratch; shared: tables by which grad_output's planes lead to grad_input's phases, and back
    PLANE_BACK = 0
    PLANE_FORTH = 3
    PLANE_PHASE_TABLE = 6
    # of a thread:
    PLANE_G = 0
    PLANE_X = 1
    PLANE_SUMS = 2
    PLANE_OLD = 3
    PLANE_NATURAL = 4
    PLANE_WEIGHTS = 5
    PLANE_PRODUCTS = 6


ctypedef struct Depthwise:
    int64_t vectors      # of a plane
    int64_t elements     # of a plane, up to a whole vector
    int64_t margin       # elements before the first and after the last plane that a tap may read
    int64_t samples      # of a task of grad_input alone
    int64_t parts        # of the batch, each of so many samples
    bint together        # both gradients in one task
    int64_t input_tasks  # those of grad_input alone, which come first


# Taps are ordered by the phase of the input pixels that they meet: those of phase p are [start[p], start[p + 1]); after
# the last phase come those that meet padding alone.
ctypedef struct PlaneTables:
    int64_t *order       # tap numbers, after them start
    int64_t *start
    int64_t *shift       # elements
    uint16_t *bits       # [tap][vector]


cdef int64_t plane_reach(const SampleGeometry *sample) noexcept nogil:
    """Count the elements that a tap may read before the first or after the last pixel of a plane; -1 if planes do not
    suit."""
    cdef const ConvAxis *axis
    cdef int64_t pitch = 1, away, reach = 0
    cdef int d
    for d in range(2, -1, -1):
        axis = &sample.axis[d]
        if axis.stride > PLANE_PHASES or ceil_div(axis.size_in, axis.stride) > axis.size_out:
            return -1
        away = max(axis.before, (axis.kernel - 1) * axis.dilation - axis.before) // axis.stride + 1
        if away > axis.size_out + 1:
            return -1
        reach += away * pitch
        pitch *= axis.size_out
        if pitch > PLANE_PIXELS:
            return -1
    return reach


cdef bint accepts_depthwise(const SampleGeometry *sample, const char **why) noexcept nogil:
    if sample.cin != 1 or not 1 <= sample.cout <= PLANE_CHANNELS or sample.taps > PLANE_TAPS or sample.pixels_in == 0:
        why[0] = b"there is not one input channel to a group, or there are too many output channels or taps"
        return False
    if plane_reach(sample) < 0:
        why[0] = b"planes are too large, or grad_output has no pixel for each step of the input's phases"
        return False
    if phase_count(sample) > PLANE_PHASES or phase_count(sample) * sample.pixels_out > PLANE_PIXELS:
        why[0] = b"the stride has too many phases"
        return False
    return True


cdef void order_depthwise(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum the whole image of one sample from zero."""
    order.channels, order.taps, order.accumulate = sample.cout, sample.taps, False
    output_size(sample, order.tile)


cdef void block_depthwise(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                          Blocking *blocking) noexcept nogil:
    """Compute both gradients of a channel in one task where channels are enough for the threads, else grad_input by
    parts of the batch and grad_weight by channels."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef Depthwise *own = <Depthwise *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t phases = phase_count(sample)
    cdef int64_t all_samples = max(<int64_t>1, problem.batch)  # a batch of 0 still has a grad_weight
    cdef int i
    own.vectors = ceil_div(sample.pixels_out, sample.lanes)
    own.elements = own.vectors * sample.lanes
    own.margin = round_up(plane_reach(sample), sample.lanes)
    own.together = gradients & FOR_GRAD_INPUT and gradients & FOR_GRAD_WEIGHT \
        and (threads == 1 or sample.groups >= 8 * threads)
    own.samples = all_samples if own.together else ceil_div(all_samples, ceil_div(8 * threads, sample.groups))
    own.parts = ceil_div(all_samples, own.samples)
    for i in range(PLANE_BACK, PLANE_FORTH + 1, 3):
        book(&blocking.shared, i, sample.taps + PLANE_PHASES + 1, sizeof(int64_t))
        book(&blocking.shared, i + 1, sample.taps, sizeof(int64_t))
        book(&blocking.shared, i + 2, sample.taps * own.vectors, sizeof(uint16_t))
    book(&blocking.shared, PLANE_PHASE_TABLE, phases, sizeof(Phase))
    book(local, PLANE_G, own.elements + 2 * own.margin, sample.item)
    book(local, PLANE_X, phases * own.elements + 2 * own.margin, sample.item)
    book(local, PLANE_SUMS, phases * own.elements, sample.item)
    book(local, PLANE_OLD, own.elements, sample.item)
    book(local, PLANE_NATURAL, sample.taps, sample.item)
    book(local, PLANE_WEIGHTS, sample.taps * PLANE_CHANNELS, sample.item)
    book(local, PLANE_PRODUCTS, sample.taps * PLANE_CHANNELS, sample.item)
    blocking.prepares = 3
    own.input_tasks = sample.groups * own.parts if gradients & FOR_GRAD_INPUT and not own.together else 0
    blocking.tasks = own.input_tasks + (sample.groups if gradients & FOR_GRAD_WEIGHT else 0)


# ---- tables

cdef PlaneTables plane_tables(const ConvRun *run, int piece) noexcept nogil:
    """Find the tables that begin with that piece."""
    cdef PlaneTables tables
    tables.order = <int64_t *>shared_piece(run, piece)
    tables.start = tables.order + run.sample.taps
    tables.shift = <int64_t *>shared_piece(run, piece + 1)
    tables.bits = <uint16_t *>shared_piece(run, piece + 2)
    return tables


cdef void set_bits(uint16_t *bits, int64_t lanes, int64_t first, int64_t last) noexcept nogil:
    """Set the bits of pixels [first, last), `lanes` of them in each element."""
    cdef int64_t at = first // lanes
    while at * lanes < last:
        bits[at] |= ((1 << min(lanes, last - at * lanes)) - 1) & ~((1 << max(<int64_t>0, first - at * lanes)) - 1)
        at += 1


cdef void set_inside(const SampleGeometry *sample, const int64_t *low, const int64_t *high,
                     uint16_t *bits) noexcept nogil:
    """Set the bits of a box of the plane, pixels [low, high) along each axis."""
    cdef int64_t z, y, row
    for z in range(low[0], high[0]):
        for y in range(low[1], high[1]):
            row = (z * sample.axis[1].size_out + y) * sample.axis[2].size_out
            if low[2] < high[2]:
                set_bits(bits, sample.lanes, row + low[2], row + high[2])


cdef void fill_plane_tables(const ConvRun *run, bint of_input, PlaneTables *tables) noexcept nogil:
    """Fill the tables of one direction. of_input: taps lead from output pixels to the input's phases; otherwise from
    those to output pixels."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t number, i, tap, at = 0, kernel_y = sample.axis[1].kernel, kernel_x = sample.axis[2].kernel
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef int64_t low[3]
    cdef int64_t high[3]
    cdef bint met[PLANE_TAPS]
    cdef Phase phase
    cdef int d
    memset(tables.bits, 0, sample.taps * own.vectors * sizeof(uint16_t))
    memset(met, 0, sizeof(met))
    for number in range(phase_count(sample)):
        tables.start[number] = at
        make_phase(sample, number, &phase)
        for i in range(phase.tap_count):
            phase_tap(sample, &phase, i, output, k)
            tap = (k[0] * kernel_y + k[1]) * kernel_x + k[2]
            tables.order[at], met[tap] = tap, True
            tables.shift[at] = (output[0] * sample.axis[1].size_out + output[1]) * sample.axis[2].size_out + output[2]
            for d in range(3):
                if of_input:  # pixels o with o - output in the phase
                    low[d] = max(<int64_t>0, output[d])
                    high[d] = min(sample.axis[d].size_out, phase.axis[d].size + output[d])
                else:         # steps s with s + output in grad_output
                    low[d] = max(<int64_t>0, -output[d])
                    high[d] = min(sample.axis[d].size_out, sample.axis[d].size_out - output[d])
            if of_input:
                tables.shift[at] = number * own.elements - tables.shift[at]
            set_inside(sample, low, high, tables.bits + at * own.vectors)
            at += 1
    tables.start[phase_count(sample)] = at
    for tap in range(sample.taps):
        if not met[tap]:
            tables.order[at], tables.shift[at] = tap, 0
            at += 1


cdef bint prepare_depthwise(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Fill the tables to grad_input (unit 0) and to grad_weight (unit 1), or the phases (unit 2)."""
    cdef PlaneTables tables = plane_tables(run, PLANE_FORTH if number else PLANE_BACK)
    cdef Phase *phases = <Phase *>shared_piece(run, PLANE_PHASE_TABLE)
    cdef int64_t p
    if number < 2:
        fill_plane_tables(run, number == 1, &tables)
        return False
    for p in range(phase_count(run.sample)):
        make_phase(run.sample, p, &phases[p])
    return False


# ---- planes

cdef void load_plane(const ConvRun *run, const ConvView *view, const int64_t *size, int64_t n, int64_t channel,
                     const Phase *phase, char *to) noexcept nogil:
    """Load as many pixels as there are outputs, one after the other: those of a phase, or all if it is NULL. Zeros fill
    what lies outside, up to a whole vector."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef Box box
    cdef int d
    box.n, box.samples = n, 1
    for d in range(3):
        box.first[d] = 0 if phase == NULL else phase.axis[d].first
        box.step[d] = 1 if phase == NULL else sample.axis[d].stride
        box.extent[d] = sample.axis[d].size_out
    pack_planes(sample.dtype, sample.compute, view, size, &box, channel, 1, to, 0)
    memset(to + sample.pixels_out * sample.item, 0, (own.elements - sample.pixels_out) * sample.item)


cdef void save_plane(const ConvProblem *problem, int64_t n, int64_t channel, const Phase *phase,
                     const char *values) noexcept nogil:
    """Save the pixels of one phase of grad_input."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef const ConvAxis *axis = &sample.axis[0]
    cdef int64_t rows = phase.axis[1].size, length = phase.axis[2].size, step = axis[2].stride * out.space[2], z, y
    cdef char *first = out.data + n * out.n + channel * out.channel
    cdef int d
    for d in range(3):
        first += phase.axis[d].first * out.space[d]
    if out.space[1] * axis[1].stride == length * step and length == axis[2].size_out and rows == axis[1].size_out:
        rows, length = 1, rows * length
    for z in range(phase.axis[0].size):
        for y in range(rows):
            problem.save(values + (z * axis[1].size_out + y) * axis[2].size_out * sample.item, sample.item,
                         first + z * axis[0].stride * out.space[0] + y * axis[1].stride * out.space[1], step, length)


cdef void save_phases(const ConvRun *run, int64_t n, int64_t channel, char *sums, char *old) noexcept nogil:
    """Save one channel of grad_input, phase by phase; old: room for one plane."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t size[3]
    cdef int64_t number
    cdef char *plane
    cdef const Phase *phases = <const Phase *>shared_piece(run, PLANE_PHASE_TABLE)
    input_size(sample, size)
    for number in range(phase_count(sample)):
        plane = sums + number * own.elements * sample.item
        if run.problem.accumulate:
            load_plane(run, &run.problem.view[CONV_GRAD_INPUT], size, n, channel, &phases[number], old)
            add_values(sample, old, plane, sample.pixels_out)
        save_plane(run.problem, n, channel, &phases[number], plane)


cdef void load_taps(const ConvProblem *problem, const ConvView *w, int64_t co, const int64_t *order, char *natural,
                    char *to) noexcept nogil:
    """Load the weights of one output channel in the tables' order."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t kx = sample.axis[2].kernel, row, i
    for row in range(sample.taps // kx):
        problem.load(w.data + co * w.n + tap_offset(sample, w, row * kx), w.space[2], natural + row * kx * sample.item,
                     sample.item, kx)
    for i in range(sample.taps):
        memcpy(to + i * sample.item, natural + order[i] * sample.item, sample.item)


cdef void save_taps(const ConvProblem *problem, int64_t co, const int64_t *order, const char *sums,
                    char *natural) noexcept nogil:
    """Save the weights' sums of one output channel, which are in the tables' order."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t i
    for i in range(sample.taps):
        memcpy(natural + order[i] * sample.item, sums + i * sample.item, sample.item)
    move_weights(problem, 0, sample.taps, natural, w.data + co * w.n, False)


cdef bint plane_in_place(const SampleGeometry *sample, const ConvView *view, const int64_t *size) noexcept nogil:
    """Say whether a channel of this tensor lies in memory as a flat plane lies in scratch, and kernels leave the rest
    alone."""
    cdef int64_t next = sample.item
    cdef int d
    if sample.dtype != sample.compute or not kernels.stencil_in_place:
        return False
    for d in range(2, -1, -1):
        if size[d] != sample.axis[d].size_out or sample.axis[d].stride != 1 or (size[d] > 1 and view.space[d] != next):
            return False
        next *= size[d]
    return True


cdef void prefetch_plane(const SampleGeometry *sample, const ConvView *view, int64_t pixels, int64_t n,
                         int64_t channel) noexcept nogil:
    """Prefetch a plane as if it were contiguous; where it is not, it is little that is asked for in vain."""
    cdef char *at = view.data + n * view.n + channel * view.channel
    cdef char *end = at + pixels * itemsize_of(sample.dtype)
    while at < end:
        prefetch_line(at)
        at += CONV_ALIGN


# ---- tasks

# One input channel: its planes, where they lie or in scratch.
ctypedef struct PlaneTask:
    int64_t group, from_co
    bint of_input, of_weight
    bint g_in_place, x_in_place, out_in_place
    PlaneTables back, forth
    char *g
    char *x
    char *sums
    char *old
    char *natural
    char *weights
    char *products


cdef void begin_plane_task(const ConvRun *run, int64_t group, bint of_input, bint of_weight, char *scratch,
                           PlaneTask *t) noexcept nogil:
    """Find the pieces of a channel's task, and load its weights and what its sums start from."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvProblem *problem = run.problem
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t tap_bytes = sample.taps * sample.item, co
    cdef int64_t size_in[3]
    cdef int64_t size_out[3]
    input_size(sample, size_in)
    output_size(sample, size_out)
    t.group, t.from_co, t.of_input, t.of_weight = group, group * sample.cout, of_input, of_weight
    t.g_in_place = plane_in_place(sample, &problem.view[CONV_GRAD_OUTPUT], size_out)
    t.x_in_place = plane_in_place(sample, &problem.view[CONV_INPUT], size_in)
    t.out_in_place = plane_in_place(sample, &problem.view[CONV_GRAD_INPUT], size_in) and not problem.accumulate
    t.back, t.forth = plane_tables(run, PLANE_BACK), plane_tables(run, PLANE_FORTH)
    t.g = local_piece(run, PLANE_G, scratch) + own.margin * sample.item
    t.x = local_piece(run, PLANE_X, scratch) + own.margin * sample.item
    t.sums, t.old = local_piece(run, PLANE_SUMS, scratch), local_piece(run, PLANE_OLD, scratch)
    t.natural, t.weights = local_piece(run, PLANE_NATURAL, scratch), local_piece(run, PLANE_WEIGHTS, scratch)
    t.products = local_piece(run, PLANE_PRODUCTS, scratch)
    for co in range(sample.cout if of_input else 0):
        load_taps(problem, &problem.view[CONV_WEIGHT], t.from_co + co, t.back.order, t.natural,
                  t.weights + co * tap_bytes)
    if of_weight:
        memset(t.products, 0, sample.cout * tap_bytes)
    for co in range(sample.cout if of_weight and problem.accumulate else 0):
        load_taps(problem, &problem.view[CONV_GRAD_WEIGHT], t.from_co + co, t.forth.order, t.natural,
                  t.products + co * tap_bytes)


cdef void load_input_phases(const ConvRun *run, int64_t n, bint last, PlaneTask *t) noexcept nogil:
    """Load the input's planes of one sample, and prefetch the next sample's."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef int64_t size[3]
    cdef int64_t number
    cdef const Phase *phases = <const Phase *>shared_piece(run, PLANE_PHASE_TABLE)
    if not last:
        prefetch_plane(sample, x, sample.pixels_in, n + 1, t.group)
    if t.x_in_place:
        t.x = x.data + n * x.n + t.group * x.channel
        return
    input_size(sample, size)
    for number in range(phase_count(sample)):
        if phases[number].tap_count:
            load_plane(run, x, size, n, t.group, &phases[number], t.x + number * own.elements * sample.item)


cdef void plane_sample(const ConvRun *run, int64_t n, bint last, PlaneTask *t) noexcept nogil:
    """Compute each phase of one sample's grad_input from the planes of grad_output, and add their products with the
    input to grad_weight."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t item = sample.item, co, p, at
    cdef int64_t size[3]
    output_size(sample, size)
    if t.of_weight:
        load_input_phases(run, n, last, t)
    if t.of_input and t.out_in_place:
        t.sums = out.data + n * out.n + t.group * out.channel
    for co in range(sample.cout):
        if not last:
            prefetch_plane(sample, g, sample.pixels_out, n + 1, t.from_co + co)
        if t.g_in_place:
            t.g = g.data + n * g.n + (t.from_co + co) * g.channel
        else:
            load_plane(run, g, size, n, t.from_co + co, NULL, t.g)
        for p in range(phase_count(sample) if t.of_input else 0):
            at = t.back.start[p]
            kernels.stencil[sample.compute](
                sample.pixels_out, t.g, t.back.shift + at, t.weights + (co * sample.taps + at) * item,
                t.back.start[p + 1] - at, t.back.bits + at * own.vectors, own.vectors,
                t.sums + p * own.elements * item, co > 0)
        if t.of_weight:
            kernels.stencil_dot[sample.compute](sample.pixels_out, t.g, t.x, t.forth.shift, sample.taps, t.forth.bits,
                                                own.vectors, t.products + co * sample.taps * item)
    if t.of_input and not t.out_in_place:
        save_phases(run, n, t.group, t.sums, t.old)


cdef void depthwise_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task number (group) of both gradients, or (group, part of the batch) of grad_input, then (group) of
    grad_weight."""
    cdef const SampleGeometry *sample = run.sample
    cdef const Depthwise *own = <const Depthwise *>run.blocking.own
    cdef int64_t group = number, from_n = 0, to_n = run.problem.batch, n, co
    cdef bint of_input = run.gradients & FOR_GRAD_INPUT, of_weight = run.gradients & FOR_GRAD_WEIGHT
    cdef double totals[PLANE_CHANNELS]
    cdef PlaneTask t
    cdef BiasShare bias
    cdef Box whole
    if not own.together and number < own.input_tasks:
        of_weight, group = False, number // own.parts
        from_n = number % own.parts * own.samples
        to_n = min(to_n, from_n + own.samples)
    elif not own.together:
        of_input, group = False, number - own.input_tasks
    if not of_input and not of_weight:
        return
    begin_plane_task(run, group, of_input, of_weight, scratch, &t)
    memset(&whole, 0, sizeof(whole))
    whole.samples = 1
    output_size(sample, whole.extent)  # one tile of the order
    if of_weight:
        bias = bias_share(run, t.from_co, sample.cout, 0, 1, <char *>totals)
    for n in range(from_n, to_n):
        plane_sample(run, n, n + 1 == to_n, &t)
        whole.n = n
        if of_weight:
            add_bias(run.problem, &whole, &bias)
    if of_weight:
        for co in range(sample.cout):
            save_taps(run.problem, t.from_co + co, t.forth.order, t.products + co * sample.taps * sample.item,
                      t.natural)
        save_bias(run.problem, &bias)


cdef void explain_depthwise(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                            size_t size) noexcept nogil:
    cdef const Depthwise *own = <const Depthwise *>blocking.own
    snprintf(text, size, b"whole planes of one channel under their kernel, %lld phases of the stride, a tap is one "
             b"shift of a plane; %s", <long long>phase_count(sample),
             b"both gradients of a channel are one task" if own.together
             else b"each gradient for itself, since channels are few for the threads")


cdef ConvAlgorithm depthwise() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"depthwise", FOR_GRAD_INPUT | FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_depthwise, order_depthwise, block_depthwise
    row.prepare, row.task, row.explain = prepare_depthwise, depthwise_task, explain_depthwise
    return row
