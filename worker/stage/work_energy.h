#pragma once

// Energy of a program by a model, for devices without a sensor. The model counts arithmetic and the
// bytes that instructions read and write, each with the energy that M. Horowitz measured in 45 nm
// ("Computing's energy problem", ISSCC 2014, figure 1.1.9). Energies of arithmetic
// are columns of the number types. Control, instruction fetch and leakage
// are left out, so the figure is a lower bound: it compares number formats, cuts and models with
// each other, not devices.

#include "kernels/ir/compiler.h"

namespace runnel {

// Energy of one byte of a value that fits into a cache of 1 MiB, and of one that does not (LPDDR2:
// 1.3 nJ for 8 bytes, the lower end).
inline constexpr double kCacheBytePicojoules = 100.0 / 8;
inline constexpr double kMemoryBytePicojoules = 1300.0 / 8;
inline constexpr int64_t kCacheBytes = 1 << 20;

// Energy of one run of a part.
double ModelJoules(Part part, const Program& program);

}  // namespace runnel
