// What a handler of XLA's typed FFI, by which JAX calls compiled code on a CPU, sees of it. The interface is plain C
// structs that carry their sizes and only grow at their ends, so nothing of jaxlib is needed to build; XLA asks each
// handler for the version below when it is registered.
// Source: the C API of the FFI, version 0.1 (xla/ffi/api/c_api.h, openxla.org/xla/custom_call).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xla_ffi {

constexpr int MAJOR = 0, MINOR = 1;
constexpr int METADATA = 1;  // the extension by which XLA asks for the version
constexpr int INVALID_ARGUMENT = 3;
enum Dtype : int { F16 = 10, F32 = 11, F64 = 12, BF16 = 16 };

struct Extension {
    size_t size;
    int type;
    Extension *next;
};
struct Version {
    size_t size;
    Extension *extension;
    int major, minor;
};
struct Metadata {
    size_t size;
    Version version;
    uint32_t traits;
};
struct MetadataExtension {
    Extension base;
    Metadata *metadata;
};

struct Error;
struct ErrorToCreate {
    size_t size;
    Extension *extension;
    const char *message;
    int code;
};
struct Api {
    size_t size;
    Extension *extension;
    Version version;
    const void *internal;
    Error *(*create_error)(ErrorToCreate *);
};

struct Buffer {
    size_t size;
    Extension *extension;
    int dtype;
    char *data;
    int64_t rank;
    const int64_t *dims;
};
struct Text {
    const char *text;
    size_t length;
};
struct Array {
    int dtype;
    size_t count;
    const void *data;
};
struct Buffers {
    size_t size;
    Extension *extension;
    int64_t count;
    const int *kinds;
    Buffer **buffers;
};
struct Attributes {
    size_t size;
    Extension *extension;
    int64_t count;
    const int *kinds;
    const Text **names;
    const void **values;
};
struct Call {
    size_t size;
    Extension *extension;
    const Api *api;
    void *context;
    int stage;
    Buffers arguments, results;
    Attributes attributes;
};

// Answers XLA's question for the version; false where the call is one to compute.
inline bool answers(Call *call) {
    if (!call->extension || call->extension->type != METADATA) return false;
    Metadata *metadata = reinterpret_cast<MetadataExtension *>(call->extension)->metadata;
    metadata->version.major = MAJOR;
    metadata->version.minor = MINOR;
    metadata->traits = 0;
    return true;
}

inline Error *error(Call *call, const char *message) {
    ErrorToCreate arguments = {sizeof arguments, nullptr, message, INVALID_ARGUMENT};
    return call->api->create_error(&arguments);
}

inline const void *attribute(const Call *call, const char *name) {
    const Attributes &all = call->attributes;
    for (int64_t i = 0; i < all.count; i++)
        if (all.names[i]->length == strlen(name) && !memcmp(all.names[i]->text, name, strlen(name)))
            return all.values[i];
    return nullptr;
}

}  // namespace xla_ffi
