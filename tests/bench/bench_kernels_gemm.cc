// INT8 and FP32 products of matrices: c[m][n] = a[m][k] * transposed b[n][k].

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_kernels.h"
#include "tests/bench/bench_kernels_peak.h"
#include "tests/bench/peer_onednn.h"
#include "tests/bench/peer_openblas.h"
#include "tests/kernels/cpu/int8_packed.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::bench {
namespace {

constexpr double kTurnSeconds = 0.004;

struct Size {
  int64_t m, n, k;
};
constexpr Size kSizes[] = {{1024, 64, 576}, {4096, 64, 576}, {1024, 128, 1152}, {256, 256, 2304},
                           {64, 512, 4608}, {512, 512, 512}, {2048, 2048, 2048}};

// Operands, and our side of one size.
struct Operands {
  Operands(const Size& s, int threads)
      : size(s),
        a(GoldenMantissas(1, s.m * s.k)),
        b(GoldenMantissas(2, s.n * s.k)),
        c(static_cast<size_t>(s.m * s.n)),
        a_float(RandomValues(1, 0, s.m * s.k)),
        b_float(RandomValues(2, 0, s.n * s.k)),
        c_float(static_cast<size_t>(s.m * s.n)),
        kernels(cpu::BestInt8Kernels()),
        pool(threads),
        workspace(cpu::Int8WorkspaceBytes(kernels, cpu::LinearShape(s.m, s.n, s.k),
                                          cpu::ConvPass::kForward, threads)),
        packed(cpu::Int8PackedBytes(kernels, s.n, s.k)) {
    cpu::Int8PackB(kernels, s.n, s.k, b.data(), packed.data());
  }

  cpu::Int8Context context() { return {&kernels, &pool, workspace.data()}; }
  void Ours() {
    cpu::Int8ConvForward(context(), cpu::LinearShape(size.m, size.n, size.k), a.data(), b.data(),
                         c.data(), &max_abs);
  }
  void OursPrePacked() {
    cpu::Int8GemmPacked(context(), size.m, size.n, size.k, a.data(), packed.data(), c.data(),
                        &max_abs);
  }
  double ops() const { return 2.0 * static_cast<double>(size.m * size.n * size.k); }

