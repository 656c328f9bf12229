// The driver API's plain types and codes, written out so that no CUDA header is needed.
#pragma once
#include <cstddef>
#include <cstdint>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

#define API extern "C" __attribute__((visibility("default"))) CUresult
// A second name for an entry point: headers map the plain name to a versioned one, programs may ask for either.
#define ALSO(plain, versioned) asm(".globl " #plain "\n.set " #plain ", " #versioned)

enum : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  PRIMARY_CONTEXT_ACTIVE = 708,
  ASSERT = 710,
  MISALIGNED_ADDRESS = 716,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
};

constexpr int warp_size = 32;
constexpr unsigned max_block = 1024;
constexpr size_t default_shared = 48 << 10;
constexpr size_t max_shared = 227 << 10;
