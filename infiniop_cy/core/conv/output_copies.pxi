# What output:dot copies before its tasks: the image as planes, where its pixels do not follow each other in memory, and
# the weights as rows of (channel, tap), where they are no such rows: where channels lie side by side, what one window
# or one group takes is scattered, and tasks would gather the same elements again and again. Values stay as they are
# stored.
cdef enum:
    OUTPUT_COPY_BYTES = 3 << 20      # of the image, for each thread, at most
    OUTPUT_COPY_UNIT = 1 << 14       # elements that a unit copies, about
    OUTPUT_COPY_CHANNELS = 32        # that a unit transposes
    OUTPUT_COPY_BLOCKS = 3           # of windows, at least, for which the weights are copied
    OUTPUT_COPY_FEW = 8              # channels of a group, fewer than these: gathering by vectors of them is slow
    OUTPUT_COPY_SHARED = 6           # windows that meet a pixel, at least, on the average, where there are more

    # pieces of what all tasks share
    OUTPUT_DOT_IMAGE = 0
    OUTPUT_DOT_WEIGHTS = 1


# What is copied, and how many units that makes.
ctypedef struct OutputCopies:
    int64_t slabs, slab          # of an image, along axis: how many, and rows of each
    int axis                     # the first of more than one pixel
    int64_t image_units          # (sample, channels, slab); 0: the image stays where it is
    int64_t rows, channels       # of weights in a unit
    int64_t weight_units         # (group, rows, channels)


cdef int64_t channel_blocks(const SampleGeometry *sample) noexcept nogil:
    """Count the units that all channels of an image make."""
    return ceil_div(sample.groups * sample.cout, OUTPUT_COPY_CHANNELS)


