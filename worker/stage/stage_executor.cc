#include "worker/stage/stage_executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/weight_average.h"
#include "worker/stage/boundary_memory.h"
#include "worker/stage/class_counter.h"
#include "worker/stage/gradient_norm.h"
#include "worker/stage/staleness.h"
#include "worker/stage/weight_average.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Create(StageExecutorOptions options,
                                                                     Backend* backend,
                                                                     BufferPool* pool) {
  RUNNEL_ASSIGN_OR_RETURN(OptimizerChoice optimizer, ParseOptimizer(options.training.optimizer));
  RUNNEL_ASSIGN_OR_RETURN(PrecisionSetting precision, ParsePrecision(options.training.precision));
  if (options.recipe != nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(options.recipe->name));
    RUNNEL_RETURN_IF_ERROR(CheckPrecisionOf(precision, recipe));
  }
  RUNNEL_ASSIGN_OR_RETURN(CompiledStage programs,
                          CompiledStage::Create(options, optimizer.optimizer, *backend));
  std::unique_ptr<StageExecutor> executor(
      new StageExecutor(std::move(options), std::move(optimizer), std::move(programs), pool));
  executor->precision_ = std::move(precision);
  if (HasGates(executor->options_.model)) {
    const StageExecutorOptions& made = executor->options_;
    RUNNEL_ASSIGN_OR_RETURN(executor->gates_,
                            GateCosts::Create(made.model, made.first_layer, made.last_layer,
                                              made.training, executor->numbers_));
  }
  RUNNEL_RETURN_IF_ERROR(executor->AllocateState(backend));
  return executor;
}

StageExecutor::StageExecutor(StageExecutorOptions options, OptimizerChoice optimizer,
                             CompiledStage programs, BufferPool* pool)
    : options_(std::move(options)),
      numbers_(FormatOf(*options_.recipe->family, options_.training, options_.model)),
      optimizer_(std::move(optimizer)),
      programs_(std::move(programs)),
      pool_(pool),
      forward_only_(options_.last_layer < options_.model.frozen_front()),
      memory_bytes_(std::make_shared<std::atomic<int64_t>>(programs_.memory_bytes())),
      work_(HasGates(options_.model) ? std::make_unique<StageWork>() : nullptr),
      range_(numbers_.scales_loss() ? std::make_unique<RangeTally>() : nullptr) {
  kept_bytes_ = *memory_bytes_;
}

absl::Status StageExecutor::AllocateState(Backend* backend) {
  backend_ = backend;
  allocate_ = [backend, total = memory_bytes_](int64_t bytes) {
    *total += bytes;
    return backend->Allocate(bytes);
  };
  const StateLayout& layout = programs_.layout();
  RUNNEL_ASSIGN_OR_RETURN(
      stash_, Stash::Create(allocate_, layout.parameter_bytes, programs_.stash_bytes()));
  RUNNEL_ASSIGN_OR_RETURN(slots_, allocate_(layout.slot_bytes));
  RUNNEL_ASSIGN_OR_RETURN(gradients_, allocate_(layout.gradient_bytes));
  RUNNEL_ASSIGN_OR_RETURN(statistics_, allocate_(layout.statistic_bytes));
  return FreeScratch().status();
}

void StageExecutor::CountKept() {
  const int64_t kept = programs_.memory_bytes();
  *memory_bytes_ += kept - std::exchange(kept_bytes_, kept);
}

absl::StatusOr<Memory*> StageExecutor::FreeScratch() {
  if (free_scratch_.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> scratch, allocate_(programs_.scratch_bytes()));
    free_scratch_.push_back(std::move(scratch));
  }
  return free_scratch_.back().get();
}

absl::StatusOr<MappedState> StageExecutor::MapState(MapAccess access) const {
  return MappedState::Of(programs_.layout(), stash_->newest(), *statistics_, *slots_, access);
}

void StageExecutor::NameWeights() {
  static std::atomic<int64_t> names = 0;
  if (!has_trained_) evaluated_weights_ = ++names;
}

absl::StatusOr<ModelState> StageExecutor::ExportState() const {
  RUNNEL_ASSIGN_OR_RETURN(const MappedState from, MapState(MapAccess::kRead));
  ModelState state;
  for (int layer = options_.first_layer; layer <= options_.last_layer; ++layer)
    state.layers.push_back(from.ReadLayer(layer));
  return state;
}

