# Which samples hold numbers that float32 as a sum of bfloat16 cannot hold, or whose products it would lose (bounds in
# kernels/table.h). A sample is judged by its data alone, so that neither the batch around it nor the threads decide how
# it is computed.
#
# Such numbers are rare, and to look for them takes as long as to read both images. So packing looks while it takes
# numbers apart: where it finds none, there are none, as long as it reads all of a tensor. Where it does, the run is
# given up, every sample is looked at, and the run begins anew. Gradients that are added to what is there cannot be
# given up, so samples are looked at first.
cdef enum:
    SURVEY_PIECES = 8    # units of a sample
    SURVEY_STAGED = 256  # elements gathered at a time


cdef bint became_tiny(const ConvRun *run, int found, int unfit) noexcept nogil:
    """Take what packing found (PartKernels): say whether there were inf or NaN, which became tiny; of float32, give the
    run up where numbers are unfit, as a factor or as a gradient, unless samples were looked at."""
    if run.sample.dtype != DTYPE_F32:
        return found != 0
    if found & unfit and run.unfit != NULL:
        shared_set(run.unfit, 1)
    return False


cdef bint reads_all_pixels(const SampleGeometry *sample, bint of_input) noexcept nogil:
    """Say whether every pixel of the input meets a tap, or every pixel of the output has a tap inside the image; False,
    too, where that is not simple to say."""
    cdef const ConvAxis *axis
    cdef int64_t reach
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        reach = (axis.kernel - 1) * axis.dilation - axis.before  # of the first output pixel, and so of the last
        if of_input:  # neighbouring windows, or those of neighbouring taps, leave no gap
            if not (axis.kernel >= axis.stride if axis.dilation == 1
                    else axis.stride == 1 and axis.dilation <= axis.size_out) \
                    or (axis.size_out - 1) * axis.stride + reach < axis.size_in - 1:
                return False
        elif axis.dilation > axis.size_in or reach < 0 \
                or (axis.size_out - 1) * axis.stride - axis.before >= axis.size_in:
            return False
    return True


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
        return kernels.parts[DTYPE_F32].outside(start, count, least)
    while i < count:
        n = min(<int64_t>SURVEY_STAGED, count - i)
        kernels.convert[DTYPE_F32][DTYPE_F32](start + i * step, step, <char *>staged, 4, n)
        if kernels.parts[DTYPE_F32].outside(<char *>staged, n, least):
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
