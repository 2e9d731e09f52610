// Training steps (forward, backward, update) at batch 64 against LibTorch's in FP32, their peak
// memory, and how ours scale from one thread to two.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_kernels.h"
#include "tests/bench/bench_kernels_memory.h"
#include "tests/bench/bench_kernels_peak.h"
#include "tests/bench/bench_kernels_training.h"
#include "tests/bench/peer_torch.h"

namespace runnel::bench {
namespace {

constexpr int64_t kBatch = 64;
constexpr double kTurnSeconds = 0.05;

// What is compared. Integer recipes train nets without batch norm; the peer trains the same net,
// and the one with batch norm where people would use that.
struct Plan {
  const char* name;
  const char* recipe;
  const char* model;       // both sides
  const char* peer_model;  // the peer's other one, or empty
};
constexpr Plan kPlans[] = {
    {"vgg11", "niti", "vgg11", ""},
    {"vgg16", "niti", "vgg16", ""},
    {"resnet18", "niti", "resnet18_nobn", "resnet18"},
    {"lenet", "niti", "lenet", ""},
    {"mobilenet_v2", "fp32", "mobilenet_v2", ""},
    {"mobilenet_v2_s1", "fp32", "mobilenet_v2_s1", ""},
    {"vgg11", "fp32", "vgg11", ""},
    {"lenet", "fp32", "lenet", ""},
    {"har_cnn", "fp32", "har_cnn", ""},
};

// LibTorch in the better of its two layouts.
struct Peer {
  std::unique_ptr<Trainer> layouts[2];
  size_t layout = 0;
  int at = 0;
};

struct Row {
  std::unique_ptr<Samples> samples;
  std::unique_ptr<Trainer> ours;
  Peer same, other;  // other: of peer_model
  std::unique_ptr<Contest> contest;
  int ours_at = 0;
  std::shared_ptr<absl::Status> status = std::make_shared<absl::Status>();
};

std::function<void()> StepOf(Trainer* trainer, std::shared_ptr<absl::Status> status) {
  return [trainer, status = std::move(status)] { status->Update(trainer->Step()); };
}

absl::Status AddPeer(const std::string& name, Row& row, Peer& peer) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  std::vector<std::function<void()>> ways;
  for (const bool channels_last : {false, true}) {
    auto& trainer = peer.layouts[channels_last ? 1 : 0];
    RUNNEL_ASSIGN_OR_RETURN(trainer, MakeTorchTrainer(model, channels_last, *row.samples));
    ways.push_back(StepOf(trainer.get(), row.status));
  }
  peer.at = row.contest->AddFastest(std::move(ways), 1, &peer.layout);
  peer.layouts[1 - peer.layout] = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<Row> MakeRow(const Plan& plan, const Options& options) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(plan.model));
  Row row;
  row.samples = std::make_unique<Samples>(model, kBatch);
  row.contest = std::make_unique<Contest>(options.threads, kTurnSeconds);
  RUNNEL_ASSIGN_OR_RETURN(
      row.ours, MakeTrainer(model, plan.recipe, options.backend, options.threads, *row.samples));
  RUNNEL_RETURN_IF_ERROR(row.ours->Step());
  row.ours_at = row.contest->Add(StepOf(row.ours.get(), row.status));
  RUNNEL_RETURN_IF_ERROR(AddPeer(plan.model, row, row.same));
  if (plan.peer_model[0] != '\0') {
    RUNNEL_RETURN_IF_ERROR(AddPeer(plan.peer_model, row, row.other));
  }
  return row;
}

absl::StatusOr<int64_t> TorchPeakBytes(const std::string& model, const Peer& peer,
                                       const Options& options) {
  return PeakBytes({.side = peer.layout == 1 ? Side::kTorchChannelsLast : Side::kTorch,
                    .model = model,
                    .threads = options.threads,
                    .batch = kBatch});
}