absl::Status StageExecutor::ImportState(const ModelState& state) {
  NameWeights();
  RUNNEL_RETURN_IF_ERROR(CheckState(state, options_.model, options_.first_layer,
                                    options_.last_layer, numbers_, ZeroTensors::kLeftOut));
  RUNNEL_ASSIGN_OR_RETURN(const MappedState to, MapState(MapAccess::kReadWrite));
  for (const LayerState& layer : state.layers) to.WriteLayer(layer);
  are_averages_stale_ = true;
  return absl::OkStatus();
}

absl::Status StageExecutor::ChangeState(absl::FunctionRef<void(int, TensorData&)> change) {
  NameWeights();
  RUNNEL_ASSIGN_OR_RETURN(const MappedState state, MapState(MapAccess::kReadWrite));
  state.Change(change);
  return absl::OkStatus();
}

absl::Status StageExecutor::DrawState() {
  NameWeights();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(options_.model, 1));
  RUNNEL_ASSIGN_OR_RETURN(const MappedState to, MapState(MapAccess::kReadWrite));
  for (int layer = options_.first_layer; layer <= options_.last_layer; ++layer) {
    to.WriteLayer(InitialLayer(options_.model, infos[static_cast<size_t>(layer)], layer,
                               options_.training.seed, numbers_));
  }
  return absl::OkStatus();
}

StepContext StageExecutor::ContextOf(const MicroBatch& place) const {
  StepContext context;
  context.run_seed = options_.training.seed;
  context.sequence = place.sequence;
  context.step = place.step;
  context.step_labels = place.step_samples * programs_.labels_per_sample();
  context.label_smoothing = options_.training.label_smoothing;
  context.accumulate = !place.first_in_step;
  context.learning_rate =
      StepRate(options_.training, place.epoch, place.step, options_.cap, options_.usual_cap);
  context.momentum = options_.training.momentum;
  context.weight_decay = options_.training.weight_decay;
  std::copy(optimizer_.parameters.begin(), optimizer_.parameters.end(),
            context.optimizer_parameters.begin());
  context.optimizer_parameters.back() = static_cast<double>(options_.delay);
  context.gradient_bits =
      GradientBitsAt(options_.training, options_.changes, place.epoch, place.step);
  context.grid_bits = PrecisionAt(precision_, options_.changes, options_.training.run_steps,
                                  place.epoch, place.step);
  if (range_ == nullptr) return context;
  context.range = dry_run_ != nullptr ? &dry_run_->range : range_.get();
  context.loss_scale =
      static_cast<double>(LossScaleAt(options_.training, options_.changes, place.step));
  return context;
}

// A cycle's largest bits, whatever the last step had.
GridBits StageExecutor::EvaluatedGridBits() const {
  const bool cycles = precision_.kind == PrecisionSetting::Kind::kCycle;
  if (trained_grid_bits_.has_value() && !cycles) return *trained_grid_bits_;
  return LastPrecision(precision_, options_.changes);
}

void StageExecutor::CountGradients(const Program& program, Part part) {
  if (range_ == nullptr || dry_run_ != nullptr) return;
  for (const Instruction& instruction : program.part(part)) {
    if (RangeTally::MakesGradients(instruction.code))
      gradient_values_ += program.buffers[instruction.outputs[0]].shape.elements();
  }
}

void StageExecutor::CountMacs(const Program& program, const GridBits& bits) {
  const bool has_few_bits = options_.recipe->family->operands != nullptr;
  if ((!has_few_bits && work_ == nullptr) || dry_run_ != nullptr) return;
  auto known = macs_.find(&program);
  if (known == macs_.end()) known = macs_.emplace(&program, ProgramMacs::OfTraining(program)).first;
  if (work_ == nullptr) {
    effective_macs_ = effective_macs_ + known->second.At(bits);
  } else if (!HasGates(program)) {
    work_->AddAll(known->second, bits);
  }
}

WorkTally* StageExecutor::WorkOf(const Program& program) {
  if (work_ == nullptr || dry_run_ != nullptr) return nullptr;
  const auto known = macs_.find(&program);
  if (known == macs_.end()) return nullptr;
  work_->Begin(known->second);
  return work_.get();
}

