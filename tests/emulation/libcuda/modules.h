// Modules: shared objects in the place of cubins, checked by length and hash before the loader sees them.
#pragma once
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "../include/emulation_runtime.h"
#include "contexts.h"

namespace emulation {

struct Function {
  Module* module;
  const emulation_kernel* kernel;
  size_t dynamic_limit = default_shared;
};

struct Module {
  Context* context;
  void* handle;
  const emulation_module_info* info;
  size_t tls = 0, tls_bytes = 0;
  std::unordered_map<std::string, Function> functions = {};
};

constexpr char module_magic[8] = {'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};

struct Trailer {
  char magic[8];
  uint64_t bytes, hash;
};

// CRC-32 of zip files, which Python has at hand.
inline uint64_t hash_bytes(const unsigned char* p, size_t n) {
  uint32_t table[256], crc = 0xFFFFFFFFu;
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
  }
  for (size_t i = 0; i < n; ++i) crc = crc >> 8 ^ table[(crc ^ p[i]) & 255];
  return crc ^ 0xFFFFFFFFu;
}

// The image comes without a length and may be anything: a write to a file copies it without a fault of our own.
inline bool safe_read(int file, const unsigned char* from, void* to, size_t bytes) {
  return pwrite(file, from, bytes, 0) == static_cast<ssize_t>(bytes) &&
         pread(file, to, bytes, 0) == static_cast<ssize_t>(bytes);
}

inline bool check_image(const unsigned char* image, std::vector<unsigned char>& out) {
  constexpr size_t largest = size_t(1) << 30;
  const int file = memfd_create("image", 0);
  Elf64_Ehdr header;
  Trailer trailer;
  bool good = file >= 0 && safe_read(file, image, &header, sizeof header) && !memcmp(header.e_ident, ELFMAG, SELFMAG);
  const size_t bytes = good ? header.e_shoff + size_t(header.e_shnum) * header.e_shentsize : 0;
  good = good && bytes < largest && safe_read(file, image + bytes, &trailer, sizeof trailer) &&
         !memcmp(trailer.magic, module_magic, sizeof module_magic) && trailer.bytes == bytes;
  if (good) {
    out.resize(bytes);
    good = safe_read(file, image, out.data(), bytes) && hash_bytes(out.data(), bytes) == trailer.hash;
  }
  if (file >= 0) close(file);
  return good;
}

// PTX is text up to a zero: ".target sm_90", and in the place of code the module in hexadecimal digits.
inline bool check_ptx(const unsigned char* image, std::vector<unsigned char>& out, int* target) {
  const char* text = reinterpret_cast<const char*>(image);
  const char *line = strstr(text, ".target sm_"), *digits = strstr(text, "// ");
  if (!line || !digits || sscanf(line, ".target sm_%d", target) != 1) return false;
  std::vector<unsigned char> bytes;
  for (digits += 3; isxdigit(digits[0]) && isxdigit(digits[1]); digits += 2) {
    const char pair[3] = {digits[0], digits[1], 0};
    bytes.push_back(static_cast<unsigned char>(strtoul(pair, nullptr, 16)));
  }
  bytes.resize(bytes.size() + sizeof(Trailer));  // so that what is cut short can be looked at
  return check_image(bytes.data(), out);
}

// A file of its own for every load: the loader would share modules of the same name.
inline void* open_image(const std::vector<unsigned char>& image) {
  const char* folder = getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/emulated_module_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  const bool written = write(file, image.data(), image.size()) == static_cast<ssize_t>(image.size());
  close(file);
  void* handle = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!handle && written) state().last_error = dlerror();
  unlink(path.c_str());
  return handle;
}

inline void find_tls(Module& module) {
  dlinfo(module.handle, RTLD_DI_TLS_MODID, &module.tls);
  if (!module.tls) return;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Module& m = *static_cast<Module*>(data);
        if (info->dlpi_tls_modid != m.tls) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS) m.tls_bytes = info->dlpi_phdr[i].p_memsz;
        return 1;
      },
      &module);
}

inline void unload(Module* module) {
  for (auto& [name, function] : module->functions) state().functions.erase(&function);
  dlclose(module->handle);
  delete module;
}

inline void unload_all(Context* context) {
  for (Module* module : context->modules) unload(module);
  context->modules.clear();
}

