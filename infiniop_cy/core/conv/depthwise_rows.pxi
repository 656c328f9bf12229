# Rows of pixels that go past the caches by way of a stage, since pixels, or their vectors, fill no cache lines of their
# own: those of one phase may be apart from each other, and those of all phases together are whole rows.

cdef enum:
    STAGED_PHASES = 4        # of a row, at most
    STAGED_BYTES = 8 << 10   # at once, about, in steps of which each phase computes
    STAGED_STEPS = 8         # so many at a time,
    STAGED_MOST = 16 << 10   # but no more bytes than these: both halves have to stay in the nearest cache
    STAGED_IMAGE = 4 << 20   # bytes of an image of a single phase


cdef bint stages_one_phase(const ConvProblem *problem, int gradients) noexcept nogil:
    """Say whether pixels of a single phase go that way: those of large images, since smaller ones take 1.1 times as
    long where they are in a cache before (and 0.8 times where they are not); and as far as was measured, since rows are
    computed one by one then, which floats under a stride take 1.05 to 1.1 times as long for. Tasks of grad_weight stay
    as they are."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef bint widened = itemsize_of(sample.dtype) < sample.item
    if gradients & FOR_GRAD_WEIGHT and (widened or not dots_pixels(problem)):
        return False
    return written_bytes(problem) >= STAGED_IMAGE and (widened or sample.source[2].step == 1) \
        and lane_channels(sample) * itemsize_of(sample.dtype) > CONV_ALIGN


cdef bint may_stage(const ConvProblem *problem, int gradients, const Depthwise *own) noexcept nogil:
    """Say whether the pixels of all channels are written, and are whole rows that may go that way."""
    cdef const SampleGeometry *sample = &problem.sample
    return gradients & FOR_GRAD_INPUT and problem.stream and own.by_pixels \
        and sample.axis[2].phases <= STAGED_PHASES and staged_bytes(sample) <= STAGED_MOST \
        and (sample.axis[2].phases > 1 or stages_one_phase(problem, gradients)) \
        and problem.view[CONV_GRAD_INPUT].space[2] == lane_channels(sample) * itemsize_of(sample.dtype)


cdef int64_t staged_steps(const SampleGeometry *sample) noexcept nogil:
    """Return how many steps of a row are staged at once."""
    cdef int64_t step = sample.axis[2].stride * lane_channels(sample) * itemsize_of(sample.dtype)
    return max(<int64_t>STAGED_STEPS, STAGED_BYTES // step // STAGED_STEPS * STAGED_STEPS)


cdef int64_t staged_bytes(const SampleGeometry *sample) noexcept nogil:
    """Return the bytes of half a stage, in whole cache lines, with that of what the last half leaves."""
    return round_up(staged_steps(sample) * sample.axis[2].stride * lane_channels(sample) * itemsize_of(sample.dtype),
                    CONV_ALIGN) + CONV_ALIGN


cdef bint stages_task(const LaneTask *t) noexcept nogil:
    """Say whether the pixels of a task go that way: where they do not begin with cache lines, or vectors are no whole
    lines."""
    cdef const SampleGeometry *sample = &t.run.problem.sample
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    return t.own.staged and (itemsize_of(sample.dtype) < sample.item or (
        <uintptr_t>out.data | <uintptr_t>(out.n | out.space[0] | out.space[1] | out.space[2])) % CONV_ALIGN != 0)


cdef void compute_steps(const LaneTask *t, PhasePixels *phases, int64_t count, int64_t y, int64_t x,
                        Unsent *unsent) noexcept nogil:
    """Compute the pixels of all phases under some steps of a row, and send what is unsent meanwhile."""
    cdef StencilPixels *pixels
    cdef int64_t i
    for i in range(count):
        pixels = &phases[i].pixels
        pixels.first_row, pixels.end_row = y, y + 1
        pixels.first_column, pixels.end_column = x, min(pixels.width, x + staged_steps(t.run.sample))
        pixels.past, pixels.unsent = False, unsent
        kernels.stencil_pixels[t.run.sample.dtype](pixels, phases[i].source, phases[i].weights,
                                                   unsent.stage + (phases[i].to - phases[0].to))
    send(unsent, unsent.bytes)


cdef void compute_staged_row(const LaneTask *t, PhasePixels *phases, int64_t count, int64_t y,
                             Unsent *unsent) noexcept nogil:
    """Compute a row of pixels in the half of the stage that is not being sent, then in the other one, and so on."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t step = sample.axis[2].stride * out.space[2], row = t.pixels.extent[2] * out.space[2]
    cdef int64_t most = staged_steps(sample), x = 0
    cdef char *to = phases[0].to + y * sample.axis[1].stride * out.space[1]
    while x * step < row:
        compute_steps(t, phases, count, y, x, unsent)
        begin_sending(to + x * step, min(row - x * step, most * step), 1, unsent)
        x += most


cdef void compute_staged(const LaneTask *t, const void *bias) noexcept nogil:
    """Compute a tile's pixels row by row."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef PhasePixels phases[STAGED_PHASES]
    cdef int64_t of_row = sample.axis[2].phases, group, number, count, i, z, y
    cdef Unsent unsent
    begin_stage(t.stage, staged_bytes(sample), &unsent)
    for group in range(phase_count(sample) // of_row):
        number, count = group * of_row, 0
        while count < of_row and begin_phase(t, number + count, bias, &phases[count]):
            count += 1
        for z in range(phases[0].part.extent[0] if count else 0):
            for i in range(count):
                begin_plane(t, number + i, z, &phases[i])
            for y in range(phases[0].part.extent[1]):
                compute_staged_row(t, phases, count, y, &unsent)
    finish_sending(&unsent)
