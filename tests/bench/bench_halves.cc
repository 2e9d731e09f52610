// Step times and memory of recipes beside fp32, in turn in one run, one thread.
//
// bench_halves [--models lenet,vgg11] [--recipes fp32,bf16,fp16] [--batch 64] [--backend cpu] [--runs 5]
// Names of recipes with bits are separated by semicolons: --recipes "fp32;sbm:8,8,8". "+recompute"
// behind a name: all layers are made again in the backward. "+whole": ReLUs keep values, no masks.
// Processor time of the thread.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"
#include "tests/kernels/whole_values.h"

namespace runnel {
namespace {

constexpr char kRecompute[] = "+recompute", kWhole[] = "+whole";

struct Side {
  std::string recipe;
  int64_t stash_bytes = 0;  // of a micro-batch in flight, where there may be others
  TestPipeline net;
  std::vector<double> ms;  // of steps
};

absl::Status Step(const ModelSpec& model, int64_t batch, int64_t step, Side& side) {
  const StepContext context = {.sequence = Sequence(step),
                               .step = step,
                               .step_labels = batch,
                               .learning_rate = 0.01,
                               .momentum = 0.9};
  const auto samples = RandomValues(1, static_cast<uint64_t>(step), batch * model.input.elements());
  const auto labels = RandomLabels(1, static_cast<uint64_t>(step), batch,
                                   side.net.stages.back()->program.output[1]);
  const int64_t begin = ThreadProcessorNs();
  RUNNEL_RETURN_IF_ERROR(side.net.ForwardBackward(samples.data(), labels.data(), context));
  side.ms.push_back(static_cast<double>(ThreadProcessorNs() - begin) * 1e-6);
  return absl::OkStatus();
}

// What lives while a step runs, beside the parameters and their slots.
double ValueMegabytes(const TestStage& stage) {
  return static_cast<double>(stage.program.stash_bytes + stage.program.scratch_bytes) * 1e-6;
}

absl::Status Measure(const std::string& name, const std::vector<std::string>& recipes,
                     int64_t batch, int runs, Backend& plain) {
  WholeValues whole(plain);
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  std::vector<Side> sides;
  for (const std::string& recipe : recipes) {
    const absl::string_view with_masks = absl::StripSuffix(recipe, kWhole);
    const std::string name_alone(absl::StripSuffix(with_masks, kRecompute));
    ModelSpec of_side = model;
    for (LayerSpec& layer : of_side.layers) layer.recompute = name_alone != with_masks;
    Backend& backend = with_masks == recipe ? plain : whole;
    RUNNEL_ASSIGN_OR_RETURN(TestPipeline net,
                            TestPipeline::Make(of_side, {}, batch, &backend, 1, Checks::kOff,
                                               Steps::kAlone, name_alone.c_str()));
    RUNNEL_ASSIGN_OR_RETURN(TestPipeline apart,
                            TestPipeline::Make(of_side, {}, batch, &backend, 1, Checks::kOff,
                                               Steps::kApart, name_alone.c_str()));
    sides.push_back({recipe, apart.stages[0]->program.stash_bytes, std::move(net), {}});
  }
  for (int run = 0; run <= runs; ++run) {
    for (Side& side : sides) RUNNEL_RETURN_IF_ERROR(Step(model, batch, run, side));
  }
  for (Side& side : sides) {
    std::sort(side.ms.begin() + 1, side.ms.end());  // behind the first, which warms up
    const TestStage& stage = *side.net.stages[0];
    std::printf("%-16s %-16s %9.1f ms a step, %8.1f MB of values, stash %8.1f MB\n", name.c_str(),
                side.recipe.c_str(), side.ms[1 + static_cast<size_t>(runs) / 2],
                ValueMegabytes(stage), static_cast<double>(side.stash_bytes) * 1e-6);
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  int64_t batch = 0;
  int runs = 0;
  if (!absl::SimpleAtoi(flags.at("--batch"), &batch) || batch < 2 ||
      !absl::SimpleAtoi(flags.at("--runs"), &runs) || runs < 1)
    return absl::InvalidArgumentError("--batch and --runs are numbers from 2 and 1 on");
  RUNNEL_ASSIGN_OR_RETURN(const auto backend, MakeBackend(flags.at("--backend"), 1));
  const std::string& recipes = flags.at("--recipes");
  const char between = recipes.find(';') == std::string::npos ? ',' : ';';
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(flags.at("--models"), ',')))
    RUNNEL_RETURN_IF_ERROR(Measure(name, absl::StrSplit(recipes, between), batch, runs, *backend));
  return absl::OkStatus();
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {{"--models", "lenet,vgg11"},
                         {"--recipes", "fp32,bf16,fp16"},
                         {"--batch", "64"},
                         {"--backend", "cpu"},
                         {"--runs", "5"}};
  if (!runnel::ReadFlags(argc, argv, flags)) {
    std::cerr << "usage: bench_halves [--models M,...] [--recipes R;...] [--batch N] [--backend "
                 "B] [--runs N]\n";
    return 2;
  }
  const absl::Status status = runnel::Run(flags);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
