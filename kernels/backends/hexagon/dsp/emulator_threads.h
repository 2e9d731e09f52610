#pragma once

// Threads of programs under qemu-hexagon, which makes each one a thread of the host. Only for what
// the emulator runs.

#include "kernels/backends/hexagon/dsp/emulator_calls.h"

namespace runnel::hexagon {

struct EmulatedThread {
  // Cleared by the emulator when the thread is gone, and its stack is free.
  volatile uint32_t alive = 0;
};

inline constexpr int32_t kYield = 124;

// 0 in the parent only if there is no thread; the new one takes body and context from the begin of
// its stack and ends when the body returns. Clone's fourth argument is the word to clear.
extern "C" __attribute__((naked, noinline)) inline int32_t CloneThread(int32_t, void*, int32_t,
                                                                       volatile uint32_t*) {
  __asm__ volatile(
      "{ r4 = r3\n r6 = #220 }\n"
      "trap0(#1)\n"
      "{ p0 = cmp.eq(r0, #0)\n if (!p0.new) jumpr:nt r31 }\n"
      "{ r1 = memw(r29 + #0)\n r0 = memw(r29 + #4) }\n"
      "callr r1\n"
      "{ r6 = #93\n r0 = #0 }\n"
      "trap0(#1)\n");
}

// False: there are no more threads. `stack` is the thread's until `thread.alive` is 0.
inline bool StartThread(EmulatedThread& thread, uint8_t* stack, uint32_t stack_bytes,
                        void (*body)(void*), void* context) {
  constexpr int32_t kVm = 0x100, kFs = 0x200, kFiles = 0x400, kSignals = 0x800, kThread = 0x10000,
                    kSystemV = 0x40000, kClearWord = 0x200000;
  auto* top = reinterpret_cast<int32_t*>(stack + stack_bytes - 128);
  top[0] = static_cast<int32_t>(reinterpret_cast<uintptr_t>(body));
  top[1] = static_cast<int32_t>(reinterpret_cast<uintptr_t>(context));
  thread.alive = 1;
  const int32_t made = CloneThread(kVm | kFs | kFiles | kSignals | kThread | kSystemV | kClearWord,
                                   top, 0, &thread.alive);
  if (made < 0) thread.alive = 0;
  return made > 0;
}

inline void JoinThread(EmulatedThread& thread) {
  while (thread.alive != 0) SystemCall(kYield, 0);
}

}  // namespace runnel::hexagon
