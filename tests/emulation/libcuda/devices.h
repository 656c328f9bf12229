// What the pretended devices say of themselves: an H200-like machine unless the environment says otherwise.
#pragma once
#include <dlfcn.h>

#include "contexts.h"

constexpr int driver_version = 13000;

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

API cuDriverGetVersion(int* version) {
  *version = driver_version;
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

API cuDeviceGetName(char* name, int length, int device) {
  NEEDS_DEVICE(device);
  snprintf(name, length, "Host emulation %d", device);
  return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  NEEDS_DEVICE(device);
  *bytes = emulation::total_memory();
  return SUCCESS;
}
ALSO(cuDeviceTotalMem, cuDeviceTotalMem_v2);

API cuDeviceComputeCapability(int* major, int* minor, int device) {
  NEEDS_DEVICE(device);
  *major = emulation::capability() / 10;
  *minor = emulation::capability() % 10;
  return SUCCESS;
}

API cuDeviceGetPCIBusId(char* text, int length, int device) {
  NEEDS_DEVICE(device);
  snprintf(text, length, "0000:%02X:00.0", device + 1);
  return SUCCESS;
}

API cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  NEEDS_DEVICE(device);
  memset(uuid, 0xE0 + device, 16);
  return SUCCESS;
}
ALSO(cuDeviceGetUuid, cuDeviceGetUuid_v2);

API cuDeviceGetAttribute(int* value, int attribute, int device) {
  NEEDS_DEVICE(device);
  if (!value || attribute <= 0) return INVALID_VALUE;
  switch (attribute) {
    case 1:
    case 2:
    case 3: *value = max_block; break;   // threads per block, block x, y
    case 4: *value = 64; break;          // block z
    case 5: *value = 0x7FFFFFFF; break;  // grid x
    case 6:
    case 7: *value = 65535; break;  // grid y, z
    case 8: *value = default_shared; break;
    case 9: *value = 65536; break;  // constant memory
    case 10: *value = warp_size; break;
    case 11: *value = 0x7FFFFFFF; break;  // pitch
    case 12:
    case 82: *value = 65536; break;    // registers per block, per multiprocessor
    case 13: *value = 1980000; break;  // kHz
    case 14: *value = 512; break;      // texture alignment
    case 15:
    case 31:
    case 41:
    case 78: *value = 1; break;  // overlap, concurrency, unified addresses, priorities
    case 16: *value = static_cast<int>(emulation::setting("EMULATION_MULTIPROCESSORS", 132)); break;
    case 33: *value = device + 1; break;  // bus
    case 36: *value = 3201000; break;     // memory kHz
    case 37: *value = 6144; break;        // memory bus bits
    case 38: *value = 60 << 20; break;    // L2
    case 39: *value = 2048; break;        // threads per multiprocessor
    case 40: *value = 3; break;           // copy engines
    case 75: *value = emulation::capability() / 10; break;
    case 76: *value = emulation::capability() % 10; break;
    case 81: *value = 228 << 10; break;  // shared memory per multiprocessor
    case 97: *value = max_shared; break;
    case 106: *value = 32; break;    // blocks per multiprocessor
    case 111: *value = 1024; break;  // shared memory kept for the system
    case 115: *value = 1; break;     // memory pools
    default: *value = 0;
  }
  return SUCCESS;
}

API cuProfilerStart() { return SUCCESS; }
API cuProfilerStop() { return SUCCESS; }
