#include "worker/stage/compiled_stage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/batching.h"
#include "worker/stage/counts/work_energy.h"
#include "worker/stage/stage_executor.h"
#include "worker/stage/stage_programs.h"

namespace runnel {

absl::StatusOr<CompiledStage> CompiledStage::Create(const StageExecutorOptions& options,
                                                    Backend& backend, bool keeps_gradients) {
  const TrainingSettings& training = options.training;
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(training));
  const std::vector<int64_t> sizes =
      ShapeSizes(batching, training.eval_batch_size, options.eval_samples);
  const BackendTraits traits = backend.traits();
  RUNNEL_ASSIGN_OR_RETURN(StageArithmetic arithmetic,
                          ArithmeticOf(training, options.model, *options.recipe));
  const Recipe& recipe = arithmetic.recipe;
  StagePrograms& programs = arithmetic.programs;
  programs.max_batch = *std::max_element(sizes.begin(), sizes.end());
  programs.one_in_flight = options.one_in_flight;
  programs.defers_weight_gradients = options.defers_weight_gradients;
  if (keeps_gradients) programs.keeps_gradients = true;
  RUNNEL_ASSIGN_OR_RETURN(const CompileOptions compile,
                          CompileOptionsFor(traits, recipe, programs));
  CompiledStage stage;
  stage.numerics_class_ = traits.numerics_class;
  stage.steps_in_backward_ = compile.steps_in_backward;
  RUNNEL_ASSIGN_OR_RETURN(stage.layout_, PlanState(options.model, options.first_layer,
                                                   options.last_layer, recipe, compile));
  const std::vector<int64_t> training_sizes = batching.MicroBatchSizes();
  const int64_t of_training = *std::max_element(training_sizes.begin(), training_sizes.end());
  for (int64_t samples : sizes) {
    Sized& sized = stage.by_samples_[samples];
    RUNNEL_ASSIGN_OR_RETURN(
        sized.program, CompileStage(options.model, options.first_layer, options.last_layer, samples,
                                    recipe, compile));
    if (samples == of_training && MeasuresSlices(traits, recipe, programs.batch_split))
      RUNNEL_RETURN_IF_ERROR(stage.MeasureSlices(backend, sized.program));
    RUNNEL_ASSIGN_OR_RETURN(sized.executable, backend.Prepare(sized.program));
    stage.CountEnergy(backend, sized);
    stage.has_loss_ = sized.program.has_loss;
    if (stage.has_loss_) stage.labels_per_sample_ = LabelsPerSample(sized.program.output);
    const auto sample = [](const Shape& shape) { return Shape::Create(shape.dims().subspan(1)); };
    RUNNEL_ASSIGN_OR_RETURN(stage.input_sample_, sample(sized.program.input));
    RUNNEL_ASSIGN_OR_RETURN(stage.output_sample_, sample(sized.program.output));
  }
  return stage;
}

void CompiledStage::CountEnergy(const Backend& backend, Sized& sized) {
  const auto joules = [&](Part part) {
    return PartJoules(part, sized.program, *sized.executable, backend);
  };
  sized.pass_joules =
      joules(Part::kForward) + joules(Part::kInputGradient) + joules(Part::kWeightGradient);
  sized.update_joules = joules(Part::kUpdate);
  is_emulated_ = is_emulated_ || IsEmulated(backend, sized);
}

bool CompiledStage::IsEmulated(const Backend& backend, const Sized& sized) {
  if (!backend.traits().rates.is_timed) return true;
  for (size_t part = 0; part < sized.program.parts.size(); ++part) {
    for (size_t i = 0; i < sized.program.parts[part].size(); ++i) {
      const Backend* processor = sized.executable->processor_of(static_cast<Part>(part), i);
      if (processor != nullptr && !processor->traits().rates.is_timed) return true;
    }
  }
  return false;
}

// No bytes depend on it.
absl::Status CompiledStage::MeasureSlices(Backend& backend, Program& program) {
  const MonotonicClock clock;
  RUNNEL_ASSIGN_OR_RETURN(const SplitProfile profile,
                          SplitByProfile(backend, clock, kSplitTimingSeconds, program));
  absl::StrAppend(&slices_found_, slices_found_.empty() ? "" : "; ", "micro-batches of ",
                  program.batch, ": ", ToString(profile));
  return absl::OkStatus();
}

absl::StatusOr<const CompiledStage::Sized*> CompiledStage::ForSamples(int64_t samples) const {
  const auto sized = by_samples_.find(samples);
  if (sized == by_samples_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no program for micro-batches of ", samples, " samples"));
  }
  return &sized->second;
}

absl::Status CompiledStage::CheckLabels(const Payload& labels, int64_t samples) const {
  if (!has_loss_) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(sizeof(int32_t));
  return CheckSize(labels, samples * labels_per_sample_ * bytes, "labels");
}

double CompiledStage::ModelJoules(int64_t samples, int64_t micro_batches_a_step) const {
  const auto sized = by_samples_.find(samples);
  if (sized == by_samples_.end()) return 0;
  return sized->second.pass_joules +
         sized->second.update_joules / static_cast<double>(micro_batches_a_step);
}

int64_t CompiledStage::stash_bytes() const {
  int64_t bytes = 0;
  for (const auto& [samples, sized] : by_samples_)
    bytes = std::max(bytes, sized.program.stash_bytes);
  return bytes;
}

int64_t CompiledStage::scratch_bytes() const {
  int64_t bytes = 0;
  for (const auto& [samples, sized] : by_samples_)
    bytes = std::max(bytes, sized.program.scratch_bytes);
  return bytes;
}

int64_t CompiledStage::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [samples, sized] : by_samples_) bytes += sized.executable->memory_bytes();
  return bytes;
}

absl::Status CheckSize(const Payload& payload, int64_t bytes, const char* what) {
  if (static_cast<int64_t>(payload.size()) == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", payload.size(), " bytes, needs ", bytes));
}

}  // namespace runnel