absl::Status AddToReport(const Plan& plan, const Row& row, Report& report,
                         benchmark::State& state) {
  RUNNEL_RETURN_IF_ERROR(*row.status);
  const Options& options = report.options;
  RUNNEL_ASSIGN_OR_RETURN(const int64_t ours_bytes, PeakBytes({.side = Side::kOurs,
                                                               .model = plan.model,
                                                               .recipe = plan.recipe,
                                                               .backend = options.backend,
                                                               .threads = options.threads,
                                                               .batch = kBatch}));
  RUNNEL_ASSIGN_OR_RETURN(const int64_t torch_bytes, TorchPeakBytes(plan.model, row.same, options));
  const double ours = row.contest->MedianSeconds(row.ours_at) * 1e3;
  const double torch = row.contest->MedianSeconds(row.same.at) * 1e3;
  nlohmann::json entry = {{"model", plan.name},
                          {"recipe", plan.recipe},
                          {"ours_ms", ours},
                          {"torch_fp32_ms", torch},
                          {"ratio", torch / ours},
                          {"ours_peak_bytes", ours_bytes},
                          {"torch_peak_bytes", torch_bytes},
                          {"batch", kBatch},
                          {"trained_model", plan.model},
                          {"torch_channels_last", row.same.layout == 1}};
  report.Heading("Training steps, batch 64, ms; LibTorch in FP32 and its better layout; peak MiB",
                 "recipe model             ours    torch  torch/ours |  ours  torch  "
                 "torch/ours | torch with batch norm");
  std::printf("%-6s %-15s %6.1f %8.1f %11.2f | %5.0f %6.0f %11.2f |", plan.recipe, plan.name, ours,
              torch, torch / ours, static_cast<double>(ours_bytes) / (1 << 20),
              static_cast<double>(torch_bytes) / (1 << 20),
              static_cast<double>(torch_bytes) / static_cast<double>(ours_bytes));
  if (plan.peer_model[0] != '\0') {
    RUNNEL_ASSIGN_OR_RETURN(const int64_t other_bytes,
                            TorchPeakBytes(plan.peer_model, row.other, options));
    const double other = row.contest->MedianSeconds(row.other.at) * 1e3;
    entry["torch_fp32_batch_norm_ms"] = other;
    entry["ratio_batch_norm"] = other / ours;
    entry["torch_batch_norm_peak_bytes"] = other_bytes;
    std::printf(" %.1f ms, %.2f of ours, %.0f MiB", other, other / ours,
                static_cast<double>(other_bytes) / (1 << 20));
  }
  std::printf("\n");
  std::fflush(stdout);
  report.summary["step"].push_back(std::move(entry));
  state.counters["torch_over_ours"] = torch / ours;
  return absl::OkStatus();
}

void Bench(benchmark::State& state, const Plan& plan, Report& report) {
  absl::StatusOr<Row> row = MakeRow(plan, report.options);
  if (row.ok()) {
    for (auto round : state) {
      (void)round;
      state.SetIterationTime(row->contest->Round());
    }
  } else {
    state.SkipWithError("step");
  }
  const absl::Status status = row.ok() ? AddToReport(plan, *row, report, state) : row.status();
  if (!status.ok()) report.Error(absl::StrCat(plan.recipe, " ", plan.name), status);
}

// One thread and two of VGG-11's step and of the register-only loop, in turns, wall-clock.
absl::Status Scale(benchmark::State& state, Report& report) {
  constexpr int64_t kLoopTurns = 3000;
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel("vgg11"));
  const Samples samples(model, kBatch);
  Contest contest(/*threads=*/2, kTurnSeconds);
  auto status = std::make_shared<absl::Status>();
  std::unique_ptr<Trainer> trainers[2];
  int ours[2], loop[2];
  for (const int threads : {1, 2}) {
    auto& trainer = trainers[threads - 1];
    RUNNEL_ASSIGN_OR_RETURN(trainer,
                            MakeTrainer(model, "niti", report.options.backend, threads, samples));
    RUNNEL_RETURN_IF_ERROR(trainer->Step());
    ours[threads - 1] = contest.Add(StepOf(trainer.get(), status));
  }
  for (const int threads : {1, 2}) {
    loop[threads - 1] = contest.Add([threads] { PeakLoopWallSeconds(threads, kLoopTurns); });
  }
  for (auto round : state) {
    (void)round;
    state.SetIterationTime(contest.Round());
  }
  RUNNEL_RETURN_IF_ERROR(*status);
  const double one = contest.MedianSeconds(ours[0]), two = contest.MedianSeconds(ours[1]);
  const double ours_factor = one / two;
  const double loop_factor = 2 * contest.MedianSeconds(loop[0]) / contest.MedianSeconds(loop[1]);
  report.summary["scaling"] = {{"model", "vgg11"},
                               {"recipe", "niti"},
                               {"ours", ours_factor},
                               {"register_loop", loop_factor},
                               {"ours_1_thread_ms", one * 1e3},
                               {"ours_2_threads_ms", two * 1e3}};
  report.Heading("Two threads instead of one, wall-clock: VGG-11 with niti, register-only loop",
                 "ours     register loop   ours ms, 1 thread   2 threads");
  std::printf("%.2fx    %.2fx           %.1f               %.1f\n", ours_factor, loop_factor,
              one * 1e3, two * 1e3);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace

void RegisterSteps(Report& report) {
  for (const Plan& plan : kPlans) {
    if (!report.options.HasModel(plan.name)) continue;
    benchmark::RegisterBenchmark(
        absl::StrCat("step/", plan.recipe, "/", plan.name).c_str(),
        [&report, &plan](benchmark::State& state) { Bench(state, plan, report); })
        ->Iterations(report.options.steps)
        ->UseManualTime();
  }
}

void RegisterScaling(Report& report) {
  benchmark::RegisterBenchmark("scaling/vgg11",
                               [&report](benchmark::State& state) {
                                 const absl::Status status = Scale(state, report);
                                 if (status.ok()) return;
                                 state.SkipWithError("scaling");
                                 report.Error("scaling vgg11", status);
                               })
      ->Iterations(report.options.steps)
      ->UseManualTime();
}

}  // namespace runnel::bench
