// Events: markers in the graph of work.
#pragma once
#include "streams.h"

constexpr unsigned event_disable_timing = 2;

#define NEEDS_EVENT(handle)                                \
  NEEDS_INIT;                                              \
  emulation::Event* event = emulation::find_event(handle); \
  if (!event) return INVALID_HANDLE

API cuEventCreate(void** out, unsigned flags) {
  NEEDS_CONTEXT;
  if (!out || flags > 7) return INVALID_VALUE;
  auto* event = new emulation::Event{context, flags};
  emulation::state().events.insert(event);
  *out = event;
  return SUCCESS;
}

API cuEventDestroy_v2(void* handle) {
  NEEDS_EVENT(handle);
  emulation::state().events.erase(event);
  delete event;
  return SUCCESS;
}
ALSO(cuEventDestroy, cuEventDestroy_v2);

API cuEventRecord(void* handle, void* stream_handle) {
  NEEDS_EVENT(handle);
  emulation::Context* context = emulation::current_context();
  if (!context) return INVALID_CONTEXT;
  emulation::Stream* stream = find_stream(stream_handle, context);
  if (!stream || event->context != context) return INVALID_HANDLE;
  event->recorded = emulation::enqueue(stream, nullptr);
  return SUCCESS;
}

API cuEventSynchronize(void* handle) {
  NEEDS_EVENT(handle);
  emulation::force(event->recorded);
  emulation::waited();
  return emulation::take_error(event->context);
}

API cuEventQuery(void* handle) {
  NEEDS_EVENT(handle);
  return emulation::query(event->recorded, event->context);
}

API cuEventElapsedTime_v2(float* milliseconds, void* start, void* end) {
  NEEDS_INIT;
  emulation::Event *a = emulation::find_event(start), *b = emulation::find_event(end);
  if (!a || !b || !a->recorded || !b->recorded || ((a->flags | b->flags) & event_disable_timing)) return INVALID_HANDLE;
  if (!a->recorded->done || !b->recorded->done) return NOT_READY;
  *milliseconds = static_cast<float>((b->recorded->time - a->recorded->time) * 1e3);
  return SUCCESS;
}
ALSO(cuEventElapsedTime, cuEventElapsedTime_v2);
