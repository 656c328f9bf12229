// What an emulated module and the fake driver know of each other; both sides include it, so it needs nothing.
#pragma once

#define EMULATION_EXPORT __attribute__((visibility("default")))
// The driver sits in static storage already when a module is loaded: this model reads a variable in two instructions.
#define EMULATION_THREAD __attribute__((tls_model("initial-exec"))) EMULATION_EXPORT

struct uint3 { unsigned x, y, z; };

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

// dim3 has a constructor, which __thread refuses: these three-word views read the same in kernels.
extern __thread uint3 threadIdx EMULATION_THREAD;
extern __thread uint3 blockIdx EMULATION_THREAD;
extern __thread uint3 blockDim EMULATION_THREAD;
extern __thread uint3 gridDim EMULATION_THREAD;
extern __thread unsigned emulation_lane EMULATION_THREAD;

extern "C" {
typedef void (*emulation_combine)(void* const* lanes, unsigned mask);

// Waits until every thread of the block is at the barrier of this source line.
void emulation_barrier(int line);
// Waits for the lanes of mask; the last one to come calls combine with what each lane brought.
void emulation_warp(unsigned mask, int line, void* mine, emulation_combine combine);
[[noreturn]] void emulation_fault(int code, const char* text);
void* emulation_dynamic_shared();

struct emulation_kernel {
  const char* name;
  const void* function;
  void (*invoke)(const void* function, const unsigned char* arguments);
  int bounds;
  int parameters;
  const unsigned* offsets;
  const unsigned* sizes;
  unsigned bytes;
  emulation_kernel* next;
};

struct emulation_module_info {
  unsigned version;
  int architecture;
  emulation_kernel* kernels;
};
}

constexpr unsigned emulation_version = 3;  // goes up with every change that older modules must not survive
