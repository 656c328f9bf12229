# Which samples hold numbers that float32 as a sum of bfloat16 cannot hold, or whose products it would lose: AMX counts
# subnormals as 0, so the smallest parts of the smallest products have to be normal. Within the bounds a product that is
# lost is below 2^-24 of one that is kept. A sample is judged by its data alone, so that neither the batch around it nor
# the threads decide how it is computed.
cdef extern from *:
    """
    static const float LEAST_GRADIENT = 0x1p-56f, LEAST_FACTOR = 0x1p-40f, MOST = 0x1p60f;
    """
    const float LEAST_GRADIENT  # the least magnitude of grad_output that is not 0
    const float LEAST_FACTOR    # of input and weight
    const float MOST            # the largest magnitude of all three

cdef enum:
    SURVEY_PIECES = 8    # units of a sample
    SURVEY_STAGED = 256  # elements gathered at a time


# A tensor's elements of one sample as nested loops, the innermost last.
ctypedef struct SampleLoops:
    int count
    int64_t extent[4]
    int64_t step[4]      # bytes


cdef void sample_loops(const SampleGeometry *sample, const ConvView *view, int tensor,
                       SampleLoops *loops) noexcept nogil:
    """Order the axes of one sample by their strides, and merge those that follow each other in memory."""
    cdef int64_t extent[4]
    cdef int64_t step[4]
    cdef int64_t n, s
    cdef int d, at
    cdef bint of_input = tensor == CONV_INPUT
    for d in range(4):
        n = sample.groups * (sample.cin if of_input else sample.cout // sample.folded)
        s = view.channel
        if d > 0:
            n, s = sample.axis[d - 1].size_in if of_input else sample.axis[d - 1].size_out, view.space[d - 1]
        at = d
        while at > 0 and max(step[at - 1], -step[at - 1]) < max(s, -s):
            extent[at], step[at] = extent[at - 1], step[at - 1]
            at -= 1
        extent[at], step[at] = n, s
    loops.count, loops.extent[0], loops.step[0] = 1, 1, 4
    for d in range(4):
        at = loops.count - 1
        if loops.step[at] == extent[d] * step[d] or loops.extent[at] == 1:
            loops.extent[at], loops.step[at] = loops.extent[at] * extent[d], step[d]
        elif extent[d] != 1:
            loops.extent[at + 1], loops.step[at + 1] = extent[d], step[d]
            loops.count += 1


cdef bint outside(const char *start, int64_t step, int64_t count, float least) noexcept nogil:
    """Say whether any of some float32 numbers is out of bounds."""
    cdef float staged[SURVEY_STAGED]
    cdef int64_t i = 0, n
    if step == 4:
        return kernels.parts[DTYPE_F32].outside(start, count, least, MOST)
    while i < count:
        n = min(<int64_t>SURVEY_STAGED, count - i)
        kernels.convert[DTYPE_F32][DTYPE_F32](start + i * step, step, <char *>staged, 4, n)
        if kernels.parts[DTYPE_F32].outside(<char *>staged, n, least, MOST):
            return True
        i += n
    return False


cdef bint loop_outside(const SampleLoops *loops, int loop, const char *start, int64_t count,
                       float least) noexcept nogil:
    """Say whether any number in the first `count` turns of a loop, and of those inside it, is out of bounds."""
    cdef int64_t i
    if loop == loops.count - 1:
        return outside(start, loops.step[loop], count, least)
    for i in range(count):
        if loop_outside(loops, loop + 1, start + i * loops.step[loop], loops.extent[loop + 1], least):
            return True
    return False


cdef bint piece_outside(const ConvProblem *problem, int tensor, int64_t n, int64_t piece) noexcept nogil:
    """Say whether any number of one of SURVEY_PIECES of sample n is out of bounds; tensor: CONV_GRAD_OUTPUT or
    CONV_INPUT."""
    cdef const ConvView *view = &problem.view[tensor]
    cdef SampleLoops loops
    cdef int64_t first, last
    sample_loops(&problem.sample, view, tensor, &loops)
    first, last = piece * loops.extent[0] // SURVEY_PIECES, (piece + 1) * loops.extent[0] // SURVEY_PIECES
    return loop_outside(&loops, 0, view.data + n * view.n + first * loops.step[0], last - first,
                        LEAST_GRADIENT if tensor == CONV_GRAD_OUTPUT else LEAST_FACTOR)
