// Functions for which threads wait for each other.
#pragma once

inline void __syncthreads(int line = __builtin_LINE()) { emulation_barrier(line); }

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, int line = __builtin_LINE()) {
  emulation_warp(mask, line, nullptr, nullptr);
}

namespace emulation_shim {

struct Exchange {
  unsigned long long value, result;
  int source;
};

inline void exchange(void* const* lanes, unsigned mask) {
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    Exchange& mine = *static_cast<Exchange*>(lanes[l]);
    const bool there = mine.source >= 0 && mine.source < 32 && (mask >> mine.source & 1);
    // The value of a lane that takes no part is undefined: NaN shows it best.
    mine.result = there ? static_cast<Exchange*>(lanes[mine.source])->value : ~0ull;
  }
}

template <class T>
inline T shuffle(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8, "");
  Exchange mine{0, 0, source};
  memcpy(&mine.value, &value, sizeof value);
  emulation_warp(mask, line, &mine, exchange);
  memcpy(&value, &mine.result, sizeof value);
  return value;
}

inline void ballot(void* const* lanes, unsigned mask) {
  unsigned long long set = 0;
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) set |= static_cast<Exchange*>(lanes[l])->value << l;
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) static_cast<Exchange*>(lanes[l])->result = set | static_cast<unsigned long long>(mask) << 32;
}

// The lanes with a true predicate, and in the upper half those that took part.
inline unsigned long long vote(unsigned mask, int predicate, int line) {
  Exchange mine{predicate != 0, 0, 0};
  emulation_warp(mask, line, &mine, ballot);
  return mine.result;
}

}  // namespace emulation_shim

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  const int first = int(emulation_lane) & ~(width - 1);
  return emulation_shim::shuffle(mask, value, first + (source & (width - 1)), line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const int lane = int(emulation_lane), first = lane & ~(width - 1), source = lane - int(delta);
  return emulation_shim::shuffle(mask, value, source < first ? lane : source, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const int lane = int(emulation_lane), last = lane | (width - 1), source = lane + int(delta);
  return emulation_shim::shuffle(mask, value, source > last ? lane : source, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
  const int lane = int(emulation_lane), last = lane | (width - 1), source = lane ^ bits;
  return emulation_shim::shuffle(mask, value, source > last ? lane : source, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return unsigned(emulation_shim::vote(mask, predicate, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return unsigned(emulation_shim::vote(mask, predicate, line)) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const unsigned long long set = emulation_shim::vote(mask, predicate, line);
  return unsigned(set) == unsigned(set >> 32);
}
