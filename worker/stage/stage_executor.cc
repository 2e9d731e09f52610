#include "worker/stage/stage_executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "worker/stage/staleness.h"
#include "worker/stage/work_energy.h"

namespace runnel {
absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Create(StageExecutorOptions options,
                                                                     Backend* backend,
                                                                     BufferPool* pool) {
  std::unique_ptr<StageExecutor> executor(new StageExecutor(std::move(options)));
  executor->pool_ = pool;
  const TrainingSettings& training = executor->options_.training;
  executor->numbers_ = FormatOf(*executor->options_.recipe->family, training);
  RUNNEL_ASSIGN_OR_RETURN(executor->optimizer_, ParseOptimizer(training.optimizer));
  RUNNEL_RETURN_IF_ERROR(executor->Compile(backend));
  RUNNEL_RETURN_IF_ERROR(executor->AllocateState(backend));
  return executor;
}

absl::Status StageExecutor::Compile(Backend* backend) {
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options_.training));
  const std::vector<int64_t> sizes =
      ShapeSizes(batching, options_.training.eval_batch_size, options_.eval_samples);
  forward_only_ = options_.last_layer < options_.model.frozen_front();
  const BackendTraits traits = backend->traits();
  numerics_class_ = traits.numerics_class;
  StagePrograms programs = {.max_batch = *std::max_element(sizes.begin(), sizes.end()),
                            .accumulates = options_.training.micro_batches > 1,
                            .one_in_flight = options_.one_in_flight,
                            .defers_weight_gradients = options_.defers_weight_gradients,
                            .optimizer = optimizer_.optimizer};
  RUNNEL_ASSIGN_OR_RETURN(programs.rescale, ParseRescale(options_.training.rescale));
  RUNNEL_ASSIGN_OR_RETURN(programs.batch_split, ParseBatchSplit(options_.training.batch_split));
  RUNNEL_ASSIGN_OR_RETURN(const CompileOptions compile,
                          CompileOptionsFor(traits, *options_.recipe, programs));
  steps_in_backward_ = compile.steps_in_backward;
  RUNNEL_ASSIGN_OR_RETURN(layout_, PlanState(options_.model, options_.first_layer,
                                             options_.last_layer, *options_.recipe, compile));
  const std::vector<int64_t> training_sizes = batching.MicroBatchSizes();
  const int64_t of_training = *std::max_element(training_sizes.begin(), training_sizes.end());
  for (int64_t samples : sizes) {
    Compiled& compiled = compiled_[samples];
    RUNNEL_ASSIGN_OR_RETURN(compiled.program,
                            CompileStage(options_.model, options_.first_layer, options_.last_layer,
                                         samples, *options_.recipe, compile));
    if (samples == of_training && MeasuresSlices(traits, *options_.recipe, programs.batch_split))
      RUNNEL_RETURN_IF_ERROR(MeasureSlices(*backend, compiled.program));
    RUNNEL_ASSIGN_OR_RETURN(compiled.executable, backend->Prepare(compiled.program));
    *memory_bytes_ += compiled.executable->memory_bytes();
    has_loss_ = compiled.program.has_loss;
    if (has_loss_) labels_per_sample_ = LabelsPerSample(compiled.program.output);
    const auto sample = [](const Shape& shape) { return Shape::Create(shape.dims().subspan(1)); };
    RUNNEL_ASSIGN_OR_RETURN(input_sample_, sample(compiled.program.input));
    RUNNEL_ASSIGN_OR_RETURN(output_sample_, sample(compiled.program.output));
  }
  return absl::OkStatus();
}

// No bytes depend on it.
absl::Status StageExecutor::MeasureSlices(Backend& backend, Program& program) {
  const MonotonicClock clock;
  RUNNEL_ASSIGN_OR_RETURN(const SplitProfile profile,
                          SplitByProfile(backend, clock, kSplitTimingSeconds, program));
  absl::StrAppend(&slices_found_, slices_found_.empty() ? "" : "; ", "micro-batches of ",
                  program.batch, ": ", ToString(profile));
  return absl::OkStatus();
}

