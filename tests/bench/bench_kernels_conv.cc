// The three passes of VGG-11's convolutions at batch 64. Operations are those of products that
// exist: taps over the padding count for nobody (c7 has 44 % of what batch * out * taps says).

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
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
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::bench {
namespace {

constexpr double kTurnSeconds = 0.004;
constexpr int64_t kBatch = 64;

struct Layer {
  const char* name;
  int64_t in_c, out_c, side;
};
constexpr Layer kLayers[] = {{"c1", 3, 64, 32},     {"c2", 64, 128, 16}, {"c3", 128, 256, 8},
                             {"c4", 256, 256, 8},   {"c5", 256, 512, 4}, {"c6", 512, 512, 4},
                             {"c7/c8", 512, 512, 2}};

struct Pass {
  const char* name;
  cpu::ConvPass ours;
  OneDnnConvPass peer;
};
constexpr Pass kPasses[] = {
    {"forward", cpu::ConvPass::kForward, OneDnnConvPass::kForward},
    {"input_gradient", cpu::ConvPass::kInputGradient, OneDnnConvPass::kInputGradient},
    {"weight_gradient", cpu::ConvPass::kWeightGradient, OneDnnConvPass::kWeightGradient}};

ConvShape ShapeOf(const Layer& layer) {
  ConvShape shape;
  shape.batch = kBatch;
  shape.in_h = shape.in_w = shape.out_h = shape.out_w = layer.side;
  shape.in_c = layer.in_c;
  shape.out_c = layer.out_c;
  shape.kernel_h = shape.kernel_w = 3;
  shape.pad_h = shape.pad_w = 1;
  return shape;
}

// Of 3x3 with padding 1 and stride 1: along each axis the two ends have two taps, the rest three.
double OpsOf(const Layer& layer) {
  const double taps = 3.0 * static_cast<double>(layer.side) - 2.0;
  return 2.0 * kBatch * taps * taps * static_cast<double>(layer.in_c * layer.out_c);
}

// Our side of one layer and pass.
struct Ours {
  Ours(const ConvShape& s, cpu::ConvPass p, int threads)
      : shape(s),
        pass(p),
        x(GoldenMantissas(1, s.in_elements())),
        w(GoldenMantissas(2, s.weight_elements())),
        dy(GoldenMantissas(3, s.out_elements())),
        out(static_cast<size_t>(
            std::max({s.in_elements(), s.out_elements(), s.weight_elements()}))),
        kernels(cpu::BestInt8Kernels()),
        pool(threads),
        workspace(cpu::Int8WorkspaceBytes(kernels, s, p, threads)) {}

  void Run() {
    const cpu::Int8Context context = {&kernels, &pool, workspace.data()};
    if (pass == cpu::ConvPass::kForward) {
      cpu::Int8ConvForward(context, shape, x.data(), w.data(), out.data(), &max_abs);
    } else if (pass == cpu::ConvPass::kInputGradient) {
      cpu::Int8ConvInputGradient(context, shape, dy.data(), w.data(), out.data(), &max_abs);
    } else {
      cpu::Int8ConvWeightGradient(context, shape, dy.data(), x.data(), out.data(), &max_abs);
    }
  }

  ConvShape shape;
  cpu::ConvPass pass;
  std::vector<int8_t> x, w, dy;
  std::vector<int32_t> out;
  const cpu::Int8Kernels& kernels;
  cpu::ThreadPool pool;
  AlignedBytes workspace;
  int32_t max_abs = 0;
};

struct Row {
  std::unique_ptr<Ours> ours;
  std::unique_ptr<OneDnnConv> f32;
  std::unique_ptr<OneDnnConvS8> s8;  // forward only
  std::unique_ptr<Contest> contest;
  int ours_at = 0, f32_at = 0, s8_at = 0, peak_at = 0;
};

absl::StatusOr<Row> MakeRow(const Layer& layer, const Pass& pass, int threads) {
  const ConvShape shape = ShapeOf(layer);
  Row row;
  row.ours = std::make_unique<Ours>(shape, pass.ours, threads);
  row.contest = std::make_unique<Contest>(threads, kTurnSeconds);
  row.ours_at = row.contest->Add([ours = row.ours.get()] { ours->Run(); });
  RUNNEL_ASSIGN_OR_RETURN(row.f32, MakeOneDnnConvF32(shape, pass.peer));
  row.f32_at = row.contest->Add([peer = row.f32.get()] { peer->Run(); });
  row.peak_at = row.contest->Add([] { PeakInt8Turn(); });
  if (pass.ours != cpu::ConvPass::kForward) return row;

  RUNNEL_ASSIGN_OR_RETURN(row.s8, MakeOneDnnConvS8(shape, row.ours->x.data(), row.ours->w.data()));
  row.s8_at = row.contest->Add([peer = row.s8.get()] { peer->Run(); });
  row.ours->Run();
  row.s8->Run();
  const std::vector<int32_t> theirs = row.s8->Output();
  if (!std::equal(theirs.begin(), theirs.end(), row.ours->out.begin())) {
    return absl::InternalError("our convolution differs from oneDNN's");
  }
  return row;
}

void AddToReport(const Layer& layer, const Pass& pass, const Row& row, Report& report,
                 benchmark::State& state) {
  const auto gops = [&](int contender) {
    return OpsOf(layer) / row.contest->MedianSeconds(contender) * 1e-9;
  };
  const double peak =
      PeakInt8Turn() / row.contest->MedianSeconds(row.peak_at) * 1e-9 * report.options.threads;
  const double share = peak > 0 ? gops(row.ours_at) / peak : 0;
  const double all_taps = 2.0 * static_cast<double>(ShapeOf(layer).macs());
  nlohmann::json entry = {{"layer", layer.name},
                          {"pass", pass.name},
                          {"ours_gops", gops(row.ours_at)},
                          {"share_of_peak", share},
                          {"onednn_f32_gflops", gops(row.f32_at)},
                          {"ratio_to_f32", gops(row.ours_at) / gops(row.f32_at)},
                          {"peak_gops", peak},
                          {"products_share", OpsOf(layer) / all_taps}};
  report.Heading(
      "Convolutions of VGG-11, batch 64, G(FL)OP/s of products that exist",
      "layer  pass                 ours   share  onednn f32  ours/f32  onednn s8  ours/s8");
  std::printf("%-6s %-16s %8.1f %6.0f%% %11.1f %9.2f", layer.name, pass.name, gops(row.ours_at),
              share * 100, gops(row.f32_at), gops(row.ours_at) / gops(row.f32_at));
  if (row.s8 != nullptr) {
    entry["onednn_s8_gops"] = gops(row.s8_at);
    entry["ratio_to_s8"] = gops(row.ours_at) / gops(row.s8_at);
    std::printf(" %10.1f %8.2f", gops(row.s8_at), gops(row.ours_at) / gops(row.s8_at));
  }
  std::printf("\n");
  std::fflush(stdout);
  report.summary["conv"].push_back(std::move(entry));
  state.counters["ours_gops"] = gops(row.ours_at);
  state.counters["share_of_peak"] = share;
  state.counters["onednn_f32_gflops"] = gops(row.f32_at);
}

void Bench(benchmark::State& state, const Layer& layer, const Pass& pass, Report& report) {
  absl::StatusOr<Row> row = MakeRow(layer, pass, report.options.threads);
  if (!row.ok()) {
    report.Error(absl::StrCat(layer.name, " ", pass.name), row.status());
    state.SkipWithError("conv");
    return;
  }
  for (auto round : state) {
    (void)round;
    state.SetIterationTime(row->contest->Round());
  }
  AddToReport(layer, pass, *row, report, state);
}

}  // namespace

void RegisterConv(Report& report) {
  for (const Layer& layer : kLayers) {
    for (const Pass& pass : kPasses) {
      benchmark::RegisterBenchmark(
          absl::StrCat("conv/", layer.name, "/", pass.name).c_str(),
          [&report, &layer, &pass](benchmark::State& state) { Bench(state, layer, pass, report); })
          ->Iterations(report.options.rounds)
          ->UseManualTime();
    }
  }
}

}  // namespace runnel::bench
