// Queued work as a graph: an operation runs when something forces it, after those it needs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "api.h"

namespace emulation {

struct Context;

struct Operation {
  uint64_t id;
  Context* context;
  std::vector<std::shared_ptr<Operation>> needs;
  std::function<int(std::string&)> work;  // returns an error code and says why
  bool marker = false;                    // an event or a wait: nothing to do by itself
  bool cleanup = false;                   // runs even when a fault drops the rest of the queue
  bool done = false, queried = false;
  double time = 0;
};
using Work = std::shared_ptr<Operation>;

struct Stream {
  Context* context;
  unsigned flags = 0;
  int priority = 0;
  Work last = nullptr;
  bool blocking() const { return !(flags & 1); }
};

struct Event {
  Context* context;
  unsigned flags;
  Work recorded = nullptr;
};

inline std::map<uint64_t, Work>& pending_work() {
  static auto& pending = *new std::map<uint64_t, Work>;
  return pending;
}

inline Work pending_or_null(const Work& work) { return work && !work->done ? work : nullptr; }

}  // namespace emulation
