# Sums over shards as int64 multiples of a unit, a power of two, which are exact in any order.
#
# Elements are cut into blocks whose sums stay in L1 while shard after shard is added to them, so that a shard is read
# from memory once and a sum is written once. On the way back numbers of 16 bits pass through float32, rounded to odd,
# so that the second rounding is the only one.
from libc.math cimport ldexp

cdef enum:
    GRID_BLOCK = 512             # elements: 4 kB of sums, beside those of some shards
    GRID_UNITS = 16384           # elements per task
    GRID_PARALLEL_FROM = 32768   # elements; below, one thread computes
    GRID_BITS = 62               # of a sum's magnitude, which may be 2^62 itself


ctypedef struct GridRun:
    int dtype
    int64_t count          # of elements
    const char **shards    # in memory one after the other each
    int64_t shard_count
    int64_t *sums
    char *out
    int unit               # its exponent
    int guard_bits         # of the sums, which no single number reaches
    Magnitudes found[MAX_THREADS]


cdef void fill_grid(const GridRun *run, Grid *grid) noexcept nogil:
    """Write down the unit. Its reciprocal may be too large for a double, hence two factors; subnormal factors are why
    this belongs after enter_float_state()."""
    cdef int first = -run.unit // 2 if run.dtype == DTYPE_F64 else -run.unit
    grid.scale[0], grid.scale[1] = ldexp(1, first), ldexp(1, -run.unit - first)
    grid.most = ldexp(1, GRID_BITS - run.guard_bits)


cdef bint scan_units(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Look at the numbers of tasks first to stop - 1."""
    cdef GridRun *run = <GridRun *>context
    cdef int64_t begin = first * GRID_UNITS
    kernels.scan[run.dtype](run.shards[0] + begin * itemsize_of(run.dtype), min(run.count, stop * GRID_UNITS) - begin,
                            &run.found[thread])
    return False


cdef bint add_units(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Set the sums of tasks first to stop - 1."""
    cdef const GridRun *run = <const GridRun *>context
    cdef int64_t at = first * GRID_UNITS, end = min(run.count, stop * GRID_UNITS), item = itemsize_of(run.dtype), n, s
    cdef Grid grid
    cdef uint64_t float_state = enter_float_state()
    fill_grid(run, &grid)
    while at < end:
        n = min(<int64_t>GRID_BLOCK, end - at)
        memset(run.sums + at, 0, n * sizeof(int64_t))
        for s in range(run.shard_count):
            kernels.add_to_grid[run.dtype](run.shards[s] + at * item, run.sums + at, n, &grid)
        at += n
    leave_float_state(float_state)
    return False


cdef bint round_units(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil:
    """Round the sums of tasks first to stop - 1 into out."""
    cdef const GridRun *run = <const GridRun *>context
    cdef int64_t at = first * GRID_UNITS, end = min(run.count, stop * GRID_UNITS), item = itemsize_of(run.dtype), n
    cdef int compute = compute_dtype_of(run.dtype)
    cdef float odd[GRID_BLOCK]
    cdef uint64_t float_state = enter_float_state()
    cdef double unit = ldexp(1, run.unit)
    while at < end:
        n = min(<int64_t>GRID_BLOCK, end - at)
        if run.dtype == compute:
            kernels.from_grid[compute](run.sums + at, run.out + at * item, n, unit, False)
        else:
            kernels.from_grid[compute](run.sums + at, odd, n, unit, True)
            kernels.convert[compute][run.dtype](<const char *>odd, sizeof(float), run.out + at * item, item, n)
        at += n
    leave_float_state(float_state)
    return False


cdef void run_grid(bint (*units)(const void *, int64_t, int64_t, int) noexcept nogil, GridRun *run, int threads
                   ) noexcept nogil:
    """Do all tasks on at most so many threads."""
    cdef TeamWork work
    cdef int64_t tasks = (run.count + GRID_UNITS - 1) // GRID_UNITS
    if run.count < GRID_PARALLEL_FROM or threads == 1:
        units(run, 0, tasks, 0)
        return
    work.units, work.context, work.count, work.step = units, run, tasks, 1
    work.interrupt = NULL
    run_team(&work, threads, ALONE_TASKS)
