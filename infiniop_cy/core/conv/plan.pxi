# The plan: asks the algorithms of the list in turn, lets the chosen ones order and block their work, and makes room for
# it in the workspace. run.pxi runs it.
#
# An algorithm that takes float32 as sums of bfloat16 computes the samples that pass the survey; the one that would be
# chosen where there is no AMX computes the others. As float32 is both storage and compute type, a batch may be cut
# there as anywhere.
cdef enum:
    CONV_WORK = 1 << 20    # multiplications per gradient and thread; about 0.02 ms
    CONV_MOST_WORK = 500   # multiplications in a nanosecond, at most
    CONV_MIN_WORK = 64
    CONV_WEIGHT_WORK = 8   # moving a weight takes as long as so many multiplications,
    CONV_PIXEL_WORK = 16   # and an element of an image that is read, about
    CONV_LINE_PIXELS = 16  # of a cache line
    MAX_STEPS = 4


# An algorithm, with what it has decided.
ctypedef struct ConvWay:
    ConvAlgorithm algorithm
    SumOrder order
    Blocking blocking


# One algorithm's part of a plan.
ctypedef struct ConvStep:
    ConvWay way
    bint surveyed          # whether only samples within bounds go that way, others the next
    ConvWay otherwise
    int gradients          # FOR_... that this step computes


ctypedef struct ConvPlan:
    ConvProblem problem
    int64_t work           # multiplications of a gradient, about
    int reading_all        # FOR_... of the gradients that read all of their images
    int threads            # as many as pay; the workspace has room for them
    int both               # which step, and the one behind it, go through the batch together; -1: none
    int count
    ConvStep steps[MAX_STEPS]
    # the workspace: what the survey found, what all tasks share, the threads' scratch
    int64_t survey_bytes, shared_bytes, thread_bytes, workspace_bytes


# ---- choosing

cdef bint is_named(const char *list, const char *name) noexcept nogil:
    """Say whether a comma-separated list holds a name."""
    cdef size_t length = strlen(name)
    cdef const char *at = list
    while at != NULL and at[0] != 0:
        if strncmp(at, name, length) == 0 and (at[length] == 0 or at[length] == c","):
            return True
        at = strchr(at, c",")
        if at != NULL:
            at += 1
    return False


cdef const char *forced_algorithms() noexcept nogil:
    """Read INFINIOP_CY_CONV, names of algorithms separated by commas; NULL where unset or empty."""
    cdef const char *text = getenv("INFINIOP_CY_CONV")
    return text if text != NULL and text[0] else NULL


cdef int check_forced(const char *forced, Failure *failure) noexcept nogil:
    """Refuse a list with a name that is no algorithm's."""
    cdef const char *at = forced
    cdef const char *end
    cdef ConvAlgorithm row
    cdef int number
    while at != NULL:
        end = strchr(at, c",")
        number = 0
        row = conv_algorithm(0)
        while row.name != NULL and not (strncmp(at, row.name, strlen(row.name)) == 0
                                        and (at[strlen(row.name)] == 0 or at + strlen(row.name) == end)):
            number += 1
            row = conv_algorithm(number)
        if row.name == NULL:
            fail(failure, Rule.ALGORITHM_REFUSES, CONV_ALGORITHMS)
            failure.text = b"there is no algorithm of such a name"
            return failure.rule
        at = end + 1 if end != NULL else NULL
    return Rule.PASSED


cdef bint is_forced(const char *forced, int gradient) noexcept nogil:
    """Say whether the list names an algorithm for a gradient."""
    cdef ConvAlgorithm row = conv_algorithm(0)
    cdef int number = 0
    while forced != NULL and row.name != NULL:
        if row.gradients & gradient and is_named(forced, row.name):
            return True
        number += 1
        row = conv_algorithm(number)
    return False


cdef bint may_split() noexcept nogil:
    """Read INFINIOP_CY_SPLIT: 0 keeps float32 and float16 from being multiplied as sums of bfloat16."""
    cdef const char *text = getenv("INFINIOP_CY_SPLIT")
    return text == NULL or strcmp(text, "0") != 0


