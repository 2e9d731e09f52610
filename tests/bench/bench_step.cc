// CPU time of one training step of the zoo's models, next to a plain LibTorch loop in the same run.
//
// bench_step [--backend NAME] [--models lenet,...] [--steps N] [--threads N] [--summary FILE]

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/backends/backend.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "tests/kernels/stage_harness.h"
#include "tests/kernels/torch_oracle.h"

namespace runnel {
namespace {

struct Options {
  std::string backend = "torch";
  std::string models = "lenet,har_cnn,mobilenet_v2,mobilenet_v2_s1";
  std::string summary;
  int steps = 9;
  int threads = 1;
};

template <typename Step>
double MedianStepMs(int steps, const Step& step) {
  step();
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const double begin = CpuMs();
    step();
    times.push_back(CpuMs() - begin);
  }
  return Median(std::move(times));
}

// Milliseconds by column.
absl::StatusOr<std::map<std::string, double>> BenchModel(const std::string& name, int64_t batch,
                                                         const Options& flags, Backend* backend) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  RUNNEL_ASSIGN_OR_RETURN(TestPipeline pipeline, TestPipeline::Make(model, {}, batch, backend, 1));
  TestStage& stage = *pipeline.stages[0];
  std::vector<float> x(static_cast<size_t>(stage.program.input.elements()));
  const CounterRandom random(1, RandomPurpose::kSyntheticData, 0, 0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<int32_t>(i % static_cast<size_t>(model.classes));
  StepContext context;
  context.step_labels = batch;
  context.learning_rate = 0.01;
  context.momentum = 0.9;

  std::map<std::string, double> result;
  for (bool channels_last : {false, true}) {
    TorchOracle plain(model, stage.program.state,
                      {.channels_last = channels_last, .counter_masks = false},
                      stage.data(Storage::kParameters), stage.data(Storage::kStatistics));
    result[channels_last ? "libtorch_channels_last_ms" : "libtorch_ms"] =
        MedianStepMs(flags.steps, [&] {
          plain.ForwardBackward(x.data(), labels.data(), batch, context);
          plain.Update(context);
        });
  }
  absl::Status status;
  result["runnel_ms"] = MedianStepMs(flags.steps, [&] {
    status.Update(pipeline.ForwardBackward(x.data(), labels.data(), context));
    status.Update(pipeline.Update(context));
    context.sequence = context.sequence.next();
  });
  RUNNEL_RETURN_IF_ERROR(status);
  result["ratio"] =
      result["runnel_ms"] / std::min(result["libtorch_ms"], result["libtorch_channels_last_ms"]);
  return result;
}

int Run(const Options& flags) {
  TuneAllocatorForTorch();
  auto backend = MakeBackend(flags.backend, flags.threads);
  if (!backend.ok()) {
    std::cerr << backend.status() << "\n";
    return 2;
  }
  nlohmann::json summary = {{"numerics_class", (*backend)->numerics_class()},
                            {"steps", flags.steps}};
  std::printf("%s, CPU ms a step, median of %d\n%-18s %6s %10s %14s %10s %22s\n",
              (*backend)->numerics_class().c_str(), flags.steps, "model", "batch", "runnel",
              "libtorch nchw", "nhwc", "runnel / best libtorch");
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(flags.models, ','))) {
    const int64_t batch = name == "mobilenet_v2" ? 128 : 64;
    const auto times = BenchModel(name, batch, flags, backend->get());
    if (!times.ok()) {
      std::cerr << times.status() << "\n";
      return 1;
    }
    std::printf("%-18s %6d %10.1f %14.1f %10.1f %22.2f\n", name.c_str(), static_cast<int>(batch),
                times->at("runnel_ms"), times->at("libtorch_ms"),
                times->at("libtorch_channels_last_ms"), times->at("ratio"));
    std::fflush(stdout);
    summary["models"][name] = *times;
    summary["models"][name]["batch"] = batch;
  }
  if (!flags.summary.empty()) std::ofstream(flags.summary) << summary.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Options flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const bool known = flag == "--backend" || flag == "--models" || flag == "--steps" ||
                       flag == "--threads" || flag == "--summary";
    if (!known || i + 1 >= argc) {
      std::cerr << "usage: bench_step [--backend NAME] [--models A,B] [--steps N] [--threads N] "
                   "[--summary FILE]\n";
      return 2;
    }
    const std::string value = argv[i + 1];
    if (flag == "--backend") flags.backend = value;
    if (flag == "--models") flags.models = value;
    if (flag == "--summary") flags.summary = value;
    if (flag == "--steps") flags.steps = std::max(1, std::atoi(value.c_str()));
    if (flag == "--threads") flags.threads = std::max(1, std::atoi(value.c_str()));
  }
  return runnel::Run(flags);
}
