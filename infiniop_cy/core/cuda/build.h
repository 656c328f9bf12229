// CUDA kernels on disk: what a module is called in the cache, what it is made of and with which options. Python
// compiles through PyCUDA (backends/cuda_build.py), the C API by running nvcc itself; both keep the result here.
//
// A file is named by formula, dtype, GPU and a digest of the sources and options: a changed source is compiled again,
// and a filled cache needs no compiler. The compiler's version is not in the name; what does not load is compiled
// again.
#pragma once
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "driver.h"

extern char **environ;

namespace cuda_build {
namespace fs = std::filesystem;

enum { LOWEST_CAPABILITY = 75 };

// name: of a formula, or conv_backward; dtype: index of these tables; capability: 90 for 9.0.
static const char *const dtype_names[] = {"float16", "bfloat16", "float32", "float64"};
static const char *const dtype_types[] = {"float16", "bfloat16", "float", "double"};

// Nothing is contracted, so that every kernel of a formula rounds alike.
static const char *const common_options[] = {"-std=c++17", "--fmad=false", "-DINFINIOP_ISA=cuda"};

// The Python package that this library, core/_core*.so or capi/lib/libinfiniop.so, is part of.
inline fs::path package_folder() {
    Dl_info info;
    if (!dladdr((void *)common_options, &info)) return ".";
    fs::path folder = fs::weakly_canonical(info.dli_fname).parent_path();
    return folder.filename() == "lib" ? folder.parent_path().parent_path() : folder.parent_path();
}

// The .cu files, installed or in a checkout, and the headers that they share with the CPU.
inline std::vector<fs::path> source_folders() {
    fs::path package = package_folder(), installed = package / "_cuda";
    return {fs::is_directory(installed) ? installed : package.parent_path() / "cuda", package / "kernels"};
}

inline fs::path source_file(const std::string &name) {
    return source_folders()[0] / (name == "conv_backward" ? "conv_backward.cu" : "elementwise.cu");
}

inline std::vector<std::string> options(const std::string &name, int dtype) {
    std::vector<std::string> result(std::begin(common_options), std::end(common_options));
    result.push_back(std::string("-DINFINIOP_T=") + dtype_types[dtype]);
    if (name == "conv_backward") return result;
    const std::string suffix = "_backward";
    const bool backward =
        name.size() > suffix.size() && !name.compare(name.size() - suffix.size(), suffix.size(), suffix);
    const std::string formula = backward ? name.substr(0, name.size() - suffix.size()) : name;
    result.push_back("-DINFINIOP_FORMULA=" + formula);
    result.push_back(std::string("-DINFINIOP_DIRECTION=") + (backward ? "gradient_of" : "value_of"));
    return result;
}

// Returns INFINIOP_CY_CACHE_DIR, else a folder in the user's cache.
inline fs::path cache_folder() {
    const char *chosen = getenv("INFINIOP_CY_CACHE_DIR"), *user = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (chosen && *chosen) return chosen;
    return (user && *user ? fs::path(user) : fs::path(home ? home : ".") / ".cache") / "infiniop_cy";
}

inline std::string read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Hashes, by FNV-1a, all that a kernel may be made of: a change anywhere compiles anew.
inline uint64_t digest() {
    uint64_t hash = 0xcbf29ce484222325u;
    auto add = [&](const std::string &text) {
        for (unsigned char byte : text + '\0') hash = (hash ^ byte) * 0x100000001b3u;
    };
    for (const char *option : common_options) add(option);
    for (const fs::path &folder : source_folders()) {
        std::vector<fs::path> files;
        for (const auto &entry : fs::directory_iterator(folder)) {
            std::string suffix = entry.path().extension();
            if (suffix == ".cu" || suffix == ".cuh" || suffix == ".h") files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
        for (const fs::path &path : files) add(path.filename()), add(read_file(path));
    }
    return hash;
}

inline fs::path cubin_path(const std::string &name, int dtype, int capability) {
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)digest());
    return cache_folder() /
           (name + "-" + dtype_names[dtype] + "-sm_" + std::to_string(capability) + "-" + hash + ".cubin");
}

// Looks for nvcc on PATH, then in the toolkit that a variable names.
inline std::string find_nvcc() {
    const char *path = getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (!folder.empty() && access((folder + "/nvcc").c_str(), X_OK) == 0) return folder + "/nvcc";
    for (const char *name : {"CUDA_HOME", "CUDA_PATH"})
        if (const char *folder = getenv(name))
            if (access((std::string(folder) + "/bin/nvcc").c_str(), X_OK) == 0)
                return std::string(folder) + "/bin/nvcc";
    return "nvcc";
}

// Runs nvcc, whose own words go to path + ".log"; returns whether the cubin is there.
inline bool compile(const std::string &name, int dtype, int capability, const fs::path &path) {
    fs::create_directories(path.parent_path());
    std::string part = path.string() + "." + std::to_string(getpid()) + ".part", log = path.string() + ".log";
    std::vector<std::string> words = {find_nvcc(), "--cubin", "-arch", "sm_" + std::to_string(capability), "-o", part};
    for (const std::string &option : options(name, dtype)) words.push_back(option);
    for (const fs::path &folder : source_folders()) words.push_back("-I" + folder.string());
    words.push_back(source_file(name));
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(&word[0]);
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int status = 1;
    if (posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    if (status == 0) {
        fs::rename(part, path);  // in one step: no other process reads half of it
        fs::remove(log);
        return true;
    }
    std::error_code ignored;
    fs::remove(part, ignored);
    return false;
}

// Returns the machine code, from the cache or compiled; empty where there is no compiler or it fails.
inline std::string cubin(const std::string &name, int dtype, int capability, bool fresh) {
    fs::path path = cubin_path(name, dtype, capability);
    std::string image = fresh ? std::string() : read_file(path);
    if (image.empty() && compile(name, dtype, capability, path)) image = read_file(path);
    return image;
}

// Loads a module whose kernels have these names; CUDA_NO_KERNELS where they cannot be compiled.
inline int load(int device, int number, const char *name, int dtype, const char *const *kernels, int count) noexcept {
    CudaDevice *opened;
    int code = cuda_open(device, &opened);
    if (code) return code;
    if (opened->capability < LOWEST_CAPABILITY) return CUDA_OLD_DEVICE;
    code = CUDA_NO_KERNELS;
    try {
        for (bool fresh : {false, true}) {  // what another compiler left in the cache may not load
            std::string image = cubin(name, dtype, opened->capability, fresh);
            if (image.empty()) return CUDA_NO_KERNELS;
            if ((code = cuda_enter(device))) return code;
            code = cuda_add_module(device, number, image.data(), kernels, count);
            cuda_leave();
            if (!code) break;
        }
    } catch (...) {}
    return code;
}

}  // namespace cuda_build
