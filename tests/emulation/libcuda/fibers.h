// Stacks to run CUDA threads on, and the switch between them.
#pragma once
#include <sys/mman.h>
#include <cstddef>
#include <cstdint>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulation {

constexpr size_t stack_bytes = 256 << 10, stack_guard = 16 << 10;

#ifdef __x86_64__
// Six registers and the stack pointer: swapcontext would add two system calls.
extern "C" void emulation_switch(void** from, void* to);
asm(R"(
  .text
  .globl emulation_switch
  .hidden emulation_switch
  .type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulation_switch, .-emulation_switch
)");
#endif

class Fiber {
 public:
  bool create() {
    void* p = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) return false;
    mprotect(p, stack_guard, PROT_NONE);  // an overflow must fault, not reach the neighbour
    base_ = static_cast<char*>(p);
    return true;
  }

  bool created() const { return base_ != nullptr; }
  bool guards(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(base_) < stack_guard; }

#ifdef __x86_64__
  void reset(void (*entry)()) {
    void** top = reinterpret_cast<void**>(base_ + stack_bytes) - 1;  // 8 modulo 16, as after a call
    *top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    pointer_ = top;
  }
  static void switch_to(Fiber& from, Fiber& to) { emulation_switch(&from.pointer_, to.pointer_); }
#else
  void reset(void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = base_;
    context_.uc_stack.ss_size = stack_bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  static void switch_to(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }
#endif

 private:
  char* base_ = nullptr;
#ifdef __x86_64__
  void* pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace emulation
