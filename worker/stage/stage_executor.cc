#include "worker/stage/stage_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/weight_average.h"
#include "worker/stage/boundary_memory.h"
#include "worker/stage/counts/class_counter.h"
#include "worker/stage/gradient_norm.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Create(StageExecutorOptions options,
                                                                     Backend* backend,
                                                                     BufferPool* pool) {
  auto kept = std::make_unique<StageExecutorOptions>(std::move(options));
  RUNNEL_ASSIGN_OR_RETURN(StepContexts steps, StepContexts::Create(kept.get()));
  RUNNEL_ASSIGN_OR_RETURN(CompiledStage programs, CompiledStage::Create(*kept, *backend));
  std::unique_ptr<StageExecutor> executor(
      new StageExecutor(std::move(kept), std::move(steps), std::move(programs), backend, pool));
  const StageExecutorOptions& made = *executor->options_;
  if (HasGates(made.model)) {
    RUNNEL_ASSIGN_OR_RETURN(executor->gates_,
                            GateCosts::Create(made.model, made.first_layer, made.last_layer,
                                              made.training, executor->numbers_));
  }
  RUNNEL_ASSIGN_OR_RETURN(
      executor->state_,
      StageState::Create(executor->programs_, executor->numbers_.slots.size(), executor->memory_));
  RUNNEL_RETURN_IF_ERROR(executor->FreeScratch().status());
  return executor;
}

StageExecutor::StageExecutor(std::unique_ptr<StageExecutorOptions> options, StepContexts steps,
                             CompiledStage programs, Backend* backend, BufferPool* pool)
    : options_(std::move(options)),
      numbers_(FormatOf(*options_->recipe->family, options_->training, options_->model)),
      steps_(std::move(steps)),
      programs_(std::move(programs)),
      pool_(pool),
      forward_only_(options_->last_layer < options_->model.frozen_front()),
      memory_(backend),
      tally_({.macs = options_->recipe->family->operands != nullptr,
              .gates = HasGates(options_->model),
              .range = numbers_.scales_loss()}) {
  memory_.SetKept(programs_.memory_bytes());
}

absl::StatusOr<Memory*> StageExecutor::FreeScratch() {
  if (free_scratch_.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> scratch,
                            memory_.Allocate(programs_.scratch_bytes()));
    free_scratch_.push_back(std::move(scratch));
  }
  return free_scratch_.back().get();
}

void StageExecutor::NameWeights() {
  static std::atomic<int64_t> names = 0;
  if (!has_trained_) evaluated_weights_ = ++names;
}

absl::StatusOr<ModelState> StageExecutor::ExportState() const {
  RUNNEL_ASSIGN_OR_RETURN(const MappedState from, state_->Read());
  ModelState state;
  for (int layer = options_->first_layer; layer <= options_->last_layer; ++layer)
    state.layers.push_back(from.ReadLayer(layer));
  return state;
}

absl::Status StageExecutor::ImportState(const ModelState& state) {
  NameWeights();
  RUNNEL_RETURN_IF_ERROR(CheckState(state, options_->model, options_->first_layer,
                                    options_->last_layer, numbers_, ZeroTensors::kLeftOut));
  RUNNEL_ASSIGN_OR_RETURN(const MappedState to, state_->Change());
  for (const LayerState& layer : state.layers) to.WriteLayer(layer);
  return absl::OkStatus();
}

absl::Status StageExecutor::ChangeState(absl::FunctionRef<void(int, TensorData&)> change) {
  NameWeights();
  RUNNEL_ASSIGN_OR_RETURN(const MappedState state, state_->Change());
  state.Change(change);
  return absl::OkStatus();
}

absl::Status StageExecutor::DrawState() {
  NameWeights();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(options_->model, 1));
  RUNNEL_ASSIGN_OR_RETURN(const MappedState to, state_->Change());
  for (int layer = options_->first_layer; layer <= options_->last_layer; ++layer) {
    to.WriteLayer(InitialLayer(options_->model, infos[static_cast<size_t>(layer)], layer,
                               options_->training.seed, numbers_));
  }
  return absl::OkStatus();
}

StepContext StageExecutor::ContextOf(const MicroBatch& place) const {
  StepContext context = steps_.At(place, programs_.labels_per_sample());
  context.range = tally().range();
  return context;
}

