// The CUDA driver: found when first asked for, so that nothing here needs CUDA to build or to load. Contexts are the
// devices' primary ones, which torch, CuPy and PyCUDA use too; they are pushed around each call and never left current.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <mutex>
#if !defined(_WIN32)
#include <dlfcn.h>
#endif

enum {
    // besides the driver's own codes
    CUDA_NO_DRIVER = -1,   // libcuda.so.1, or a function in it, is missing
    CUDA_NO_KERNELS = -2,  // there is no compiler for them, or it fails
    CUDA_OLD_DEVICE = -3,
    CUDA_NO_MEMORY = 2,
    CUDA_NO_SUCH_DEVICE = 101,
    CUDA_NOT_READY = 600,
    CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    CUDA_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    CUDA_ATTRIBUTE_CAPABILITY_MINOR = 76,
    CUDA_POINTER_CONTEXT = 1,
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_DEVICE_MEMORY = 2,
    CUDA_POOL_PINNED = 1,
    CUDA_POOL_ON_DEVICE = 1,
    CUDA_POOL_RELEASE_THRESHOLD = 4,
    CUDA_EVENT_WITHOUT_TIMING = 2,
    CUDA_MAX_DEVICES = 64,
};

// Of a memory pool, in the driver's layout.
struct CudaPoolProperties {
    int kind, shared_as, place, device;
    void *security;
    size_t most;
    unsigned char reserved[56];
};

struct CudaDriver {
    int (*init)(unsigned flags);
    int (*error_name)(int code, const char **text);
    int (*error_text)(int code, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int index);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*retain_primary_context)(void **context, int device);
    int (*push_context)(void *context);
    int (*pop_context)(void **context);
    int (*synchronize_context)(void);
    int (*load_module)(void **module, const void *image);
    int (*unload_module)(void *module);
    int (*get_function)(void **function, void *module, const char *name);
    int (*launch_kernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                         void **extra);
    int (*allocate)(void **address, size_t bytes);
    int (*release)(void *address);
    int (*create_pool)(void **pool, const CudaPoolProperties *properties);
    int (*set_pool_attribute)(void *pool, int attribute, void *value);
    int (*trim_pool)(void *pool, size_t bytes);
    int (*allocate_async)(void **address, size_t bytes, void *pool, void *stream);
    int (*release_async)(void *address, void *stream);
    int (*copy)(void *to, const void *from, size_t bytes);
    int (*copy_async)(void *to, const void *from, size_t bytes, void *stream);
    int (*create_event)(void **event, unsigned flags);
    int (*record_event)(void *event, void *stream);
    int (*destroy_event)(void *event);
    int (*query_event)(void *event);
    int (*synchronize_event)(void *event);
    int (*wait_event)(void *stream, void *event, unsigned flags);
    int (*synchronize_stream)(void *stream);
    int (*pointer_attribute)(void *value, int attribute, void *address);
};

static CudaDriver cuda_driver;
static int cuda_driver_state = CUDA_NO_DRIVER;  // of loading and cuInit
static const char *cuda_missing = "libcuda.so.1";

#if defined(_WIN32)  // no GPU is used there
static inline void *open_driver(void) { return NULL; }
static inline void *find_in_driver(void *, const char *) { return NULL; }
#else
static inline void *open_driver(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); }
static inline void *find_in_driver(void *library, const char *name) { return dlsym(library, name); }
#endif

