// The order in which the threads and the blocks of a launch come to run.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace emulation {

enum class Schedule { forward, reverse, random };

inline char chosen_schedule[16] = "";  // set through emulation_set_schedule; empty: the environment decides

inline bool parse_schedule(const char* name, Schedule& out) {
  if (!strcmp(name, "forward")) return out = Schedule::forward, true;
  if (!strcmp(name, "reverse")) return out = Schedule::reverse, true;
  if (!strcmp(name, "random")) return out = Schedule::random, true;
  return false;
}

inline Schedule current_schedule() {
  Schedule schedule = Schedule::forward;
  const char* name = *chosen_schedule ? chosen_schedule : getenv("EMULATION_SCHEDULE");
  if (name) parse_schedule(name, schedule);
  return schedule;
}

struct Random {
  uint64_t state = 0x9E3779B97F4A7C15u;
  unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<unsigned>((state >> 32) * n >> 32);
  }
};

inline void permute(unsigned char* order, int n, Schedule schedule, Random& random) {
  for (int i = 0; i < n; ++i) order[i] = static_cast<unsigned char>(schedule == Schedule::reverse ? n - 1 - i : i);
  if (schedule != Schedule::random) return;
  for (int i = n - 1; i > 0; --i) {
    const unsigned j = random.below(i + 1);
    const unsigned char kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

// The index of the block that comes i-th: a bijection on 0..n-1.
inline uint64_t block_at(uint64_t i, uint64_t n, Schedule schedule) {
  if (schedule == Schedule::forward) return i;
  if (schedule == Schedule::reverse) return n - 1 - i;
  uint64_t step = n * 5 / 8 + 1;
  while (std::gcd(step, n) != 1) ++step;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(i) * step + n / 3) % n);
}

}  // namespace emulation
