#include "tests/bench/bench_kernels_peak.h"

#include <thread>
#include <vector>

#include "proto/base/host/isa.h"
#include "tests/bench/bench_kernels.h"

namespace runnel::bench {
namespace {

// 14 independent sums (registers 0 to 13) hide the latency; 14 and 15 hold the factors. Assembly,
// so that no compiler moves a sum to memory or leaves a product out.
#define RUNNEL_ALL_SUMS(ONE) \
  ONE("0")                   \
  ONE("1")                   \
  ONE("2")                   \
  ONE("3")                   \
  ONE("4") ONE("5") ONE("6") ONE("7") ONE("8") ONE("9") ONE("10") ONE("11") ONE("12") ONE("13")
#define RUNNEL_TOUCHED                                                                     \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

#define RUNNEL_ZERO_Y(I) "vpxor %%ymm" I ",%%ymm" I ",%%ymm" I "\n\t"
#define RUNNEL_ZERO_Z(I) "vpxord %%zmm" I ",%%zmm" I ",%%zmm" I "\n\t"
#define RUNNEL_FMA_Y(I) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" I "\n\t"
#define RUNNEL_FMA_Z(I) "vfmadd231ps %%zmm14,%%zmm15,%%zmm" I "\n\t"
#define RUNNEL_DOT_Y(I) "%{vex%} vpdpbusd %%ymm14,%%ymm15,%%ymm" I "\n\t"
#define RUNNEL_DOT_Z(I) "vpdpbusd %%zmm14,%%zmm15,%%zmm" I "\n\t"
// Without dot products: bytes to words to the sum, through a register that renaming multiplies.
#define RUNNEL_MADD_Y(I)                   \
  "vpmaddubsw %%ymm14,%%ymm15,%%ymm13\n\t" \
  "vpmaddwd %%ymm14,%%ymm13,%%ymm13\n\t"   \
  "vpaddd %%ymm13,%%ymm" I ",%%ymm" I "\n\t"
#define RUNNEL_MADD_Z(I)                   \
  "vpmaddubsw %%zmm14,%%zmm15,%%zmm13\n\t" \
  "vpmaddwd %%zmm14,%%zmm13,%%zmm13\n\t"   \
  "vpaddd %%zmm13,%%zmm" I ",%%zmm" I "\n\t"

constexpr int kIterations = 20000;
constexpr int kSums = 14;

// Broadcasts `factor` (four bytes) and repeats STEP over all sums.
#define RUNNEL_LOOP(REGISTER, ZERO, STEP, factor) \
  asm volatile("vpbroadcastd %[f],%%" REGISTER "14\n\t"                           \
               "vpbroadcastd %[f],%%" REGISTER "15\n\t"                           \
               RUNNEL_ALL_SUMS(ZERO)                                              \
               "1:\n\t"                                                           \
               RUNNEL_ALL_SUMS(STEP)                                              \
               "dec %[n]\n\t"                                                     \
               "jnz 1b\n\t"                                                       \
               "vzeroupper\n\t"                                                   \
               : [n] "+r"(n)                                                      \
               : [f] "m"(factor)                                                  \
               : "cc", RUNNEL_TOUCHED)

struct Loop {
  const char* instructions;
  Isa isa;
  double ops;  // of one instruction group
  void (*run)();
};

constexpr float kFloatFactor = 0.99f;
constexpr uint32_t kByteFactor = 0x05070311u;

void FmaZ() {
  int64_t n = kIterations;
  RUNNEL_LOOP("zmm", RUNNEL_ZERO_Z, RUNNEL_FMA_Z, kFloatFactor);
}
void FmaY() {
  int64_t n = kIterations;
  RUNNEL_LOOP("ymm", RUNNEL_ZERO_Y, RUNNEL_FMA_Y, kFloatFactor);
}
void DotZ() {
  int64_t n = kIterations;
  RUNNEL_LOOP("zmm", RUNNEL_ZERO_Z, RUNNEL_DOT_Z, kByteFactor);
}
void DotY() {
  int64_t n = kIterations;
  RUNNEL_LOOP("ymm", RUNNEL_ZERO_Y, RUNNEL_DOT_Y, kByteFactor);
}
void MaddZ() {
  int64_t n = kIterations;
  RUNNEL_LOOP("zmm", RUNNEL_ZERO_Z, RUNNEL_MADD_Z, kByteFactor);
}
void MaddY() {
  int64_t n = kIterations;
  RUNNEL_LOOP("ymm", RUNNEL_ZERO_Y, RUNNEL_MADD_Y, kByteFactor);
}

// Best first.
constexpr Loop kFp32Loops[] = {
    {"avx512", Isa::kAvx512, 32, FmaZ},
    {"avx2", Isa::kAvx2, 16, FmaY},
};
constexpr Loop kInt8Loops[] = {
    {"avx512_vnni", Isa::kAvx512Vnni, 128, DotZ},
    {"avx_vnni", Isa::kAvxVnni, 64, DotY},
    {"avx512", Isa::kAvx512, 128, MaddZ},
    {"avx2", Isa::kAvx2, 64, MaddY},
};

template <size_t kCount>
const Loop* Find(const Loop (&loops)[kCount]) {
  for (const Loop& loop : loops) {
    if (HostHas(loop.isa)) return &loop;
  }
  return nullptr;
}

const Loop* Fp32Loop() {
  static const Loop* const loop = Find(kFp32Loops);
  return loop;
}
const Loop* Int8Loop() {
  static const Loop* const loop = Find(kInt8Loops);
  return loop;
}

double Turn(const Loop* loop) {
  if (loop == nullptr) return 0;
  loop->run();
  return loop->ops * kSums * kIterations;
}

double MedianGops(double (*turn)()) {
  constexpr int kTurns = 101;
  std::vector<double> gops;
  for (int i = 0; i < kTurns; ++i) {
    const double begin = Seconds(1);
    const double ops = turn();
    gops.push_back(ops / (Seconds(1) - begin) * 1e-9);
  }
  return Median(std::move(gops));
}

}  // namespace

double PeakFp32Turn() { return Turn(Fp32Loop()); }
double PeakInt8Turn() { return Turn(Int8Loop()); }

std::string PeakFp32Instructions() { return Fp32Loop() == nullptr ? "" : Fp32Loop()->instructions; }
std::string PeakInt8Instructions() { return Int8Loop() == nullptr ? "" : Int8Loop()->instructions; }

Peaks MeasurePeaks(int threads) {
  return {MedianGops(PeakFp32Turn) * threads, MedianGops(PeakInt8Turn) * threads};
}

double PeakLoopWallSeconds(int threads, int64_t turns) {
  const auto work = [turns] {
    for (int64_t i = 0; i < turns; ++i) PeakInt8Turn();
  };
  const double begin = WallSeconds();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return WallSeconds() - begin;
}

}  // namespace runnel::bench
