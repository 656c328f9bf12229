# How the (ci, tap) by co of grad_weight are cut into tasks: large ones, since each packs what it multiplies, but so
# that the threads end together. Tasks of all columns follow each other, so that the narrow ones are spread over the
# threads.
cdef enum:
    WEIGHT_CO = 128      # columns of a task
    WEIGHT_ROWS = 576    # rows of a task
    WEIGHT_PACKING = 12  # products that take as long as packing an element, or adding a tile's sum to another


cdef double weight_task_time(const SampleGeometry *sample, int64_t rows, int64_t columns) noexcept nogil:
    """Estimate what a task takes for a pixel, in products."""
    return <double>rows * columns + WEIGHT_PACKING * (ceil_div(rows, sample.taps) + columns)


cdef double one_round_time(const SampleGeometry *sample, int64_t rows, int64_t columns, int threads) noexcept nogil:
    """Estimate what the threads take for a pixel with tasks of so many rows and columns, or what is left of them."""
    cdef int64_t across = max(<int64_t>1, ceil_div(sample.cout, columns)), left = sample.cout - (across - 1) * columns
    cdef int64_t tasks = ceil_div(sample.groups * ceil_div(sample.cin * sample.taps, rows) * across, threads)
    return (tasks - tasks // across) * weight_task_time(sample, rows, columns) \
        + tasks // across * weight_task_time(sample, rows, left)


cdef double two_rounds_time(const SampleGeometry *sample, int64_t rows, int64_t columns, int64_t pixels,
                            int threads) noexcept nogil:
    """Estimate the same where the threads share tiles of so many pixels, whose sums are added in a second round."""
    cdef double sums = <double>sample.groups * sample.cout * sample.cin * sample.taps
    return (one_round_time(sample, rows, columns, 1) + WEIGHT_PACKING * sums / max(<int64_t>1, pixels)) / threads


cdef void cut_weight_tasks(const SampleGeometry *sample, const MicroPanels *co, int64_t most_rows, int64_t unit,
                           int threads, int64_t *task_panels, int64_t *rows) noexcept nogil:
    """Choose the micro-panels and the rows of a task, of which there are at most so many; rather `unit` rows, or some
    times as many."""
    cdef int64_t all_rows = max(<int64_t>1, sample.cin * sample.taps), fewest, parts, panels, some
    cdef double time, least = -1
    most_rows = max(<int64_t>1, min(min(all_rows, <int64_t>WEIGHT_ROWS), most_rows))
    fewest = ceil_div(all_rows, most_rows)
    for panels in range(min(co.count, max(<int64_t>1, WEIGHT_CO // co.columns)), 0, -1):
        for parts in range(fewest, fewest + threads):
            some = min(most_rows, round_up(ceil_div(all_rows, parts), unit))
            time = one_round_time(sample, some, panels * co.columns, threads)
            if least < 0 or time < least:
                least, task_panels[0], rows[0] = time, panels, some
            if some <= unit:
                break
