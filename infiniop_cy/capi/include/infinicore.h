/* Status codes, devices and dtypes of the infiniop C API; values as in InfiniCore. C and C++. */
#ifndef INFINICORE_H
#define INFINICORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define __C extern "C"
#else
#define __C
#endif

#if defined(_WIN32)
#define __export
#else
#define __export __attribute__((visibility("default")))
#endif

/* What every call returns. */
typedef enum {
    INFINI_STATUS_SUCCESS = 0,
    INFINI_STATUS_INTERNAL_ERROR = 1, /* a driver or compiler failed, or memory ran out */
    INFINI_STATUS_NOT_IMPLEMENTED = 2,
    INFINI_STATUS_BAD_PARAM = 3,                 /* a number out of range; overlapping tensors; a stale handle */
    INFINI_STATUS_NULL_POINTER = 4,              /* a required pointer is NULL */
    INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED = 5, /* a kind of device that this build cannot use */
    INFINI_STATUS_DEVICE_NOT_FOUND = 6,          /* a device index out of range */
    INFINI_STATUS_DEVICE_NOT_INITIALIZED = 7,
    INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED = 8,
    INFINI_STATUS_BAD_TENSOR_DTYPE = 10,
    INFINI_STATUS_BAD_TENSOR_SHAPE = 11,
    INFINI_STATUS_BAD_TENSOR_STRIDES = 12,    /* an output with stride 0, or overlapping itself */
    INFINI_STATUS_INSUFFICIENT_WORKSPACE = 13 /* smaller than the descriptor's workspace size */
} infiniStatus_t;

/* Kinds of device. CPU, and NVIDIA where its driver is; any other gives DEVICE_TYPE_NOT_SUPPORTED. */
typedef enum {
    INFINI_DEVICE_CPU = 0,
    INFINI_DEVICE_NVIDIA = 1,
    INFINI_DEVICE_CAMBRICON = 2,
    INFINI_DEVICE_ASCEND = 3,
    INFINI_DEVICE_METAX = 4,
    INFINI_DEVICE_MOORE = 5,
    INFINI_DEVICE_ILUVATAR = 6,
    INFINI_DEVICE_KUNLUN = 7,
    INFINI_DEVICE_HYGON = 8,
    INFINI_DEVICE_TYPE_COUNT
} infiniDevice_t;

/* Element types. The operators compute on F16, BF16, F32 and F64. */
typedef enum {
    INFINI_DTYPE_INVALID = 0,
    INFINI_DTYPE_BYTE = 1,
    INFINI_DTYPE_BOOL = 2,
    INFINI_DTYPE_I8 = 3,
    INFINI_DTYPE_I16 = 4,
    INFINI_DTYPE_I32 = 5,
    INFINI_DTYPE_I64 = 6,
    INFINI_DTYPE_U8 = 7,
    INFINI_DTYPE_U16 = 8,
    INFINI_DTYPE_U32 = 9,
    INFINI_DTYPE_U64 = 10,
    INFINI_DTYPE_F8 = 11,
    INFINI_DTYPE_F16 = 12,
    INFINI_DTYPE_F32 = 13,
    INFINI_DTYPE_F64 = 14,
    INFINI_DTYPE_C16 = 15,
    INFINI_DTYPE_C32 = 16,
    INFINI_DTYPE_C64 = 17,
    INFINI_DTYPE_C128 = 18,
    INFINI_DTYPE_BF16 = 19
} infiniDtype_t;

#endif
