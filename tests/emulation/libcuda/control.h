// What tests ask of the emulation itself.
#pragma once
#include "launch.h"

#define CONTROL extern "C" __attribute__((visibility("default")))

CONTROL int emulation_set_schedule(const char* name) {
  emulation::Lock lock(emulation::state().lock);
  emulation::Schedule parsed;
  if (name && *name && !emulation::parse_schedule(name, parsed)) return INVALID_VALUE;
  snprintf(emulation::chosen_schedule, sizeof emulation::chosen_schedule, "%s", name ? name : "");
  return SUCCESS;
}

CONTROL unsigned long long emulation_pending() {
  emulation::Lock lock(emulation::state().lock);
  unsigned long long n = 0;
  for (auto& [id, operation] : emulation::pending_work()) n += !operation->marker;
  return n;
}

// launches, copies, synchronisations, allocations alive, bytes alive, bytes that pools gave back while the host waited,
// allocations from pools
CONTROL void emulation_counts(unsigned long long* out) {
  emulation::Lock lock(emulation::state().lock);
  const auto& s = emulation::state();
  out[0] = s.counts.launches;
  out[1] = s.counts.copies;
  out[2] = s.counts.synchronisations;
  out[3] = s.memory.alive();
  out[4] = s.memory.bytes();
  out[5] = s.counts.returned;
  out[6] = s.counts.pool_allocations;
}

CONTROL const char* emulation_last_error_text() {
  emulation::Lock lock(emulation::state().lock);
  static thread_local std::string text;
  text = emulation::state().last_error;
  return text.c_str();
}
