// How a worker goes through blocks: threads run until they wait, on as few stacks as wait at once.
#pragma once
#include <sys/mman.h>
#include <cfenv>
#include <cstring>

#include "worker.h"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
__thread unsigned emulation_lane;

struct TlsIndex { unsigned long module, offset; };
extern "C" void* __tls_get_addr(TlsIndex*);

namespace emulation {

constexpr unsigned char shared_fresh = 0xFF, shared_canary = 0xA9;
constexpr size_t shared_guard = 64 << 10;  // a whole number of pages on every machine
constexpr size_t shared_span = (max_shared + shared_guard - 1) / shared_guard * shared_guard;
constexpr size_t shared_alignment = 128, page_bytes = 4096;
constexpr size_t poisoned_each_block = 64 << 10;  // larger static shared memory is poisoned less often

inline void Worker::run(Launch& launch) {
  launch_ = &launch;
  worker = this;
  threads_ = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  warps_ = (threads_ + warp_size - 1) / warp_size;
  blockDim = launch.block;
  gridDim = launch.grid;
  random_ = Random();
  // Stacks of the launch before, maybe left in the middle of a fault, start anew.
  free_.clear();
  made_ = 0;
  int t = 0;
  for (unsigned z = 0; z < launch.block.z; ++z)
    for (unsigned y = 0; y < launch.block.y; ++y)
      for (unsigned x = 0; x < launch.block.x; ++x) index_[t++] = uint3{x, y, z};
  // Kernels see the default rounding and subnormals, whatever the caller has set.
  fenv_t before;
  fegetenv(&before);
  fesetenv(FE_DFL_ENV);
  if (_setjmp(home_jump_) == 0) {
    for (;;) {
      if (launch.stop.load(std::memory_order_relaxed)) break;
      const uint64_t i = launch.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= launch.blocks) break;
      start_block(block_at(i, launch.blocks, launch.schedule));
      run_block();
      finish_block();
    }
  } else {
    launch.stop = true;
  }
  fesetenv(&before);
  current_ = -1;
  launch_ = nullptr;
}

