// How a module tells the driver of its kernels.
#pragma once
#include "emulation_runtime.h"

extern "C" {
EMULATION_EXPORT emulation_module_info emulation_module = {emulation_version, __CUDA_ARCH__, nullptr};
}

namespace emulation_shim {

constexpr int bounds(int threads = 0, int = 0, int = 0) { return threads; }

// Parameters lie as in a struct: each at the next multiple of its alignment.
template <class... A>
struct Layout {
  static constexpr unsigned count = sizeof...(A);
  unsigned offsets[count + 1] = {}, sizes[count + 1] = {}, bytes = 0;
  constexpr Layout() {
    const unsigned size[] = {unsigned(sizeof(A))..., 0}, align[] = {unsigned(alignof(A))..., 1};
    for (unsigned i = 0; i < count; ++i) {
      offsets[i] = (bytes + align[i] - 1) / align[i] * align[i];
      sizes[i] = size[i];
      bytes = offsets[i] + size[i];
    }
  }
};

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct UpTo : UpTo<N - 1, N - 1, I...> {};
template <unsigned... I> struct UpTo<0, I...> { typedef Indices<I...> type; };

template <class... A>
struct Call {
  static constexpr Layout<A...> layout{};
  template <unsigned... I>
  static void with(void (*kernel)(A...), const unsigned char* p, Indices<I...>) {
    kernel(*reinterpret_cast<const A*>(p + layout.offsets[I])...);
  }
  static void invoke(const void* kernel, const unsigned char* p) {
    with(reinterpret_cast<void (*)(A...)>(const_cast<void*>(kernel)), p, typename UpTo<sizeof...(A)>::type());
  }
};

struct Registration {
  emulation_kernel kernel;
  template <class... A>
  Registration(const char* name, void (*function)(A...), int bounds) {
    constexpr const Layout<A...>& layout = Call<A...>::layout;
    static_assert(layout.bytes <= 4096, "more than 4096 bytes of kernel parameters");
    kernel = {name,
              reinterpret_cast<const void*>(function),
              &Call<A...>::invoke,
              bounds,
              int(sizeof...(A)),
              layout.offsets,
              layout.sizes,
              layout.bytes,
              emulation_module.kernels};
    emulation_module.kernels = &kernel;
  }
};

// An extern __shared__ array: as many elements as the launch gave bytes for.
template <class T>
inline T* dynamic_shared() {
  return static_cast<T*>(emulation_dynamic_shared());
}

}  // namespace emulation_shim
