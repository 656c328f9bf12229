# What distributed/ asks of the core. Arrays are C-contiguous, native and of a dtype that gradients have: that is
# checked there, before anything is sent.

cdef str GRADIENT_SUM = "GradientSum"


cdef int check_range(int64_t begin, cnp.ndarray sums, cnp.ndarray array) except -1:
    """Refuse a range that goes beyond an array, which is a bug here."""
    if begin < 0 or begin + cnp.PyArray_SIZE(sums) > cnp.PyArray_SIZE(array):
        raise IndexError(begin)
    return 0


def scan_magnitudes(cnp.ndarray array):
    """Return the bits of an array's largest finite magnitude, whether any element is inf or NaN, and whether any is
    -0."""
    cdef GridRun run
    cdef const char *data = <const char *>cnp.PyArray_DATA(array)
    cdef int threads = resolve_threads(None, GRADIENT_SUM), t
    cdef Magnitudes all
    run.dtype, run.count, run.shards = dtype_code(array.dtype), cnp.PyArray_SIZE(array), &data
    memset(&all, 0, sizeof(Magnitudes))
    memset(run.found, 0, sizeof(run.found))
    with nogil:
        run_grid(scan_units, &run, threads)
    for t in range(threads):
        all.largest = max(all.largest, run.found[t].largest)
        all.nonfinite |= run.found[t].nonfinite
        all.minus_zero |= run.found[t].minus_zero
    return all.largest, bool(all.nonfinite), bool(all.minus_zero)


def add_to_grid(list shards, int64_t begin, cnp.ndarray sums, int unit, int guard_bits):
    """Set int64 sums[i] to the sum of element begin + i of all shards, each in units of 2^unit, to nearest even.

    No element counts as more than 2^(62 - guard_bits) units, not even inf or NaN, whose sums mean nothing.
    """
    cdef GridRun run
    cdef cnp.ndarray shard
    cdef int threads = resolve_threads(None, GRADIENT_SUM)
    require_stack(GRADIENT_SUM)
    run.sums, run.count = <int64_t *>cnp.PyArray_DATA(sums), cnp.PyArray_SIZE(sums)
    run.unit, run.guard_bits, run.shard_count, run.dtype = unit, guard_bits, len(shards), DTYPE_F32
    for shard in shards:
        check_range(begin, sums, shard)
    run.shards = <const char **>PyMem_RawMalloc(max(1, len(shards)) * sizeof(char *))
    if run.shards == NULL:
        raise MemoryError
    for i, shard in enumerate(shards):
        run.dtype = dtype_code(shard.dtype)
        run.shards[i] = <const char *>cnp.PyArray_DATA(shard) + begin * itemsize_of(run.dtype)
    with nogil:
        run_grid(add_units, &run, threads)
        PyMem_RawFree(run.shards)


def from_grid(cnp.ndarray sums, int unit, cnp.ndarray out, int64_t begin):
    """Round int64 sums in units of 2^unit once, to nearest even, into out's elements from `begin` on."""
    cdef GridRun run
    cdef int threads = resolve_threads(None, GRADIENT_SUM)
    require_stack(GRADIENT_SUM)
    check_range(begin, sums, out)
    run.dtype, run.unit = dtype_code(out.dtype), unit
    run.sums, run.count = <int64_t *>cnp.PyArray_DATA(sums), cnp.PyArray_SIZE(sums)
    run.out = <char *>cnp.PyArray_DATA(out) + begin * itemsize_of(run.dtype)
    with nogil:
        run_grid(round_units, &run, threads)
