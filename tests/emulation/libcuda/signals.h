// Faults of kernels: a signal while one runs opens the memory it may touch, or ends the launch with an error.
#pragma once
#include <signal.h>

#include "state.h"
#include "worker.h"

namespace emulation {

constexpr int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t signal_stack = 64 << 10;

inline struct sigaction previous_actions[32];

inline void on_fault(int number, siginfo_t* info, void* machine) {
  Worker* w = worker;
  if (!w || !w->running()) {  // some other thread of the program: its own business
    const struct sigaction& before = previous_actions[number];
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(number, info, machine);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
    signal(number, SIG_DFL);
    return;
  }
  if (number == SIGFPE) w->fail(LAUNCH_FAILED, "integer division by zero");
  // The compiler's checks end in this instruction; __trap() does not.
  if (number == SIGILL) w->fail(MISALIGNED_ADDRESS, "misaligned access, or an index outside its array");
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code == SI_KERNEL) w->fail(MISALIGNED_ADDRESS, "misaligned vector access, or no address at all");
  if (w->overflowed(address)) w->fail(LAUNCH_FAILED, "stack overflow");
  Memory& memory = state().memory;
  Allocation* a = memory.at_page(address);
  const Context* context = w->launch()->context;
  const bool own = a && (a->pool ? a->pool->device == context->device : a->context == context);
  if (own && a->ready) return Memory::open(*a);  // open already: another worker came first, try again
  std::string text = memory.describe(address, "accessed");
  if (a && !own) text += ", of another context";
  if (own && !a->ready) text += ", before its allocation ran";
  w->fail(ILLEGAL_ADDRESS, text.c_str());
}

// In place only while kernels run, so that a fault of the host stays what it is.
class FaultGuard {
 public:
  FaultGuard() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int number : fault_signals) sigaction(number, &action, &previous_actions[number]);
  }
  ~FaultGuard() {
    for (int number : fault_signals) sigaction(number, &previous_actions[number], nullptr);
  }
};

// A stack overflow of a kernel needs another stack for the handler.
class SignalStack {
 public:
  SignalStack() {
    static thread_local std::unique_ptr<char[]> memory(new char[signal_stack]);
    stack_t stack = {};
    stack.ss_sp = memory.get();
    stack.ss_size = signal_stack;
    sigaltstack(&stack, &before_);
  }
  ~SignalStack() { sigaltstack(&before_, nullptr); }

 private:
  stack_t before_ = {};
};

}  // namespace emulation
