// In place of cache.h and process.h on Windows, where this library uses no GPU: nothing is kept and nothing is run.
#pragma once
#include <string>
#include <vector>

#include "hash.h"

namespace cuda_build {

inline fs::path library_path() { return {}; }
inline fs::path cache_folder() { return {}; }
inline std::string read_cached(const std::string &) { return {}; }
inline void write_cached(const std::string &, const std::string &, const std::string &) {}
inline void keep_cached(const std::string &, const std::string &) {}
inline bool is_program(const fs::path &) { return false; }
inline bool run(const std::vector<std::string> &, const fs::path &) { return false; }

struct Lock {
    explicit Lock(const std::string &) {}
};
struct Scratch { std::string path; };

}  // namespace cuda_build
