// The runtime calls: memory and devices of the CPU, and of NVIDIA GPUs where there are some.
#include "infinirt.h"

#include <string.h>

#include "../core/cuda/driver.h"
#include "host_memory.h"

namespace {
thread_local infiniDevice_t current_device = INFINI_DEVICE_CPU;
thread_local int current_id = 0;

bool exists(int device) { return device >= 0 && device < INFINI_DEVICE_TYPE_COUNT; }
int count_of(int device) {
    if (device == INFINI_DEVICE_NVIDIA) return cuda_device_count();
    return device == INFINI_DEVICE_CPU ? 1 : 0;
}

infiniStatus_t status_of(int code) { return code ? INFINI_STATUS_INTERNAL_ERROR : INFINI_STATUS_SUCCESS; }

// Do something in the current context of a GPU.
template <class Call> infiniStatus_t on_gpu(int index, Call call) {
    int code = cuda_enter(index);
    if (code) return status_of(code);
    code = call();
    cuda_leave();
    return status_of(code);
}
}  // namespace

infiniStatus_t infinirtInit(void) { return INFINI_STATUS_SUCCESS; }

infiniStatus_t infinirtGetAllDeviceCount(int *count_array) {
    if (!count_array) return INFINI_STATUS_NULL_POINTER;
    for (int device = 0; device < INFINI_DEVICE_TYPE_COUNT; device++) count_array[device] = count_of(device);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetDeviceCount(infiniDevice_t device, int *count) {
    if (!count) return INFINI_STATUS_NULL_POINTER;
    if (!exists(device)) return INFINI_STATUS_BAD_PARAM;
    *count = count_of(device);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id) {
    if (!exists(device) || count_of(device) == 0) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
    if (device_id < 0 || device_id >= count_of(device)) return INFINI_STATUS_DEVICE_NOT_FOUND;
    current_device = device;
    current_id = device_id;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetDevice(infiniDevice_t *device_ptr, int *device_id_ptr) {
    if (device_ptr) *device_ptr = current_device;
    if (device_id_ptr) *device_id_ptr = current_id;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtDeviceSynchronize(void) {
    if (current_device != INFINI_DEVICE_NVIDIA) return INFINI_STATUS_SUCCESS;
    return on_gpu(current_id, [] { return cuda_driver.synchronize_context(); });
}

infiniStatus_t infinirtMalloc(void **p_ptr, size_t size) {
    if (!p_ptr) return INFINI_STATUS_NULL_POINTER;
    if (current_device == INFINI_DEVICE_NVIDIA)
        return on_gpu(current_id, [&] { return cuda_driver.allocate(p_ptr, size ? size : 1); });
    void *memory = allocate_host(size);
    if (!memory) return INFINI_STATUS_INTERNAL_ERROR;
    *p_ptr = memory;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtFree(void *ptr) {
    if (current_device == INFINI_DEVICE_NVIDIA && ptr)
        return on_gpu(current_id, [&] { return cuda_driver.release(ptr); });
    release_host(ptr);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtMemcpy(void *dst, const void *src, size_t size, infinirtMemcpyKind_t kind) {
    if (kind < INFINIRT_MEMCPY_H2H || kind > INFINIRT_MEMCPY_D2D) return INFINI_STATUS_BAD_PARAM;
    if (size == 0) return INFINI_STATUS_SUCCESS;
    if (!dst || !src) return INFINI_STATUS_NULL_POINTER;
    if (current_device == INFINI_DEVICE_NVIDIA && kind != INFINIRT_MEMCPY_H2H)
        return on_gpu(current_id, [&] { return cuda_driver.copy(dst, src, size); });
    memcpy(dst, src, size);
    return INFINI_STATUS_SUCCESS;
}