static inline void cuda_load_driver(void) {
    static const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"cuInit", &cuda_driver.init},
        {"cuGetErrorName", &cuda_driver.error_name},
        {"cuGetErrorString", &cuda_driver.error_text},
        {"cuDeviceGetCount", &cuda_driver.device_count},
        {"cuDeviceGet", &cuda_driver.device_get},
        {"cuDeviceGetAttribute", &cuda_driver.device_attribute},
        {"cuDevicePrimaryCtxRetain", &cuda_driver.retain_primary_context},
        {"cuCtxPushCurrent_v2", &cuda_driver.push_context},
        {"cuCtxPopCurrent_v2", &cuda_driver.pop_context},
        {"cuCtxSynchronize", &cuda_driver.synchronize_context},
        {"cuModuleLoadData", &cuda_driver.load_module},
        {"cuModuleUnload", &cuda_driver.unload_module},
        {"cuModuleGetFunction", &cuda_driver.get_function},
        {"cuLaunchKernel", &cuda_driver.launch_kernel},
        {"cuMemAlloc_v2", &cuda_driver.allocate},
        {"cuMemFree_v2", &cuda_driver.release},
        {"cuMemPoolCreate", &cuda_driver.create_pool},
        {"cuMemPoolSetAttribute", &cuda_driver.set_pool_attribute},
        {"cuMemPoolTrimTo", &cuda_driver.trim_pool},
        {"cuMemAllocFromPoolAsync", &cuda_driver.allocate_async},
        {"cuMemFreeAsync", &cuda_driver.release_async},
        {"cuMemcpy", &cuda_driver.copy},
        {"cuMemcpyAsync", &cuda_driver.copy_async},
        {"cuEventCreate", &cuda_driver.create_event},
        {"cuEventRecord", &cuda_driver.record_event},
        {"cuEventDestroy_v2", &cuda_driver.destroy_event},
        {"cuEventQuery", &cuda_driver.query_event},
        {"cuEventSynchronize", &cuda_driver.synchronize_event},
        {"cuStreamWaitEvent", &cuda_driver.wait_event},
        {"cuStreamSynchronize", &cuda_driver.synchronize_stream},
        {"cuPointerGetAttribute", &cuda_driver.pointer_attribute},
    };
    void *library = open_driver();
    if (!library) return;
    for (const auto &symbol : symbols) {
        void *address = find_in_driver(library, symbol.name);
        if (!address) {
            cuda_missing = symbol.name;
            return;
        }
        *(void **)symbol.slot = address;
    }
    cuda_missing = NULL;
    cuda_driver_state = cuda_driver.init(0);
}

// Loads and starts the driver once; returns 0 when it runs.
static inline int cuda_start(void) {
    static const bool started = (cuda_load_driver(), true);
    (void)started;
    return cuda_driver_state;
}

// Counts the devices that can be opened.
static inline int cuda_device_count(void) {
    int count = 0;
    if (cuda_start() || cuda_driver.device_count(&count)) return 0;
    return count < CUDA_MAX_DEVICES ? count : CUDA_MAX_DEVICES;
}

// Finds the driver's name and text of a code, or what is missing.
static inline void cuda_explain(int code, const char **name, const char **text) {
    *name = "no CUDA driver";
    *text = cuda_missing ? cuda_missing : "unknown";
    if (code != CUDA_NO_DRIVER && !cuda_missing) {
        *name = *text = "unknown error";
        cuda_driver.error_name(code, name);
        cuda_driver.error_text(code, text);
    }
}

// ---- devices

struct CudaDevice {
    void *context;
    void *pool;      // of temporary memory; null where the device has none
    int capability;  // 90 for 9.0
    int multiprocessors;
};

static CudaDevice cuda_devices[CUDA_MAX_DEVICES];
static std::mutex cuda_lock;

// Makes a pool that keeps all that it ever had: the default one gives everything back whenever the host waits, and to
// take it anew costs milliseconds.
static inline void *cuda_new_pool(int device) {
    CudaPoolProperties properties = {};
    properties.kind = CUDA_POOL_PINNED, properties.place = CUDA_POOL_ON_DEVICE, properties.device = device;
    void *pool = NULL;
    uint64_t everything = UINT64_MAX;
    if (cuda_driver.create_pool(&pool, &properties)) return NULL;
    cuda_driver.set_pool_attribute(pool, CUDA_POOL_RELEASE_THRESHOLD, &everything);
    return pool;
}

