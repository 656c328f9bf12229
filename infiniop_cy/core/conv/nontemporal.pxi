# Non-temporal stores by way of a stage, for pixels that fill no cache lines of their own: what is written to the cache
# goes past it while the next pixels are computed, some lines with every register tile. All at once they would wait for
# memory, and parts of a line would be sent one by one.
cdef void send_nothing(Unsent *unsent) noexcept nogil:
    """Plan to send nothing."""
    memset(unsent, 0, sizeof(Unsent))


cdef void begin_sending(const char *data, char *to, int64_t bytes, int64_t calls, Unsent *unsent) noexcept nogil:
    """Plan to send so many bytes in `calls` parts; those before the first cache line of `to` go at once."""
    cdef int64_t head = min(bytes, round_up(<int64_t>(<uintptr_t>to), CONV_ALIGN) - <int64_t>(<uintptr_t>to))
    memcpy(to, data, head)
    unsent.data, unsent.to, unsent.bytes = data + head, to + head, bytes - head
    unsent.share = round_up(ceil_div(unsent.bytes, max(<int64_t>1, calls)), CONV_ALIGN)


cdef void send(Unsent *unsent, int64_t bytes) noexcept nogil:
    """Send so many bytes, whole cache lines or all that are left, of which a last part of a line goes to the cache."""
    cdef int64_t count = min(bytes, unsent.bytes), lines = count - count % CONV_ALIGN
    if count == 0:
        return
    kernels.stream_rows(unsent.data, 0, unsent.to, 0, 1, lines)
    memcpy(unsent.to + lines, unsent.data + lines, count - lines)
    unsent.data += count
    unsent.to += count
    unsent.bytes -= count
