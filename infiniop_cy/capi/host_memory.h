// Memory of the host, at multiples of a cache line.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <new>

constexpr std::align_val_t HOST_ALIGNMENT{64};

// NULL where there is not so much. Sizes near the largest would be rounded up to small ones.
inline void *allocate_host(size_t size) {
    return size > size_t(PTRDIFF_MAX) ? nullptr : ::operator new(size ? size : 1, HOST_ALIGNMENT, std::nothrow);
}

inline void release_host(void *memory) { ::operator delete(memory, HOST_ALIGNMENT); }
