// What the pretended devices say of themselves: compute capability 9.0 unless the environment says otherwise.
#pragma once
#include <dlfcn.h>

#include "contexts.h"

// Modules look up the runtime's names in the global scope, whichever way this library came in.
static void publish_self() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&publish_self), &info))
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

API cuInit(unsigned flags) {
  emulation::Lock lock(emulation::state().lock);
  const long long error = emulation::setting("EMULATION_INIT_ERROR", 0);
  if (error) return static_cast<int>(error);
  if (flags) return INVALID_VALUE;
  if (!emulation::state().initialised) publish_self();
  emulation::state().devices = static_cast<int>(emulation::setting("EMULATION_DEVICES", 2));
  if (emulation::state().devices <= 0) return NO_DEVICE;
  emulation::state().initialised = true;
  return SUCCESS;
}

API cuDeviceGetCount(int* count) {
  NEEDS_INIT;
  *count = emulation::state().devices;
  return SUCCESS;
}

#define NEEDS_DEVICE(device) \
  NEEDS_INIT;                \
  if (!emulation::is_device(device)) return INVALID_DEVICE

API cuDeviceGet(int* out, int ordinal) {
  NEEDS_DEVICE(ordinal);
  *out = ordinal;
  return SUCCESS;
}

API cuDeviceComputeCapability(int* major, int* minor, int device) {
  NEEDS_DEVICE(device);
  *major = emulation::capability() / 10;
  *minor = emulation::capability() % 10;
  return SUCCESS;
}

API cuDeviceGetAttribute(int* value, int attribute, int device) {
  NEEDS_DEVICE(device);
  if (!value || attribute <= 0) return INVALID_VALUE;
  switch (attribute) {
    case 1: *value = max_block; break;
    case 10: *value = warp_size; break;
    case 16: *value = static_cast<int>(emulation::setting("EMULATION_MULTIPROCESSORS", 132)); break;
    case 41: *value = 1; break;  // unified addresses
    case 75: *value = emulation::capability() / 10; break;
    case 76: *value = emulation::capability() % 10; break;
    case 115: *value = 1; break;  // memory pools
    default: *value = 0;
  }
  return SUCCESS;
}