  Size size;
  std::vector<int8_t> a, b;
  std::vector<int32_t> c;
  std::vector<float> a_float, b_float, c_float;
  const cpu::Int8Kernels& kernels;
  cpu::ThreadPool pool;
  AlignedBytes workspace, packed;
  int32_t max_abs = 0;
};

struct Row {
  std::unique_ptr<Operands> operands;
  std::vector<std::unique_ptr<OneDnnMatmul>> peers;
  std::unique_ptr<Contest> contest;
  int ours = 0, ours_prepacked = 0, peak = 0;
  int s8 = 0, s8_prepacked = 0, u8 = 0, f32 = 0, blas = 0;
};

// Ours and oneDNN must have computed the same.
absl::Status CheckSame(Row& row, OneDnnMatmul& peer) {
  row.operands->Ours();
  peer.Run();
  const std::vector<int32_t>& c = row.operands->c;
  if (std::memcmp(c.data(), peer.output(), c.size() * sizeof(c[0])) == 0) return absl::OkStatus();
  return absl::InternalError("our product differs from oneDNN's");
}

// The fastest of the ways to hand the weights over.
absl::StatusOr<int> AddPeer(Row& row, MatmulType type, const std::vector<WeightsAre>& ways) {
  Operands& o = *row.operands;
  const bool integer = type != MatmulType::kF32;
  const void* a = integer ? static_cast<const void*>(o.a.data()) : o.a_float.data();
  const void* b = integer ? static_cast<const void*>(o.b.data()) : o.b_float.data();
  std::vector<std::function<void()>> runs;
  for (WeightsAre way : ways) {
    RUNNEL_ASSIGN_OR_RETURN(auto peer,
                            MakeOneDnnMatmul(type, way, o.size.m, o.size.n, o.size.k, a, b));
    if (type == MatmulType::kS8S8S32) RUNNEL_RETURN_IF_ERROR(CheckSame(row, *peer));
    runs.push_back([peer = peer.get()] { peer->Run(); });
    row.peers.push_back(std::move(peer));
  }
  return row.contest->AddFastest(std::move(runs));
}

absl::StatusOr<Row> MakeRow(const Size& size, int threads) {
  Row row;
  row.operands = std::make_unique<Operands>(size, threads);
  row.contest = std::make_unique<Contest>(threads, kTurnSeconds);
  Operands* o = row.operands.get();
  Contest& contest = *row.contest;
  const std::vector<WeightsAre> inside = {WeightsAre::kColumns, WeightsAre::kRows,
                                          WeightsAre::kPackedInside};
  row.ours = contest.Add([o] { o->Ours(); });
  RUNNEL_ASSIGN_OR_RETURN(row.s8, AddPeer(row, MatmulType::kS8S8S32, inside));
  row.ours_prepacked = contest.Add([o] { o->OursPrePacked(); });
  RUNNEL_ASSIGN_OR_RETURN(row.s8_prepacked,
                          AddPeer(row, MatmulType::kS8S8S32, {WeightsAre::kPrePacked}));
  RUNNEL_ASSIGN_OR_RETURN(row.u8, AddPeer(row, MatmulType::kU8S8S32, inside));
  RUNNEL_ASSIGN_OR_RETURN(row.f32, AddPeer(row, MatmulType::kF32, inside));
  row.blas = contest.Add([o] {
    OpenBlasGemm(o->size.m, o->size.n, o->size.k, o->a_float.data(), o->b_float.data(),
                 o->c_float.data());
  });
  row.peak = contest.Add([] { PeakInt8Turn(); });
  return row;
}

void AddToReport(const std::string& name, const Row& row, Report& report, benchmark::State& state) {
  const Operands& o = *row.operands;
  const auto gops = [&](int contender) {
    return o.ops() / row.contest->MedianSeconds(contender) * 1e-9;
  };
  const double peak =
      PeakInt8Turn() / row.contest->MedianSeconds(row.peak) * 1e-9 * report.options.threads;
  const double ratio = gops(row.ours) / gops(row.s8);
  const double share = peak > 0 ? gops(row.ours) / peak : 0;
  report.summary["gemm"].push_back({{"m", o.size.m},
                                    {"n", o.size.n},
                                    {"k", o.size.k},
                                    {"ours_gops", gops(row.ours)},
                                    {"onednn_s8s8s32_gops", gops(row.s8)},
                                    {"ratio", ratio},
                                    {"ours_prepacked_gops", gops(row.ours_prepacked)},
                                    {"onednn_prepacked_gops", gops(row.s8_prepacked)},
                                    {"onednn_u8s8s32_gops", gops(row.u8)},
                                    {"onednn_f32_gflops", gops(row.f32)},
                                    {"openblas_sgemm_gflops", gops(row.blas)},
                                    {"peak_gops", peak},
                                    {"share_of_peak", share}});
  report.Heading("INT8 products of matrices, G(FL)OP/s; packing inside, or weights packed before",
                 absl::StrCat("m,n,k                    ours  onednn s8   ratio   share | packed "
                              "ours  onednn   ratio | onednn u8    f32  sgemm"));
  std::printf("%-20s %8.1f %10.1f %7.2f %6.0f%% | %11.1f %7.1f %7.2f | %9.1f %6.1f %6.1f\n",
              name.c_str(), gops(row.ours), gops(row.s8), ratio, share * 100,
              gops(row.ours_prepacked), gops(row.s8_prepacked),
              gops(row.ours_prepacked) / gops(row.s8_prepacked), gops(row.u8), gops(row.f32),
              gops(row.blas));
  std::fflush(stdout);
  state.counters["ours_gops"] = gops(row.ours);
  state.counters["onednn_s8s8s32_gops"] = gops(row.s8);
  state.counters["share_of_peak"] = share;
}

void Bench(benchmark::State& state, const Size& size, Report& report) {
  const std::string name = absl::StrCat(size.m, ",", size.n, ",", size.k);
  absl::StatusOr<Row> row = MakeRow(size, report.options.threads);
  if (!row.ok()) {
    report.Error(name, row.status());
    state.SkipWithError("gemm");
    return;
  }
  for (auto round : state) {
    (void)round;
    state.SetIterationTime(row->contest->Round());
  }
  AddToReport(name, *row, report, state);
}

}  // namespace

void RegisterGemm(Report& report) {
  for (const Size& size : kSizes) {
    benchmark::RegisterBenchmark(
        absl::StrCat("gemm/", size.m, "/", size.n, "/", size.k).c_str(),
        [&report, size](benchmark::State& state) { Bench(state, size, report); })
        ->Iterations(report.options.rounds)
        ->UseManualTime();
  }
}

}  // namespace runnel::bench
