// The acl runtime calls around an aclnn call, on the host's memory.
#include "acl/acl.h"

#include "host_memory.h"
#include "infinirt.h"

aclError aclInit(const char *) { return ACL_SUCCESS; }
aclError aclFinalize(void) { return ACL_SUCCESS; }

aclError aclrtSetDevice(int32_t deviceId) { return deviceId == 0 ? ACL_SUCCESS : ACL_ERROR_RT_INVALID_DEVICEID; }
aclError aclrtResetDevice(int32_t deviceId) { return deviceId == 0 ? ACL_SUCCESS : ACL_ERROR_RT_INVALID_DEVICEID; }

aclError aclrtCreateStream(aclrtStream *stream) {
    static char the_stream;  // anything that is not NULL
    if (!stream) return ACL_ERROR_INVALID_PARAM;
    *stream = &the_stream;
    return ACL_SUCCESS;
}
aclError aclrtDestroyStream(aclrtStream stream) { return stream ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
aclError aclrtSynchronizeStream(aclrtStream) { return ACL_SUCCESS; }

aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy) {
    if (!devPtr || size == 0) return ACL_ERROR_INVALID_PARAM;
    void *const memory = allocate_host(size);
    if (!memory) return ACL_ERROR_BAD_ALLOC;
    *devPtr = memory;
    return ACL_SUCCESS;
}

aclError aclrtFree(void *devPtr) {
    if (!devPtr) return ACL_ERROR_INVALID_PARAM;
    release_host(devPtr);
    return ACL_SUCCESS;
}

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    if (count > destMax || kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEVICE_TO_DEVICE)
        return ACL_ERROR_INVALID_PARAM;
    return infinirtMemcpy(dst, src, count, INFINIRT_MEMCPY_H2H) == INFINI_STATUS_SUCCESS ? ACL_SUCCESS
                                                                                         : ACL_ERROR_INVALID_PARAM;
}
