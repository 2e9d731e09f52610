#pragma once

// What one core can do at most: fused multiply-adds (FP32) and byte dot products (INT8) between
// registers, without any memory.

#include <cstdint>
#include <string>

namespace runnel::bench {

// Runs for some 100 us; returns the operations done (a multiply-add is two).
double PeakFp32Turn();
double PeakInt8Turn();
// "avx512_vnni", "avx512", "avx_vnni", "avx2": what the turns use. Empty: this machine has none of
// them, and the turns do nothing.
std::string PeakFp32Instructions();
std::string PeakInt8Instructions();

struct Peaks {
  double fp32_gflops = 0;
  double int8_gops = 0;
};

// Of so many threads (one thread's, multiplied), median of some turns.
Peaks MeasurePeaks(int threads);

// Wall-clock seconds that `threads` threads need to do `turns` INT8 turns each.
double PeakLoopWallSeconds(int threads, int64_t turns);

}  // namespace runnel::bench