static inline int cuda_open_locked(int index, CudaDevice *opened) {
    int device, major, minor, code;
    if ((code = cuda_driver.device_get(&device, index))) return code;
    if ((code = cuda_driver.device_attribute(&major, CUDA_ATTRIBUTE_CAPABILITY_MAJOR, device))) return code;
    if ((code = cuda_driver.device_attribute(&minor, CUDA_ATTRIBUTE_CAPABILITY_MINOR, device))) return code;
    if ((code = cuda_driver.device_attribute(&opened->multiprocessors, CUDA_ATTRIBUTE_MULTIPROCESSORS, device)))
        return code;
    opened->capability = 10 * major + minor;
    if ((code = cuda_driver.retain_primary_context(&opened->context, device))) return code;
    opened->pool = cuda_new_pool(device);
    return 0;
}

// Opens a device; its primary context is retained until the process ends.
static inline int cuda_open(int index, CudaDevice **device) {
    int code = cuda_start();
    if (code) return code;
    if (index < 0 || index >= cuda_device_count()) return CUDA_NO_SUCH_DEVICE;
    *device = &cuda_devices[index];
    if (__atomic_load_n(&cuda_devices[index].context, __ATOMIC_ACQUIRE)) return 0;
    cuda_lock.lock();
    if (!cuda_devices[index].context) {
        CudaDevice opened = {};
        code = cuda_open_locked(index, &opened);
        if (!code) {
            cuda_devices[index].capability = opened.capability;
            cuda_devices[index].multiprocessors = opened.multiprocessors;
            cuda_devices[index].pool = opened.pool;
            __atomic_store_n(&cuda_devices[index].context, opened.context, __ATOMIC_RELEASE);
        }
    }
    cuda_lock.unlock();
    return code;
}

static inline int cuda_enter(int index) {
    CudaDevice *device;
    int code = cuda_open(index, &device);
    return code ? code : cuda_driver.push_context(device->context);
}
static inline void cuda_leave(void) {
    void *context;
    cuda_driver.pop_context(&context);
}

// Returns the index of the device that an address belongs to, -1 for one that belongs to none.
static inline int cuda_device_of(const void *address) {
    int ordinal = -1;
    if (cuda_start() || cuda_driver.pointer_attribute(&ordinal, CUDA_POINTER_DEVICE_ORDINAL, (void *)address))
        return -1;
    return ordinal;
}

// Tells whether device memory belongs to another context than the device's primary one, as that of `import
// pycuda.autoinit`: a kernel of ours would fault on it, and the fault would end the process's use of the device. The
// driver names no context for memory of pools, which all of a device's contexts may use.
static inline int cuda_is_foreign(int index, const void *address) {
    void *context = NULL;
    unsigned kind = 0;
    if (cuda_driver.pointer_attribute(&context, CUDA_POINTER_CONTEXT, (void *)address) || !context) return 0;
    return context != cuda_devices[index].context &&
           !cuda_driver.pointer_attribute(&kind, CUDA_POINTER_MEMORY_TYPE, (void *)address) &&
           kind == CUDA_DEVICE_MEMORY;
}

// What `stream` does from now on happens after what `other` was given before. Call it inside cuda_enter.
static inline int cuda_follow(void *stream, void *other) {
    void *event;
    int code = cuda_driver.create_event(&event, CUDA_EVENT_WITHOUT_TIMING);
    if (code) return code;
    code = cuda_driver.record_event(event, other);
    if (!code) code = cuda_driver.wait_event(stream, event, 0);
    cuda_driver.destroy_event(event);
    return code;
}

