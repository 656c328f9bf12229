# What an algorithm is to the plan: a row of functions. algorithms.pxi lists the rows, plan.pxi asks them in turn.
#
# `accepts` and `order` see the geometry of one sample and nothing else, so neither the choice of an algorithm nor the
# order of a sum can depend on the batch, the threads, the layout or an address. `block` sees those, and says how much
# of the work makes a task and which scratch that takes. A run may have fewer samples than `block` has seen: tasks for
# samples that there are not do nothing.
cdef enum:
    FOR_GRAD_INPUT = 1
    FOR_GRAD_WEIGHT = 2
    FOR_GRAD_BIAS = 4
    FOR_ALL = 7            # the gradients
    FOR_OUTPUT = 16        # the forward convolution, which runs as a grad_input (forward.pxi)
    FOR_FOLDED_TAPS = 32   # ... and that of taps which count as channels: they are no channels of the tensor
    FOR_FAR_PIXELS = 64    # any of these of a geometry that is far (problem.pxi)

    CONV_ALIGN = 64           # bytes; every piece of scratch starts on a cache line
    CONV_ALIGN_ELEMENTS = 16  # floats of a cache line
    MAX_PIECES = 12           # of scratch, by name
    OWN_WORDS = 64            # of Blocking.own
    THREAD_BYTES = 63 << 16   # of a thread's scratch and its share of what is no weights: 4 MB, but for some lines


cdef extern from "base/support.h" nogil:
    enum:
        SCRATCH_CANARY     # bytes between two pieces of scratch: 0 but in debug builds
    void put_canary(char *at)
    void check_canary(const char *at)


# What decides the order of every sum.
ctypedef struct SumOrder:
    int64_t channels       # grad_input: output channels summed from zero, in a panel with
    int64_t taps           # so many taps; panels are added one after the other
    int64_t tile[3]        # grad_weight, grad_bias: output pixels summed from zero; tiles, then samples, are added
    bint accumulate        # grad_weight: products are added one by one to what is there, not summed from zero


# Pieces of memory by name, a small number that is an enum of the algorithm: booked while planning, found while running.
ctypedef struct Scratch:
    int64_t bytes
    bint too_large
    int64_t at[MAX_PIECES]
    int64_t size[MAX_PIECES]


# What block is told, and says. `own` holds a struct of the algorithm, which the others do not know.
ctypedef struct Blocking:
    int64_t others_bytes   # told: a thread's scratch, of other algorithms of this plan
    int64_t prepares       # units of what all tasks share, done before them
    int64_t tasks
    int64_t tasks_at_once  # that one thread takes, since they write to the same cache lines; 0: as suits
    int64_t samples        # that one pass of all units computes, if not 0; else all
    bint in_order          # whether grad_input's tasks, or grad_weight's prepares (of tiles), go through the batch once
    Scratch shared         # memory that prepare fills and tasks read
    Scratch local          # memory of one thread, for prepare or a task
    int64_t own[OWN_WORDS]


# One run of one algorithm.
ctypedef struct ConvRun:
    const ConvProblem *problem
    const SampleGeometry *sample  # the problem's
    const SumOrder *order
    const Blocking *blocking
    int gradients          # FOR_... that are wanted now
    bint nonfinite         # some prepare found inf or NaN
    Interrupt *interrupt   # NULL: the run cannot be stopped
    int64_t *unfit         # shared: where packing notes numbers out of bounds (survey.pxi); NULL: it need not
    char *shared


ctypedef struct ConvAlgorithm:
    const char *name
    int gradients          # FOR_... that it computes
    bint (*accepts)(const SampleGeometry *, const char **why) noexcept nogil
    void (*order)(const SampleGeometry *, SumOrder *) noexcept nogil
    void (*block)(const ConvProblem *, const SumOrder *, int gradients, int threads, Blocking *) noexcept nogil
    bint (*prepare)(const ConvRun *, int64_t number, char *scratch) noexcept nogil
    void (*task)(const ConvRun *, int64_t number, char *scratch) noexcept nogil
    void (*explain)(const SampleGeometry *, const SumOrder *, const Blocking *, char *text, size_t size) noexcept nogil


cdef bint is_accepted(const SampleGeometry *sample, const ConvAlgorithm *algorithm, const char **why) noexcept nogil:
    """Ask an algorithm, in the default floating-point state: estimates of time must neither see the caller's rounding
    mode nor raise flags. What does not say that it knows far pixels or folded taps is not asked about them."""
    cdef uint64_t float_state
    cdef bint accepted
    if sample.far and not algorithm.gradients & FOR_FAR_PIXELS:
        why[0] = b"a stride, padding or the reach of the taps is so large that its products would not fit 63 bits"
        return False
    if sample.folded > 1 and not algorithm.gradients & FOR_FOLDED_TAPS:
        why[0] = b"taps count as channels, which it would take for the tensor's"
        return False
    float_state = enter_float_state()
    accepted = algorithm.accepts(sample, why)
    leave_float_state(float_state)
    return accepted


cdef extern from *:
    """
    enum : int64_t { MAX_SCRATCH = int64_t(1) << 60 };
    """
    const int64_t MAX_SCRATCH  # bytes


cdef void book(Scratch *scratch, int name, int64_t count, int64_t item) noexcept nogil:
    """Make room for `count` elements of `item` bytes under a name."""
    cdef int64_t bytes
    scratch.at[name] = scratch.bytes
    if count < 0 or mul_overflows(count, item, &bytes) or bytes > MAX_SCRATCH or scratch.bytes > MAX_SCRATCH:
        scratch.too_large = True
        return
    scratch.size[name] = round_up(bytes, CONV_ALIGN)
    scratch.bytes += scratch.size[name] + SCRATCH_CANARY


cdef inline bint is_stopped(const ConvRun *run) noexcept nogil:
    """Say whether nobody wants the results any more: for loops in a task that may take more than milliseconds."""
    return (run.interrupt != NULL and must_stop(run.interrupt)) or (run.unfit != NULL and shared_get(run.unfit))


cdef inline char *shared_piece(const ConvRun *run, int name) noexcept nogil:
    """Find a piece of what all tasks share."""
    return run.shared + run.blocking.shared.at[name]


cdef inline char *local_piece(const ConvRun *run, int name, char *scratch) noexcept nogil:
    """Find a piece of one thread's scratch."""
    return scratch + run.blocking.local.at[name]


cdef void put_canaries(const Scratch *scratch, char *memory) noexcept nogil:
    """Mark the end of every piece; do nothing where there are no canaries."""
    cdef int i
    for i in range(MAX_PIECES if SCRATCH_CANARY else 0):
        if scratch.size[i]:
            put_canary(memory + scratch.at[i] + scratch.size[i])


cdef void check_canaries(const Scratch *scratch, const char *memory) noexcept nogil:
    """End the process where something was written past the end of a piece."""
    cdef int i
    for i in range(MAX_PIECES if SCRATCH_CANARY else 0):
        if scratch.size[i]:
            check_canary(memory + scratch.at[i] + scratch.size[i])


cdef bint nothing_to_prepare(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Stand in for `prepare` where an algorithm shares nothing among its tasks."""
    return False


cdef void explain_groups(int64_t together, char *text, size_t size) noexcept nogil:
    """Add to what is explained how many groups a task takes side by side, if more than one."""
    cdef size_t length = strlen(text)
    if together > 1 and length < size:
        snprintf(text + length, size - length, b"; %lld groups a task", <long long>together)
