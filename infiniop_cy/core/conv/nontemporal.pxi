# Non-temporal stores by way of a stage, for pixels that fill no cache lines of their own: what is written to the cache
# goes past it while the next pixels are computed, some lines with every register tile. All at once they would wait for
# memory, and parts of a line would be sent one by one.
cdef void send_nothing(Unsent *unsent) noexcept nogil:
    """Plan to send nothing."""
    memset(unsent, 0, sizeof(Unsent))


cdef void begin_sending(const char *data, char *to, int64_t bytes, int64_t calls, char *next,
                        Unsent *unsent) noexcept nogil:
    """Plan to send so many bytes in `calls` parts, after what was planned before has been sent. What is left of their
    last cache line waits before `next`, where those that follow will lie: both go together then. It is copied now, so
    that it has left the store buffer until it is read; and to write it to the cache would wait for memory each time."""
    cdef int64_t before = unsent.rest, head = 0
    if before == 0 or unsent.end != to:
        finish_sending(unsent)
        before, head = 0, min(bytes, round_up(<int64_t>(<uintptr_t>to), CONV_ALIGN) - <int64_t>(<uintptr_t>to))
        memcpy(to, data, head)
    bytes += before - head
    unsent.data, unsent.to, unsent.end = data + head - before, to + head - before, to + head - before + bytes
    unsent.rest = bytes % CONV_ALIGN
    unsent.bytes = bytes - unsent.rest
    unsent.share = round_up(ceil_div(unsent.bytes, max(<int64_t>1, calls)), CONV_ALIGN)
    unsent.kept = next - unsent.rest
    memcpy(next - unsent.rest, unsent.data + unsent.bytes, unsent.rest)


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
        memcpy(unsent.end - unsent.rest, unsent.kept, unsent.rest)
        unsent.rest = 0
