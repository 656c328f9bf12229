# The driver: asks the algorithms in turn, plans the chosen ones, and runs them. It owns the only loop over threads, the
# floating-point state and the workspace.
#
# An algorithm that takes float32 as sums of bfloat16 computes the samples that pass the survey; the one that would be
# chosen where there is no AMX computes the others. As float32 is both storage and compute type, a batch may be cut
# there as anywhere.
cdef enum:
    CONV_WORK = 1 << 21    # multiplications per gradient and thread; about 0.05 ms
    CONV_MOST_WORK = 500   # multiplications in a nanosecond, at most
    CONV_MIN_WORK = 64
    CONV_WEIGHT_WORK = 8   # moving a weight takes as long as so many multiplications,
    CONV_PIXEL_WORK = 16   # and an element of an image that is read, about
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
    """Count the multiplications of one gradient. An output element of few counts as CONV_MIN_WORK: moving it takes that
    long. Where weights or the image are more than the products, moving them counts."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t work = problem.batch * sample.pixels_out  # fits: it counts elements of one channel
    cdef int64_t each, weights, image
    if mul_overflows(sample.cin, sample.taps, &each) or mul_overflows(work, sample.groups * sample.cout, &work) \
            or mul_overflows(each, CONV_WEIGHT_WORK * sample.groups * sample.cout, &weights) \
            or mul_overflows(problem.batch * sample.pixels_in, CONV_PIXEL_WORK * sample.groups * sample.cin, &image) \
            or mul_overflows(work, max(<int64_t>CONV_MIN_WORK, each), &work):
        return INT64_MAX
    return max(max(work, weights), image)


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
    """Plan an algorithm's part, and where it may not take all samples, that of the one which takes the others."""
    cdef ConvStep *step = &plan.steps[plan.count]
    cdef SampleGeometry plain = plan.problem.sample
    cdef ConvAlgorithm other
    cdef SumOrder other_order
    cdef const char *why = NULL
    step.gradients, step.surveyed = gradients, False
    plan.count += 1
    if plan_way(plan, algorithm, order, gradients, &step.way, failure):
        return failure.rule
    plain.parts = 0
    if plain.dtype != DTYPE_F32 or not gradients & (FOR_GRAD_INPUT | FOR_GRAD_WEIGHT) \
            or is_accepted(&plain, algorithm, &why):
        return Rule.PASSED
    step.surveyed = True
    plan.survey_bytes = round_up(2 * plan.problem.batch * SURVEY_PIECES, CONV_ALIGN)
    if choose_algorithm(&plain, NULL, FOR_OUTPUT if plain.forward else gradients, &other, failure):
        return failure.rule
    memset(&other_order, 0, sizeof(SumOrder))
    other.order(&plain, &other_order)
    return plan_way(plan, &other, &other_order, gradients, &step.otherwise, failure)


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


# ---- running

cdef int wanted_gradients(const ConvProblem *problem) noexcept nogil:
    """Return FOR_... of the gradients that have an address."""
    return (FOR_GRAD_INPUT if problem.view[CONV_GRAD_INPUT].data != NULL else 0) \
        | (FOR_GRAD_WEIGHT | FOR_PADDING_TAPS if problem.view[CONV_GRAD_WEIGHT].data != NULL else 0) \
        | (FOR_GRAD_BIAS if problem.view[CONV_GRAD_BIAS].data != NULL else 0)


# A call: the addresses, the workspace, what the survey found.
ctypedef struct ConvCall:
    const ConvPlan *plan
    const ConvProblem *problem
    char *outside          # [grad_output, input][sample][piece], all within until there was a survey
    bint surveyed
    int64_t unfit          # shared: whether packing found numbers out of bounds
    char *shared
    char *scratch
    Team *team
    Interrupt *interrupt   # NULL: it cannot be stopped


cdef bint run_unit(const ConvRun *run, const ConvAlgorithm *algorithm, int64_t number, bint prepare,
                   char *scratch) noexcept nogil:
    """Run one unit, a part of what the tasks share (prepare) or a task; return whether it found inf or NaN."""
    cdef uint64_t float_state = enter_float_state()
    cdef bint nonfinite = False
    put_canaries(&run.blocking.local, scratch)
    if prepare:
        nonfinite = algorithm.prepare(run, number, scratch)
    else:
        algorithm.task(run, number, scratch)
    check_canaries(&run.blocking.local, scratch)
    leave_float_state(float_state)
    return nonfinite


