#pragma once

// System calls of programs under qemu-hexagon, which have no C library.

#include <stdint.h>

namespace runnel::hexagon {

// System calls of Linux.
inline constexpr int32_t kRead = 63, kWrite = 64, kExitGroup = 94, kMmap2 = 222;
inline constexpr int32_t kInterrupted = -4;

inline int32_t SystemCall(int32_t number, int32_t a0, int32_t a1 = 0, int32_t a2 = 0,
                          int32_t a3 = 0, int32_t a4 = 0, int32_t a5 = 0) {
  register int32_t r0 __asm__("r0") = a0;
  register int32_t r1 __asm__("r1") = a1;
  register int32_t r2 __asm__("r2") = a2;
  register int32_t r3 __asm__("r3") = a3;
  register int32_t r4 __asm__("r4") = a4;
  register int32_t r5 __asm__("r5") = a5;
  register int32_t r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)"
                   : "+r"(r0)
                   : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r6)
                   : "memory");
  return r0;
}

[[noreturn]] inline void Exit(int32_t code) {
  for (;;) SystemCall(kExitGroup, code);
}

inline int32_t AddressOf(const void* at) {
  return static_cast<int32_t>(reinterpret_cast<uintptr_t>(at));
}

inline bool ReadAll(int32_t file, void* to, int32_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const int32_t got = SystemCall(kRead, file, AddressOf(at), bytes);
    if (got == kInterrupted) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

inline bool WriteAll(int32_t file, const void* from, int32_t bytes) {
  const auto* at = static_cast<const uint8_t*>(from);
  while (bytes > 0) {
    const int32_t put = SystemCall(kWrite, file, AddressOf(at), bytes);
    if (put == kInterrupted) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= put;
  }
  return true;
}

// Null: there is no memory. Maps a shared file, or for file -1 the program's own memory; `near`: the
// place if it is free.
inline constexpr int32_t kReadWrite = 3, kReadWriteRun = 7;
inline uint8_t* Map(uint32_t bytes, int32_t file, int32_t access = kReadWrite, uint32_t near = 0) {
  constexpr int32_t kMapShared = 1, kPrivateAnonymousNoReserve = 0x4022;
  const int32_t at =
      SystemCall(kMmap2, static_cast<int32_t>(near), static_cast<int32_t>(bytes), access,
                 file >= 0 ? kMapShared : kPrivateAnonymousNoReserve, file, 0);
  // Errors are -4095..-1.
  return static_cast<uint32_t>(at) > 0xfffff000u
             ? nullptr
             : reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(at));
}

}  // namespace runnel::hexagon