absl::Status StageExecutor::AllocateState(Backend* backend) {
  int64_t stash_bytes = 0;
  for (const auto& [samples, compiled] : compiled_) {
    stash_bytes = std::max(stash_bytes, compiled.program.stash_bytes);
    scratch_bytes_ = std::max(scratch_bytes_, compiled.program.scratch_bytes);
  }
  allocate_ = [backend, total = memory_bytes_](int64_t bytes) {
    *total += bytes;
    return backend->Allocate(bytes);
  };
  RUNNEL_ASSIGN_OR_RETURN(stash_, Stash::Create(allocate_, layout_.parameter_bytes, stash_bytes));
  RUNNEL_ASSIGN_OR_RETURN(slots_, allocate_(layout_.slot_bytes));
  RUNNEL_ASSIGN_OR_RETURN(gradients_, allocate_(layout_.gradient_bytes));
  RUNNEL_ASSIGN_OR_RETURN(statistics_, allocate_(layout_.statistic_bytes));
  return FreeScratch().status();
}

absl::StatusOr<Memory*> StageExecutor::FreeScratch() {
  if (free_scratch_.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> scratch, allocate_(scratch_bytes_));
    free_scratch_.push_back(std::move(scratch));
  }
  return free_scratch_.back().get();
}

absl::StatusOr<StageExecutor::Compiled*> StageExecutor::ForSamples(int64_t samples) {
  const auto compiled = compiled_.find(samples);
  if (compiled == compiled_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no program for micro-batches of ", samples, " samples"));
  }
  return &compiled->second;
}

double StageExecutor::ModelJoules(int64_t samples) const {
  const auto compiled = compiled_.find(samples);
  if (compiled == compiled_.end()) return 0;
  const Program& program = compiled->second.program;
  double joules = runnel::ModelJoules(Part::kUpdate, program) /
                  static_cast<double>(options_.training.micro_batches);
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient})
    joules += runnel::ModelJoules(part, program);
  return joules;
}

absl::Status StageExecutor::CheckSize(const Payload& payload, int64_t bytes,
                                      const char* what) const {
  if (static_cast<int64_t>(payload.size()) == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", payload.size(), " bytes, needs ", bytes));
}

absl::Status StageExecutor::CheckLabels(const Payload& labels, int64_t samples) const {
  if (!has_loss_) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(sizeof(int32_t));
  return CheckSize(labels, samples * labels_per_sample_ * bytes, "labels");
}

StepContext StageExecutor::ContextOf(const MicroBatch& place) const {
  StepContext context;
  context.run_seed = options_.training.seed;
  context.sequence = place.sequence;
  context.step = place.step;
  context.step_labels = place.step_samples * labels_per_sample_;
  context.accumulate = !place.first_in_step;
  context.learning_rate =
      StepRate(options_.training, place.epoch, place.step, options_.cap, options_.usual_cap);
  context.momentum = options_.training.momentum;
  context.weight_decay = options_.training.weight_decay;
  std::copy(optimizer_.parameters.begin(), optimizer_.parameters.end(),
            context.optimizer_parameters.begin());
  context.gradient_bits =
      GradientBitsAt(options_.training, options_.changes, place.epoch, place.step);
  return context;
}

Bindings StageExecutor::StateBindings(const Memory& weights, const Memory& scratch) const {
  Bindings bindings;
  bindings[Storage::kParameters] = weights.address();
  bindings[Storage::kGradients] = gradients_->address();
  bindings[Storage::kSlots] = slots_->address();
  bindings[Storage::kStatistics] = statistics_->address();
  bindings[Storage::kScratch] = scratch.address();
  if (steps_in_backward_) bindings[Storage::kNewParameters] = weights.address();
  return bindings;
}

namespace {

std::byte* Base(Payload& payload) { return payload.mutable_bytes().data(); }

StageCompute::Output LossOutput(const double (&metrics)[2], int64_t labels_per_sample) {
  return {Payload(), metrics[0] / static_cast<double>(labels_per_sample),
          static_cast<int64_t>(metrics[1])};
}

}  // namespace

// Each micro-batch in flight will have stepped before this one does.
absl::StatusOr<Stash::Entry*> StageExecutor::BeginForward(const MicroBatch& place) {
  StepContext context = ContextOf(place);
  const double distance = LookAheadShare(options_.training, options_.cap, options_.usual_cap) *
                          static_cast<double>(stash_->in_flight()) * context.learning_rate;
  if (distance == 0) return stash_->Push(place);
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * entry, stash_->PushWithOwnWeights(place));
  // That of the last step that was taken, which left the slots.
  context.step -= static_cast<int64_t>(stash_->in_flight()) + 1;
  RUNNEL_RETURN_IF_ERROR(LookAheadInto(stash_->weights(*entry), context, distance));
  return entry;
}

