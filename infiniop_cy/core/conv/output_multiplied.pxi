# The output of a depthwise convolution with a channel multiplier: several output channels of each input channel, which
# has a group of its own. As many depthwise convolutions, each of which writes every so-manieth channel.

cdef void one_of_multiplied(const ConvProblem *problem, int64_t number, ConvProblem *one) noexcept nogil:
    """State the depthwise convolution that computes output channel `number` of each group."""
    cdef ConvView *w = &one.view[CONV_WEIGHT]
    cdef ConvView *y = &one.view[CONV_GRAD_INPUT]
    cdef ConvView *bias = &one.view[CONV_BIAS]
    cdef int64_t channels = problem.sample.cin
    memcpy(one, problem, sizeof(ConvProblem))
    one.sample.cin = 1
    w.data += number * w.channel
    if y.data != NULL:
        y.data += number * y.channel
    if bias.data != NULL:
        bias.data += number * bias.n
    y.channel *= channels
    bias.n *= channels


cdef bint accepts_output_multiplied(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef SampleGeometry one = sample[0]
    if sample.cout != 1 or not 2 <= sample.cin <= STENCIL_OUTPUTS:
        why[0] = b"there are not some output channels to one input channel"
        return False
    one.cin = 1
    return accepts_depthwise(&one, why)


cdef void order_output_multiplied(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum as output:depthwise does."""
    cdef SampleGeometry one = sample[0]
    one.cin = 1
    order_depthwise(&one, order)


cdef void block_output_multiplied(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                  Blocking *blocking) noexcept nogil:
    """Have the tasks of one depthwise convolution after those of the other; they share the tables, not what a task
    computes before."""
    cdef ConvProblem one
    one_of_multiplied(problem, 0, &one)
    block_depthwise(&one, order, gradients, threads, blocking)
    if (<const Depthwise *>blocking.own).by_tiles:
        blocking.prepares *= problem.sample.cin
    blocking.tasks *= problem.sample.cin


cdef bint prepare_output_multiplied(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    cdef ConvProblem one
    cdef ConvRun part = run[0]
    cdef int64_t each = max(<int64_t>1, run.blocking.prepares // run.sample.cin)
    one_of_multiplied(run.problem, number // each, &one)
    part.problem, part.sample = &one, &one.sample
    return prepare_depthwise(&part, number % each, scratch)


cdef void output_multiplied_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    cdef ConvProblem one
    cdef ConvRun part = run[0]
    cdef int64_t each = run.blocking.tasks // run.sample.cin
    one_of_multiplied(run.problem, number // each, &one)
    part.problem, part.sample = &one, &one.sample
    depthwise_task(&part, number % each, scratch)


cdef ConvAlgorithm output_multiplied() noexcept nogil:
    cdef ConvAlgorithm row = output_depthwise()
    row.name = b"output:multiplied"
    row.accepts, row.order, row.block = accepts_output_multiplied, order_output_multiplied, block_output_multiplied
    row.prepare, row.task = prepare_output_multiplied, output_multiplied_task
    return row