void StageExecutor::FillRange(Telemetry& telemetry) const {
  tally_.Fill(telemetry);
  if (gates_ != nullptr) gates_->Fill(telemetry);
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
      state_->stash().in_flight() == 0 ? 0 : place.step - state_->stash().Oldest().place.step;
  const double distance = steps_.LookAhead(steps_between, context.learning_rate);
  if (distance == 0) return state_->stash().Push(place);
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * entry, state_->stash().PushWithOwnWeights(place));
  // That of the last step that was taken, which left the slots.
  context.step -= steps_between + 1;
  RUNNEL_RETURN_IF_ERROR(state_->LookAhead(StepOf(steps_.optimizer()), context, distance,
                                           state_->stash().weights(*entry)));
  return entry;
}

void StageExecutor::EndMicroBatch() {
  state_->stash().Pop();
  stashed_bytes_.store(state_->stash().in_use_bytes(), std::memory_order_relaxed);
}

absl::StatusOr<StageCompute::Output> StageExecutor::Forward(const MicroBatch& place, Payload input,
                                                            Payload labels) {
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  const Program& program = compiled->program;
  RUNNEL_RETURN_IF_ERROR(CheckSize(input, program.input_bytes, "stage input"));
  if (options_->first_layer > 0)
    RUNNEL_RETURN_IF_ERROR(CheckReceived(Direction::kForward, place, program.input, input));
  RUNNEL_RETURN_IF_ERROR(programs_.CheckLabels(labels, place.samples));

  const bool drops_kept = std::exchange(evaluated_weights_, 0) != 0;
  has_trained_ = true;
  if (options_->one_in_flight && state_->stash().in_flight() > 0) {
    return absl::InternalError(absl::StrCat("forward of micro-batch ", place.sequence.value(),
                                            " while another one is in flight"));
  }
  RUNNEL_ASSIGN_OR_RETURN(Stash::Entry * begun, BeginForward(place));
  stashed_bytes_.store(state_->stash().in_use_bytes(), std::memory_order_relaxed);
  Stash::Entry& entry = *begun;
  entry.input = std::move(input);
  Payload output = pool_->Allocate(static_cast<size_t>(program.output_bytes));
  alignas(64) double metrics[2] = {0, 0};
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings bindings = state_->Bind(state_->stash().weights(entry), *scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(output);
  bindings[Storage::kLabels] = Base(labels);
  bindings[Storage::kMetrics] = reinterpret_cast<std::byte*>(metrics);
  bindings[Storage::kStash] = entry.activations->address();
  if (!programs_.has_loss())
    PrepareBoundary(numbers_, Direction::kForward, program.output, output.mutable_bytes());
  StepContext context = ContextOf(place);
  trained_grid_bits_ = context.grid_bits;
  tally().BeginForward(program, context.grid_bits);
  context.work = tally().WorkOf(program);
  context.choices = gates_.get();
  if (gates_ != nullptr) gates_->Begin(entry.input.bytes(), program.input, dry_run_ == nullptr);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForward, context, bindings));
  if (drops_kept && dry_run_ == nullptr) memory_.SetKept(programs_.memory_bytes());
  tally().EndPart(program, Part::kForward);
  if (gates_ != nullptr && programs_.has_loss()) {
    entry.price_sign = gates_->Sign(options_->changes, place.step);
  } else if (gates_ != nullptr) {
    gates_->WriteCost(output.mutable_bytes(), program.output);
  }
  if (program.backward_reads_output) entry.output = output;
  if (programs_.has_loss()) return LossOutput(metrics, programs_.labels_per_sample());
  if (forward_only_) EndMicroBatch();  // no backward comes
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
  Stash::Entry* found = state_->stash().Find(place.sequence);
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
  Bindings bindings = state_->Bind(state_->stash().weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kInputGradient] = Base(result.tensor);
  bindings[Storage::kStash] = entry.activations->address();
  StepContext context = ContextOf(place);
  context.work = tally().WorkOf(program);
  if (gates_ != nullptr && !programs_.has_loss())
    entry.price_sign = gates_->ReadSign(entry.output_gradient.bytes(), program.output);
  context.price_sign = entry.price_sign;
  if (gates_ != nullptr && program.needs_input_gradient)
    gates_->WriteSign(entry.price_sign, result.tensor.mutable_bytes(), program.input);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kInputGradient, context, bindings));
  tally().EndPart(program, Part::kInputGradient);
  return result;
}

