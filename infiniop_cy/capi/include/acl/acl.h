/* The part of CANN's acl runtime that surrounds an aclnn call, on host memory. Codes as in CANN. */
#ifndef ACL_ACL_H
#define ACL_ACL_H

#include <stdio.h>

#include "../aclnn/acl_meta.h"

typedef int aclError;
typedef void *aclrtStream;

#define ACL_SUCCESS 0
#define ACL_ERROR_INVALID_PARAM 100000
#define ACL_ERROR_BAD_ALLOC 200000
#define ACL_ERROR_RT_INVALID_DEVICEID 107001

typedef enum aclrtMemMallocPolicy {
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2
} aclrtMemMallocPolicy;

typedef enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3
} aclrtMemcpyKind;

/* configPath is not read. */
__C __export aclError aclInit(const char *configPath);
__C __export aclError aclFinalize(void);

/* Device 0 is the CPU; any other: ACL_ERROR_RT_INVALID_DEVICEID. */
__C __export aclError aclrtSetDevice(int32_t deviceId);
__C __export aclError aclrtResetDevice(int32_t deviceId);

/* A stream here holds nothing: every call has finished when it returns. Null pointer: ACL_ERROR_INVALID_PARAM. */
__C __export aclError aclrtCreateStream(aclrtStream *stream);
__C __export aclError aclrtDestroyStream(aclrtStream stream);
__C __export aclError aclrtSynchronizeStream(aclrtStream stream);

/* size bytes, aligned to 64. ACL_ERROR_INVALID_PARAM (null pointer, size 0), ACL_ERROR_BAD_ALLOC. */
__C __export aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
__C __export aclError aclrtFree(void *devPtr);

/* destMax: room at dst. ACL_ERROR_INVALID_PARAM (null pointer, count beyond destMax, no such kind). */
__C __export aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind);

#endif
