// Device memory: every block ends at a guard page, holds NaN when new, and is closed to the host.
#pragma once
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "api.h"

namespace emulation {

struct Context;

// Memory that stream-ordered allocations come from, in bytes; addresses are given out once, as everywhere here.
struct Pool {
  int device;
  uint64_t threshold = 0;  // what a synchronisation leaves to the pool
  size_t reserved = 0, used = 0;
};

struct Allocation {
  uintptr_t pages, start;
  size_t span, size;
  Context* context;  // of a pool: whoever asked
  bool host;         // pinned host memory: open to everybody
  Pool* pool = nullptr;
  bool ready = true;  // false until a stream-ordered allocation has run
  bool freeing = false;
  std::atomic<bool> open{false};
  uintptr_t end() const { return start + size; }
};

constexpr uintptr_t alignment = 256;
constexpr unsigned char fresh = 0xFF;               // NaN in every float format, -1 in the integers
constexpr size_t filled_whole = size_t(256) << 20;  // larger blocks are filled at both ends only, to spare RAM

inline uintptr_t round_up(uintptr_t value, uintptr_t to) { return (value + to - 1) / to * to; }

// The slack around a block: NaN in every float format, and different at every address, so that neither a value read
// there goes unnoticed nor one copied from the slack of another block.
inline unsigned char canary(uintptr_t address) {
  const unsigned hash = static_cast<unsigned>(address * 0x9E3779B97F4A7C15u >> 40);
  return static_cast<unsigned char>(address & 1 ? 0x7F | (hash & 0x80) : 0x81 + hash % 0x7E);
}

inline void write_canaries(uintptr_t from, uintptr_t to) {
  for (uintptr_t p = from; p < to; ++p) *reinterpret_cast<unsigned char*>(p) = canary(p);
}

// Tighter than a device, on request: less slack lets more overruns reach the guard page.
inline uintptr_t block_alignment() {
  const char* text = getenv("EMULATION_ALIGNMENT");
  const uintptr_t bytes = text ? strtoul(text, nullptr, 0) : alignment;
  return bytes && bytes <= alignment && !(bytes & (bytes - 1)) ? bytes : alignment;
}

class Memory {
 public:
  // Freed addresses are not given out again: a dangling pointer stays a fault for the life of the process.
  Allocation* allocate(size_t size, Context* context, bool host) {
    const size_t page = sysconf(_SC_PAGESIZE), span = round_up(size, page);
    const uintptr_t pages = reserve(span + page);
    if (!pages || mprotect(reinterpret_cast<void*>(pages), span, PROT_READ | PROT_WRITE)) return nullptr;
    Allocation& a = blocks_[pages];
    a.pages = pages;
    a.span = span;
    a.start = pages + span - round_up(size, block_alignment());
    a.size = size;
    a.context = context;
    a.host = host;
    write_canaries(a.pages, a.start);
    write_canaries(a.end(), a.pages + a.span);
    const size_t part = size > filled_whole ? size_t(1) << 20 : size;
    memset(reinterpret_cast<void*>(a.start), fresh, part);
    memset(reinterpret_cast<void*>(a.end() - part), fresh, part);
    if (!host) mprotect(reinterpret_cast<void*>(pages), span, PROT_NONE);
    alive_ += !host;
    bytes_ += host ? 0 : size;
    return &a;
  }

  void release(Allocation* a) {
    alive_ -= !a->host;
    bytes_ -= a->host ? 0 : a->size;
    if (a->pool) a->pool->used -= a->size;
    // A fresh mapping in place gives the pages back and keeps the addresses taken.
    mmap(reinterpret_cast<void*>(a->pages), a->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    blocks_.erase(a->pages);
  }

  Allocation* at_page(uintptr_t address) {
    auto it = blocks_.upper_bound(address);
    if (it == blocks_.begin()) return nullptr;
    Allocation& a = (--it)->second;
    return address < a.pages + a.span ? &a : nullptr;
  }

  Allocation* at(uintptr_t address) {
    Allocation* a = at_page(address);
    return a && address >= a->start && address < a->end() ? a : nullptr;
  }

  Allocation* range(uintptr_t address, size_t bytes) {
    Allocation* a = at(address);
    return a && bytes <= a->end() - address && !a->freeing ? a : nullptr;
  }

  static void open(Allocation& a) {
    if (a.host || a.open.exchange(true)) return;
    mprotect(reinterpret_cast<void*>(a.pages), a.span, PROT_READ | PROT_WRITE);
  }

  // Closes what was open; the text names the first block with a broken canary.
  std::string close() {
    std::string broken;
    for (auto& [pages, a] : blocks_) {
      if (!a.open) continue;
      const uintptr_t bad = damaged(a);
      if (bad) {
        if (broken.empty()) broken = describe(bad, "written", &a);
        write_canaries(a.pages, a.start);  // whole again, so that it is reported once
        write_canaries(a.end(), a.pages + a.span);
      }
      a.open = false;
      mprotect(reinterpret_cast<void*>(a.pages), a.span, PROT_NONE);
    }
    return broken;
  }

  std::string describe(uintptr_t address, const char* what, Allocation* a = nullptr) {
    char text[200];
    if (!a) a = nearest(address);
    if (!a) {
      snprintf(text, sizeof text, "address %#lx %s, near no allocation", static_cast<unsigned long>(address), what);
    } else {
      const long offset = static_cast<long>(address - a->start);
      snprintf(text, sizeof text, "byte %ld %s of a block of %zu bytes at %#lx", offset, what, a->size,
               static_cast<unsigned long>(a->start));
    }
    return text;
  }

  bool reserved(uintptr_t address) const {
    for (auto [first, last] : arenas_)
      if (address >= first && address < last) return true;
    return false;
  }

  std::map<uintptr_t, Allocation>& blocks() { return blocks_; }
  size_t alive() const { return alive_; }
  size_t bytes() const { return bytes_; }

 private:
  uintptr_t reserve(size_t bytes) {
    const size_t page = sysconf(_SC_PAGESIZE);
    if (bytes > left_) {
      for (left_ = size_t(1) << 40; left_ >= bytes + 2 * page; left_ >>= 1) {
        void* p = mmap(nullptr, left_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        next_ = reinterpret_cast<uintptr_t>(p) + page;
        left_ -= page;
        arenas_.emplace_back(next_, next_ + left_);
        break;
      }
      if (bytes > left_) return left_ = 0;
    }
    const uintptr_t taken = next_;
    next_ += bytes;
    left_ -= bytes;
    return taken;
  }

  static uintptr_t damaged(const Allocation& a) {
    for (uintptr_t p = a.pages; p < a.start; ++p)
      if (*reinterpret_cast<unsigned char*>(p) != canary(p)) return p;
    for (uintptr_t p = a.end(); p < a.pages + a.span; ++p)
      if (*reinterpret_cast<unsigned char*>(p) != canary(p)) return p;
    return 0;
  }

  Allocation* nearest(uintptr_t address) {
    constexpr uintptr_t near = 1 << 20;
    auto above = blocks_.upper_bound(address);
    if (above != blocks_.begin()) {
      Allocation& a = std::prev(above)->second;
      if (address - a.end() < near || address < a.end()) return &a;
    }
    if (above != blocks_.end() && above->second.start - address < near) return &above->second;
    return nullptr;
  }

  std::map<uintptr_t, Allocation> blocks_;
  std::vector<std::pair<uintptr_t, uintptr_t>> arenas_;
  uintptr_t next_ = 0;
  size_t left_ = 0, alive_ = 0, bytes_ = 0;
};

}  // namespace emulation
