# Runs a plan: gives units of work to the threads, each in a floating-point state of its own, and parts of the scratch.
#
# What is prepared and what is computed are rounds of one team of threads. A step that takes float32 as sums of bfloat16
# computes the samples that pass the survey, and the way behind it the others.

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
    if not prepare:
        work.step = max(work.step, run.blocking.tasks_at_once)
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
    for i in range(plan.count):  # in this order: grad_weight is written after what trimmed taps are filled with
        if i == plan.both and run_both(call, wanted):
            taken = FOR_ALL
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
