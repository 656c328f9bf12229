// The kernels of a module for the GPU at hand: from the cache, or compiled and kept there.
//
// A file is named by formula, dtype, GPU and a digest of the sources and options: a changed source is compiled again,
// and a filled cache needs no compiler. The compiler's version is not in the name; what does not load is compiled
// again.
#pragma once
#include "compile.h"
#include "driver.h"

namespace cuda_build {

enum { LOWEST_CAPABILITY = 75 };

// The image for exactly this target. fresh: compiled even where the cache has it.
INFINIOP_COLD inline Built make(const std::string &name, int dtype, const Target &target, bool fresh) {
    Built built;
    const std::string file = image_name(name, dtype, target);
    if (!fresh) built.image = read_cached(file);
    if (!built.image.empty()) return built;
    const Lock lock(file);
    if (!fresh) built.image = read_cached(file);  // of whoever had the lock
    if (!built.image.empty()) return built;
    built = compile(name, dtype, target);
    if (!built.image.empty()) keep_cached(file, built.image);
    return built;
}

// What else runs there, from the cache: machine code for an earlier GPU of the same generation, else PTX.
INFINIOP_COLD inline std::string read_substitute(const std::string &name, int dtype, int capability) {
    std::string image;
    for (int n = capability - 1; n >= capability / 10 * 10 && image.empty(); n--)
        image = read_cached(image_name(name, dtype, {n, false}));
    for (int n = capability; n >= LOWEST_CAPABILITY && image.empty(); n--)
        image = read_cached(image_name(name, dtype, {n, true}));
    return image;
}

// An image that a GPU of this compute capability can load. Where there is no compiler, or none that knows the GPU, what
// the cache has for its relatives; else PTX for the nearest that the compiler knows.
INFINIOP_COLD inline Built build(const std::string &name, int dtype, int capability, bool fresh) {
    Built built = make(name, dtype, {capability, false}, fresh);
    if (!built.image.empty()) return built;
    const int known = built.has_compiler ? known_capability(capability) : 0;
    if (known == capability) return built;  // then its words are about the source
    const std::string words = built.words;
    if (!fresh) built.image = read_substitute(name, dtype, capability);
    if (built.image.empty() && known >= LOWEST_CAPABILITY) built = make(name, dtype, {known, true}, fresh);
    if (built.words.empty()) built.words = words;
    return built;
}

// Loads a module whose kernels have these names; CUDA_NO_KERNELS where they cannot be compiled: then the compiler's
// words are beside where they would be.
INFINIOP_COLD inline int load(int device, int number, const char *name, int dtype, const char *const *kernels,
                              int count) noexcept {
    CudaDevice *opened;
    int code = cuda_open(device, &opened);
    if (code) return code;
    if (opened->capability < LOWEST_CAPABILITY) return CUDA_OLD_DEVICE;
    code = CUDA_NO_KERNELS;
    try {
        for (bool fresh : {false, true}) {  // what another compiler left in the cache may not load
            const Built built = build(name, dtype, opened->capability, fresh);
            if (built.image.empty()) {
                write_cached(image_name(name, dtype, {opened->capability, false}) + ".log", built.words, "\n");
                return CUDA_NO_KERNELS;
            }
            if ((code = cuda_enter(device))) return code;
            code = cuda_add_module(device, number, built.image.data(), kernels, count);
            cuda_leave();
            if (!code) break;
        }
    } catch (...) {}
    return code;
}

}  // namespace cuda_build