# What a team shares of one run: some of its units.
ctypedef struct ConvUnits:
    const ConvRun *run
    const ConvAlgorithm *algorithm
    bint prepare
    char *scratch
    int64_t scratch_bytes


cdef bint run_each(const ConvUnits *units, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Run units first to stop - 1 with one thread's scratch; return whether one of them found inf or NaN."""
    cdef char *scratch = units.scratch + thread * units.scratch_bytes
    cdef bint nonfinite = False
    cdef int64_t i
    for i in range(first, stop):
        nonfinite |= run_unit(units.run, units.algorithm, i, units.prepare, scratch)
    return nonfinite


cdef bint run_some_units(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Do as run_each, and wait for what goes past the caches."""
    cdef const ConvUnits *units = <const ConvUnits *>context
    cdef bint nonfinite = run_each(units, first, stop, thread)
    if units.run.problem.stream and units.run.gradients & FOR_GRAD_INPUT:
        finish_streams()
    return nonfinite


cdef bint run_units(const ConvCall *call, const ConvRun *run, const ConvAlgorithm *algorithm,
                    bint prepare) noexcept nogil:
    """Run all units, shared among the threads; return whether one of them found inf or NaN."""
    cdef ConvUnits units
    cdef TeamWork work
    units.run, units.algorithm, units.prepare = run, algorithm, prepare
    units.scratch, units.scratch_bytes = call.scratch, call.plan.thread_bytes
    work.units, work.context, work.interrupt = run_some_units, &units, call.interrupt
    work.count = run.blocking.prepares if prepare else run.blocking.tasks
    work.step = max(<int64_t>1, min(<int64_t>4, work.count // (8 * call.team.threads)))
    return share_units(call.team, &work, 1)


cdef bint is_empty(const ConvProblem *problem, int gradients) noexcept nogil:
    """Say whether there is nothing to write."""
    cdef const SampleGeometry *sample = &problem.sample
    if gradients == FOR_GRAD_INPUT:
        return problem.batch == 0 or sample.cin == 0 or sample.pixels_in == 0
    if gradients == FOR_GRAD_BIAS:
        return sample.cout == 0
    return sample.cin == 0 or sample.cout == 0


cdef void begin_way(const ConvCall *call, const ConvProblem *problem, const ConvWay *way, int gradients, char *shared,
                    ConvRun *run) noexcept nogil:
    """Begin a run whose tasks share that memory."""
    run.problem, run.sample, run.order, run.blocking = problem, &problem.sample, &way.order, &way.blocking
    run.gradients, run.shared, run.nonfinite, run.interrupt = gradients, shared, False, call.interrupt
    run.unfit = <int64_t *>NULL if call.surveyed else <int64_t *>&call.unfit
    put_canaries(&way.blocking.shared, shared)


cdef bint prepare_way(const ConvCall *call, const ConvProblem *problem, const ConvWay *way, int gradients,
                      ConvRun *run) noexcept nogil:
    """Begin a run: prepare what the tasks share; return whether inf or NaN (or numbers out of bounds) were found."""
    begin_way(call, problem, way, gradients, call.shared, run)
    run.nonfinite = run_units(call, run, &way.algorithm, True)
    return run.nonfinite


cdef void finish_way(const ConvCall *call, const ConvWay *way, const ConvRun *run) noexcept nogil:
    """Run the tasks of a run that was prepared."""
    run_units(call, run, &way.algorithm, False)
    check_canaries(&way.blocking.shared, run.shared)


cdef bint passes(const ConvCall *call, int gradients, int64_t n) noexcept nogil:
    """Say whether the numbers of sample n that a gradient needs are within bounds."""
    cdef int64_t all = call.problem.batch * SURVEY_PIECES, i
    for i in range(n * SURVEY_PIECES, (n + 1) * SURVEY_PIECES):
        if call.outside[i] or (gradients & FOR_GRAD_WEIGHT and call.outside[all + i]):
            return False
    return True


cdef int64_t next_samples(const ConvCall *call, int gradients, int64_t first, bint *within) noexcept nogil:
    """Find how many samples from `first` on are all within bounds, or all not."""
    cdef int64_t n = first + 1
    within[0] = passes(call, gradients, first)
    while n < call.problem.batch and passes(call, gradients, n) == within[0]:
        n += 1
    return n - first


cdef void some_samples(const ConvProblem *problem, int64_t first, int64_t count, ConvProblem *part) noexcept nogil:
    """Make the problem of some samples; a gradient of weights is added to that of the samples before."""
    cdef int arg
    part[0] = problem[0]
    part.batch = count
    for arg in range(CONV_TENSORS):
        if (arg == CONV_GRAD_OUTPUT or arg == CONV_INPUT or arg == CONV_GRAD_INPUT) and part.view[arg].data != NULL:
            part.view[arg].data += first * part.view[arg].n


cdef void run_some_samples(const ConvCall *call, const ConvWay *way, int gradients, bint within, bint whichever,
                           ConvRun *run) noexcept nogil:
    """Run the tasks of grad_input for all samples that are within bounds, or for the others, or for all."""
    cdef int64_t n = 0, count
    cdef bint here
    cdef ConvProblem part
    while n < call.problem.batch:
        count = next_samples(call, gradients, n, &here)
        if whichever or here == within:
            some_samples(call.problem, n, count, &part)
            run.problem, run.sample = &part, &part.sample
            finish_way(call, way, run)
        n += count


cdef void run_surveyed(const ConvCall *call, const ConvStep *step, int gradients) noexcept nogil:
    """Run a step whose samples take one of two ways."""
    cdef ConvRun run
    cdef int64_t n = 0, count
    cdef bint within, none_within
    cdef ConvProblem part
    cdef const ConvWay *way
    if gradients & FOR_GRAD_INPUT:  # samples in any order, since packing the weights, all that is prepared, takes time
        none_within = prepare_way(call, call.problem, &step.way, gradients, &run)
        run.nonfinite = False
        if not none_within:
            run_some_samples(call, &step.way, gradients, True, False, &run)
        if none_within or next_samples(call, gradients, 0, &within) < call.problem.batch or not within:
            prepare_way(call, call.problem, &step.otherwise, gradients, &run)
            run_some_samples(call, &step.otherwise, gradients, False, none_within, &run)
        return
    while n < call.problem.batch:
        count = next_samples(call, gradients, n, &within)
        way = &step.way if within else &step.otherwise
        some_samples(call.problem, n, count, &part)
        part.accumulate = part.accumulate or n > 0
        prepare_way(call, &part, way, gradients, &run)
        finish_way(call, way, &run)
        n += count


# What a team shares of a survey.
ctypedef struct Survey:
    const ConvProblem *problem
    char *found


cdef bint survey_pieces(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Look at pieces first to stop - 1: those of grad_output, then those of input."""
    cdef const Survey *survey = <const Survey *>context
    cdef int64_t all = survey.problem.batch * SURVEY_PIECES, i
    for i in range(first, stop):
        survey.found[i] = piece_outside(survey.problem, CONV_INPUT if i >= all else CONV_GRAD_OUTPUT,
                                        i % all // SURVEY_PIECES, i % SURVEY_PIECES)
    return False


cdef void run_survey(ConvCall *call) noexcept nogil:
    """Look for numbers out of bounds in grad_output and, if a wanted gradient's samples are judged by it, input."""
    cdef const ConvPlan *plan = call.plan
    cdef int wanted = wanted_gradients(call.problem), i
    cdef bint of_input = False
    cdef Survey survey
    cdef TeamWork work
    for i in range(plan.count):
        of_input = of_input or (plan.steps[i].surveyed and plan.steps[i].gradients & wanted & FOR_GRAD_WEIGHT)
    survey.problem, survey.found = call.problem, call.outside
    work.units, work.context, work.interrupt = survey_pieces, &survey, call.interrupt
    work.count, work.step = call.problem.batch * SURVEY_PIECES * (2 if of_input else 1), 4
    share_units(call.team, &work, 4)
    call.surveyed = True


cdef void run_passes(const ConvCall *call, const ConvWay *way, int gradients) noexcept nogil:
    """Run a way for all samples, as many at a time as it takes."""
    cdef ConvRun run
    cdef ConvProblem part
    cdef int64_t n = 0, count = way.blocking.samples
    if count == 0 or count >= call.problem.batch:
        prepare_way(call, call.problem, way, gradients, &run)
        finish_way(call, way, &run)
        return
    while n < call.problem.batch:
        some_samples(call.problem, n, min(count, call.problem.batch - n), &part)
        prepare_way(call, &part, way, gradients, &run)
        finish_way(call, way, &run)
        n += count


cdef bint run_unsurveyed(ConvCall *call, const ConvStep *step, int gradients) noexcept nogil:
    """Run a step as if all samples were within bounds; return whether they were."""
    if call.problem.accumulate or gradients & ~(call.plan.reading_all | FOR_GRAD_BIAS):
        return False
    run_surveyed(call, step, gradients)
    return not call.unfit


cdef int run_step(ConvCall *call, const ConvStep *step, int gradients) noexcept nogil:
    """Run an algorithm's part; return the gradients computed, of those wanted."""
    cdef bint within
    if not step.surveyed or call.problem.batch == 0:
        run_passes(call, &step.way, gradients)
        return gradients
    if not call.surveyed:
        if run_unsurveyed(call, step, gradients):
            return gradients
        run_survey(call)
    if next_samples(call, gradients, 0, &within) < call.problem.batch or not within:
        gradients &= ~FOR_GRAD_BIAS  # which has the order of the first way
    run_surveyed(call, step, gradients)
    return gradients


cdef void run_steps(Team *team, void *context) noexcept nogil:
    """Run all that a plan has for the gradients whose view has data."""
    cdef ConvCall *call = <ConvCall *>context
    cdef const ConvPlan *plan = call.plan
    cdef const ConvStep *step
    cdef int wanted = wanted_gradients(call.problem), taken = 0, gradients, i
    call.surveyed, call.unfit = False, 0
    memset(call.outside, 0, plan.survey_bytes)
    if run_both(call, wanted):
        taken = FOR_ALL
    for i in range(plan.count):
        step = &plan.steps[i]
        gradients = step.gradients & wanted & ~taken
        if not gradients or is_empty(call.problem, gradients):
            continue
        if gradients & FOR_GRAD_WEIGHT:  # whose tasks take grad_bias along
            gradients |= wanted & FOR_GRAD_BIAS
        taken |= run_step(call, step, gradients)


cdef void address_empty_tensors(ConvProblem *problem, char *anywhere) noexcept nogil:
    """Give an address to the operands that have none, since they have no elements or no gradient needs them: to count
    bytes from NULL is undefined even where nothing is read. Outputs keep theirs: NULL says that they are not wanted."""
    cdef int i
    for i in range(CONV_WEIGHT + 1):
        if problem.view[i].data == NULL:
            problem.view[i].data = anywhere


cdef int64_t least_conv_ns(const ConvPlan *plan, const ConvProblem *problem) noexcept nogil:
    """Return how long one thread takes for the gradients that are wanted, at least, in nanoseconds."""
    cdef int wanted = wanted_gradients(problem)
    return plan.work // CONV_MOST_WORK * ((wanted & FOR_GRAD_INPUT != 0) + (wanted & FOR_GRAD_WEIGHT != 0))


cdef void run_conv(const ConvPlan *plan, const ConvProblem *problem, char *workspace, int threads,
                   Interrupt *interrupt) noexcept nogil:
    """Compute all gradients whose view has data; workspace: plan.workspace_bytes at any address. Tasks are parts of an
    output: no two write the same element, and each element is rounded to storage once. An interrupt that has stopped
    leaves them incomplete."""
    cdef ConvCall call
    cdef Team team
    cdef ConvProblem bound = problem[0]
    address_empty_tensors(&bound, <char *>&bound)
    shift_weights(&bound)
    shift_input(&bound)
    workspace += -<uintptr_t>workspace % CONV_ALIGN
    begin_team(&team, min(threads, plan.threads))
    call.plan, call.problem, call.outside, call.team, call.interrupt = plan, &bound, workspace, &team, interrupt
    call.shared = workspace + plan.survey_bytes
    call.scratch = call.shared + plan.shared_bytes
    run_rounds(&team, least_conv_ns(plan, &bound), run_steps, &call)


cdef int run_conv_on(const ConvPlan *plan, const Tensor *described, char **data, char *workspace, int threads,
                     Interrupt *interrupt, Failure *failure) noexcept nogil:
    """Bind addresses to a plan and run it; a workspace of NULL only checks. Several threads may run one plan, each with
    its own workspace."""
    cdef ConvProblem bound
    if bind_conv(&plan.problem, plan.workspace_bytes, described, data, workspace, &bound, failure):
        return failure.rule
    if workspace != NULL:
        run_conv(plan, &bound, workspace, threads, interrupt)
    return Rule.PASSED


# ---- what Python may ask

def conv_algorithms():
    """Name the algorithms in the order in which they are asked, such as "grad_input:gemm"; any of them may stand in
    INFINIOP_CY_CONV."""
    names, number = [], 0
    while conv_algorithm(number).name != NULL:
        names.append(conv_algorithm(number).name.decode())
        number += 1
    return names


cdef dict order_facts(const ConvWay *way):
    """Collect what decides the order of every sum."""
    return {"algorithm": way.algorithm.name.decode(), "channels": way.order.channels, "taps": way.order.taps,
            "tile": [way.order.tile[d] for d in range(3)], "accumulate": way.order.accumulate}


cdef dict step_facts(const ConvPlan *plan, const ConvStep *step):
    """Collect what explain() shows of one step."""
    cdef char text[512]
    cdef const ConvWay *way = &step.way
    way.algorithm.explain(&plan.problem.sample, &way.order, &way.blocking, text, sizeof(text))
    return {"algorithm": way.algorithm.name.decode(), "how": text.decode(), "tasks": way.blocking.tasks,
            "samples": way.blocking.samples or plan.problem.batch,
            "otherwise": step.otherwise.algorithm.name.decode() if step.surveyed else None,
            "looks_first": bool(step.gradients & ~plan.reading_all),
            "orders": [order_facts(way)] + ([order_facts(&step.otherwise)] if step.surveyed else []),
            "gradients": ["output"] if plan.problem.sample.forward else [
                name for bit, name in ((FOR_GRAD_INPUT, "grad_input"), (FOR_GRAD_WEIGHT, "grad_weight"))
                if step.gradients & bit],
            "phases": phase_count(&plan.problem.sample) if step.gradients & FOR_GRAD_INPUT else 1}


cdef list refusals(const ConvPlan *plan, int gradient):
    """List (name, why) of the algorithms that were asked for a gradient before the one that accepted."""
    cdef const char *why = b""
    cdef const char *forced = forced_algorithms()
    cdef bint by_name = is_forced(forced, gradient)
    cdef ConvAlgorithm row = conv_algorithm(0)
    cdef int number = 0
    result = []
    while row.name != NULL:
        if row.gradients & gradient:
            if by_name and not is_named(forced, row.name):
                why = b"another one is forced"
            elif is_accepted(&plan.problem.sample, &row, &why):
                break
            result.append((row.name.decode(), why.decode()))
        number += 1
        row = conv_algorithm(number)
    return result


cdef dict plan_facts(const ConvPlan *plan):
    """Collect what a plan chose, by name."""
    cdef int i
    return {
        "isa": chosen_isa.decode(), "lanes": plan.problem.sample.lanes,
        "threads": plan.threads, "together": plan.both >= 0,
        "workspace": plan.workspace_bytes, "shared": plan.shared_bytes, "per_thread": plan.thread_bytes,
        "steps": [step_facts(plan, &plan.steps[i]) for i in range(plan.count)
                  if plan.steps[i].gradients & (FOR_GRAD_INPUT | FOR_GRAD_WEIGHT)],
        "refused": {name: refusals(plan, bit) for bit, name in (
            (FOR_OUTPUT, "output"), (FOR_GRAD_INPUT, "grad_input"), (FOR_GRAD_WEIGHT, "grad_weight"))
            if plan.problem.sample.forward == (bit == FOR_OUTPUT)},
    }
