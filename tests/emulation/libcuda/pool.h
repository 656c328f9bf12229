// The host threads that share the blocks of a large launch.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "signals.h"
#include "worker_run.h"

namespace emulation {

constexpr uint64_t shared_from_threads = 4096;  // below, waking a helper costs more than it brings

// Whichever thread of the program forces work: they come one at a time, under the driver's lock.
inline Worker& main_worker() {
  static Worker& worker = *new Worker;
  return worker;
}

class Helper {
 public:
  // One helper, made at first use and again in a forked child, where no thread has come along.
  static Helper& get() {
    static Helper* helper = nullptr;
    if (!helper || helper->process_ != getpid()) helper = new Helper;
    return *helper;
  }

  void begin(Launch& launch) {
    std::lock_guard<std::mutex> lock(lock_);
    launch_ = &launch;
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(lock_);
    changed_.wait(lock, [this] { return !launch_; });
  }

 private:
  Helper() : process_(getpid()) {
    std::thread([this] { work(); }).detach();
  }

  void work() {
    SignalStack stack;
    for (;;) {
      std::unique_lock<std::mutex> lock(lock_);
      changed_.wait(lock, [this] { return launch_ != nullptr; });
      Launch& launch = *launch_;
      lock.unlock();
      worker_.run(launch);
      lock.lock();
      launch_ = nullptr;
      changed_.notify_all();
    }
  }

  pid_t process_;
  std::mutex lock_;
  std::condition_variable changed_;
  Launch* launch_ = nullptr;
  Worker worker_;
};

inline void run_launch(Launch& launch) {
  const uint64_t threads = launch.blocks * launch.block.x * launch.block.y * launch.block.z;
  const bool shared = launch.blocks > 1 && threads >= shared_from_threads &&
                      setting("EMULATION_THREADS", std::thread::hardware_concurrency()) > 1;
  FaultGuard guard;
  SignalStack stack;
  if (shared) Helper::get().begin(launch);
  main_worker().run(launch);
  if (shared) Helper::get().wait();
}

}  // namespace emulation
