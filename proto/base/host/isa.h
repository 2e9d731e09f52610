#pragma once

// Instruction sets that tables of kernels have rows for (kernel_rows.h).

namespace runnel {

// On one kind of machine, ascending: each but kNeonI8mm has everything that those before it need.
enum class Isa {
  kPortable,
  kAvx2,     // with FMA, F16C and POPCNT
  kAvxVnni,  // the 256-bit dot product
  kAvx512,   // F, BW, DQ, VL
  kAvx512Vnni,
  kNeon,  // Advanced SIMD: every 64-bit ARM
  kNeonDotprod,
  kNeonI8mm,  // does not imply kNeonDotprod
};

// Whether this machine and its operating system can run it. Probed once; any thread.
bool HostHas(Isa isa);

}  // namespace runnel
