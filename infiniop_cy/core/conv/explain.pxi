# What Python may ask: the names of the algorithms, and what a plan chose.

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
