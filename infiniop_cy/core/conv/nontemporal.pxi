# Non-temporal stores by way of a stage, for pixels that fill no cache lines of their own: what is written to the cache
# goes past it while the next pixels are computed, some lines with every register tile. All at once they would wait for
# memory, and parts of a line would be sent one by one.
cdef void send_nothing(Unsent *unsent) noexcept nogil:
    """Plan to send nothing."""
    memset(unsent, 0, sizeof(Unsent))


cdef void begin_stage(char *memory, int64_t half, Unsent *unsent) noexcept nogil:
    """Take two halves of a stage, with room before each for what is left of a cache line, in so many bytes each."""
    send_nothing(unsent)
    unsent.stage, unsent.other = memory + CONV_ALIGN, memory + CONV_ALIGN + half


cdef void begin_sending(char *to, int64_t bytes, int64_t calls, Unsent *unsent) noexcept nogil:
    """Plan to send so many bytes of the stage in `calls` parts, after what was planned before has been sent, and go to
    the other half. What is left of their last cache line waits before that, where those that follow will lie: both go
    together then. It is copied now, so that it has left the store buffer until it is read; and to write it to the cache
    would wait for memory each time."""
    cdef char *data = unsent.stage
    cdef int64_t head = 0
    if unsent.rest and unsent.to + unsent.rest == to:
        bytes += unsent.rest
        data -= unsent.rest
        to -= unsent.rest
    else:
        finish_sending(unsent)
        head = min(bytes, round_up(<int64_t>(<uintptr_t>to), CONV_ALIGN) - <int64_t>(<uintptr_t>to))
        memcpy(to, data, head)
    unsent.data, unsent.to, unsent.rest = data + head, to + head, (bytes - head) % CONV_ALIGN
    unsent.bytes = bytes - head - unsent.rest
    unsent.share = round_up(ceil_div(unsent.bytes, max(<int64_t>1, calls)), CONV_ALIGN)
    unsent.stage, unsent.other = unsent.other, unsent.stage
    memcpy(unsent.stage - unsent.rest, unsent.data + unsent.bytes, unsent.rest)


cdef void send(Unsent *unsent, int64_t bytes) noexcept nogil:
    """Send so many bytes, whole cache lines, or all that are left of these."""
    cdef int64_t lines = min(bytes, unsent.bytes)
    if lines == 0:
        return
    kernels.stream_rows(unsent.data, 0, unsent.to, 0, 1, lines)
    unsent.data += lines
    unsent.to += lines
    unsent.bytes -= lines


cdef void finish_sending(Unsent *unsent) noexcept nogil:
    """Send all that is left, a part of a cache line to the cache."""
    send(unsent, unsent.bytes)
    if unsent.rest:
        memcpy(unsent.to, unsent.stage - unsent.rest, unsent.rest)
        unsent.rest = 0
