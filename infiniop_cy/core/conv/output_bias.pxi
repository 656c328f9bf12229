# The bias of an output, added to the sums of a tile before they are rounded.

cdef enum:
    BIAS_STAGED = 64   # channels converted at a time


cdef bint has_output_bias(const ConvProblem *problem) noexcept nogil:
    """Say whether a bias is added to what the algorithms sum."""
    return problem.sample.forward and problem.view[CONV_BIAS].data != NULL


cdef void load_output_bias(const ConvProblem *problem, int64_t channel, int64_t channels, char *values) noexcept nogil:
    """Load the bias of at most BIAS_STAGED channels of the output, with zeros behind them."""
    cdef const ConvView *bias = &problem.view[CONV_BIAS]
    memset(values, 0, BIAS_STAGED * problem.sample.item)
    problem.load(bias.data + channel * bias.n, bias.n, values, problem.sample.item, channels)


cdef void add_to_all(real *to, int64_t pitch, int64_t count, real value) noexcept nogil:
    """Add a value to elements `pitch` apart."""
    cdef int64_t i
    if pitch == 1:
        for i in range(count):
            to[i] += value
    else:
        for i in range(count):
            to[i * pitch] += value


cdef void add_bias_to_row(const SampleGeometry *sample, const char *bias, int64_t channel, char *to, int64_t pitch,
                          int64_t count) noexcept nogil:
    """Add one channel's bias to elements `pitch` apart."""
    if sample.compute == DTYPE_F64:
        add_to_all(<double *>to, pitch, count, (<const double *>bias)[channel])
    else:
        add_to_all(<float *>to, pitch, count, (<const float *>bias)[channel])


cdef void add_bias_rows(const ConvProblem *problem, const InputSums *sums, const Box *tile, const char *bias,
                        int64_t first, int64_t channels, bint of_amx) noexcept nogil:
    """Add the bias of some channels from the first-th on to a tile's sums."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t row, n, z, y, c
    cdef char *at
    for row in range(tile.samples * tile.extent[0] * tile.extent[1]):
        n, z, y = row // (tile.extent[0] * tile.extent[1]), row // tile.extent[1] % tile.extent[0], row % tile.extent[1]
        at = sum_of_pixel(problem, sums, n, z, y, 0) + first * sums.ci_pitch * sample.item
        if sums.ci_pitch == 1:
            kernels.add_to_rows[sample.compute](bias, at, sums.pixel_pitch, tile.extent[2], channels, of_amx)
            continue
        for c in range(channels):
            add_bias_to_row(sample, bias, c, at + c * sums.ci_pitch * sample.item, sums.pixel_pitch, tile.extent[2])


cdef void add_output_bias(const ConvProblem *problem, const InputSums *sums, const Box *tile,
                          bint of_amx) noexcept nogil:
    """Add the bias to a tile's sums, if there is one. of_amx: none of them is subnormal, and none shall be, which
    bfloat16's instructions count as 0."""
    cdef double staged[BIAS_STAGED]
    cdef int64_t first = 0, count
    if not has_output_bias(problem):
        return
    while first < sums.channels:
        count = min(<int64_t>BIAS_STAGED, sums.channels - first)
        load_output_bias(problem, sums.group * problem.sample.cin + sums.ci_from + first, count, <char *>staged)
        add_bias_rows(problem, sums, tile, <char *>staged, first, count, of_amx)
        first += count
