// One host thread at work on the blocks of a launch: its fibers, and who runs next.
#pragma once
#include <setjmp.h>
#include <signal.h>
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "../include/emulation_runtime.h"
#include "api.h"
#include "fibers.h"
#include "schedule.h"

namespace emulation {

struct Context;

// What the threads of all blocks share while a launch runs.
struct Launch {
  const emulation_kernel* kernel;
  Context* context;
  uint3 grid, block;
  unsigned shared;
  const unsigned char* arguments;
  size_t module_tls;  // index of the module's thread-local block: its static shared arrays
  size_t module_tls_bytes;
  Schedule schedule;
  uint64_t blocks;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::atomic<int> code{0};
  char text[480] = "";
};

enum class State : unsigned char { unstarted, ready, collective, barrier, done };

struct Lane {
  Fiber* fiber;
  void* mine;
  emulation_combine combine;
  unsigned mask;
  int line;
};

class Worker {
 public:
  Worker() : lanes_(max_block), states_(max_block), index_(max_block), fibers_(max_block) {}

  void run(Launch& launch);
  void barrier(int line);
  void collective(unsigned mask, int line, void* mine, emulation_combine combine);
  [[noreturn]] void fail(int code, const char* what);
  void* dynamic_shared() const { return shared_; }
  bool running() const { return launch_ != nullptr; }
  Launch* launch() const { return launch_; }
  bool overflowed(uintptr_t address) const { return current_ >= 0 && lanes_[current_].fiber->guards(address); }

 private:
  static void entry();
  void start_block(uint64_t number);
  void finish_block();
  void run_block();
  int pick();
  void resume(int thread);
  void block();
  void enter_warp(int warp);
  int warp_threads(int warp) const {
    return threads_ - warp * warp_size < warp_size ? threads_ - warp * warp_size : warp_size;
  }
  Fiber* spare();
  std::string stuck();

  Launch* launch_ = nullptr;
  jmp_buf home_jump_;
  Fiber home_;
  std::vector<Lane> lanes_;
  std::vector<State> states_;
  std::vector<uint3> index_;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> free_;
  size_t made_ = 0;
  int threads_ = 0, warps_ = 0, current_ = -1;
  int position_ = 0, warp_position_ = 0, warp_ = 0, warp_size_ = 0;
  int done_ = 0, waiting_ = 0;
  int ready_[max_block / warp_size], arrived_[max_block / warp_size];
  unsigned char order_[warp_size], warp_order_[max_block / warp_size];
  Random random_;
  char* shared_pages_ = nullptr;
  unsigned char* shared_ = nullptr;
};

inline __thread Worker* worker __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace emulation