cdef int choose_algorithm(const SampleGeometry *sample, const char *forced, int gradient, ConvAlgorithm *chosen,
                          Failure *failure) noexcept nogil:
    """Choose the first algorithm for a gradient that accepts the geometry, among those that the list names if it names
    any."""
    cdef const char *why = b""
    cdef bint by_name = is_forced(forced, gradient)
    cdef int number = 0
    chosen[0] = conv_algorithm(0)
    while chosen.name != NULL:
        if chosen.gradients & gradient and (not by_name or is_named(forced, chosen.name)) \
                and is_accepted(sample, chosen, &why):
            return Rule.PASSED
        number += 1
        chosen[0] = conv_algorithm(number)
    fail(failure, Rule.ALGORITHM_REFUSES, CONV_ALGORITHMS)
    failure.text = why
    return failure.rule


# ---- planning

cdef int64_t conv_work(const ConvProblem *problem) noexcept nogil:
    """Count the multiplications of one gradient, and what moving elements takes in those: an output element of few
    counts as CONV_MIN_WORK, a weight as CONV_WEIGHT_WORK, and an element of the image as CONV_PIXEL_WORK, of no more
    cache lines than taps meet. Those of groups of one channel go by whole vectors, and count half."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t work = problem.batch * sample.pixels_out  # fits: it counts elements of one channel
    cdef int64_t each, weights, image, cheap = 2 if sample.cin == 1 and sample.groups > 1 else 1
    if mul_overflows(work, sample.taps, &image) or mul_overflows(image, CONV_LINE_PIXELS, &image):
        image = INT64_MAX
    image = min(image, problem.batch * sample.pixels_in // cheap)
    if mul_overflows(sample.cin, sample.taps, &each) or mul_overflows(work, sample.groups * sample.cout, &work) \
            or mul_overflows(each, CONV_WEIGHT_WORK * sample.groups * sample.cout, &weights) \
            or mul_overflows(image, CONV_PIXEL_WORK * sample.groups * sample.cin, &image) \
            or mul_overflows(work, max(<int64_t>CONV_MIN_WORK // cheap, each), &work):
        return INT64_MAX
    if cheap > 1 and lies_by_channels(problem):  # small ones are done before threads have agreed whose line it is
        return max(max(work, weights), image)
    return INT64_MAX if add_overflows(work, weights, &work) or add_overflows(work, image, &work) else work


cdef void set_instruction_set(SampleGeometry *sample) noexcept nogil:
    """Add to the geometry what the chosen kernels and this CPU offer."""
    sample.lanes = kernels.gemm[sample.compute].lanes
    sample.dot2 = infiniop_dot2
    sample.parts = 0
    if sample.dtype == DTYPE_BF16:
        sample.parts = 1
    elif may_split():
        sample.parts = kernels.parts[sample.dtype].parts
    if sample.parts and not infiniop_amx():
        sample.parts = 0


cdef int plan_way(ConvPlan *plan, const ConvAlgorithm *algorithm, const SumOrder *order, int gradients, ConvWay *way,
                  Failure *failure) noexcept nogil:
    """Block an algorithm's work, and make room for it in the workspace. Estimates of time neither see the caller's
    rounding mode nor raise flags, as in is_accepted."""
    cdef uint64_t float_state
    way.algorithm, way.order = algorithm[0], order[0]
    memset(&way.blocking, 0, sizeof(Blocking))
    way.blocking.others_bytes = plan.thread_bytes
    float_state = enter_float_state()
    algorithm.block(&plan.problem, order, gradients, plan.threads, &way.blocking)
    leave_float_state(float_state)
    if way.blocking.shared.too_large or way.blocking.local.too_large:
        return fail(failure, Rule.TOO_LARGE, CONV_WEIGHT)
    plan.shared_bytes = max(plan.shared_bytes, way.blocking.shared.bytes)
    plan.thread_bytes = max(plan.thread_bytes, way.blocking.local.bytes)
    return Rule.PASSED


cdef int plan_step(ConvPlan *plan, const ConvAlgorithm *algorithm, const SumOrder *order, int gradients,
                   Failure *failure) noexcept nogil:
    """Plan an algorithm's part, and before it, where it may not take all samples, that of the one which takes the
    others."""
    cdef ConvStep *step = &plan.steps[plan.count]
    cdef SampleGeometry plain = plan.problem.sample
    cdef ConvAlgorithm other
    cdef SumOrder other_order
    cdef const char *why = NULL
    step.gradients, step.surveyed = gradients, False
    plan.count += 1
    plain.parts = 0
    if plain.dtype == DTYPE_F32 and gradients & (FOR_GRAD_INPUT | FOR_GRAD_WEIGHT) \
            and not is_accepted(&plain, algorithm, &why):
        step.surveyed = True
        plan.survey_bytes = round_up(2 * plan.problem.batch * SURVEY_PIECES, CONV_ALIGN)
        if choose_algorithm(&plain, NULL, FOR_OUTPUT if plain.forward else gradients, &other, failure):
            return failure.rule
        memset(&other_order, 0, sizeof(SumOrder))
        other.order(&plain, &other_order)
        if plan_way(plan, &other, &other_order, gradients, &step.otherwise, failure):
            return failure.rule
    return plan_way(plan, algorithm, order, gradients, &step.way, failure)


cdef int gradients_reading_all(const SampleGeometry *sample, int wanted) noexcept nogil:
    """Return FOR_... of the gradients that read all of grad_output, and grad_weight of the input, too. An output, which
    is stated as a grad_input with exchanged roles, has to read all of the input."""
    cdef bint of_input = reads_all_pixels(sample, True), of_output = reads_all_pixels(sample, False)
    if wanted == FOR_OUTPUT:
        return FOR_GRAD_INPUT if of_input else 0
    return (FOR_GRAD_INPUT if of_output else 0) | (FOR_GRAD_WEIGHT if of_output and of_input else 0)


cdef int plan_conv(const ConvProblem *problem, int wanted, int threads, ConvPlan *plan,
                   Failure *failure) noexcept nogil:
    """Plan the wanted gradients, of FOR_..., or FOR_OUTPUT alone, for at most so many threads."""
    cdef const SampleGeometry *sample = &plan.problem.sample
    cdef const char *forced = forced_algorithms()
    cdef ConvAlgorithm for_input, for_weight, for_bias = bias_alone(), for_padding = padding_taps()
    cdef SumOrder input_order, weight_order
    plan.problem = problem[0]
    trim_taps(&plan.problem)
    set_instruction_set(&plan.problem.sample)
    if wanted == FOR_OUTPUT:
        exchange_roles(&plan.problem)
    plan.count = 0
    plan.survey_bytes = plan.shared_bytes = plan.thread_bytes = 0
    plan.work = conv_work(problem)
    plan.reading_all = gradients_reading_all(&problem.sample, wanted)
    # One thread for every CONV_WORK: waking threads costs microseconds.
    plan.threads = <int>max(<int64_t>1, min(<int64_t>threads, plan.work // CONV_WORK))
    memset(&input_order, 0, sizeof(SumOrder))
    memset(&weight_order, 0, sizeof(SumOrder))
    if check_forced(forced, failure):
        return failure.rule
    if wanted & (FOR_GRAD_INPUT | FOR_OUTPUT):
        if choose_algorithm(sample, forced, wanted & (FOR_GRAD_INPUT | FOR_OUTPUT), &for_input, failure):
            return failure.rule
        for_input.order(sample, &input_order)
    if wanted & (FOR_GRAD_WEIGHT | FOR_GRAD_BIAS):  # grad_bias has grad_weight's order
        if choose_algorithm(sample, forced, FOR_GRAD_WEIGHT, &for_weight, failure):
            return failure.rule
        for_weight.order(sample, &weight_order)
    if wanted & FOR_GRAD_WEIGHT and plan.problem.trimmed.any \
            and plan_step(plan, &for_padding, &weight_order, FOR_PADDING_TAPS, failure):
        return failure.rule
    if wanted & FOR_GRAD_INPUT and wanted & FOR_GRAD_WEIGHT and for_input.task == for_weight.task:
        if plan_step(plan, &for_input, &weight_order, FOR_GRAD_INPUT | FOR_GRAD_WEIGHT, failure):
            return failure.rule
    else:
        if wanted & (FOR_GRAD_INPUT | FOR_OUTPUT) \
                and plan_step(plan, &for_input, &input_order, FOR_GRAD_INPUT, failure):
            return failure.rule
        if wanted & FOR_GRAD_WEIGHT and plan_step(plan, &for_weight, &weight_order, FOR_GRAD_WEIGHT, failure):
            return failure.rule
    if wanted & FOR_GRAD_BIAS and plan_step(plan, &for_bias, &weight_order, FOR_GRAD_BIAS, failure):
        return failure.rule
    plan_both(plan)
    plan.workspace_bytes = CONV_ALIGN + plan.survey_bytes + plan.shared_bytes + plan.threads * plan.thread_bytes
    return Rule.PASSED