absl::Status StageExecutor::WeightGradient(const MicroBatch& place, bool step) {
  if (forward_only_) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  if (state_->stash().in_flight() == 0 ||
      state_->stash().Oldest().place.sequence != place.sequence ||
      state_->stash().Oldest().scratch == nullptr) {
    return absl::InternalError(
        absl::StrCat("weight-gradient of micro-batch ", place.sequence.value(), " out of order"));
  }
  Stash::Entry& entry = state_->stash().Oldest();
  StepContext context = ContextOf(place);
  context.work = tally().WorkOf(compiled->program);
  Bindings bindings = state_->Bind(state_->stash().weights(entry), *entry.scratch);
  bindings[Storage::kInput] = Base(entry.input);
  bindings[Storage::kOutput] = Base(entry.output);
  bindings[Storage::kOutputGradient] = Base(entry.output_gradient);
  bindings[Storage::kStash] = entry.activations->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kWeightGradient, context, bindings));
  free_scratch_.push_back(std::move(entry.scratch));
  EndMicroBatch();
  if (!step) return absl::OkStatus();
  if (programs_.steps_in_backward()) return AverageWeights(place);
  if (options_->training.clip_norm == 0) return Step(place, context);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> squares, GradientSquares());
  return Step(place, AddSquares(0, squares));
}

absl::StatusOr<std::vector<double>> StageExecutor::GradientSquares() {
  const int layers = options_->last_layer - options_->first_layer + 1;
  if (forward_only_) return std::vector<double>(static_cast<size_t>(layers));
  return state_->GradientSquares(options_->first_layer, layers);
}

absl::Status StageExecutor::Step(const MicroBatch& place, double gradient_square) {
  StepContext context = ContextOf(place);
  context.gradient_factor =
      ClipFactor(options_->training.clip_norm, gradient_square, context.loss_scale);
  if (context.gradient_factor < 1) tally_.AddClippedStep();
  return Step(place, context);
}

absl::Status StageExecutor::Step(const MicroBatch& place, const StepContext& context) {
  if (options_->clock != nullptr) update_began_ns_ = options_->clock->NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(const CompiledStage::Sized* compiled,
                          programs_.ForSamples(place.samples));
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  Bindings update = state_->Bind(state_->stash().newest(), *scratch);
  RUNNEL_ASSIGN_OR_RETURN(const Memory* next, state_->stash().NextVersion());
  update[Storage::kNewParameters] = next->address();
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kUpdate, context, update));
  state_->stash().Publish();
  const int64_t versions = steps_.VersionsToAverage(place.step);
  if (versions > 0) RUNNEL_RETURN_IF_ERROR(state_->AverageVersions(versions));
  return AverageWeights(place);
}

absl::Status StageExecutor::AverageWeights(const MicroBatch& place) {
  const WeightAverage* average = AverageOf(options_->training);
  if (average == nullptr) return absl::OkStatus();
  const float share = average->share(options_->training, place.step);
  return share == 1 ? absl::OkStatus() : state_->MoveAverage(share);
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
  context.run_seed = options_->training.seed;
  context.step_labels = samples * programs_.labels_per_sample();
  context.grid_bits = steps_.EvaluatedBits(trained_grid_bits_);
  context.weights = evaluated_weights_;
  RUNNEL_ASSIGN_OR_RETURN(const Memory* scratch, FreeScratch());
  const Memory* weights = &state_->stash().newest();
  if (AveragesWeights(options_->training)) {
    RUNNEL_ASSIGN_OR_RETURN(weights, state_->Averages());
  }
  Bindings bindings = state_->Bind(*weights, *scratch);
  bindings[Storage::kInput] = Base(input);
  bindings[Storage::kOutput] = Base(output);
  bindings[Storage::kLabels] = Base(labels);
  bindings[Storage::kMetrics] = reinterpret_cast<std::byte*>(metrics);
  RUNNEL_RETURN_IF_ERROR(compiled->executable->Run(Part::kForwardEval, context, bindings));
  if (dry_run_ == nullptr) memory_.SetKept(programs_.memory_bytes());
  if (programs_.has_loss()) {
    Output loss = LossOutput(metrics, programs_.labels_per_sample());
    loss.counts = CountClasses(program, output, labels);
    return loss;
  }
  return Output{std::move(output)};
}

}  // namespace runnel