// An event where `stream` is now; whether it is behind that by now, or once the host has waited.
static inline int cuda_mark(void **event, void *stream) {
    int code = cuda_driver.create_event(event, CUDA_EVENT_WITHOUT_TIMING);
    if (code) return code;
    code = cuda_driver.record_event(*event, stream);
    if (code) cuda_driver.destroy_event(*event), *event = NULL;
    return code;
}
static inline int cuda_marked(void *event, int wait) {
    return (wait ? cuda_driver.synchronize_event(event) : cuda_driver.query_event(event)) != CUDA_NOT_READY;
}
static inline void cuda_unmark(void *event) { cuda_driver.destroy_event(event); }

// Gives what the pool holds and nobody uses back to the device, for whoever had too little.
static inline void cuda_trim(int index) {
    if (!cuda_devices[index].pool) return;
    cuda_driver.synchronize_context();  // so that what is freed in some stream's order is free
    cuda_driver.trim_pool(cuda_devices[index].pool, 0);
}

// Allocates and frees; neither knows a stream, so that cuda_free waits for all. Call these and the next two inside
// cuda_enter.
static inline int cuda_new(int index, void **address, size_t bytes) {
    int code = cuda_driver.allocate(address, bytes);
    if (code != CUDA_NO_MEMORY) return code;
    cuda_trim(index);
    return cuda_driver.allocate(address, bytes);
}
static inline int cuda_free(void *address) { return cuda_driver.release(address); }

// Allocates and frees in the order of a stream, so that neither call waits.
static inline int cuda_allocate(int index, void **address, size_t bytes, void *stream) {
    void *pool = cuda_devices[index].pool;
    if (!pool) return cuda_driver.allocate(address, bytes);
    int code = cuda_driver.allocate_async(address, bytes, pool, stream);
    if (code != CUDA_NO_MEMORY) return code;
    cuda_trim(index);
    return cuda_driver.allocate_async(address, bytes, pool, stream);
}
static inline int cuda_release(int index, void *address, void *stream) {
    return cuda_devices[index].pool ? cuda_driver.release_async(address, stream) : cuda_driver.release(address);
}
static inline int cuda_copy(void *to, const void *from, size_t bytes, void *stream) {
    return cuda_driver.copy_async(to, from, bytes, stream);
}
static inline int cuda_synchronize(void *stream) { return cuda_driver.synchronize_stream(stream); }

// ---- modules: the kernels of one formula or convolution, for one dtype

enum { CUDA_MAX_KERNELS = 32, CUDA_MAX_MODULES = 512 };

struct CudaModule {
    void *module;
    void *function[CUDA_MAX_KERNELS];
};

static CudaModule *cuda_modules[CUDA_MAX_DEVICES][CUDA_MAX_MODULES];

static inline CudaModule *cuda_find_module(int device, int number) {
    return __atomic_load_n(&cuda_modules[device][number], __ATOMIC_ACQUIRE);
}

// Loads an image as that module, unless another thread was first. Call it inside cuda_enter.
static inline int cuda_add_module(int device, int number, const void *image, const char *const *names, int count) {
    CudaModule *module = new CudaModule();
    int code = cuda_driver.load_module(&module->module, image);
    if (code) {
        delete module;
        return code;
    }
    for (int i = 0; i < count && !code; i++)
        code = cuda_driver.get_function(&module->function[i], module->module, names[i]);
    CudaModule *none = NULL;
    if (code || !__atomic_compare_exchange_n(&cuda_modules[device][number], &none, module, 0, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {
        cuda_driver.unload_module(module->module);
        delete module;
    }
    return code;
}

// A queue is where a module's kernels run. Launch inside cuda_enter.
struct CudaQueue {
    const CudaModule *module;
    void *stream;
};

static inline int cuda_launch(void *queue_, int kernel, const unsigned grid[3], unsigned block, const void *arguments,
                              size_t bytes) {
    const CudaQueue *queue = (const CudaQueue *)queue_;
    void *parameters[] = {(void *)arguments};
    (void)bytes;
    return cuda_driver.launch_kernel(queue->module->function[kernel], grid[0], grid[1], grid[2], block, 1, 1, 0,
                                     queue->stream, parameters, NULL);
}