inline Function* find_function(void* handle) {
  auto it = state().functions.find(handle);
  return it == state().functions.end() ? nullptr : it->second;
}

}  // namespace emulation

API cuModuleLoadData(void** out, const void* image) {
  NEEDS_CONTEXT;
  if (!out || !image) return INVALID_VALUE;
  std::vector<unsigned char> bytes;
  int target = 0;
  const bool ptx = !strncmp(static_cast<const char*>(image), ".version", 8);
  const auto* start = static_cast<const unsigned char*>(image);
  if (!(ptx ? emulation::check_ptx(start, bytes, &target) : emulation::check_image(start, bytes)))
    return NO_BINARY_FOR_GPU;
  void* handle = emulation::open_image(bytes);
  if (!handle) return NO_BINARY_FOR_GPU;
  auto* info = static_cast<const emulation_module_info*>(dlsym(handle, "emulation_module"));
  const int architecture = info ? info->architecture / 10 : 0, here = emulation::capability();
  if (!info || info->version != emulation_version || (!ptx && architecture / 10 != here / 10) || architecture > here) {
    dlclose(handle);
    return NO_BINARY_FOR_GPU;
  }
  auto* module = new emulation::Module{context, handle, info};
  emulation::find_tls(*module);
  context->modules.insert(module);
  *out = module;
  return SUCCESS;
}

API cuModuleLoadDataEx(void** out, const void* image, unsigned count, int* options, void** values) {
  constexpr int info_log_size = 4, error_log_size = 6;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == info_log_size || options[i] == error_log_size) values[i] = nullptr;  // nothing was logged
  return cuModuleLoadData(out, image);
}

API cuModuleUnload(void* handle) {
  NEEDS_INIT;
  auto* module = static_cast<emulation::Module*>(handle);
  for (emulation::Context* context : emulation::state().contexts) {
    if (!context->modules.count(module)) continue;
    emulation::force_all(context);
    context->modules.erase(module);
    emulation::unload(module);
    return SUCCESS;
  }
  return INVALID_HANDLE;
}

// A kernel is found by the symbol it has, as on a device: without extern "C" that is the mangled name.
API cuModuleGetFunction(void** out, void* handle, const char* name) {
  NEEDS_CONTEXT;
  auto* module = static_cast<emulation::Module*>(handle);
  if (!context->modules.count(module)) return INVALID_HANDLE;
  const void* symbol = dlsym(module->handle, name);
  for (auto* k = module->info->kernels; symbol && k; k = k->next) {
    if (k->function != symbol) continue;
    auto& function = module->functions.try_emplace(name, emulation::Function{module, k}).first->second;
    emulation::state().functions[&function] = &function;
    *out = &function;
    return SUCCESS;
  }
  return NOT_FOUND;
}

API cuFuncGetAttribute(int* value, int attribute, void* handle) {
  NEEDS_INIT;
  emulation::Function* function = emulation::find_function(handle);
  if (!function) return INVALID_HANDLE;
  switch (attribute) {
    case 0: *value = function->kernel->bounds ? function->kernel->bounds : max_block; break;
    case 4: *value = 32; break;  // registers
    case 5:
    case 6: *value = function->module->info->architecture / 10; break;
    case 8: *value = static_cast<int>(function->dynamic_limit); break;
    default: *value = 0;
  }
  return SUCCESS;
}

API cuFuncSetAttribute(void* handle, int attribute, int value) {
  NEEDS_INIT;
  emulation::Function* function = emulation::find_function(handle);
  if (!function) return INVALID_HANDLE;
  if (attribute == 9) return SUCCESS;  // preferred carve-out
  if (attribute != 8 || value < 0 || static_cast<size_t>(value) > max_shared) return INVALID_VALUE;
  function->dynamic_limit = value;
  return SUCCESS;
}

// The launch interface of old: PyCUDA still sets the shape it then passes to cuLaunchKernel anyway.
API cuFuncSetBlockShape(void* handle, int x, int y, int z) {
  NEEDS_INIT;
  if (x <= 0 || y <= 0 || z <= 0) return INVALID_VALUE;
  return emulation::find_function(handle) ? SUCCESS : INVALID_HANDLE;
}
