// Lazy streams: what is queued waits until a call needs its result, so a missing wait shows as stale data.
#pragma once
#include <algorithm>
#include <chrono>

#include "state.h"

namespace emulation {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline Stream* find_stream(void* handle, Context* context) {
  if (!handle || handle == reinterpret_cast<void*>(1)) return &context->legacy;
  if (handle == reinterpret_cast<void*>(2)) return &context->per_thread;
  Stream* stream = static_cast<Stream*>(handle);
  return context->streams.count(stream) ? stream : nullptr;
}

inline Event* find_event(void* handle) {
  Event* event = static_cast<Event*>(handle);
  return state().events.count(event) ? event : nullptr;
}

inline void need(Operation& operation, const Work& earlier) {
  if (earlier && !earlier->done) operation.needs.push_back(earlier);
}

inline Work enqueue(Stream* stream, std::function<int(std::string&)> work, const Work& also = nullptr) {
  static uint64_t last_id = 0;
  Context* context = stream->context;
  auto operation = std::make_shared<Operation>();
  operation->id = ++last_id;
  operation->context = context;
  operation->marker = !work;
  operation->work = std::move(work);
  need(*operation, stream->last);
  need(*operation, also);
  // The legacy default stream waits for all blocking streams, and they for it.
  if (stream == &context->legacy) {
    need(*operation, context->per_thread.last);
    for (Stream* other : context->streams)
      if (other->blocking()) need(*operation, other->last);
    for (const Work& orphan : context->orphans) need(*operation, orphan);
  } else if (stream->blocking()) {
    need(*operation, context->legacy.last);
  }
  stream->last = operation;
  pending_work()[operation->id] = operation;
  return operation;
}

inline void finish(const Work& operation) {
  operation->done = true;
  operation->time = now();
  operation->needs.clear();
  operation->work = nullptr;
  pending_work().erase(operation->id);
}

inline void drop_all(Context* context) {
  std::vector<Work> dropped;
  for (auto& [id, operation] : pending_work())
    if (operation->context == context) dropped.push_back(operation);
  std::string text;
  for (const Work& operation : dropped) {
    if (operation->cleanup && operation->work) operation->work(text);
    finish(operation);
  }
}

inline void run(const Work& operation) {
  if (operation->done) return;
  std::string text;
  const int code = operation->work ? operation->work(text) : SUCCESS;
  Context* context = operation->context;
  finish(operation);
  if (!code) return;
  // As on a device, a fault ends everything queued in its context.
  if (!context->error) context->error = code;
  state().last_error = text;
  drop_all(context);
}

// Runs the operation and, before it and in the order of their issue, those it needs; nothing else.
inline void force(const Work& target) {
  if (!target || target->done) return;
  std::unordered_set<Operation*> seen;
  std::vector<Work> all{target};
  seen.insert(target.get());
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < all[i]->needs.size(); ++j) {
      const Work& earlier = all[i]->needs[j];
      if (!earlier->done && seen.insert(earlier.get()).second) all.push_back(earlier);
    }
  std::sort(all.begin(), all.end(), [](const Work& a, const Work& b) { return a->id < b->id; });
  for (const Work& operation : all) run(operation);
}

inline void force_all(Context* context) {
  std::vector<Work> all;
  for (auto& [id, operation] : pending_work())
    if (operation->context == context) all.push_back(operation);
  for (const Work& operation : all) force(operation);
  context->orphans.clear();
}

// An error is reported by one synchronising call and then gone, so that the tests after a fault can go on.
inline int take_error(Context* context) {
  const int code = context->error;
  context->error = 0;
  return code;
}

// What a pool holds beyond its threshold goes back to the system whenever the host waits.
inline void waited() {
  ++state().counts.synchronisations;
  for (Pool* pool : state().pools) {
    const size_t kept = std::max<size_t>(pool->used, std::min<uint64_t>(pool->reserved, pool->threshold));
    state().counts.returned += pool->reserved - kept;
    pool->reserved = kept;
  }
}

inline int synchronize(Stream* stream) {
  force(stream->last);
  waited();
  return take_error(stream->context);
}

inline int synchronize(Context* context) {
  force_all(context);
  waited();
  return take_error(context);
}

// Pending work answers "not ready" once and runs at the next question, so that a polling loop comes to an end.
inline int query(const Work& work, Context* context) {
  if (work && !work->done && !work->queried) {
    work->queried = true;
    return NOT_READY;
  }
  force(work);
  return take_error(context);
}

}  // namespace emulation

using emulation::find_stream;

API cuStreamCreateWithPriority(void** out, unsigned flags, int priority) {
  NEEDS_CONTEXT;
  if (!out || flags > 1) return INVALID_VALUE;
  auto* stream = new emulation::Stream{context, flags, priority};
  context->streams.insert(stream);
  *out = stream;
  return SUCCESS;
}

API cuStreamCreate(void** out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

API cuStreamDestroy_v2(void* handle) {
  NEEDS_INIT;
  for (emulation::Context* context : emulation::state().contexts) {
    auto* stream = static_cast<emulation::Stream*>(handle);
    if (!context->streams.erase(stream)) continue;
    if (stream->blocking() && emulation::pending_or_null(stream->last)) context->orphans.push_back(stream->last);
    delete stream;
    return SUCCESS;
  }
  return INVALID_HANDLE;
}
ALSO(cuStreamDestroy, cuStreamDestroy_v2);

#define NEEDS_STREAM(handle)                                \
  NEEDS_CONTEXT;                                            \
  emulation::Stream* stream = find_stream(handle, context); \
  if (!stream) return INVALID_HANDLE

API cuStreamSynchronize(void* handle) {
  NEEDS_STREAM(handle);
  if (stream == &context->legacy) {  // waiting for the legacy stream is waiting for what it would wait for
    emulation::enqueue(stream, nullptr);
  }
  return emulation::synchronize(stream);
}

API cuStreamQuery(void* handle) {
  NEEDS_STREAM(handle);
  return emulation::query(stream->last, context);
}

API cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  NEEDS_STREAM(handle);
  emulation::Event* event = emulation::find_event(event_handle);
  if (!event) return INVALID_HANDLE;
  emulation::enqueue(stream, nullptr, event->recorded);
  return SUCCESS;
}
