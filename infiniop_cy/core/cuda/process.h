// What running a compiler asks of a POSIX system: where this library lies, programs, and a folder of one's own.
#pragma once
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "cold.h"
#include "hash.h"

extern char **environ;

namespace cuda_build {

// The file that this code is in; empty where the loader does not say.
INFINIOP_COLD inline fs::path library_path() {
    static const char here = 0;
    Dl_info info;
    return dladdr(&here, &info) ? info.dli_fname : fs::path();
}

INFINIOP_COLD inline bool is_program(const fs::path &path) {
    return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

// Runs a program, its words into a file; whether it ended well. Where somebody else collects this process's children,
// nobody can tell, and what it left behind has to be looked at.
INFINIOP_COLD inline bool run(std::vector<std::string> words, const fs::path &log) {
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(&word[0]);
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int status = 0;
    const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        std::ofstream(log) << words[0] << ": " << strerror(failed) << "\n";
        return false;
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return true;
    return status == 0;
}

// A folder for one compilation that no other user can look into, and that is gone at the end.
struct Scratch {
    std::string path;
    Scratch() {
        const char *folder = getenv("TMPDIR");
        path = std::string(folder && *folder ? folder : "/tmp") + "/infiniop_cy-XXXXXX";
        if (!mkdtemp(&path[0])) path.clear();
    }
    ~Scratch() {
        std::error_code ignored;
        if (!path.empty()) fs::remove_all(path, ignored);
    }
    Scratch(const Scratch &) = delete;
};

}  // namespace cuda_build
