// What C handles point to. Slots of a pool that are reused but never returned to the system, so that the mark of a
// destroyed object can still be read: using a stale handle is refused, not undefined.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <mutex>

// The public part first: infiniop promises that handles and operator descriptors begin with device and device_id.
struct Object {
    int device, device_id;
    int32_t kind;  // 0 while the slot is free
    Object *next_free;
};

enum ObjectKind {
    HANDLE_OBJECT = 0x48414e44,
    TENSOR_OBJECT,
    CONV_OBJECT,
    FORWARD_OBJECT,
    ACL_TENSOR_OBJECT,
    ACL_SCALAR_OBJECT,
    ACL_EXECUTOR_OBJECT,
    ELEMENTWISE_OBJECT,  // plus the operator's position in the table
};

static std::mutex object_lock;
enum { OBJECT_SIZES = 16 };
static struct {
    size_t size;
    Object *free;
} object_pools[OBJECT_SIZES];

#if !defined(_WIN32)
// A fork waits until no thread holds the lock: nobody would release that of the child.
static void lock_objects() { object_lock.lock(); }
static void unlock_objects() { object_lock.unlock(); }
__attribute__((constructor)) static void keep_objects_over_forks() {
    pthread_atfork(lock_objects, unlock_objects, unlock_objects);
}
#endif

// A zeroed object of `size` bytes, or NULL where memory has run out.
static inline void *new_object(int32_t kind, size_t size) {
    Object *object = NULL;
    object_lock.lock();
    int pool = 0;
    while (pool < OBJECT_SIZES - 1 && object_pools[pool].size && object_pools[pool].size != size) pool++;
    object_pools[pool].size = size;
    if (object_pools[pool].free) {
        object = object_pools[pool].free;
        object_pools[pool].free = object->next_free;
    }
    object_lock.unlock();
    if (!object) object = (Object *)malloc(size);
    if (!object) return NULL;
    for (size_t i = 0; i < size; i++) ((char *)object)[i] = 0;
    __atomic_store_n(&object->kind, kind, __ATOMIC_RELEASE);
    return object;
}

static inline int is_object(const void *pointer, int32_t kind) {
    return __atomic_load_n(&((const Object *)pointer)->kind, __ATOMIC_ACQUIRE) == kind;
}

// 0 where it is not a live object of that kind: of two threads destroying one, one gets 0.
static inline int free_object(void *pointer, int32_t kind, size_t size) {
    Object *object = (Object *)pointer;
    int32_t expected = kind;
    if (!__atomic_compare_exchange_n(&object->kind, &expected, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 0;
    object_lock.lock();
    for (int pool = 0; pool < OBJECT_SIZES; pool++)
        if (object_pools[pool].size == size) {
            object->next_free = object_pools[pool].free;
            object_pools[pool].free = object;
            break;
        }
    object_lock.unlock();
    return 1;
}