void StageExecutor::FillRange(Telemetry& telemetry) const {
  telemetry.effective_macs = work_ != nullptr ? work_->effective() : effective_macs_.load();
  telemetry.macs_done = work_ != nullptr ? work_->done() : 0;
  if (gates_ != nullptr) gates_->Fill(telemetry);
  telemetry.clipped_steps = clipped_steps_;
  if (range_ == nullptr) return;
  telemetry.gradient_values = gradient_values_;
  telemetry.gradients_saturated = range_->gradients_saturated();
  telemetry.gradient_underflows = range_->gradient_underflows();
  telemetry.activations_saturated = range_->activations_saturated();
}

Bindings StageExecutor::StateBindings(const Memory& weights, const Memory& scratch) const {
  Bindings bindings;
  bindings[Storage::kParameters] = weights.address();
  bindings[Storage::kGradients] = gradients_->address();
  bindings[Storage::kSlots] = slots_->address();
  bindings[Storage::kStatistics] = statistics_->address();
  bindings[Storage::kScratch] = scratch.address();
  if (programs_.steps_in_backward()) bindings[Storage::kNewParameters] = weights.address();
  return bindings;
}

namespace {

std::byte* Base(Payload& payload) { return payload.mutable_bytes().data(); }

StageCompute::Output LossOutput(const double (&metrics)[2], int64_t labels_per_sample) {
  return {Payload(), metrics[0] / static_cast<double>(labels_per_sample),
          static_cast<int64_t>(metrics[1])};
}

}  // namespace

absl::Status StageExecutor::CheckReceived(Direction direction, const MicroBatch& place,
                                          const Shape& shape, const Payload& tensor) const {
  const absl::Status status = CheckBoundary(numbers_, direction, shape, tensor.bytes());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(direction == Direction::kForward ? "activation" : "gradient", " of micro-batch ",
                   place.sequence.value(), ": ", status.message()));
}

// Each earlier mini-batch in flight will have stepped before this one's does.
absl::StatusOr<Stash::Entry*> StageExecutor::BeginForward(const MicroBatch& place) {
  StepContext context = ContextOf(place);
  const int64_t steps_between =
      stash_->in_flight() == 0 ? 0 : place.step - stash_->Oldest().place.step;
  const double distance = LookAheadShare(options_.training, options_.cap, options_.usual_cap) *
                          static_cast<double>(steps_between) * context.learning_rate;
  if (distance == 0) return stash_->Push(place);
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * entry, stash_->PushWithOwnWeights(place));
  // That of the last step that was taken, which left the slots.
  context.step -= steps_between + 1;
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
  for (const StateTensor& tensor : programs_.layout().tensors) {
    if (tensor.storage != Storage::kParameters) continue;
    const std::byte* from = newest.data() + tensor.offset_bytes;
    std::byte* to = ahead.data() + tensor.offset_bytes;
    const int64_t elements = tensor.spec.shape.elements();
    if (HasSlots(tensor.spec)) {
      std::array<const float*, kMostSlots> at = {};
      for (size_t k = 0; k < numbers_.slots.size(); ++k) {
        at[k] =
            reinterpret_cast<const float*>(slots.data() + programs_.layout().SlotOffset(tensor, k));
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
  for (const StateTensor& tensor : programs_.layout().tensors) {
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
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  const Program& program = compiled->program;
  RUNNEL_RETURN_IF_ERROR(CheckSize(input, program.input_bytes, "stage input"));
  if (options_.first_layer > 0)
    RUNNEL_RETURN_IF_ERROR(CheckReceived(Direction::kForward, place, program.input, input));
  RUNNEL_RETURN_IF_ERROR(programs_.CheckLabels(labels, place.samples));

  const bool drops_kept = std::exchange(evaluated_weights_, 0) != 0;
  has_trained_ = true;
  if (options_.one_in_flight && stash_->in_flight() > 0) {
    return absl::InternalError(absl::StrCat("forward of micro-batch ", place.sequence.value(),
                                            " while another one is in flight"));
  }
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * begun, BeginForward(place));
  stashed_bytes_.store(stash_->in_use_bytes(), std::memory_order_relaxed);
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
  if (!programs_.has_loss())
    PrepareBoundary(numbers_, Direction::kForward, program.output, output.mutable_bytes());
  StepContext context = ContextOf(place);
  trained_grid_bits_ = context.grid_bits;
  CountMacs(program, context.grid_bits);
  context.work = WorkOf(program);
  context.choices = gates_.get();
  if (gates_ != nullptr) gates_->Begin(entry.input.bytes(), program.input, dry_run_ == nullptr);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForward, context, bindings));
  if (drops_kept && dry_run_ == nullptr) CountKept();
  CountGradients(program, Part::kForward);
  if (gates_ != nullptr && programs_.has_loss()) {
    entry.price_sign = gates_->Sign(options_.changes, place.step);
  } else if (gates_ != nullptr) {
    gates_->WriteCost(output.mutable_bytes(), program.output);
  }
  if (program.backward_reads_output) entry.output = output;
  if (programs_.has_loss()) return LossOutput(metrics, programs_.labels_per_sample());
  if (forward_only_) {
    stash_->Pop();  // no backward comes
    stashed_bytes_.store(stash_->in_use_bytes(), std::memory_order_relaxed);
  }
  return Output{std::move(output)};
}

