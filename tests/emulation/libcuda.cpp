// A libcuda.so.1 that runs kernels on the host: one translation unit, as the parts share one state and one lock.
#include <cstdio>
#include <cstdlib>

#include "libcuda/errors.h"
#include "libcuda/allocations.h"
#include "libcuda/control.h"
#include "libcuda/devices.h"
#include "libcuda/events.h"
#include "libcuda/launch.h"
