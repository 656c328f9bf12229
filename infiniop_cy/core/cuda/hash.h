// What a compiled kernel is named and recognised by.
#pragma once
#include <stdint.h>

#include <filesystem>
#include <string>

namespace cuda_build {
namespace fs = std::filesystem;

// FNV-1a.
struct Hash {
    uint64_t value = 0xcbf29ce484222325u;
    void add(const std::string &text) {
        for (unsigned char byte : text) value = (value ^ byte) * 0x100000001b3u;
        value *= 0x100000001b3u;  // so that where one text ends and the next begins counts
    }
};

}  // namespace cuda_build