absl::StatusOr<StageCompute::Output> StageExecutor::InputGradient(const MicroBatch& place,
                                                                  Payload output_gradient) {
  if (forward_only_) return Output{};
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  const Program& program = compiled->program;
  if (!programs_.has_loss()) {
    RUNNEL_RETURN_IF_ERROR(CheckSize(output_gradient, program.output_gradient_bytes, "gradient"));
    RUNNEL_RETURN_IF_ERROR(
        CheckReceived(Direction::kBackward, place, program.output, output_gradient));
  }
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
    PrepareBoundary(numbers_, Direction::kBackward, program.input, result.tensor.mutable_bytes());
  }
  Bindings bindings = StateBindings(stash_->weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kInputGradient] = Base(result.tensor);
  bindings[Storage::kStash] = entry.activations->address();
  StepContext context = ContextOf(place);
  context.work = WorkOf(program);
  if (gates_ != nullptr && !programs_.has_loss())
    entry.price_sign = gates_->ReadSign(entry.output_gradient.bytes(), program.output);
  context.price_sign = entry.price_sign;
  if (gates_ != nullptr && program.needs_input_gradient)
    gates_->WriteSign(entry.price_sign, result.tensor.mutable_bytes(), program.input);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kInputGradient, context, bindings));
  CountGradients(program, Part::kInputGradient);
  return result;
}

absl::Status StageExecutor::WeightGradient(const MicroBatch& place, bool step) {
  if (forward_only_) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  if (stash_->in_flight() == 0 || stash_->Oldest().place.sequence != place.sequence ||
      stash_->Oldest().scratch == nullptr) {
    return absl::InternalError(
        absl::StrCat("weight-gradient of micro-batch ", place.sequence.value(), " out of order"));
  }
  Stash::Entry& entry = stash_->Oldest();
  StepContext context = ContextOf(place);
  context.work = WorkOf(compiled->program);
  Bindings bindings = StateBindings(stash_->weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kStash] = entry.activations->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kWeightGradient, context, bindings));
  free_scratch_.push_back(std::move(entry.scratch));
  stash_->Pop();
  stashed_bytes_.store(stash_->in_use_bytes(), std::memory_order_relaxed);
  if (!step) return absl::OkStatus();
  if (programs_.steps_in_backward()) return AverageWeights(place);
  if (options_.training.clip_norm == 0) return Step(place, context);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> squares, GradientSquares());
  return Step(place, AddSquares(0, squares));
}

absl::StatusOr<std::vector<double>> StageExecutor::GradientSquares() {
  std::vector<double> squares(static_cast<size_t>(options_.last_layer - options_.first_layer + 1));
  if (forward_only_) return squares;
  RUNNEL_ASSIGN_OR_RETURN(const Mapping from, Mapping::Of(*gradients_, MapAccess::kRead));
  for (const StateTensor& tensor : programs_.layout().tensors) {
    if (tensor.storage != Storage::kParameters || !HasSlots(tensor.spec)) continue;
    squares[static_cast<size_t>(tensor.layer - options_.first_layer)] +=
        SquareSum(reinterpret_cast<const float*>(from.data() + tensor.gradient_offset_bytes),
                  tensor.spec.shape.elements());
  }
  return squares;
}

