/* The runtime calls around an operator, for the CPU, whose memory is the host's and where nothing is asynchronous, and
   for NVIDIA GPUs, through the driver libcuda.so.1 where the machine has one. */
#ifndef INFINIRT_H
#define INFINIRT_H

#include "infinicore.h"

/* Direction of a copy; D is the current device. On the CPU all are the same. */
typedef enum {
    INFINIRT_MEMCPY_H2H = 0,
    INFINIRT_MEMCPY_H2D = 1,
    INFINIRT_MEMCPY_D2H = 2,
    INFINIRT_MEMCPY_D2D = 3
} infinirtMemcpyKind_t;

/* Always SUCCESS; may be called any number of times. */
__C __export infiniStatus_t infinirtInit(void);

/* count_array[INFINI_DEVICE_TYPE_COUNT]: devices of each kind. NULL_POINTER. */
__C __export infiniStatus_t infinirtGetAllDeviceCount(int *count_array);

/* Devices of one kind; 0 where this build cannot use the kind. NULL_POINTER, BAD_PARAM (no such kind). */
__C __export infiniStatus_t infinirtGetDeviceCount(infiniDevice_t device, int *count);

/* The current device of this thread. DEVICE_TYPE_NOT_SUPPORTED, DEVICE_NOT_FOUND (index out of range). */
__C __export infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id);

/* Either pointer may be NULL. */
__C __export infiniStatus_t infinirtGetDevice(infiniDevice_t *device_ptr, int *device_id_ptr);

/* Wait for the current device. On the CPU every call has finished when it returns. INTERNAL_ERROR: an earlier
   call failed. */
__C __export infiniStatus_t infinirtDeviceSynchronize(void);

/* `size` bytes on the current device, aligned to 64. NULL_POINTER, INTERNAL_ERROR (out of memory). */
__C __export infiniStatus_t infinirtMalloc(void **p_ptr, size_t size);

/* Memory of the current device. NULL is allowed. INTERNAL_ERROR. */
__C __export infiniStatus_t infinirtFree(void *ptr);

/* NULL_POINTER (unless size is 0), BAD_PARAM (no such kind), INTERNAL_ERROR. The ranges must not overlap. */
__C __export infiniStatus_t infinirtMemcpy(void *dst, const void *src, size_t size, infinirtMemcpyKind_t kind);

#endif
