// Copies and fills: checked when called, done when their stream gets to them.
#pragma once
#include <sys/uio.h>
#include <unistd.h>

#include "contexts.h"

namespace emulation {

struct Side {
  uintptr_t address;
  bool device;
};

inline Side device_side(CUdeviceptr p) { return {static_cast<uintptr_t>(p), true}; }
inline Side host_side(const void* p) { return {reinterpret_cast<uintptr_t>(p), false}; }
inline Side any_side(CUdeviceptr p) {
  return {static_cast<uintptr_t>(p), state().memory.at(static_cast<uintptr_t>(p)) != nullptr};
}

inline bool valid(const Side& side, size_t bytes) {
  return side.device ? state().memory.range(side.address, bytes) != nullptr : side.address != 0;
}

inline bool pinned(const Side& side, size_t bytes) {
  Allocation* a = state().memory.range(side.address, bytes);
  return a && a->host;
}

// Opens a device range for the driver's own access; false if it is gone by now.
inline bool open_range(const Side& side, size_t bytes, const char* what, std::string& text) {
  if (!side.device) return true;
  Allocation* a = state().memory.at(side.address);
  if (!a || !a->ready || bytes > a->end() - side.address) {
    text = state().memory.describe(side.address, what) + (a && !a->ready ? ", before its allocation ran" : "");
    return false;
  }
  Memory::open(*a);
  return true;
}

// Pageable memory may be gone when the stream gets to it: the system then says so, where memcpy would crash.
inline bool read_pageable(Side from, size_t bytes, std::vector<unsigned char>& out) {
  out.resize(bytes);
  const iovec here{out.data(), bytes}, there{reinterpret_cast<void*>(from.address), bytes};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

inline int copy_now(Side to, Side from, size_t bytes, std::string& text) {
  std::vector<unsigned char> read;
  if (!from.device && !pinned(from, bytes)) {
    if (!read_pageable(from, bytes, read))
      return text = "pageable memory was gone before it was copied", ILLEGAL_ADDRESS;
    from = host_side(read.data());
  }
  const bool good = open_range(to, bytes, "copied to", text) && open_range(from, bytes, "copied from", text);
  if (good) memmove(reinterpret_cast<void*>(to.address), reinterpret_cast<void*>(from.address), bytes);
  state().memory.close();
  return good ? SUCCESS : ILLEGAL_ADDRESS;
}

inline int copy(Stream* stream, Side to, Side from, size_t bytes, bool synchronous) {
  if (!bytes) return SUCCESS;
  if (!valid(to, bytes) || !valid(from, bytes)) return INVALID_VALUE;
  ++state().counts.copies;
  // Host memory is read when the stream gets there, pageable memory too: a driver may stage it at the call, and need
  // not. Pageable memory is written before the call returns.
  if (!to.device && !pinned(to, bytes)) synchronous = true;
  if (to.device && from.device) synchronous = false;
  const Work work = enqueue(stream, [=](std::string& text) { return copy_now(to, from, bytes, text); });
  if (!synchronous) return SUCCESS;
  force(work);
  waited();
  return take_error(stream->context);
}

inline int fill(Stream* stream, CUdeviceptr to, unsigned value, size_t width, size_t count) {
  if (!count) return SUCCESS;
  if (to % width || !valid(device_side(to), width * count)) return INVALID_VALUE;
  enqueue(stream, [=](std::string& text) -> int {
    const bool good = open_range(device_side(to), width * count, "filled", text);
    auto* p = reinterpret_cast<unsigned char*>(to);
    for (size_t i = 0; good && i < count; ++i) memcpy(p + i * width, &value, width);
    state().memory.close();
    return good ? SUCCESS : ILLEGAL_ADDRESS;
  });
  return SUCCESS;
}

}  // namespace emulation

#define NEEDS_STREAM_OF(handle)                             \
  NEEDS_CONTEXT;                                            \
  emulation::Stream* stream = find_stream(handle, context); \
  if (!stream) return INVALID_HANDLE

API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(&context->legacy, emulation::device_side(to), emulation::host_side(from), bytes, true);
}
ALSO(cuMemcpyHtoD, cuMemcpyHtoD_v2);

API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(&context->legacy, emulation::host_side(to), emulation::device_side(from), bytes, true);
}
ALSO(cuMemcpyDtoH, cuMemcpyDtoH_v2);

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(&context->legacy, emulation::device_side(to), emulation::device_side(from), bytes, true);
}
ALSO(cuMemcpyDtoD, cuMemcpyDtoD_v2);

API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(&context->legacy, emulation::any_side(to), emulation::any_side(from), bytes, true);
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* handle) {
  NEEDS_STREAM_OF(handle);
  return copy(stream, emulation::device_side(to), emulation::host_side(from), bytes, false);
}
ALSO(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2);

API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* handle) {
  NEEDS_STREAM_OF(handle);
  return copy(stream, emulation::host_side(to), emulation::device_side(from), bytes, false);
}
ALSO(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2);

API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* handle) {
  NEEDS_STREAM_OF(handle);
  return copy(stream, emulation::any_side(to), emulation::any_side(from), bytes, false);
}

#define FILL(name, type)                                                      \
  API name##_v2(CUdeviceptr to, type value, size_t count) {                   \
    NEEDS_CONTEXT;                                                            \
    return emulation::fill(&context->legacy, to, value, sizeof(type), count); \
  }                                                                           \
  ALSO(name, name##_v2);                                                      \
  API name##Async(CUdeviceptr to, type value, size_t count, void* handle) {   \
    NEEDS_STREAM_OF(handle);                                                  \
    return emulation::fill(stream, to, value, sizeof(type), count);           \
  }

FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)
