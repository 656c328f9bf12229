# Small groups of bfloat16, for grad_input and output by AMX. The channels of some groups count as those of one, with
# weights of 0 between them: they fill an instruction that a group would leave mostly empty, and pixels are moved in
# longer lines. An inf under such a 0 would be NaN, so inf and NaN are taken out of the pixels, and their products with
# the weights of their own group are added afterwards.

# What a task computes: some groups as one, of a problem of its own.
ctypedef struct JoinedGroups:
    ConvProblem problem
    SumOrder order
    ConvRun run
    const ConvProblem *apart  # the problem as it is
    int64_t first, count      # its groups


cdef int64_t joined_groups(const SampleGeometry *sample) noexcept nogil:
    """Count the groups that are joined. The last ones may be fewer, if their number divides that of those before."""
    cdef int64_t many = min(AMX_STEPS // max(<int64_t>1, sample.cin, sample.cout), sample.groups)
    if sample.parts != 1 or many <= 1 or sample.folded != 1:
        return 1
    while sample.groups % many and many % (sample.groups % many):
        many -= 1
    return many


cdef void widen_groups(SampleGeometry *sample, int64_t many, SumOrder *order) noexcept nogil:
    """Let the channels of so many groups be those of one."""
    sample.groups, sample.cin, sample.cout = ceil_div(sample.groups, many), sample.cin * many, sample.cout * many
    order.channels = min(order.channels * many, sample.cout)


cdef int64_t join_groups_of(const ConvRun *run, int64_t together, int64_t unit, JoinedGroups *joined) noexcept nogil:
    """State the problem of joined groups number `unit`; return which group they are in it."""
    joined.run, joined.apart = run[0], run.problem
    joined.first = unit * together
    joined.count = min(together, run.sample.groups - joined.first)
    if together == 1:
        return unit
    joined.problem, joined.order = run.problem[0], run.order[0]
    widen_groups(&joined.problem.sample, joined.count, &joined.order)
    joined.run.problem, joined.run.sample, joined.run.order = &joined.problem, &joined.problem.sample, &joined.order
    return joined.first // joined.count


cdef void add_nonfinite_of_groups(const JoinedGroups *joined, const Phase *phase, const Box *part,
                                  const InputSums *sums, bint nonfinite_output) noexcept nogil:
    """Add the products of inf and NaN to a panel's sums, group by group."""
    cdef InputSums one = sums[0]
    cdef int64_t i
    for i in range(joined.count):
        if joined.count > 1:
            one.group, one.channels = joined.first + i, joined.apart.sample.cin
            one.data = sums.data + i * one.channels * sizeof(float)
        if joined.run.nonfinite:
            add_nonfinite_weights(joined.apart, phase, part, &one)
        if nonfinite_output:
            add_nonfinite_outputs(joined.apart, phase, part, &one)
