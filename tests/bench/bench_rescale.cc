// Training steps of integer recipes under each --rescale, on real samples: processor time of a step
// against that of dynamic rescaling in the same run, steps taken in turns; what the int32 sums
// take; how often scales are measured and guesses are wrong.
//
// bench_rescale [--model vgg11] [--dataset cifar10 --data-dir DIR] [--backend cpu] [--batch 64]
//               [--warm-up 110] [--steps 60] [--keeps-after 100] [--summary FILE]
//
// --keeps-after: WARM_UP of adaptive and static.

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/data/batch_source.h"
#include "central/data/dataset.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

constexpr const char* kRules[] = {"dynamic", "speculate", "adaptive", "static"};

struct Contender {
  std::string rule;
  std::unique_ptr<StageExecutor> executor;
  std::vector<double> step_ms;
};

// The plain loop over the whole model.
absl::StatusOr<Contender> MakeContender(const Flags& flags, const char* rule, int64_t samples,
                                        Backend* backend, BufferPool* pool) {
  StageExecutorOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.model, MakeModel(flags.at("--model")));
  options.last_layer = options.model.layer_count() - 1;
  options.training.dataset_samples = samples;
  options.training.batch_size = options.training.eval_batch_size = Number(flags, "--batch");
  options.training.rescale = rule;
  const bool keeps = options.training.rescale == "adaptive" || options.training.rescale == "static";
  if (keeps) absl::StrAppend(&options.training.rescale, ":", Number(flags, "--keeps-after"));
  RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe("niti"));
  options.one_in_flight = true;
  Contender contender = {rule, nullptr, {}};
  RUNNEL_ASSIGN_OR_RETURN(contender.executor,
                          StageExecutor::Create(std::move(options), backend, pool));
  RUNNEL_RETURN_IF_ERROR(contender.executor->DrawState());
  return contender;
}

// Of all products: micro-batches, and how many of them were measured, and forced to be.
struct Scales {
  int64_t steps = 0, measured = 0, forced = 0;
};

absl::StatusOr<Scales> ScalesOf(const StageExecutor& executor) {
  Scales sum;
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, executor.ExportState());
  for (const LayerState& layer : state.layers) {
    for (const TensorData& tensor : layer.tensors) {
      if (tensor.name.find("kept_scales") == std::string::npos) continue;
      KeptScale scales[kScalesPerOperator];
      std::memcpy(static_cast<void*>(scales), tensor.bytes.data(), sizeof(scales));
      for (const KeptScale& scale : scales) {
        sum.steps += scale.step;
        sum.measured += scale.measured;
        sum.forced += scale.forced;
      }
    }
  }
  return sum;
}

absl::StatusOr<nlohmann::json> Run(const Flags& flags) {
  RUNNEL_ASSIGN_OR_RETURN(const DatasetRow* row, FindDataset(flags.at("--dataset")));
  RUNNEL_ASSIGN_OR_RETURN(const DatasetSplits data, row->load({.place = flags.at("--data-dir")}));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeBackend(flags.at("--backend"), 1));
  BatchSource source(*data.train, 1, Augmentation::Parse("off").value());
  const int64_t batch = Number(flags, "--batch"), warm_up = Number(flags, "--warm-up");
  BufferPool pool;
  std::vector<Contender> contenders;
  for (const char* rule : kRules) {
    RUNNEL_ASSIGN_OR_RETURN(Contender contender,
                            MakeContender(flags, rule, data.train->size(), backend.get(), &pool));
    contenders.push_back(std::move(contender));
  }
  TrainingSettings settings;
  settings.dataset_samples = data.train->size();
  settings.batch_size = batch;
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(settings));
  std::vector<float> x(static_cast<size_t>(batch * data.train->sample_shape().elements()));
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  Sequence sequence;
  for (int64_t step = 0; step < warm_up + Number(flags, "--steps");
       ++step, sequence = sequence.next()) {
    const MicroBatch place = batching.Locate(sequence);
    if (place.samples != batch) continue;
    source.Fill(place, absl::MakeSpan(x), absl::MakeSpan(labels));
    for (Contender& contender : contenders) {
      const auto payload = [](const auto& values) {
        return Payload::CopyOf(absl::MakeConstSpan(
            reinterpret_cast<const std::byte*>(values.data()), values.size() * 4));
      };
      Payload input = payload(x), targets = payload(labels);
      const double begin = CpuMs();
      RUNNEL_RETURN_IF_ERROR(
          TrainMicroBatch(*contender.executor, place, std::move(input), std::move(targets))
              .status());
      if (step >= warm_up) contender.step_ms.push_back(CpuMs() - begin);
    }
  }
  nlohmann::json result = {
      {"model", flags.at("--model")},     {"dataset", flags.at("--dataset")},
      {"backend", flags.at("--backend")}, {"batch", batch},
      {"warm_up_steps", warm_up},         {"steps", contenders[0].step_ms.size()}};
  const double dynamic = Median(contenders[0].step_ms);
  for (const Contender& contender : contenders) {
    RUNNEL_ASSIGN_OR_RETURN(const Scales scales, ScalesOf(*contender.executor));
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.step_ms.size(); ++i)
      ratios.push_back(contenders[0].step_ms[i] / contender.step_ms[i]);
    result["rules"].push_back({{"rescale", contender.rule},
                               {"step_ms", Median(contender.step_ms)},
                               {"times_dynamic", dynamic / Median(contender.step_ms)},
                               {"median_ratio_of_steps", Median(ratios)},
                               {"memory_bytes", contender.executor->memory_bytes()},
                               {"product_steps", scales.steps},
                               {"measured", scales.measured},
                               {"forced", scales.forced}});
  }
  return result;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {{"--model", "vgg11"}, {"--dataset", "cifar10"}, {"--data-dir", ""},
                         {"--backend", "cpu"}, {"--batch", "64"},        {"--warm-up", "110"},
                         {"--steps", "60"},    {"--summary", ""},        {"--keeps-after", "100"}};
  if (!runnel::ReadFlags(argc, argv, flags)) return 2;
  return runnel::Report(runnel::Run(flags), flags);
}
