// Allocating and freeing, at once or in the order of a stream.
#pragma once
#include "copies.h"

namespace emulation {

inline size_t device_bytes(int device) {
  size_t bytes = 0;
  for (auto& [pages, a] : state().memory.blocks())
    if (!a.host && a.context->device == device) bytes += a.size;
  for (Pool* pool : state().pools)
    if (pool->device == device) bytes += pool->reserved - pool->used;
  return bytes;
}

inline bool is_pool(void* handle) { return state().pools.count(static_cast<Pool*>(handle)) > 0; }

inline Pool* default_pool(int device) {
  Pool*& pool = state().default_pools[device];
  if (!pool) state().pools.insert(pool = new Pool{device});
  return pool;
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
  force_all(a->context);
  waited();
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

API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, void* handle, void* stream_handle) {
  NEEDS_STREAM_OF(stream_handle);
  if (!emulation::is_pool(handle)) return INVALID_VALUE;
  auto* pool = static_cast<emulation::Pool*>(handle);
  const size_t free = pool->reserved - pool->used, kept = std::min(free, bytes);
  pool->reserved -= kept;  // for the check of the device's limit: what the pool has already is no new memory
  emulation::Allocation* a;
  const int code = emulation::allocate(context, bytes, false, &a);
  pool->reserved += code ? kept : bytes;
  if (code) return code;
  pool->used += bytes;
  ++emulation::state().counts.pool_allocations;
  a->pool = pool;
  *out = a->start;
  a->ready = false;
  const uintptr_t start = a->start;
  emulation::enqueue(stream, [start](std::string&) {
    if (auto* block = emulation::state().memory.at(start)) block->ready = true;
    return SUCCESS;
  })->cleanup = true;
  return SUCCESS;
}

API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, void* handle) {
  NEEDS_CONTEXT;
  return cuMemAllocFromPoolAsync(out, bytes, emulation::default_pool(context->device), handle);
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

API cuDeviceGetDefaultMemPool(void** out, int device) {
  NEEDS_INIT;
  if (!emulation::is_device(device)) return INVALID_DEVICE;
  *out = emulation::default_pool(device);
  return SUCCESS;
}

// The properties that a pool needs: what kind of memory, and where. The real structure goes on behind them with zeros.
struct PoolProperties { int kind, shared_as, place, device; };
enum { POOL_PINNED = 1, POOL_ON_DEVICE = 1, POOL_RELEASE_THRESHOLD = 4 };

API cuMemPoolCreate(void** out, const PoolProperties* properties) {
  NEEDS_INIT;
  if (!out || !properties || properties->kind != POOL_PINNED || properties->place != POOL_ON_DEVICE)
    return INVALID_VALUE;
  if (!emulation::is_device(properties->device)) return INVALID_DEVICE;
  auto* pool = new emulation::Pool{properties->device};
  emulation::state().pools.insert(pool);
  *out = pool;
  return SUCCESS;
}

API cuMemPoolSetAttribute(void* handle, int attribute, void* value) {
  NEEDS_INIT;
  if (!emulation::is_pool(handle) || attribute != POOL_RELEASE_THRESHOLD) return INVALID_VALUE;
  static_cast<emulation::Pool*>(handle)->threshold = *static_cast<uint64_t*>(value);
  return SUCCESS;
}

API cuMemPoolTrimTo(void* handle, size_t bytes) {
  NEEDS_INIT;
  if (!emulation::is_pool(handle)) return INVALID_VALUE;
  auto* pool = static_cast<emulation::Pool*>(handle);
  pool->reserved = std::max(pool->used, std::min(pool->reserved, bytes));
  return SUCCESS;
}

API cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  NEEDS_CONTEXT;
  emulation::Allocation* a;
  const int code = emulation::allocate(context, bytes, true, &a);
  if (!code) *out = reinterpret_cast<void*>(a->start);
  return code;
}

API cuMemFreeHost(void* address) {
  NEEDS_CONTEXT;
  return emulation::release(reinterpret_cast<uintptr_t>(address), true);
}

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  NEEDS_CONTEXT;
  *total = emulation::total_memory();
  const size_t used = emulation::device_bytes(context->device);
  *free = used < *total ? *total - used : 0;
  return SUCCESS;
}
ALSO(cuMemGetInfo, cuMemGetInfo_v2);

API cuPointerGetAttribute(void* out, int attribute, CUdeviceptr address) {
  NEEDS_INIT;
  auto* a = emulation::state().memory.at(static_cast<uintptr_t>(address));
  if (!a || !out) return INVALID_VALUE;
  switch (attribute) {
    case 1: *static_cast<void**>(out) = a->pool ? nullptr : a->context; break;  // a pool is no context's
    case 2: *static_cast<unsigned*>(out) = a->host ? 1 : 2; break;              // memory type
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