inline void Worker::start_block(uint64_t number) {
  const Launch& l = *launch_;
  blockIdx = uint3{static_cast<unsigned>(number % l.grid.x), static_cast<unsigned>(number / l.grid.x % l.grid.y),
                   static_cast<unsigned>(number / l.grid.x / l.grid.y)};
  memset(states_.data(), static_cast<int>(State::unstarted), threads_);
  for (int w = 0; w < warps_; ++w) ready_[w] = warp_threads(w), arrived_[w] = 0;
  done_ = waiting_ = 0;
  if (l.module_tls_bytes) {
    const uint64_t every = (l.module_tls_bytes + poisoned_each_block - 1) / poisoned_each_block;
    if (number % every == 0) {
      TlsIndex whole{l.module_tls, 0};
      memset(__tls_get_addr(&whole), shared_fresh, l.module_tls_bytes);
    }
  }
  if (l.shared) {
    if (!shared_pages_) {
      shared_pages_ = static_cast<char*>(
          mmap(nullptr, shared_span + shared_guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      mprotect(shared_pages_ + shared_span, shared_guard, PROT_NONE);
    }
    const size_t bytes = (l.shared + shared_alignment - 1) / shared_alignment * shared_alignment;
    shared_ = reinterpret_cast<unsigned char*>(shared_pages_) + shared_span - bytes;
    memset(shared_, shared_fresh, l.shared);
    memset(shared_ + l.shared, shared_canary, bytes - l.shared);
  } else {
    shared_ = nullptr;
  }
}

inline void Worker::finish_block() {
  if (!shared_) return;
  const unsigned char* end = reinterpret_cast<unsigned char*>(shared_pages_) + shared_span;
  for (const unsigned char* p = shared_ + launch_->shared; p < end; ++p)
    if (*p != shared_canary) fail(ILLEGAL_ADDRESS, "wrote behind the dynamic shared memory");
}

inline void Worker::run_block() {
  permute(warp_order_, warps_, launch_->schedule, random_);
  warp_position_ = 0;
  enter_warp(warp_order_[0]);
  const int first = pick();
  Fiber* fiber = spare();
  lanes_[first].fiber = fiber;
  resume(first);
  Fiber::switch_to(home_, *fiber);
}

inline void Worker::enter_warp(int warp) {
  warp_ = warp;
  warp_size_ = warp_threads(warp);
  position_ = 0;
  permute(order_, warp_size_, launch_->schedule, random_);
}

inline Fiber* Worker::spare() {
  if (!free_.empty()) {
    Fiber* fiber = free_.back();
    free_.pop_back();
    return fiber;
  }
  Fiber& fiber = fibers_[made_];
  if (!fiber.created() && !fiber.create()) fail(OUT_OF_MEMORY, "no stack for another thread");
  ++made_;
  fiber.reset(entry);
  return &fiber;
}

// The next thread that can go on: lanes in order, then warps in order, then the block's barrier; -1 at the end.
inline int Worker::pick() {
  for (;;) {
    while (position_ < warp_size_) {
      const int thread = warp_ * warp_size + order_[position_++];
      if (states_[thread] <= State::ready) {
        --ready_[warp_];
        return thread;
      }
    }
    if (ready_[warp_] > 0) {
      enter_warp(warp_);
      continue;
    }
    if (++warp_position_ < warps_) {
      enter_warp(warp_order_[warp_position_]);
      continue;
    }
    if (done_ == threads_) return -1;
    int line = 0;
    bool same = waiting_ == threads_;
    for (int t = 0; same && t < threads_; ++t) {
      if (!line) line = lanes_[t].line;
      same = line == lanes_[t].line;
    }
    if (!same) fail(LAUNCH_FAILED, stuck().c_str());
    memset(states_.data(), static_cast<int>(State::ready), threads_);
    waiting_ = 0;
    for (int w = 0; w < warps_; ++w) ready_[w] = warp_threads(w);
    permute(warp_order_, warps_, launch_->schedule, random_);
    warp_position_ = 0;
    enter_warp(warp_order_[0]);
  }
}

inline void Worker::resume(int thread) {
  current_ = thread;
  threadIdx = index_[thread];
  emulation_lane = thread % warp_size;
}

// A stack's life: run the current thread to its end, then go on with whichever comes next.
inline void Worker::entry() {
  Worker& w = *worker;
  for (;;) {
    w.launch_->kernel->invoke(w.launch_->kernel->function, w.launch_->arguments);
    Fiber* mine = w.lanes_[w.current_].fiber;
    w.states_[w.current_] = State::done;
    ++w.done_;
    const int next = w.pick();
    if (next < 0) {
      w.free_.push_back(mine);
      Fiber::switch_to(*mine, w.home_);
      continue;
    }
    const bool unstarted = w.states_[next] == State::unstarted;
    w.resume(next);
    if (unstarted) {
      w.lanes_[next].fiber = mine;
      continue;
    }
    w.free_.push_back(mine);
    Fiber::switch_to(*mine, *w.lanes_[next].fiber);
  }
}

inline void Worker::block() {
  Fiber* mine = lanes_[current_].fiber;
  const int next = pick();
  Lane& lane = lanes_[next];
  if (states_[next] == State::unstarted) lane.fiber = spare();
  resume(next);
  if (lane.fiber != mine) Fiber::switch_to(*mine, *lane.fiber);
}

inline void Worker::barrier(int line) {
  lanes_[current_].line = line;
  states_[current_] = State::barrier;
  ++waiting_;
  block();
}

inline void Worker::collective(unsigned mask, int line, void* mine, emulation_combine combine) {
  const int base = current_ - static_cast<int>(emulation_lane), size = warp_threads(base / warp_size);
  if (size < warp_size) mask &= (1u << size) - 1;
  if (!(mask >> emulation_lane & 1)) fail(LAUNCH_FAILED, "a lane called a warp function whose mask leaves it out");
  lanes_[current_].mine = mine;
  lanes_[current_].combine = combine;
  lanes_[current_].mask = mask;
  lanes_[current_].line = line;
  states_[current_] = State::collective;
  const int members = __builtin_popcount(mask), warp = base / warp_size;
  bool complete = ++arrived_[warp] >= members;  // else somebody is missing for sure
  void* brought[warp_size];
  for (int l = 0; l < size && complete; ++l) {
    if (!(mask >> l & 1)) continue;
    const Lane& other = lanes_[base + l];
    complete = states_[base + l] == State::collective;
    if (complete && (other.mask != mask || other.combine != combine || other.line != line))
      fail(LAUNCH_FAILED, "lanes of a warp are at different warp functions");
    brought[l] = other.mine;
  }
  if (complete) {
    if (combine) combine(brought, mask);
    for (int l = 0; l < size; ++l)
      if (mask >> l & 1) states_[base + l] = State::ready;
    ready_[warp] += members;
    arrived_[warp] -= members;
  }
  block();
}

inline std::string Worker::stuck() {
  char text[300];
  int at_barrier = -1, other_barrier = -1, at_warp = -1, gone = -1;
  for (int t = 0; t < threads_; ++t) {
    if (states_[t] == State::barrier) {
      if (at_barrier < 0) at_barrier = t;
      else if (lanes_[t].line != lanes_[at_barrier].line && other_barrier < 0) other_barrier = t;
    }
    if (states_[t] == State::collective && at_warp < 0) at_warp = t;
    if (states_[t] == State::done && gone < 0) gone = t;
  }
  int n = snprintf(text, sizeof text, "divergence:");
  const auto add = [&](const char* what, int thread) {
    if (thread >= 0 && n < static_cast<int>(sizeof text))
      n += snprintf(text + n, sizeof text - n, what, thread, lanes_[thread].line);
  };
  add(" thread %d waits at the __syncthreads of line %d;", at_barrier);
  add(" thread %d waits at the __syncthreads of line %d;", other_barrier);
  add(" thread %d waits in the warp function of line %d;", at_warp);
  if (gone >= 0 && n < static_cast<int>(sizeof text)) snprintf(text + n, sizeof text - n, " thread %d has ended", gone);
  return text;
}

inline void Worker::fail(int code, const char* what) {
  int none = 0;
  if (launch_->code.compare_exchange_strong(none, code)) {
    const uint3 t = current_ >= 0 ? index_[current_] : uint3{0, 0, 0};
    snprintf(launch_->text, sizeof launch_->text, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s",
             launch_->kernel->name, blockIdx.x, blockIdx.y, blockIdx.z, t.x, t.y, t.z, what);
  }
  _longjmp(home_jump_, 1);
}

}  // namespace emulation

extern "C" {
EMULATION_EXPORT void emulation_barrier(int line) { emulation::worker->barrier(line); }
EMULATION_EXPORT void emulation_warp(unsigned mask, int line, void* mine, emulation_combine combine) {
  emulation::worker->collective(mask, line, mine, combine);
}
EMULATION_EXPORT void emulation_fault(int code, const char* text) { emulation::worker->fail(code, text); }
EMULATION_EXPORT void* emulation_dynamic_shared() {
  return emulation::worker ? emulation::worker->dynamic_shared() : nullptr;
}
}
