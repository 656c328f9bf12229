// Running nvcc: where it is, what a module is made of, with which options, and what it says. The one way for Python and
// for the C API.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cold.h"
#include "hash.h"
#if defined(_WIN32)
#include "no_host.h"
#else
#include "cache.h"
#include "process.h"
#endif

namespace cuda_build {

// name: of a formula, or conv; dtype: index of these tables.
static const char *const dtype_names[] = {"float16", "bfloat16", "float32", "float64"};
static const char *const dtype_types[] = {"float16", "bfloat16", "float", "double"};

// Nothing is contracted, so that every kernel of a formula rounds alike.
static const char *const common_options[] = {"-std=c++17", "--fmad=false", "-DINFINIOP_ISA=cuda"};

// Where 16 bits are stored, the hardware's quotient, off by two ulp of single precision, changes next to nothing.
static const char *const narrow_options[] = {"--prec-div=false"};

// The Python package that this library, core/_core*.so or capi/lib/libinfiniop.so, is part of.
INFINIOP_COLD inline fs::path package_folder() {
    const fs::path library = library_path();
    if (library.empty()) return ".";
    fs::path folder = fs::weakly_canonical(library).parent_path();
    return folder.filename() == "lib" ? folder.parent_path().parent_path() : folder.parent_path();
}

// The .cu files, installed or in a checkout, and the headers that they share with the CPU.
INFINIOP_COLD inline std::vector<fs::path> source_folders() {
    fs::path package = package_folder(), installed = package / "_cuda";
    return {fs::is_directory(installed) ? installed : package.parent_path() / "cuda", package / "kernels"};
}

INFINIOP_COLD inline fs::path source_file(const std::string &name) {
    return source_folders()[0] / (name == "conv" ? "conv.cu" : "elementwise.cu");
}

INFINIOP_COLD inline std::vector<std::string> options(const std::string &name, int dtype) {
    std::vector<std::string> result(std::begin(common_options), std::end(common_options));
    result.push_back(std::string("-DINFINIOP_T=") + dtype_types[dtype]);
    if (name == "conv") return result;
    if (dtype <= 1) result.insert(result.end(), std::begin(narrow_options), std::end(narrow_options));
    const std::string suffix = "_backward";
    const bool backward =
        name.size() > suffix.size() && !name.compare(name.size() - suffix.size(), suffix.size(), suffix);
    result.push_back("-DINFINIOP_FORMULA=" + (backward ? name.substr(0, name.size() - suffix.size()) : name));
    result.push_back(std::string("-DINFINIOP_DIRECTION=") + (backward ? "gradient_of" : "value_of"));
    return result;
}

INFINIOP_COLD inline std::string read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Hashes all that a kernel may be made of: a change anywhere compiles anew.
INFINIOP_COLD inline uint64_t digest_sources() {
    Hash hash;
    for (const char *option : common_options) hash.add(option);
    for (const char *option : narrow_options) hash.add(option);
    for (const fs::path &folder : source_folders()) {
        std::vector<fs::path> files;
        for (const auto &entry : fs::directory_iterator(folder)) {
            const std::string suffix = entry.path().extension().string();
            if (suffix == ".cu" || suffix == ".cuh" || suffix == ".h") files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
        for (const fs::path &path : files) hash.add(path.filename().string()), hash.add(read_file(path));
    }
    return hash.value;
}

// Machine code for GPUs of one compute capability (90 for 9.0), or PTX, which the driver of any later one compiles.
struct Target {
    int capability;
    bool ptx;
    std::string name() const { return (ptx ? "compute_" : "sm_") + std::to_string(capability); }
};

// What an image is called in the cache.
INFINIOP_COLD inline std::string image_name(const std::string &name, int dtype, const Target &target) {
    static const uint64_t digest = digest_sources();
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)digest);
    return name + "-" + dtype_names[dtype] + "-" + target.name() + "-" + hash + (target.ptx ? ".ptx" : ".cubin");
}

// INFINIOP_CY_NVCC; on PATH; in the folder that CUDA_HOME or CUDA_PATH names; in /usr/local/cuda; of the wheel
// nvidia-cuda-nvcc, beside this package. Empty where there is none.
INFINIOP_COLD inline std::string find_nvcc() {
    if (const char *chosen = getenv("INFINIOP_CY_NVCC"))
        if (*chosen) return chosen;
    std::vector<fs::path> places;
    const char *path = getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (!folder.empty()) places.push_back(fs::path(folder) / "nvcc");
    for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
        if (const char *folder = getenv(variable))
            if (*folder) places.push_back(fs::path(folder) / "bin/nvcc");
    places.push_back("/usr/local/cuda/bin/nvcc");
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(package_folder().parent_path() / "nvidia", ignored))
        places.push_back(entry.path() / "bin/nvcc");
    for (const fs::path &place : places)
        if (is_program(place)) return place.string();
    return {};
}

// An image, or why there is none, in nvcc's words or ours.
struct Built {
    std::string image, words;
    bool has_compiler = false;
};

INFINIOP_COLD inline Built compile(const std::string &name, int dtype, const Target &target) {
    Built built;
    const std::string nvcc = find_nvcc();
    built.has_compiler = !nvcc.empty() && is_program(nvcc);
    if (!built.has_compiler) {
        built.words = nvcc.empty()
                          ? "nvcc is not on PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda, nor a wheel beside "
                            "this package; INFINIOP_CY_NVCC may name it"
                          : "INFINIOP_CY_NVCC is " + nvcc + ", which is no program";
        return built;
    }
    const Scratch scratch;
    if (scratch.path.empty()) {
        built.words = "there is no folder for temporary files (TMPDIR)";
        return built;
    }
    const fs::path output = fs::path(scratch.path) / "image", log = fs::path(scratch.path) / "log";
    std::vector<std::string> words = {nvcc,           target.ptx ? "--ptx" : "--cubin", "-arch", target.name(), "-o",
                                      output.string()};
    for (const std::string &option : options(name, dtype)) words.push_back(option);
    for (const fs::path &folder : source_folders()) words.push_back("-I" + folder.string());
    words.push_back(source_file(name).string());
    if (run(words, log)) built.image = read_file(output);
    if (built.image.empty()) built.words = nvcc + ": " + read_file(log);
    return built;
}

// The highest compute capability up to this one that nvcc knows; 0 where it knows none, or does not say.
INFINIOP_COLD inline int known_capability(int capability) {
    const Scratch scratch;
    const fs::path log = fs::path(scratch.path) / "log";
    if (scratch.path.empty() || !run({find_nvcc(), "--list-gpu-arch"}, log)) return 0;
    std::istringstream lines(read_file(log));
    int known = 0, number;
    for (std::string line; std::getline(lines, line);)
        if (sscanf(line.c_str(), "compute_%d", &number) == 1 && number <= capability) known = std::max(known, number);
    return known;
}

}  // namespace cuda_build
