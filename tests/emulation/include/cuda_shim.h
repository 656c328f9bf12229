// Included before every .cu file: what nvcc offers without an include, for a plain C++ compiler.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emulation_runtime.h"

// __global__, __shared__ and __launch_bounds__ stay words: the nvcc stand-in looks for them.
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

#include "emulation_module.h"
#include "vector_types.h"
#include "device_functions.h"
#include "warp_functions.h"
