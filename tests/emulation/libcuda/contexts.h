// Devices, their contexts and each thread's stack of contexts.
#pragma once
#include "streams.h"

namespace emulation {

constexpr long long default_memory = 16ll << 30;

inline int capability() {
  const char* text = getenv("EMULATION_CAPABILITY");  // "9.0"
  int major = 9, minor = 0;
  if (text) sscanf(text, "%d.%d", &major, &minor);
  return major * 10 + minor;
}

inline size_t total_memory() { return static_cast<size_t>(setting("EMULATION_MEMORY", default_memory)); }

void unload_all(Context* context);

inline void release_all(Context* context) {
  force_all(context);
  context->error = 0;
  unload_all(context);
  std::vector<Allocation*> own;
  for (auto& [pages, a] : state().memory.blocks())
    if (a.context == context) own.push_back(&a);
  for (Allocation* a : own) state().memory.release(a);
  std::vector<Event*> events;
  for (Event* e : state().events)
    if (e->context == context) events.push_back(e);
  for (Event* e : events) {
    state().events.erase(e);
    delete e;
  }
  for (Stream* s : context->streams) delete s;
  context->streams.clear();
  context->orphans.clear();
}

inline bool is_device(int device) { return device >= 0 && device < state().devices; }
inline bool is_context(void* handle) { return state().contexts.count(static_cast<Context*>(handle)) > 0; }

inline Context* primary(int device) {
  Context*& context = state().primaries[device];
  if (!context) {
    context = new Context;
    context->device = device;
    context->primary = true;
    context->alive = false;
    state().contexts.insert(context);
  }
  return context;
}

}  // namespace emulation

API cuCtxGetCurrent(void** out) {
  NEEDS_INIT;
  *out = emulation::context_stack().empty() ? nullptr : emulation::context_stack().back();
  return SUCCESS;
}

API cuCtxSetCurrent(void* handle) {
  NEEDS_INIT;
  if (handle && !emulation::is_context(handle)) return INVALID_CONTEXT;
  auto& stack = emulation::context_stack();
  if (!stack.empty()) stack.pop_back();
  if (handle) stack.push_back(static_cast<emulation::Context*>(handle));
  return SUCCESS;
}

API cuCtxPushCurrent_v2(void* handle) {
  NEEDS_INIT;
  if (!emulation::is_context(handle)) return INVALID_CONTEXT;
  emulation::context_stack().push_back(static_cast<emulation::Context*>(handle));
  return SUCCESS;
}
ALSO(cuCtxPushCurrent, cuCtxPushCurrent_v2);

API cuCtxPopCurrent_v2(void** out) {
  NEEDS_INIT;
  auto& stack = emulation::context_stack();
  if (stack.empty()) return INVALID_CONTEXT;
  if (out) *out = stack.back();
  stack.pop_back();
  return SUCCESS;
}
ALSO(cuCtxPopCurrent, cuCtxPopCurrent_v2);

API cuCtxGetDevice(int* device) {
  NEEDS_CONTEXT;
  *device = context->device;
  return SUCCESS;
}

API cuCtxSynchronize() {
  NEEDS_CONTEXT;
  return emulation::synchronize(context);
}

API cuCtxGetApiVersion(void* handle, unsigned* version) {
  NEEDS_INIT;
  if (handle ? !emulation::is_context(handle) : !emulation::current_context()) return INVALID_CONTEXT;
  *version = 3020;
  return SUCCESS;
}

API cuCtxCreate_v2(void** out, unsigned flags, int device) {
  NEEDS_INIT;
  if (!emulation::is_device(device)) return INVALID_DEVICE;
  auto* context = new emulation::Context;
  context->device = device;
  context->flags = flags;
  emulation::state().contexts.insert(context);
  emulation::context_stack().push_back(context);
  *out = context;
  return SUCCESS;
}
ALSO(cuCtxCreate, cuCtxCreate_v2);

API cuCtxCreate_v4(void** out, void*, unsigned flags, int device) { return cuCtxCreate_v2(out, flags, device); }

API cuCtxDestroy_v2(void* handle) {
  NEEDS_INIT;
  if (!emulation::is_context(handle)) return INVALID_CONTEXT;
  auto* context = static_cast<emulation::Context*>(handle);
  if (context->primary) return INVALID_CONTEXT;
  emulation::release_all(context);
  auto& stack = emulation::context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  // The object itself stays: other threads may still hold its address on their stacks.
  context->alive = false;
  emulation::state().contexts.erase(context);
  return SUCCESS;
}
ALSO(cuCtxDestroy, cuCtxDestroy_v2);

API cuCtxDetach(void* handle) { return cuCtxDestroy_v2(handle); }

API cuDevicePrimaryCtxRetain(void** out, int device) {
  NEEDS_INIT;
  if (!emulation::is_device(device)) return INVALID_DEVICE;
  emulation::Context* context = emulation::primary(device);
  ++context->references;
  context->alive = true;
  *out = context;
  return SUCCESS;
}

API cuDevicePrimaryCtxReset_v2(int device) {
  NEEDS_INIT;
  if (!emulation::is_device(device)) return INVALID_DEVICE;
  emulation::Context* context = emulation::primary(device);
  emulation::release_all(context);
  context->alive = false;
  return SUCCESS;
}
ALSO(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

API cuDevicePrimaryCtxRelease_v2(int device) {
  NEEDS_INIT;
  if (!emulation::is_device(device)) return INVALID_DEVICE;
  emulation::Context* context = emulation::primary(device);
  if (context->references == 0) return INVALID_CONTEXT;
  return --context->references ? SUCCESS : cuDevicePrimaryCtxReset_v2(device);
}
ALSO(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
