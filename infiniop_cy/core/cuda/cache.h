// Kernels on disk. What lies there is run on the device, so only this user's files, or root's, are read, and only those
// that are whole: each holds its length and a hash of its name and content, against accidents, not against their owner.
// Files appear in one step; whoever is about to make one holds a lock, so that threads and processes make it once.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "cold.h"
#include "hash.h"

namespace cuda_build {

// INFINIOP_CY_CACHE_DIR, else a folder in the user's cache; empty where the environment names no home: the working
// directory is anybody's.
INFINIOP_COLD inline fs::path cache_folder() {
    const char *chosen = getenv("INFINIOP_CY_CACHE_DIR"), *user = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (chosen && *chosen) return chosen;
    if (user && *user == '/') return fs::path(user) / "infiniop_cy";
    return home && *home == '/' ? fs::path(home) / ".cache/infiniop_cy" : fs::path();
}

struct CacheHeader {
    char magic[16];
    uint64_t bytes, hash;
};
constexpr char cache_magic[16] = "infiniop_cy 001";

INFINIOP_COLD inline CacheHeader cache_header(const std::string &name, const std::string &image) {
    CacheHeader header = {};
    Hash hash;
    hash.add(name), hash.add(image);
    memcpy(header.magic, cache_magic, sizeof cache_magic);
    header.bytes = image.size(), header.hash = hash.value;
    return header;
}

// A file descriptor that is closed at the end.
struct File {
    int number;
    explicit File(int number_) : number(number_) {}
    File(const File &) = delete;
    ~File() {
        if (number >= 0) close(number);
    }
};

INFINIOP_COLD inline bool is_trusted(uid_t owner) { return owner == geteuid() || owner == 0; }

// The folder, made at need; -1 where there is none, or where others may exchange what is in it.
INFINIOP_COLD inline int open_cache() {
    const fs::path folder = cache_folder();
    if (folder.empty()) return -1;
    std::error_code ignored;
    fs::create_directories(folder.parent_path(), ignored);
    mkdir(folder.c_str(), 0755);
    const int number = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat facts;
    if (number < 0) return -1;
    if (fstat(number, &facts) == 0 && is_trusted(facts.st_uid) &&
        (!(facts.st_mode & S_IWOTH) || (facts.st_mode & S_ISVTX)))
        return number;
    close(number);
    return -1;
}

INFINIOP_COLD inline bool read_all(int file, void *to, size_t bytes) {
    for (char *p = (char *)to; bytes;) {
        const ssize_t got = read(file, p, bytes);
        if (got <= 0) return false;
        p += got, bytes -= size_t(got);
    }
    return true;
}

INFINIOP_COLD inline bool write_all(int file, const void *from, size_t bytes) {
    for (const char *p = (const char *)from; bytes;) {
        const ssize_t put = write(file, p, bytes);
        if (put <= 0) return false;
        p += put, bytes -= size_t(put);
    }
    return true;
}

// The content of a file that is ours, whole and no link; else empty.
INFINIOP_COLD inline std::string read_cached(const std::string &name) {
    const File folder(open_cache());
    if (folder.number < 0) return {};
    // a pipe in its place must not make us wait
    const File file(openat(folder.number, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat facts;
    CacheHeader header;
    if (file.number < 0 || fstat(file.number, &facts) || !S_ISREG(facts.st_mode) || !is_trusted(facts.st_uid) ||
        (facts.st_mode & (S_IWGRP | S_IWOTH)))
        return {};
    if (size_t(facts.st_size) < sizeof header || !read_all(file.number, &header, sizeof header) ||
        header.bytes != size_t(facts.st_size) - sizeof header)
        return {};
    std::string image(header.bytes, '\0');
    if (!read_all(file.number, &image[0], image.size())) return {};
    const CacheHeader expected = cache_header(name, image);
    return memcmp(&header, &expected, sizeof header) == 0 ? image : std::string();
}

// Puts a file there in one step, readable by all; a cache that cannot be written is no error.
INFINIOP_COLD inline void write_cached(const std::string &name, const std::string &start, const std::string &content) {
    static std::atomic<unsigned> count{0};
    const File folder(open_cache());
    if (folder.number < 0) return;
    const std::string part = name + "." + std::to_string(getpid()) + "." + std::to_string(count++) + ".part";
    const File file(openat(folder.number, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file.number < 0) return;
    if (!write_all(file.number, start.data(), start.size()) ||
        !write_all(file.number, content.data(), content.size()) ||
        renameat(folder.number, part.c_str(), folder.number, name.c_str()))
        unlinkat(folder.number, part.c_str(), 0);
}

INFINIOP_COLD inline void keep_cached(const std::string &name, const std::string &image) {
    const CacheHeader header = cache_header(name, image);
    write_cached(name, std::string((const char *)&header, sizeof header), image);
}

// Held by whoever makes a file, thread or process. Where it cannot be had, files are made more than once, as whole.
class Lock {
public:
    explicit Lock(const std::string &name) : name_(name + ".lock"), folder_(open_cache()) {
        while (folder_.number >= 0) {
            file_ = openat(folder_.number, name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
            if (file_ < 0) return;
            struct stat mine, there;
            int locked;
            while ((locked = flock(file_, LOCK_EX)) != 0 && errno == EINTR) {}
            // whoever had it has taken the file away: then there is a new one
            if (locked || (fstat(file_, &mine) == 0 && fstatat(folder_.number, name_.c_str(), &there, 0) == 0 &&
                           mine.st_ino == there.st_ino))
                return;
            close(file_);
        }
    }
    ~Lock() {
        if (file_ < 0) return;
        unlinkat(folder_.number, name_.c_str(), 0);
        flock(file_, LOCK_UN);  // a child that another thread has forked may have the descriptor, too
        close(file_);
    }
    Lock(const Lock &) = delete;

private:
    std::string name_;
    File folder_;
    int file_ = -1;
};

}  // namespace cuda_build