absl::Status StageExecutor::Step(const MicroBatch& place, double gradient_square) {
  StepContext context = ContextOf(place);
  context.gradient_factor =
      ClipFactor(options_.training.clip_norm, gradient_square, context.loss_scale);
  if (context.gradient_factor < 1) ++clipped_steps_;
  return Step(place, context);
}

absl::Status StageExecutor::Step(const MicroBatch& place, const StepContext& context) {
  if (options_.clock != nullptr) update_began_ns_ = options_.clock->NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings update = StateBindings(stash_->newest(), *scratch);
  RUNNEL_ASSIGN_OR_RETURN(const Memory* next, stash_->NextVersion());
  update[Storage::kNewParameters] = next->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kUpdate, context, update));
  stash_->Publish();
  RUNNEL_RETURN_IF_ERROR(AggregateVersions(place));
  return AverageWeights(place);
}

absl::Status StageExecutor::AverageWeights(const MicroBatch& place) {
  const WeightAverage* average = AverageOf(options_.training);
  if (average == nullptr) return absl::OkStatus();
  const float share = average->share(options_.training, place.step);
  if (share == 1) return absl::OkStatus();
  are_averages_stale_ = true;
  const size_t slot = numbers_.slots.size() - 1;
  RUNNEL_ASSIGN_OR_RETURN(const Mapping weights, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kReadWrite));
  const StateLayout& layout = programs_.layout();
  for (const StateTensor& tensor : layout.tensors) {
    if (!HasSlots(tensor.spec)) continue;
    MoveAverage(share, reinterpret_cast<const float*>(weights.data() + tensor.offset_bytes),
                tensor.spec.shape.elements(),
                reinterpret_cast<float*>(slots.data() + layout.SlotOffset(tensor, slot)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Memory*> StageExecutor::EvaluatedWeights() {
  if (!AveragesWeights(options_.training)) return &stash_->newest();
  if (!are_averages_stale_) return averages_.get();
  const StateLayout& layout = programs_.layout();
  if (averages_ == nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(averages_, allocate_(layout.parameter_bytes));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Mapping weights, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping to, Mapping::Of(*averages_, MapAccess::kReadWrite));
  std::memcpy(to.data(), weights.data(), static_cast<size_t>(layout.parameter_bytes));
  const size_t slot = numbers_.slots.size() - 1;
  for (const StateTensor& tensor : layout.tensors) {
    if (!HasSlots(tensor.spec)) continue;
    std::memcpy(to.data() + tensor.offset_bytes, slots.data() + layout.SlotOffset(tensor, slot),
                static_cast<size_t>(tensor.spec.shape.elements()) * sizeof(float));
  }
  are_averages_stale_ = false;
  return averages_.get();
}

absl::StatusOr<StageCompute::Output> StageExecutor::Evaluate(int64_t samples, Payload input,
                                                             Payload labels) {
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled, programs_.ForSamples(samples));
  const Program& program = compiled->program;
  RUNNEL_RETURN_IF_ERROR(CheckSize(input, program.input_bytes, "stage input"));
  RUNNEL_RETURN_IF_ERROR(programs_.CheckLabels(labels, samples));
  Payload output = pool_->Allocate(static_cast<size_t>(program.output_bytes));
  alignas(64) double metrics[2] = {0, 0};
  if (!programs_.has_loss())
    PrepareBoundary(numbers_, Direction::kForward, program.output, output.mutable_bytes());
  StepContext context;
  context.run_seed = options_.training.seed;
  context.step_labels = samples * programs_.labels_per_sample();
  context.grid_bits = EvaluatedGridBits();
  context.weights = evaluated_weights_;
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  RUNNEL_ASSIGN_OR_RETURN(const Memory* weights, EvaluatedWeights());
  Bindings bindings = StateBindings(*weights, *scratch);
  bindings[Storage::kInput] = Base(input);
  bindings[Storage::kOutput] = Base(output);
  bindings[Storage::kLabels] = Base(labels);
  bindings[Storage::kMetrics] = reinterpret_cast<std::byte*>(metrics);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForwardEval, context, bindings));
  if (dry_run_ == nullptr) CountKept();
  if (programs_.has_loss()) {
    Output loss = LossOutput(metrics, programs_.labels_per_sample());
    loss.counts = CountClasses(program, output, labels);
    return loss;
  }
  return Output{std::move(output)};
}

}  // namespace runnel
