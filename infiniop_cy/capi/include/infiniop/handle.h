/* The device that operators are created on. */
#ifndef INFINIOP_HANDLE_H
#define INFINIOP_HANDLE_H

#include "../infinicore.h"

/* Begins with `int device; int device_id`. */
struct InfiniopHandle;
typedef struct InfiniopHandle *infiniopHandle_t;

/* Open the current device of this thread (infinirtSetDevice; CPU 0 at first).
   NULL_POINTER where handle_ptr is NULL. */
__C __export infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr);

/* Close it. Descriptors made from it stay usable. NULL_POINTER for NULL, BAD_PARAM for a handle already destroyed. */
__C __export infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle);

#endif
