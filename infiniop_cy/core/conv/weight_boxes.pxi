# grad_weight of kernels of many taps whose channels lie side by side: tasks of all taps would have so few channels that
# they read and write short parts of lines, each of which another task reads and writes again. So a task has all
# channels of a box of taps, and runs as one of the convolution that has only these; its block is what they reach.
cdef enum:
    BOX_CHANNELS = 8    # of a task of all taps, with as many of which there are no boxes,
    BOX_PART = 3        # nor with more of all channels than this part
    BOX_TASKS = 4       # a thread, at least,
    BOX_ROWS = 48       # if each has so many rows


ctypedef struct TapBoxes:
    int64_t taps[3]     # of a box; 0 where tasks have all taps
    int64_t count[3]    # boxes along each axis
    int64_t tasks       # of a box


ctypedef struct WeightGemm:
    WeightTiles tiles
    TapBoxes boxes


cdef int64_t count_boxes(const SampleGeometry *sample, TapBoxes *boxes) noexcept nogil:
    """Make boxes of about this size even; set and return how many there are."""
    cdef int64_t all_axes = 1
    cdef int d
    for d in range(3):
        boxes.count[d] = ceil_div(sample.axis[d].kernel, boxes.taps[d])
        boxes.taps[d] = ceil_div(sample.axis[d].kernel, boxes.count[d])
        boxes.count[d] = ceil_div(sample.axis[d].kernel, boxes.taps[d])
        all_axes *= boxes.count[d]
    return all_axes


cdef bint cut_tap_boxes(const ConvProblem *problem, int threads, TapBoxes *boxes) noexcept nogil:
    """Cut the kernel into boxes, if tasks of all taps have too few channels: as many taps as fill a task's rows, those
    along the last axis first, but so that the threads have enough tasks. Return whether there are boxes."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t together = WEIGHT_ROWS // sample.taps, most, tasks
    cdef int d, axis = 0
    boxes.taps[0] = 0
    if sample.pixels_in == 0 or not taps_lie_apart(problem) \
            or together >= BOX_CHANNELS or BOX_PART * together > sample.cin:
        return False
    most = max(<int64_t>1, WEIGHT_ROWS // sample.cin)
    for d in range(2, -1, -1):
        boxes.taps[d] = min(sample.axis[d].kernel, most)
        most = max(<int64_t>1, most // boxes.taps[d])
    tasks = sample.groups * ceil_div(sample.cout, <int64_t>WEIGHT_CO)
    while threads > 1 and axis < 3 and count_boxes(sample, boxes) * tasks < BOX_TASKS * threads:
        if boxes.taps[axis] == 1:
            axis += 1
        elif boxes.taps[0] * boxes.taps[1] * boxes.taps[2] * sample.cin < 2 * BOX_ROWS:
            break
        else:
            boxes.taps[axis] = ceil_div(boxes.taps[axis], 2)
    count_boxes(sample, boxes)
    return True


cdef void problem_of_box(const ConvProblem *problem, const TapBoxes *boxes, int64_t number,
                         ConvProblem *part) noexcept nogil:
    """Make the problem of the box of that number: with its taps, and the input from the first pixel on that they
    meet."""
    cdef ConvAxis *axis
    cdef int64_t first, skipped
    cdef int d
    part[0] = problem[0]
    part.sample.taps = part.sample.pixels_in = 1
    for d in range(2, -1, -1):
        axis = &part.sample.axis[d]
        first = number % boxes.count[d] * boxes.taps[d]
        number //= boxes.count[d]
        skipped = max(<int64_t>0, first * axis.dilation - axis.before)
        axis.before = max(<int64_t>0, axis.before - first * axis.dilation)
        axis.size_in -= skipped
        axis.kernel = min(boxes.taps[d], axis.kernel - first)
        conv_axis_derive(axis)
        part.view[CONV_INPUT].data += skipped * part.view[CONV_INPUT].space[d]
        part.view[CONV_GRAD_WEIGHT].data += first * part.view[CONV_GRAD_WEIGHT].space[d]
        part.sample.taps *= axis.kernel
        part.sample.pixels_in *= axis.size_in
