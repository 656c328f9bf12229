# Software prefetch: the memory that the next block will be packed from is asked for while this one is multiplied, a
# little with every register tile, so that memory and arithmetic overlap.
ctypedef struct Prefetch:
    char *source           # of one channel
    int64_t channel        # bytes from channel to channel
    int64_t channels       # still to come; 0 where there is nothing to prefetch
    int64_t bytes          # of a channel
    int64_t done           # bytes of the current channel
    int64_t lines          # cache lines at a time
    const Prefetch *then   # what to ask for after that; NULL for nothing


cdef void no_prefetch(Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch nothing."""
    memset(prefetch, 0, sizeof(Prefetch))


cdef void plan_prefetch(const ConvProblem *problem, const int64_t *size, const Box *box, int64_t channel,
                        int64_t channels, int64_t calls, Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch the first sample of a box of grad_output in `calls` parts, where rows and channels follow each
    other in memory. What is not asked for comes when it is packed."""
    cdef const ConvView *view = &problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t last, positions = 1, first
    cdef int d
    no_prefetch(prefetch)
    prefetch.source = view.data + box.n * view.n + channel * view.channel
    prefetch.bytes = 1
    for d in range(3):
        first = max(<int64_t>0, box.first[d])
        last = min(size[d] - 1, box.first[d] + (box.extent[d] - 1) * box.step[d])
        if last < first or view.space[d] < 0:
            return
        prefetch.source += first * view.space[d]
        prefetch.bytes += (last - first) * view.space[d]
        positions *= last - first + 1
    if prefetch.bytes > 4 * itemsize_of(problem.sample.dtype) * positions:
        return  # sparser than every other pixel of every other row
    prefetch.channel, prefetch.channels = view.channel, channels
    prefetch.lines = ceil_div(channels * (prefetch.bytes // CONV_ALIGN + 1), max(<int64_t>1, calls))


cdef void prefetch_pixels(const char *first, int64_t step, int64_t pixels, int64_t bytes, int64_t calls,
                          Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch so many bytes of each of some pixels, `step` bytes apart, in `calls` parts."""
    no_prefetch(prefetch)
    prefetch.source, prefetch.channel, prefetch.channels, prefetch.bytes = <char *>first, step, pixels, bytes
    if -CONV_ALIGN < step - bytes < CONV_ALIGN and step > 0:
        prefetch.channels, prefetch.bytes = min(<int64_t>1, pixels), pixels * step
    prefetch.lines = ceil_div(prefetch.channels * (prefetch.bytes // CONV_ALIGN + 1), max(<int64_t>1, calls))


cdef bint plan_pixels(const ConvView *view, const int64_t *size, const Box *box, int64_t channel, int64_t bytes,
                      Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch so many bytes of each pixel of a box's first sample, from that channel on, in one part; return
    whether that can be done: where pixels lie evenly, of which those between the box's rows are asked for, too, and are
    not the most."""
    cdef char *source = view.data + box.n * view.n + channel * view.channel
    cdef int64_t pixels = 1, positions = 1, apart = 0, first, last
    cdef int d
    no_prefetch(prefetch)
    for d in range(2, -1, -1):
        first = max(<int64_t>0, box.first[d])
        last = min(size[d] - 1, box.first[d] + (box.extent[d] - 1) * box.step[d])
        if last < first or view.space[d] <= 0:
            return False
        source += first * view.space[d]
        positions *= last - first + 1
        if last == first:
            continue
        if apart == 0:
            apart = view.space[d]
        if view.space[d] % apart:
            return False
        pixels += (last - first) * (view.space[d] // apart)
    if pixels > 2 * positions:
        return False
    prefetch_pixels(source, apart, pixels, bytes, 1, prefetch)
    return True


cdef void prefetch_some(Prefetch *prefetch) noexcept nogil:
    """Ask for the next few lines."""
    cdef int64_t i
    for i in range(prefetch.lines if prefetch.channels else 0):
        if not prefetch.channels:
            return
        prefetch_line(prefetch.source + prefetch.done)
        prefetch.done += CONV_ALIGN
        if prefetch.done >= prefetch.bytes:
            prefetch.done = 0
            prefetch.source += prefetch.channel
            prefetch.channels -= 1
            if prefetch.channels == 0 and prefetch.then != NULL:
                prefetch[0] = prefetch.then[0]


cdef void ask_meanwhile(Prefetch *prefetch, int64_t products, AmxAhead *ahead) noexcept nogil:
    """Have a product ask for its share of what is planned but in no parts (lines = 0), which so many products ask
    for."""
    cdef int64_t share
    ahead.at, ahead.row, ahead.rows, ahead.bytes = prefetch.source + prefetch.done, prefetch.channel, 0, prefetch.bytes
    if prefetch.lines or not prefetch.channels:
        return
    if prefetch.channels == 1:
        share = round_up(ceil_div(prefetch.bytes - prefetch.done, products), CONV_ALIGN)
        ahead.rows, ahead.bytes = 1, min(share, prefetch.bytes - prefetch.done)
        prefetch.done += share
        prefetch.channels = prefetch.done < prefetch.bytes
    else:
        ahead.rows = ceil_div(prefetch.channels, products)
        prefetch.source += ahead.rows * prefetch.channel
        prefetch.channels -= ahead.rows
