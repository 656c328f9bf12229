# How a plan is run on addresses.
#
# The elements are cut into chunks that depend on the plan alone, so any number of threads gives the same bits. Inside a
# chunk, an operand that lies contiguously is used where it is; any other is gathered, by blocks that stay in L1, and
# goes through the same kernel.
cdef enum:
    BLOCK_BYTES = 8192   # per buffer: three are half of L1
    BLOCK_DOUBLES = BLOCK_BYTES // 8
    LONG_ROW = 256       # contiguous elements from which a kernel is called without gathering a block
    CHUNK = 4096         # elements per task
    ALONE_TASKS = 8      # at a time, where the team is late
    # Elements; below, one thread computes. With OpenMP's threads awake, two are 0.9 to 1.5 times as fast at 16,384
    # elements (relu, gelu) and 1.05 to 1.7 times at 32,768.
    PARALLEL_FROM = 32768


cdef void walk_rows(const ElementwisePlan *plan, int k, const int64_t *start, char *at, char *block, int64_t n,
                    bint fetching) noexcept nogil:
    """Convert n elements of operand k, from index `start` at address `at`, to or from a contiguous block."""
    cdef int64_t run
    cdef int64_t index[MAX_NDIM]
    cdef int64_t item = itemsize_of(plan.dtype)
    cdef int last = plan.ndim - 1, d
    memcpy(index, start, plan.ndim * sizeof(int64_t))
    while True:
        run = min(n, plan.shape[last] - index[last])
        if fetching:
            plan.fetch[k](at, plan.strides[k][last], block, item, run)
        else:
            plan.deliver(block, item, at, plan.strides[k][last], run)
        n -= run
        if n == 0:
            return
        block += run * item
        at -= index[last] * plan.strides[k][last]
        index[last] = 0
        d = last - 1
        while index[d] == plan.shape[d] - 1:
            at -= index[d] * plan.strides[k][d]
            index[d] = 0
            d -= 1
        index[d] += 1
        at += plan.strides[k][d]


cdef void run_chunk(const ElementwisePlan *plan, ElementwiseKernel stream, char **data, int64_t start,
                    int64_t count) noexcept nogil:
    """Compute `count` elements from the one numbered `start` on, counted in the order of the plan's axes."""
    cdef double buffer[OPERANDS][BLOCK_DOUBLES]  # doubles: aligned
    cdef int64_t block_size = BLOCK_BYTES // itemsize_of(plan.dtype)
    cdef char *at[OPERANDS]
    cdef char *block[OPERANDS]
    cdef int64_t rest = start, n, carry
    cdef int64_t index[MAX_NDIM]
    cdef int64_t left[OPERANDS]  # of the contiguous run that an operand is in
    cdef int last = plan.ndim - 1, k, d
    cdef ElementwiseKernel kernel
    for k in range(plan.operands):
        at[k] = data[k] + plan.offset[k]
    for d in range(last, -1, -1):
        index[d] = rest % plan.shape[d]
        rest //= plan.shape[d]
        for k in range(plan.operands):
            at[k] += index[d] * plan.strides[k][d]
    while count:
        n = count
        for k in range(plan.operands):
            left[k] = plan.run[k] - start % plan.run[k] if plan.run[k] else 0
            n = min(n, left[k])
        if n < min(count, <int64_t>LONG_ROW):
            n = min(count, block_size)
            if plan.shape[last] >= LONG_ROW:
                n = min(n, plan.shape[last] - index[last])
        for k in range(plan.operands):
            if n <= left[k]:
                block[k] = at[k]
            else:
                block[k] = <char *>buffer[k]
                if k != OUT or plan.accumulate:
                    walk_rows(plan, k, index, at[k], block[k], n, True)
        kernel = plan.kernel if block[OUT] == <char *>buffer[OUT] else stream
        kernel(block[main_input(plan.operands)], block[INPUT], block[OUT], n, &plan.parameters)
        if block[OUT] == <char *>buffer[OUT]:
            walk_rows(plan, OUT, index, at[OUT], block[OUT], n, False)
        start += n
        count -= n
        carry = n
        d = last
        while carry and d >= 0:
            rest = index[d] + carry
            carry = rest // plan.shape[d]
            rest -= carry * plan.shape[d]
            for k in range(plan.operands):
                at[k] += (rest - index[d]) * plan.strides[k][d]
            index[d] = rest
            d -= 1


# One run: a plan on addresses.
ctypedef struct ElementwiseRun:
    const ElementwisePlan *plan
    ElementwiseKernel stream
    char **data


cdef bint run_tasks(const void *context, int64_t start, int64_t stop, int thread) noexcept nogil:
    """Run tasks start to stop - 1: tiles where the plan has some, else chunks of CHUNK elements."""
    cdef const ElementwiseRun *run = <const ElementwiseRun *>context
    cdef const ElementwisePlan *plan = run.plan
    cdef int64_t i
    cdef uint64_t float_state = enter_float_state()
    if plan.tile_axis >= 0:
        for i in range(start, stop):
            run_tile(plan, run.stream, run.data, i)
    else:
        for i in range(start, stop):
            run_chunk(plan, run.stream, run.data, i * CHUNK, min(<int64_t>CHUNK, plan.size - i * CHUNK))
    finish_streams()
    leave_float_state(float_state)
    return False


cdef void run_elementwise(const ElementwisePlan *plan, char **data, int threads) noexcept nogil:
    """Compute with at most so many threads. check_addresses has passed the addresses."""
    cdef int64_t tasks = tile_count(plan) if plan.tile_axis >= 0 else (plan.size + CHUNK - 1) // CHUNK
    cdef ElementwiseRun run
    cdef TeamWork work
    run.plan, run.stream, run.data = plan, plan.stream, data
    if plan.size == 0:
        return
    if (data[OUT] == data[INPUT] or data[OUT] == data[main_input(plan.operands)]
            or <uintptr_t>data[OUT] % <uintptr_t>plan.itemsize[OUT]):  # streaming stores have to be aligned
        run.stream = plan.kernel
    if plan.size < PARALLEL_FROM or threads == 1:
        run_tasks(&run, 0, tasks, 0)
        return
    work.units, work.context, work.count, work.step = run_tasks, &run, tasks, tasks
    work.interrupt = NULL
    run_team(&work, threads, ALONE_TASKS)
