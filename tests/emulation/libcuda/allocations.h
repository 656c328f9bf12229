// Allocating and freeing, at once or in the order of a stream.
#pragma once
#include "copies.h"

namespace emulation {

inline size_t device_bytes(int device) {
  size_t bytes = 0;
  for (auto& [pages, a] : state().memory.blocks())
    if (!a.host && a.context->device == device) bytes += a.size;
  return bytes;
}

inline int allocate(Context* context, size_t bytes, bool host, Allocation** out) {
  if (!bytes) return INVALID_VALUE;
  const size_t used = device_bytes(context->device), total = total_memory();
  if (!host && (used > total || bytes > total - used)) return OUT_OF_MEMORY;
  *out = state().memory.allocate(bytes, context, host);
  return *out ? SUCCESS : OUT_OF_MEMORY;
}

inline Allocation* find_start(CUdeviceptr address, bool host) {
  Allocation* a = state().memory.at(static_cast<uintptr_t>(address));
  return a && a->start == address && a->host == host && !a->freeing ? a : nullptr;
}

// Both kinds of freeing first finish what the context has queued; a fault found there is left to the next
// synchronising call, as nobody looks at the result of a free.
inline int release(CUdeviceptr address, bool host) {
  Allocation* a = find_start(address, host);
  if (!a) return INVALID_VALUE;
  ++state().counts.synchronisations;
  force_all(a->context);
  if ((a = find_start(address, host))) state().memory.release(a);
  return SUCCESS;
}

}  // namespace emulation

API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  NEEDS_CONTEXT;
  emulation::Allocation* a;
  const int code = emulation::allocate(context, bytes, false, &a);
  if (!code) *out = a->start;
  return code;
}
ALSO(cuMemAlloc, cuMemAlloc_v2);

API cuMemFree_v2(CUdeviceptr address) {
  NEEDS_CONTEXT;
  return address ? emulation::release(address, false) : SUCCESS;
}
ALSO(cuMemFree, cuMemFree_v2);

API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, void* handle) {
  NEEDS_STREAM_OF(handle);
  emulation::Allocation* a;
  const int code = emulation::allocate(context, bytes, false, &a);
  if (code) return code;
  *out = a->start;
  a->ready = false;
  const uintptr_t start = a->start;
  emulation::enqueue(stream, [start](std::string&) {
    if (auto* block = emulation::state().memory.at(start)) block->ready = true;
    return SUCCESS;
  })->cleanup = true;
  return SUCCESS;
}

API cuMemFreeAsync(CUdeviceptr address, void* handle) {
  NEEDS_STREAM_OF(handle);
  if (!address) return SUCCESS;
  emulation::Allocation* a = emulation::find_start(address, false);
  if (!a) return INVALID_VALUE;
  a->freeing = true;
  const uintptr_t start = a->start;
  emulation::enqueue(stream, [start](std::string&) {
    if (auto* block = emulation::state().memory.at(start)) emulation::state().memory.release(block);
    return SUCCESS;
  })->cleanup = true;
  return SUCCESS;
}

API cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  NEEDS_CONTEXT;
  emulation::Allocation* a;
  const int code = emulation::allocate(context, bytes, true, &a);
  if (!code) *out = reinterpret_cast<void*>(a->start);
  return code;
}

API cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
ALSO(cuMemAllocHost, cuMemAllocHost_v2);

API cuMemFreeHost(void* address) {
  NEEDS_CONTEXT;
  return emulation::release(reinterpret_cast<uintptr_t>(address), true);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr*, void*, unsigned) { return NOT_SUPPORTED; }
ALSO(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2);

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  NEEDS_CONTEXT;
  *total = emulation::total_memory();
  const size_t used = emulation::device_bytes(context->device);
  *free = used < *total ? *total - used : 0;
  return SUCCESS;
}
ALSO(cuMemGetInfo, cuMemGetInfo_v2);

API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  NEEDS_CONTEXT;
  auto* a = emulation::state().memory.at(static_cast<uintptr_t>(address));
  if (!a || a->host) return NOT_FOUND;
  if (base) *base = a->start;
  if (size) *size = a->size;
  return SUCCESS;
}
ALSO(cuMemGetAddressRange, cuMemGetAddressRange_v2);

API cuPointerGetAttribute(void* out, int attribute, CUdeviceptr address) {
  NEEDS_INIT;
  auto* a = emulation::state().memory.at(static_cast<uintptr_t>(address));
  if (!a || !out) return INVALID_VALUE;
  switch (attribute) {
    case 1: *static_cast<void**>(out) = a->context; break;
    case 2: *static_cast<unsigned*>(out) = a->host ? 1 : 2; break;  // memory type
    case 3: *static_cast<CUdeviceptr*>(out) = address; break;
    case 4:  // host pointer
      if (!a->host) return INVALID_VALUE;
      *static_cast<CUdeviceptr*>(out) = address;
      break;
    case 8: *static_cast<unsigned*>(out) = 0; break;  // managed
    case 9: *static_cast<int*>(out) = a->context->device; break;
    case 11: *static_cast<CUdeviceptr*>(out) = a->start; break;
    case 12: *static_cast<size_t*>(out) = a->size; break;
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}
