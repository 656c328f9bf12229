# grad_weight by AMX: how rows and columns are cut into tasks. Every task of other rows packs the input again, into
# pairs of positions, and every one of other columns grad_output; too few tasks, or uneven ones, leave threads waiting.
# Times are in products of a row with a column, for each output position; the numbers here are measured.
cdef enum:
    AMX_FEW_TASKS = 64     # of which it is said how threads take them
    AMX_FEW_THREADS = 16
    AMX_PACK_TIME = 250    # of an element of bfloat16
    PART_PACK_TIME = 150   # of one that is several, whose products take longer
    AMX_KEEP_TIME = 600    # to keep a sum of a tile, and join it
    PART_KEEP_TIME = 140


cdef double amx_packing_time(const ConvProblem *problem, int64_t rows, int64_t columns) noexcept nogil:
    """Estimate the time to pack both operands of so many rows and columns. Where pixels lie side by side, they are
    transposed for the pairs of columns; where channels do, for the rows."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = itemsize_of(sample.dtype)
    cdef double elements = 2 * columns + rows
    if sample.parts > 1 and problem.view[CONV_GRAD_OUTPUT].channel == item and problem.view[CONV_INPUT].channel == item:
        elements = columns + 1.4 * rows
    return (AMX_PACK_TIME if sample.parts == 1 else PART_PACK_TIME) * elements


cdef double amx_task_time(const ConvProblem *problem, int64_t rows, int64_t columns, bint packing) noexcept nogil:
    """Estimate the time of a task, with or without packing."""
    cdef const SampleGeometry *sample = &problem.sample
    return <double>round_up(rows, AMX_HALF) * round_up(columns, AMX_HALF) * sample.taps \
        + (amx_packing_time(problem, rows, columns) if packing else 0)


cdef double one_amx_round_time(const ConvProblem *problem, int64_t rows, int64_t columns, bint packing,
                               int threads) noexcept nogil:
    """Estimate the time until all tasks of at most so many rows and columns are done: each is taken by the thread that
    is idle first."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef double busy[AMX_FEW_THREADS]
    cdef double most = 0
    cdef int64_t down = ceil_div(sample.cout, rows), across = ceil_div(sample.cin, columns), i
    cdef int64_t tasks = sample.groups * down * across
    cdef int t, idle
    if tasks > AMX_FEW_TASKS or threads > AMX_FEW_THREADS:
        return amx_task_time(problem, rows, columns, packing) * (<double>tasks / threads + 1)
    memset(busy, 0, sizeof(busy))
    for i in range(tasks):
        idle = 0
        for t in range(1, threads):
            if busy[t] < busy[idle]:
                idle = t
        busy[idle] += amx_task_time(problem, min(rows, sample.cout - i // across % down * rows),
                                    min(columns, sample.cin - i % across * columns), packing)
        most = max(most, busy[idle])
    return most


cdef double try_amx_rows(const ConvProblem *problem, int threads, bint packing, double least, int64_t try_rows,
                         int64_t *rows, int64_t *panels) noexcept nogil:
    """Find panels of columns for so many rows of a task; return the time if it is less than `least`, or that is
    negative, and then take them."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t p = ceil_div(sample.cin, AMX_SIDE)
    cdef double time
    while True:
        if try_rows * p * sample.taps * AMX_SIDE * 4 <= (AMX_SUM_BYTES if p > 1 else 2 * AMX_SUM_BYTES):
            time = one_amx_round_time(problem, try_rows, p * AMX_SIDE, packing, threads)
            if least < 0 or time < least:
                least, rows[0], panels[0] = time, try_rows, p
        if p == 1:
            return least
        p = ceil_div(p, 2)


cdef double cut_amx_tasks(const ConvProblem *problem, int threads, bint packing, int64_t most_rows, int64_t *rows,
                          int64_t *panels) noexcept nogil:
    """Find the rows, of at most most_rows, and the panels of columns of a task whose sums fit the cache; return the
    time that all of them take, or about, with packing or without it; negative where there are none. Rows are halved,
    and cut evenly into one task more than that makes: 1280 rows as 512, 512 and 256 take two threads longer than four
    times 320."""
    cdef int64_t cout = problem.sample.cout, most = min(cout, most_rows), even
    cdef double least = -1
    while True:
        least = try_amx_rows(problem, threads, packing, least, most, rows, panels)
        if most <= (AMX_HALF if packing else AMX_SIDE):
            return least
        even = round_up(ceil_div(cout, ceil_div(cout, most) + 1), AMX_SIDE)
        if even < most:
            least = try_amx_rows(problem, threads, packing, least, even, rows, panels)
        most = round_up(ceil_div(most, 2), AMX_HALF)


cdef bint two_amx_rounds_pay(const ConvProblem *problem, const Tiling *tiling, int threads,
                             double time) noexcept nogil:
    """Say whether tasks that take this time are slower than tiles that any thread takes, whose sums are kept and
    joined: nothing is packed twice, and threads have as much to do."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef double keeping = AMX_KEEP_TIME if sample.parts == 1 else PART_KEEP_TIME
    keeping *= <double>sample.cout * sample.cin * sample.taps / max(<int64_t>1, tiling_pixels(tiling))
    return sample.groups * (amx_task_time(problem, sample.cout, sample.cin, True) + keeping) < threads * time