cdef int64_t samples_to_copy(const ConvProblem *problem, int threads) noexcept nogil:
    """Count the samples whose image is copied at a time; 0 where it had better stay: it is planes, a sample is too
    large, or what windows gather from it is little."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef double bytes = <double>sample.groups * sample.cout * sample.pixels_out * stored
    cdef double gathered = <double>sample.pixels_in * sample.taps
    if problem.view[CONV_GRAD_OUTPUT].space[2] == stored or bytes == 0 \
            or gathered < (0.5 if sample.cout < OUTPUT_COPY_FEW else OUTPUT_COPY_SHARED) * sample.pixels_out:
        return 0
    return min(problem.batch, <int64_t>(<double>OUTPUT_COPY_BYTES * threads / bytes))


cdef bint rows_of_terms(const SampleGeometry *sample, const ConvView *w) noexcept nogil:
    """Say whether the weights of an output channel lie as (channel, tap), one after the other."""
    return taps_in_line(sample, w) and (w.n == sample.taps * itemsize_of(sample.dtype) or sample.cout == 1)


cdef bint copies_weights(const ConvProblem *problem, int64_t window_blocks) noexcept nogil:
    """Say whether the weights are copied as rows, being read for so many blocks of windows."""
    return window_blocks >= OUTPUT_COPY_BLOCKS and not rows_of_terms(&problem.sample, &problem.view[CONV_WEIGHT])


cdef void plan_copies(const ConvProblem *problem, int64_t window_blocks, OutputCopies *copies,
                      Blocking *blocking) noexcept nogil:
    """Cut what is copied into units, and make room for it: the image of a pass, if any, and the weights, if they are
    read often."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t stored = itemsize_of(sample.dtype), terms = sample.cout * sample.taps
    memset(copies, 0, sizeof(OutputCopies))
    if blocking.samples:
        while copies.axis < 2 and sample.axis[copies.axis].size_out == 1:
            copies.axis += 1
        copies.slab = max(<int64_t>1, sample.axis[copies.axis].size_out * OUTPUT_COPY_UNIT
                          // (sample.pixels_out * min(sample.groups * sample.cout, <int64_t>OUTPUT_COPY_CHANNELS)))
        copies.slabs = ceil_div(sample.axis[copies.axis].size_out, copies.slab)
        copies.image_units = blocking.samples * channel_blocks(sample) * copies.slabs
        book(&blocking.shared, OUTPUT_DOT_IMAGE,
             blocking.samples * sample.groups * sample.cout * sample.pixels_out, stored)
    if copies_weights(problem, window_blocks):
        copies.rows = max(<int64_t>1, min(sample.cin, OUTPUT_COPY_UNIT // terms))
        copies.channels = sample.cout if terms <= OUTPUT_COPY_UNIT else <int64_t>OUTPUT_COPY_CHANNELS
        copies.weight_units = sample.groups * ceil_div(sample.cin, copies.rows) * ceil_div(sample.cout, copies.channels)
        book(&blocking.shared, OUTPUT_DOT_WEIGHTS, sample.groups * sample.cin * terms, stored)
    blocking.prepares = copies.image_units + copies.weight_units


cdef void copy_image(const ConvRun *run, const OutputCopies *copies, int64_t number) noexcept nogil:
    """Copy unit number (sample, channels, slab) of the image."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t stored = itemsize_of(sample.dtype), channel, all_channels = sample.groups * sample.cout
    cdef int64_t slab = number % copies.slabs
    cdef int64_t size[3]
    cdef Box box
    cdef int d
    cdef char *to = shared_piece(run, OUTPUT_DOT_IMAGE)
    output_size(sample, size)
    number //= copies.slabs
    channel = number % channel_blocks(sample) * OUTPUT_COPY_CHANNELS
    box.n, box.samples = number // channel_blocks(sample), 1
    if box.n >= run.problem.batch:
        return
    for d in range(3):
        box.first[d], box.extent[d], box.step[d] = 0, size[d], 1
    d = copies.axis
    box.first[d] = slab * copies.slab
    box.extent[d] = min(copies.slab, size[d] - box.first[d])
    to += ((box.n * all_channels + channel) * sample.pixels_out
           + box.first[d] * (sample.pixels_out // size[d])) * stored
    pack_planes(sample.dtype, sample.dtype, &run.problem.view[CONV_GRAD_OUTPUT], size, &box, channel,
                min(<int64_t>OUTPUT_COPY_CHANNELS, all_channels - channel), to, sample.pixels_out)


cdef void copy_row(const ConvRun *run, const char *source, int64_t channels, char *to) noexcept nogil:
    """Copy the weights of some channels of an output channel as (channel, tap)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t stored = itemsize_of(sample.dtype), tap = 0, co, line = sample.axis[2].kernel
    cdef ConvertKernel copy = kernels.convert[sample.dtype][sample.dtype]
    if outputs_in_line(sample, w):
        kernels.transpose[sample.dtype](source, sample.cout * stored, to, sample.taps * stored, channels, sample.taps)
    elif sample.cout >= line:
        for tap in range(sample.taps):
            copy(source + tap_offset(sample, w, tap), w.n, to + tap * stored, sample.taps * stored, channels)
    else:
        for co in range(channels):
            tap = 0
            while tap < sample.taps:
                copy(source + co * w.n + tap_offset(sample, w, tap), w.space[2],
                     to + (co * sample.taps + tap) * stored, stored, line)
                tap += line


cdef void copy_weights(const ConvRun *run, const OutputCopies *copies, int64_t number) noexcept nogil:
    """Copy unit number (group, rows, channels) of the weights."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t parts = ceil_div(sample.cout, copies.channels), blocks = ceil_div(sample.cin, copies.rows), row
    cdef int64_t co = number % parts * copies.channels, first = number // parts % blocks * copies.rows
    cdef int64_t group = number // (parts * blocks), channels = min(copies.channels, sample.cout - co)
    cdef int64_t size = sample.taps * itemsize_of(sample.dtype)
    cdef char *to = shared_piece(run, OUTPUT_DOT_WEIGHTS)
    for row in range(first, min(first + copies.rows, sample.cin)):
        copy_row(run, w.data + group * w.group + row * w.channel + co * w.n, channels,
                 to + ((group * sample.cin + row) * sample.cout + co) * size)


cdef void copy_unit(const ConvRun *run, const OutputCopies *copies, int64_t number) noexcept nogil:
    """Copy unit `number`: those of the image come first."""
    if number < copies.image_units:
        copy_image(run, copies, number)
    else:
        copy_weights(run, copies, number - copies.image_units)


cdef void planes_in_memory(const int64_t *size, int64_t stored, ConvView *view) noexcept nogil:
    """Let the pixels of a view follow each other."""
    cdef int64_t step = stored
    cdef int d
    for d in range(2, -1, -1):
        view.space[d] = step
        step *= size[d]


cdef void problem_of_copies(const ConvRun *run, const OutputCopies *copies, ConvProblem *problem) noexcept nogil:
    """State the problem of what was copied, and of the rest where it lies."""
    cdef const SampleGeometry *sample = run.sample
    cdef ConvView *x = &problem.view[CONV_GRAD_OUTPUT]
    cdef ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef int64_t size[3]
    cdef int d
    memcpy(problem, run.problem, sizeof(ConvProblem))
    if copies.image_units:
        output_size(sample, size)
        x.data = shared_piece(run, OUTPUT_DOT_IMAGE)
        x.channel = sample.pixels_out * stored
        x.n = sample.groups * sample.cout * x.channel
        planes_in_memory(size, stored, x)
    if copies.weight_units:
        for d in range(3):
            size[d] = sample.axis[d].kernel
        w.data = shared_piece(run, OUTPUT_DOT_WEIGHTS)
        w.n = sample.taps * stored
        w.channel = sample.cout * w.n
        w.group = sample.cin * w.channel
        planes_in_memory(size, stored, w)
