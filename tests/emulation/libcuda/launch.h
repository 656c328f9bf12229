// Launching: the limits of a device are checked at the call, the kernel runs when its stream gets there.
#pragma once
#include "copies.h"
#include "modules.h"
#include "pool.h"

namespace emulation {

constexpr unsigned max_grid_yz = 65535;
constexpr uint64_t max_grid_x = 0x7FFFFFFF;

inline bool mapped(uintptr_t address) {
  unsigned char present;
  const uintptr_t page = address & ~uintptr_t(page_bytes - 1);
  return mincore(reinterpret_cast<void*>(page), 1, &present) == 0;
}

// Host memory is in reach of an emulated kernel: an argument that looks like its address is taken for a mistake.
inline long host_pointer(const std::vector<unsigned char>& arguments) {
  constexpr uintptr_t lowest = uintptr_t(1) << 40, highest = uintptr_t(1) << 47;
  for (size_t at = 0; at + sizeof(uintptr_t) <= arguments.size(); at += sizeof(uintptr_t)) {
    uintptr_t word;
    memcpy(&word, arguments.data() + at, sizeof word);
    if (word < lowest || word >= highest || state().memory.at_page(word)) continue;
    if (mapped(word) && !state().memory.reserved(word)) return static_cast<long>(at);
  }
  return -1;
}

inline int launch_now(Function* function, Context* context, uint3 grid, uint3 block, unsigned shared,
                      const std::vector<unsigned char>& arguments, std::string& text) {
  Launch launch{};
  launch.kernel = function->kernel;
  launch.context = context;
  launch.grid = grid;
  launch.block = block;
  launch.shared = shared;
  launch.module_tls = function->module->tls;
  launch.module_tls_bytes = function->module->tls_bytes;
  launch.schedule = current_schedule();
  launch.blocks = uint64_t(grid.x) * grid.y * grid.z;
  // Aligned as parameters are on a device, whatever their type asks for.
  std::vector<unsigned char> room(arguments.size() + alignment);
  auto* aligned = reinterpret_cast<unsigned char*>(round_up(reinterpret_cast<uintptr_t>(room.data()), alignment));
  memcpy(aligned, arguments.data(), arguments.size());
  launch.arguments = aligned;
  const long host = host_pointer(arguments);
  if (host >= 0) {
    text = std::string("kernel ") + launch.kernel->name + ": the argument at byte " + std::to_string(host) +
           " is the address of host memory";
    return ILLEGAL_ADDRESS;
  }
  run_launch(launch);
  const std::string broken = state().memory.close();
  if (launch.code) return text = launch.text, launch.code.load();
  if (!broken.empty()) return text = std::string("kernel ") + launch.kernel->name + ": " + broken, ILLEGAL_ADDRESS;
  return SUCCESS;
}

// The arguments in one block, from pointers to each or from a buffer that holds them all.
inline bool gather(const emulation_kernel& kernel, void** parameters, void** extra, std::vector<unsigned char>& out) {
  out.assign(kernel.bytes, 0);
  if (parameters) {
    for (int i = 0; i < kernel.parameters; ++i) memcpy(&out[kernel.offsets[i]], parameters[i], kernel.sizes[i]);
    return !extra;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** p = extra; p && *p; p += 2) {
    if (p[0] == reinterpret_cast<void*>(1)) buffer = p[1];
    else if (p[0] == reinterpret_cast<void*>(2)) bytes = *static_cast<size_t*>(p[1]);
    else return false;
  }
  if (bytes != kernel.bytes || (bytes && !buffer)) return false;
  memcpy(out.data(), buffer, bytes);
  return true;
}

}  // namespace emulation

API cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void* stream_handle, void** parameters, void** extra) {
  NEEDS_STREAM_OF(stream_handle);
  emulation::Function* function = emulation::find_function(handle);
  if (!function || function->module->context != context) return INVALID_HANDLE;
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return INVALID_VALUE;
  if (grid_x > emulation::max_grid_x || grid_y > emulation::max_grid_yz || grid_z > emulation::max_grid_yz)
    return INVALID_VALUE;
  const uint64_t threads = uint64_t(block_x) * block_y * block_z;
  if (block_x > max_block || block_y > max_block || block_z > 64 || threads > max_block) return INVALID_VALUE;
  if (function->kernel->bounds && threads > uint64_t(function->kernel->bounds)) return LAUNCH_OUT_OF_RESOURCES;
  if (shared > function->dynamic_limit && shared > default_shared) return INVALID_VALUE;
  std::vector<unsigned char> arguments;
  if (!emulation::gather(*function->kernel, parameters, extra, arguments)) return INVALID_VALUE;
  ++emulation::state().counts.launches;
  const uint3 grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  emulation::enqueue(stream, [=](std::string& text) {
    return emulation::launch_now(function, context, grid, block, shared, arguments, text);
  });
  return SUCCESS;
}
