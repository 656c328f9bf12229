# grad_input and grad_weight tile by tile: where the units of both go through the batch once, in order, each thread does
# those of the same pixels one after the other, so that grad_output comes from memory once, and from a cache the second
# time. Which unit runs when decides no result.

# What a team shares of two runs, one after the other for a part of the batch each.
ctypedef struct BothUnits:
    ConvUnits of_input     # tasks
    ConvUnits of_weight    # units that are prepared
    int64_t inputs, weights
    int64_t count          # of parts


cdef bint reads_more(const SampleGeometry *sample) noexcept nogil:
    """Say whether grad_output is not smaller than grad_input. Else little is saved, and a large grad_input that is
    written by turns with reading the input took 1.3 times as long (measured)."""
    return sample.cout * sample.pixels_out >= sample.cin * sample.pixels_in


cdef void plan_both(ConvPlan *plan) noexcept nogil:
    """Find the two steps that may go together, and make room for what the tasks of both share."""
    cdef const ConvStep *step
    cdef int64_t bytes
    cdef int i
    plan.both = -1
    for i in range(plan.count - 1):
        step = &plan.steps[i]
        if step[0].gradients == FOR_GRAD_INPUT and step[1].gradients == FOR_GRAD_WEIGHT \
                and step[0].way.blocking.in_order and step[1].way.blocking.in_order \
                and step[0].way.blocking.samples == 0 and step[1].way.blocking.samples == 0 \
                and reads_more(&plan.problem.sample):
            plan.both = i
            bytes = step[0].way.blocking.shared.bytes + step[1].way.blocking.shared.bytes
            plan.shared_bytes = max(plan.shared_bytes, bytes)


cdef bint run_some_of_both(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Run parts first to stop - 1 of both runs; return False."""
    cdef const BothUnits *both = <const BothUnits *>context
    cdef int64_t i
    for i in range(first, stop):
        run_each(&both.of_input, i * both.inputs // both.count, (i + 1) * both.inputs // both.count, thread)
        run_each(&both.of_weight, i * both.weights // both.count, (i + 1) * both.weights // both.count, thread)
    if both.of_input.run.problem.stream:
        finish_streams()
    return False


cdef bint may_run_both(const ConvCall *call, int wanted) noexcept nogil:
    """Say whether both gradients are wanted, and may begin as if all samples were within bounds."""
    cdef const ConvPlan *plan = call.plan
    cdef int gradients = FOR_GRAD_INPUT | FOR_GRAD_WEIGHT
    return plan.both >= 0 and wanted & gradients == gradients and call.problem.batch > 0 \
        and not is_empty(call.problem, FOR_GRAD_INPUT) and not is_empty(call.problem, FOR_GRAD_WEIGHT) \
        and (not (plan.steps[plan.both].surveyed or plan.steps[plan.both + 1].surveyed)
             or (plan.reading_all & gradients == gradients and not call.problem.accumulate))


cdef bint run_both(ConvCall *call, int wanted) noexcept nogil:
    """Compute both gradients together, and grad_bias if wanted; return False, with nothing done, where they must be
    computed one after the other."""
    cdef const ConvStep *steps
    cdef ConvRun of_input, of_weight
    cdef BothUnits both
    cdef TeamWork work
    if not may_run_both(call, wanted):
        return False
    steps = &call.plan.steps[call.plan.both]
    if prepare_way(call, call.problem, &steps[0].way, FOR_GRAD_INPUT, &of_input) and steps[0].surveyed:
        return False
    begin_way(call, call.problem, &steps[1].way, FOR_GRAD_WEIGHT | (wanted & FOR_GRAD_BIAS),
              call.shared + steps[0].way.blocking.shared.bytes, &of_weight)
    both.of_input.run, both.of_input.algorithm, both.of_input.prepare = &of_input, &steps[0].way.algorithm, False
    both.of_weight.run, both.of_weight.algorithm, both.of_weight.prepare = &of_weight, &steps[1].way.algorithm, True
    both.of_input.scratch = both.of_weight.scratch = call.scratch
    both.of_input.scratch_bytes = both.of_weight.scratch_bytes = call.plan.thread_bytes
    both.inputs, both.weights = of_input.blocking.tasks, of_weight.blocking.prepares
    both.count = min(both.inputs, both.weights)
    work.units, work.context, work.interrupt = run_some_of_both, &both, call.interrupt
    work.count, work.step = both.count, 1
    share_units(call.team, &work, 1)
    check_canaries(&steps[0].way.blocking.shared, of_input.shared)
    if call.unfit:
        run_survey(call)
        return False
    finish_way(call, &steps[1].way, &of_weight)
    return True
