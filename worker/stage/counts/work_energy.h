#pragma once

// Energy of a program by a model, for devices without a sensor. The model counts arithmetic and the
// bytes that instructions read and write, each with the energy that M. Horowitz measured in 45 nm
// ("Computing's energy problem", ISSCC 2014, figure 1.1.9). Energies of arithmetic
// are columns of the number types. Control, instruction fetch and leakage are left out, so the
// figure of a CPU is a lower bound. Other processors take a share of it (BackendRow::energy). So it
// compares number formats, cuts, models and the processors of one device with each other, not
// devices.

#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"

namespace runnel {

// Energy of one byte of a value that fits into a cache of 1 MiB, and of one that does not (LPDDR2:
// 1.3 nJ for 8 bytes, the lower end).
inline constexpr double kCacheBytePicojoules = 100.0 / 8;
inline constexpr double kMemoryBytePicojoules = 1300.0 / 8;
inline constexpr int64_t kCacheBytes = 1 << 20;

// Energy of an instruction on a processor.
double InstructionJoules(const Program& program, const Instruction& instruction,
                         const ProcessorEnergy& processor = {});

// Energy of one run of a part as it was prepared by `backend`.
double PartJoules(Part part, const Program& program, const Executable& executable,
                  const Backend& backend);
// On a CPU.
double ModelJoules(Part part, const Program& program);

}  // namespace runnel
