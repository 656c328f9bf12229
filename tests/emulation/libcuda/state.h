// Everything the fake driver holds, under one lock; never destroyed, as programs may free things while they exit.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "operations.h"

namespace emulation {

struct Module;
struct Function;

struct Context {
  int device = 0;
  bool primary = false, alive = true;
  unsigned flags = 0;
  int references = 0;
  int error = 0;  // of work that ran, until a synchronising call reports it
  Stream legacy{this}, per_thread{this};
  std::set<Stream*> streams;
  std::set<Module*> modules;
  std::vector<std::shared_ptr<Operation>> orphans;  // last work of destroyed streams
};

struct Counts { unsigned long long launches, copies, synchronisations, returned, pool_allocations; };

struct State_ {
  std::recursive_mutex lock;
  bool initialised = false;
  int devices = 0;
  std::unordered_map<int, Context*> primaries;
  std::set<Context*> contexts;
  std::set<Pool*> pools;
  std::unordered_map<int, Pool*> default_pools;  // by device
  std::set<Event*> events;
  std::unordered_map<void*, Function*> functions;
  Memory memory;
  Counts counts{};
  std::string last_error;
};

inline State_& state() {
  static State_& s = *new State_;
  return s;
}

using Lock = std::lock_guard<std::recursive_mutex>;

inline long long setting(const char* name, long long otherwise) {
  const char* text = getenv(name);
  return text && *text ? strtoll(text, nullptr, 0) : otherwise;
}

inline std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

inline Context* current_context() {
  auto& stack = context_stack();
  if (stack.empty() || !state().contexts.count(stack.back()) || !stack.back()->alive) return nullptr;
  return stack.back();
}

}  // namespace emulation

#define NEEDS_INIT                               \
  emulation::Lock lock(emulation::state().lock); \
  if (!emulation::state().initialised) return NOT_INITIALIZED

#define NEEDS_CONTEXT                                         \
  NEEDS_INIT;                                                 \
  emulation::Context* context = emulation::current_context(); \
  if (!context) return INVALID_CONTEXT