absl::Status StageExecutor::LookAheadInto(Memory& weights, const StepContext& context,
                                          double distance) const {
  const OptimizerStep& step = StepOf(optimizer_.optimizer);
  const OptimizerScalars scalars = step.scalars(context);
  RUNNEL_ASSIGN_OR_RETURN(const Mapping newest, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping ahead, Mapping::Of(weights, MapAccess::kReadWrite));
  for (const StateTensor& tensor : layout_.tensors) {
    if (tensor.storage != Storage::kParameters) continue;
    const std::byte* from = newest.data() + tensor.offset_bytes;
    std::byte* to = ahead.data() + tensor.offset_bytes;
    const int64_t elements = tensor.spec.shape.elements();
    if (HasSlots(tensor.spec)) {
      std::array<const float*, kMostSlots> at = {};
      for (size_t k = 0; k < numbers_.slots.size(); ++k) {
        at[k] = reinterpret_cast<const float*>(slots.data() + layout_.SlotOffset(tensor, k));
      }
      step.look_ahead(scalars, reinterpret_cast<const float*>(from), at.data(),
                      static_cast<float>(distance), elements, reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, from, static_cast<size_t>(elements) * SizeOf(tensor.spec.dtype));
    }
  }
  return absl::OkStatus();
}

// Averages the newest versions. If some are missing, as after a barrier, there is no average.
absl::Status StageExecutor::AggregateVersions(const MicroBatch& place) {
  const int64_t every = options_.training.aggregate_every;
  if (every == 0 || (place.step + 1) % every != 0 || options_.usual_cap < 2)
    return absl::OkStatus();
  std::vector<Mapping> versions;  // the newest, which the mean replaces, comes first
  for (Memory* version : stash_->NewestVersions(options_.usual_cap)) {
    const MapAccess access = versions.empty() ? MapAccess::kReadWrite : MapAccess::kRead;
    RUNNEL_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(*version, access));
    versions.push_back(std::move(mapping));
  }
  if (versions.empty()) return absl::OkStatus();
  std::vector<const float*> tensors(versions.size());
  for (const StateTensor& tensor : layout_.tensors) {
    if (!HasSlots(tensor.spec)) continue;
    for (size_t i = 0; i < versions.size(); ++i)
      tensors[i] = reinterpret_cast<const float*>(versions[i].data() + tensor.offset_bytes);
    AverageVersions(tensors, tensor.spec.shape.elements(),
                    reinterpret_cast<float*>(versions[0].data() + tensor.offset_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<StageCompute::Output> StageExecutor::Forward(const MicroBatch& place, Payload input,
                                                            Payload labels) {
  RUNNEL_ASSIGN_OR_RETURN(Compiled * compiled, ForSamples(place.samples));
  const Program& program = compiled->program;
  RUNNEL_RETURN_IF_ERROR(CheckSize(input, program.input_bytes, "stage input"));
  RUNNEL_RETURN_IF_ERROR(CheckLabels(labels, place.samples));

  if (options_.one_in_flight && stash_->in_flight() > 0) {
    return absl::InternalError(absl::StrCat("forward of micro-batch ", place.sequence.value(),
                                            " while another one is in flight"));
  }
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * begun, BeginForward(place));
  Stash::Entry& entry = *begun;
  entry.input = std::move(input);
  Payload output = pool_->Allocate(static_cast<size_t>(program.output_bytes));
  alignas(64) double metrics[2] = {0, 0};
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings bindings = StateBindings(stash_->weights(entry), *scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(output);
  bindings[Storage::kLabels] = Base(labels);
  bindings[Storage::kMetrics] = reinterpret_cast<std::byte*>(metrics);
  bindings[Storage::kStash] = entry.activations->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForward, ContextOf(place), bindings));
  if (program.backward_reads_output) entry.output = output;
  if (has_loss_) return LossOutput(metrics, labels_per_sample_);
  if (forward_only_) stash_->Pop();  // no backward comes
  return Output{std::move(output)};
}

absl::StatusOr<StageCompute::Output> StageExecutor::InputGradient(const MicroBatch& place,
                                                                  Payload output_gradient) {
  if (forward_only_) return Output{};
  RUNNEL_ASSIGN_OR_RETURN(Compiled * compiled, ForSamples(place.samples));
  const Program& program = compiled->program;
  if (!has_loss_)
    RUNNEL_RETURN_IF_ERROR(CheckSize(output_gradient, program.output_gradient_bytes, "gradient"));
  Stash::Entry* found = stash_->Find(place.sequence);
  if (found == nullptr) {
    return absl::InternalError(
        absl::StrCat("backward of micro-batch ", place.sequence.value(), " without its forward"));
  }
  Stash::Entry& entry = *found;
  entry.output_gradient = std::move(output_gradient);
  RUNNEL_RETURN_IF_ERROR(FreeScratch().status());
  entry.scratch = std::move(free_scratch_.back());
  free_scratch_.pop_back();
  Output result;
  if (program.needs_input_gradient) {
    result.tensor = pool_->Allocate(static_cast<size_t>(program.input_gradient_bytes));
  }
  Bindings bindings = StateBindings(stash_->weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kInputGradient] = Base(result.tensor);
  bindings[Storage::kStash] = entry.activations->address();
  RUNNEL_RETURN_IF_ERROR(
      compiled->executable->Run(Part::kInputGradient, ContextOf(place), bindings));
  return result;
}

absl::Status StageExecutor::WeightGradient(const MicroBatch& place, bool step) {
  if (forward_only_) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(Compiled * compiled, ForSamples(place.samples));
  if (stash_->in_flight() == 0 || stash_->Oldest().place.sequence != place.sequence ||
      stash_->Oldest().scratch == nullptr) {
    return absl::InternalError(
        absl::StrCat("weight-gradient of micro-batch ", place.sequence.value(), " out of order"));
  }
  Stash::Entry& entry = stash_->Oldest();
  const StepContext context = ContextOf(place);
  Bindings bindings = StateBindings(stash_->weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kStash] = entry.activations->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kWeightGradient, context, bindings));
  free_scratch_.push_back(std::move(entry.scratch));
  stash_->Pop();
  if (!step || steps_in_backward_) return absl::OkStatus();

  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings update = StateBindings(stash_->newest(), *scratch);
  RUNNEL_ASSIGN_OR_RETURN(const Memory* next, stash_->NextVersion());
  update[Storage::kNewParameters] = next->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kUpdate, context, update));
  stash_->Publish();
  return AggregateVersions(place);
}

absl::StatusOr<StageCompute::Output> StageExecutor::Evaluate(int64_t samples, Payload input,
                                                             Payload labels) {
  RUNNEL_ASSIGN_OR_RETURN(Compiled * compiled, ForSamples(samples));
  const Program& program = compiled->program;
  RUNNEL_RETURN_IF_ERROR(CheckSize(input, program.input_bytes, "stage input"));
  RUNNEL_RETURN_IF_ERROR(CheckLabels(labels, samples));
  Payload output = pool_->Allocate(static_cast<size_t>(program.output_bytes));
  alignas(64) double metrics[2] = {0, 0};
  StepContext context;
  context.run_seed = options_.training.seed;
  context.step_labels = samples * labels_per_sample_;
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings bindings = StateBindings(stash_->newest(), *scratch);
  bindings[Storage::kInput] = Base(input);
  bindings[Storage::kOutput] = Base(output);
  bindings[Storage::kLabels] = Base(labels);
  bindings[Storage::kMetrics] = reinterpret_cast<std::byte*>(metrics);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForwardEval, context, bindings));
  if (has_loss_) return LossOutput(metrics, labels_per_sample_);
  return Output{std::move(output)};
}

}  // namespace runnel
