# The weights of a task's channels, and their gradients: a vector for each output of a group and each tap.

cdef ConvView weights_view(const ConvView *w, int64_t co) noexcept nogil:
    """See the weights of output co of each group, of one input channel, as an image of taps whose channels are the
    groups."""
    cdef ConvView view = w[0]
    view.data += co * w.n
    view.channel, view.n = w.group, 0
    return view


cdef void whole_kernel(const SampleGeometry *sample, int64_t *size, Box *box) noexcept nogil:
    """Make the box of all taps."""
    cdef int d
    box.n, box.samples = 0, 1
    for d in range(3):
        box.first[d], box.step[d] = 0, 1
        box.extent[d] = size[d] = sample.axis[d].kernel


cdef int64_t natural_vectors(const SampleGeometry *sample, int64_t vectors) noexcept nogil:
    """Count the vectors that hold the taps of a task's outputs, and what loading those of a group stages."""
    cdef int64_t staged = max(min(sample.taps, <int64_t>STAGED_TAPS),
                              ceil_div(sample.taps * sample.cout * sample.cin, sample.lanes))
    return vectors * sample.cout * sample.taps + (staged if sample.cin > 1 else 0)


cdef char *group_weights(const LaneTask *t, int kind, int64_t group, int64_t co) noexcept nogil:
    """Find the weights, or their gradients, of output co of the task's group of that number."""
    cdef const ConvView *w = &t.run.problem.view[kind]
    return w.data + (t.channel // t.run.sample.cin + group) * w.group + co * w.n


cdef int64_t group_lane(const LaneTask *t, int64_t group, int64_t vectors) noexcept nogil:
    """Count the bytes to the first lane of the task's group of that number, where vectors of channels are `vectors`
    vectors apart."""
    cdef int64_t channel = group * t.run.sample.cin, lanes = t.run.sample.lanes
    return (channel // lanes * vectors * lanes + channel % lanes) * t.run.sample.item


cdef void load_group_taps(const LaneTask *t, int64_t group, char *staged, char *natural) noexcept nogil:
    """Load the weights of a group of several input channels for each output, by the number of the tap."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *w = &t.run.problem.view[CONV_WEIGHT]
    cdef TransposeKernel transpose = transpose_to_compute(sample)
    cdef int64_t vector = sample.lanes * sample.item, row = sample.cin * sample.item, co, tap, taps
    cdef bint in_line = outputs_in_line(sample, w)
    if in_line:
        transpose(group_weights(t, CONV_WEIGHT, group, 0), w.channel, staged, row, sample.taps * sample.cout,
                  sample.cin)
    for co in range(sample.cout):
        tap = 0
        if in_line:
            kernels.pad_rows(staged + co * row, sample.cout * row, natural, vector, sample.taps, 0, row, row)
            tap = sample.taps
        while tap < sample.taps:
            taps = min(<int64_t>STAGED_TAPS, sample.taps - tap)
            stage_taps(t.run.problem, group_weights(t, CONV_WEIGHT, group, co), tap, taps, sample.cin, sample.lanes,
                       staged, natural + tap * vector)
            tap += taps
        natural += t.vectors * sample.taps * vector


cdef void load_taps(const LaneTask *t, char *natural) noexcept nogil:
    """Load the weights of each output of the groups, one after the other, by the number of the tap."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t of_output = t.vectors * sample.taps * sample.lanes * sample.item, group, co
    cdef int64_t size[3]
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef ConvView view
    cdef Box box
    if sample.cin == 1:
        whole_kernel(sample, size, &box)
        for co in range(sample.cout):
            view = weights_view(&t.run.problem.view[CONV_WEIGHT], co)
            pack_lane_box(sample, &view, size, &box, &channels, size, sample.taps, natural + co * of_output)
        return
    memset(natural, 0, sample.cout * of_output)
    for group in range(t.channels // sample.cin):
        load_group_taps(t, group, natural + sample.cout * of_output, natural + group_lane(t, group, sample.taps))


cdef void load_lane_weights(LaneTask *t, char *natural) noexcept nogil:
    """Load the weights in the tables' order, or pairs of them; inf and NaN are replaced by what may meet zeros."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t vector = sample.lanes * sample.item, v, co, i
    cdef bint pairs = sample.cin > 1 and bfloat16_dot2(sample)
    cdef char *to
    cdef char *loaded
    load_taps(t, natural)
    for co in range(sample.cout):
        t.nonfinite[co] = replace_nonfinite_values(sample, natural, t.vectors * sample.taps * sample.lanes)
        for v in range(t.vectors):
            for i in range(t.tables.start[phase_count(sample)]):
                loaded = natural + (v * sample.taps + t.tables.order[i]) * vector
                to = t.weights + v * t.bytes + ((co - co % 2 if pairs else co) * sample.taps + i) * vector
                if pairs:
                    join_pairs(<const uint32_t *>loaded, sample.lanes, co % 2, <uint32_t *>to)
                else:
                    memcpy(to, loaded, vector)
        natural += t.vectors * sample.taps * vector


cdef void move_output_totals(const LaneTask *t, char *lanes, char *line, char *weights, bint loading) noexcept nogil:
    """Move the totals of one output of a group, a vector for each tap, to grad_weight, or (loading) from it, by way of
    a line in the order of its memory."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t item = sample.item, stored = itemsize_of(sample.dtype), taps = sample.taps, cin = sample.cin
    cdef int64_t vector = sample.lanes * item, row = cin * item
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef bint channels_lead = w.channel == stored and taps_lie_evenly(sample, w, cin * stored)
    if channels_lead and loading:
        problem.load(weights, stored, line, item, taps * cin)
        kernels.pad_rows(line, row, lanes, vector, taps, 0, row, row)
    elif channels_lead:
        kernels.pad_rows(lanes, vector, line, row, taps, 0, row, row)
        problem.save(line, item, weights, stored, taps * cin)
    elif loading:
        move_weights(problem, 0, cin * taps, line, weights, True)
        kernels.transpose[sample.compute](line, taps * item, lanes, vector, taps, cin)
    else:
        kernels.transpose[sample.compute](lanes, vector, line, taps * item, cin, taps)
        move_weights(problem, 0, cin * taps, line, weights, False)


cdef void move_group_totals(const LaneTask *t, char *line, bint loading) noexcept nogil:
    """Move the totals of groups of several channels to grad_weight, or (loading) from it. line: room for the weights of
    an output channel."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t vector = sample.lanes * sample.item, group, co
    cdef char *lanes
    for group in range(t.channels // sample.cin):
        lanes = t.totals + group_lane(t, group, sample.cout * sample.taps)
        for co in range(sample.cout):
            move_output_totals(t, lanes + co * sample.taps * vector, line,
                               group_weights(t, CONV_GRAD_WEIGHT, group, co), loading)


cdef void begin_totals(const LaneTask *t, char *line) noexcept nogil:
    """Start from zero, or (accumulating) from what grad_weight holds."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t co
    cdef int64_t size[3]
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef ConvView view
    cdef Box box
    memset(t.totals, 0, t.vectors * t.bytes)
    if not t.run.problem.accumulate:
        return
    if sample.cin > 1:
        move_group_totals(t, line, True)
        return
    whole_kernel(sample, size, &box)
    for co in range(sample.cout):
        view = weights_view(&t.run.problem.view[CONV_GRAD_WEIGHT], co)
        pack_lane_box(sample, &view, size, &box, &channels, size, sample.cout * sample.taps,
                      t.totals + co * (t.bytes // sample.cout))


cdef void save_totals(const LaneTask *t, char *line) noexcept nogil:
    """Round grad_weight to storage."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t co
    cdef int64_t size[3]
    cdef LaneChannels channels = task_channels(t, 0, 1)
    cdef ConvView view
    cdef Box box
    if sample.cin > 1:
        move_group_totals(t, line, False)
        return
    whole_kernel(sample, size, &box)
    for co in range(sample.cout):
        view = weights_view(&t.run.problem.view[CONV_GRAD_WEIGHT], co)
        unpack_lane_box(sample, &view, &box, &channels, sample.cout * sample.taps, False,
                        t.totals + co * (t.bytes // sample.cout))
