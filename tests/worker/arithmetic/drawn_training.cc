#include "tests/worker/arithmetic/drawn_training.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/ir/recipe.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/random_model.h"
#include "tests/worker/arithmetic/drawn_model.h"

namespace runnel {
namespace {

template <typename T>
Payload PayloadOf(const std::vector<T>& values) {
  return Payload::CopyOf(
      {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)});
}

std::string BytesOf(double value) {
  std::string bytes(sizeof value, 0);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A boundary tensor without what lies between its mantissas and their tail.
std::string BytesOf(const Payload& tensor, const StageExecutor& executor, const Shape& shape,
                    Direction direction) {
  const DType type = executor.numbers().boundary(direction);
  std::string bytes(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.size());
  if (!IsScaled(type) || bytes.empty()) return bytes;
  bytes.resize(static_cast<size_t>(shape.elements()) * SizeOf(type));
  const int32_t exponent = TailOf(tensor.bytes().data(), type, shape).exponent;
  bytes.append(reinterpret_cast<const char*>(&exponent), sizeof exponent);
  return bytes;
}

}  // namespace

void NamedBytes::Add(std::string name, std::string bytes) {
  all_.emplace_back(std::move(name), std::move(bytes));
}

std::string FirstDifference(const NamedBytes& a, const NamedBytes& b) {
  for (size_t i = 0; i < std::min(a.all().size(), b.all().size()); ++i) {
    const auto& [name, bytes] = a.all()[i];
    const auto& [other_name, other] = b.all()[i];
    if (name != other_name) return absl::StrCat(name, " in place of ", other_name);
    if (bytes.size() != other.size()) return absl::StrCat(name, " has another size");
    size_t differ = 0, first = bytes.size();
    for (size_t k = bytes.size(); k-- > 0;) {
      if (bytes[k] == other[k]) continue;
      ++differ;
      first = k;
    }
    if (differ > 0)
      return absl::StrCat(name, ": ", differ, " of ", bytes.size(), " bytes, from ", first);
  }
  return a.all().size() == b.all().size() ? "" : "one has more";
}

absl::StatusOr<std::unique_ptr<TrainingRun>> TrainingRun::Create(const DrawnTraining& drawn,
                                                                 Backend& backend) {
  RUNNEL_ASSIGN_OR_RETURN(Batching batching, MakeBatching(drawn.training));
  std::unique_ptr<TrainingRun> run(new TrainingRun(drawn, std::move(batching)));
  RUNNEL_RETURN_IF_ERROR(run->MakeStages(backend));
  return run;
}

absl::Status TrainingRun::MakeStages(Backend& backend) {
  for (int i = 0; i < drawn_.stages(); ++i) {
    const auto s = static_cast<size_t>(i);
    StageExecutorOptions options;
    options.model = drawn_.model;
    options.first_layer = drawn_.starts[s];
    options.last_layer = drawn_.last_layer(i);
    options.training = drawn_.training;
    options.eval_samples = 3 * drawn_.training.eval_batch_size;
    RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe(drawn_.recipe));
    options.one_in_flight = IsAlone(s);
    options.defers_weight_gradients = drawn_.deferred[s] > 0;
    options.cap = drawn_.caps[s];
    options.usual_cap = drawn_.stages() - i;
    Stage& stage = stages_.emplace_back();
    RUNNEL_ASSIGN_OR_RETURN(stage.executor,
                            StageExecutor::Create(std::move(options), &backend, &pool_));
    RUNNEL_RETURN_IF_ERROR(stage.executor->DrawState());
  }
  return absl::OkStatus();
}

Payload TrainingRun::Samples(uint64_t stream, int64_t samples) {
  const int64_t count = samples * drawn_.model.input.elements();
  if (const int64_t tokens = drawn_.model.tokens(); tokens > 0) {
    return PayloadOf(RandomLabels(drawn_.seed, stream, count, tokens));
  }
  return PayloadOf(RandomValues(drawn_.seed, stream, count));
}

Payload TrainingRun::Labels(uint64_t stream, int64_t samples) {
  return PayloadOf(RandomLabels(drawn_.seed, stream, samples * *LabelsPerSample(drawn_.model),
                                drawn_.model.classes));
}

// Actions that stages may take next, for micro-batches before `end`; forwards of those before `barrier`.
std::vector<std::pair<int, TrainingRun::Action>> TrainingRun::Legal(int64_t end,
                                                                    int64_t barrier) const {
  std::vector<std::pair<int, Action>> legal;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    const int number = static_cast<int>(s);
    const int64_t waiting = stage.input_gradients - stage.weight_gradients;
    // Without deferral a weight-gradient comes right behind its input-gradient.
    if (waiting > 0 && drawn_.deferred[s] == 0) {
      legal.emplace_back(number, Action::kWeightGradient);
      continue;
    }
    if (waiting > 0) legal.emplace_back(number, Action::kWeightGradient);
    const bool has_input = s == 0 || stage.inputs.contains(stage.forwards);
    if (stage.forwards < std::min(end, barrier) && has_input &&
        stage.forwards - stage.input_gradients < drawn_.caps[s])
      legal.emplace_back(number, Action::kForward);
    const bool is_last = s + 1 == stages_.size();
    const bool has_gradient = is_last || stages_[s + 1].input_gradients > stage.input_gradients;
    if (stage.input_gradients < stage.forwards && has_gradient && waiting <= drawn_.deferred[s])
      legal.emplace_back(number, Action::kInputGradient);
  }
  return legal;
}

absl::Status TrainingRun::Do(int number, Action action, NamedBytes& seen) {
  Stage& stage = stages_[static_cast<size_t>(number)];
  const auto name = [&](const char* what, const MicroBatch& place) {
    return absl::StrCat(what, " of stage ", number, ", micro-batch ", place.sequence.value());
  };
  if (action == Action::kForward) {
    const MicroBatch place = batching_.Locate(Sequence(stage.forwards));
    const auto stream = static_cast<uint64_t>(stage.forwards);
    const bool is_last = static_cast<size_t>(number) + 1 == stages_.size();
    Payload input = number == 0 ? Samples(stream, place.samples)
                                : std::move(stage.inputs.extract(stage.forwards).mapped());
    RUNNEL_ASSIGN_OR_RETURN(
        StageCompute::Output output,
        stage.executor->Forward(place, std::move(input),
                                is_last ? Labels(stream, place.samples) : Payload()));
    seen.Add(name("output", place),
             BytesOf(output.tensor, *stage.executor, stage.executor->output_shape(place.samples),
                     Direction::kForward));
    seen.Add(name("loss", place), BytesOf(output.loss_sum));
    if (!is_last)
      stages_[static_cast<size_t>(number) + 1].inputs[stage.forwards] = std::move(output.tensor);
    ++stage.forwards;
    return absl::OkStatus();
  }
  if (action == Action::kInputGradient) {
    const MicroBatch place = batching_.Locate(Sequence(stage.input_gradients));
    Payload gradient;
    if (auto come = stage.gradients.extract(stage.input_gradients); !come.empty())
      gradient = std::move(come.mapped());
    RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                            stage.executor->InputGradient(place, std::move(gradient)));
    seen.Add(name("input gradient", place),
             BytesOf(output.tensor, *stage.executor, stage.executor->input_shape(place.samples),
                     Direction::kBackward));
    if (number > 0)
      stages_[static_cast<size_t>(number) - 1].gradients[stage.input_gradients] =
          std::move(output.tensor);
    ++stage.input_gradients;
    return absl::OkStatus();
  }
  const MicroBatch place = batching_.Locate(Sequence(stage.weight_gradients));
  ++stage.weight_gradients;
  return stage.executor->WeightGradient(place, place.last_in_step);
}

void TrainingRun::SkipTo(int64_t step) {
  const int64_t sequence = batching_.FirstSequence(step).value();
  for (Stage& stage : stages_)
    stage.forwards = stage.input_gradients = stage.weight_gradients = sequence;
}

absl::Status TrainingRun::Train(int64_t first, int64_t last, NamedBytes& seen) {
  const int64_t end = batching_.FirstSequence(last).value();
  Draws order(drawn_.seed, 1 + static_cast<uint64_t>(first));
  for (int64_t step = first; step < last; ++step) {
    const int64_t barrier = drawn_.drains ? batching_.FirstSequence(step + 1).value() : end;
    for (;;) {
      const auto legal = Legal(end, barrier);
      if (legal.empty()) break;
      const auto [stage, action] =
          legal[static_cast<size_t>(order.Below(static_cast<int64_t>(legal.size())))];
      RUNNEL_RETURN_IF_ERROR(Do(stage, action, seen));
    }
  }
  for (const Stage& stage : stages_) {
    if (stage.weight_gradients != end) return absl::InternalError("the drawn order has a deadlock");
  }
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, ExportState());
  for (const LayerState& layer : state.layers) {
    for (const auto* tensors : {&layer.tensors, &layer.slots}) {
      for (const TensorData& tensor : *tensors)
        seen.Add(absl::StrCat(tensors == &layer.slots ? "slot " : "state ", layer.layer, ".",
                              tensor.name, " behind step ", last),
                 tensor.bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::Evaluate(int64_t samples, uint64_t stream, NamedBytes& seen) {
  Payload value = Samples(stream, samples);
  for (size_t s = 0; s < stages_.size(); ++s) {
    const bool is_last = s + 1 == stages_.size();
    RUNNEL_ASSIGN_OR_RETURN(
        StageCompute::Output output,
        stages_[s].executor->Evaluate(samples, std::move(value),
                                      is_last ? Labels(stream, samples) : Payload()));
    if (is_last) {
      seen.Add(absl::StrCat("evaluated loss of ", samples), BytesOf(output.loss_sum));
    }
    value = std::move(output.tensor);
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelState> TrainingRun::ExportState() {
  ModelState state;
  for (const Stage& stage : stages_) {
    RUNNEL_ASSIGN_OR_RETURN(ModelState part, stage.executor->ExportState());
    for (LayerState& layer : part.layers) state.layers.push_back(std::move(layer));
  }
  return state;
}

absl::Status TrainingRun::ImportState(const ModelState& state) {
  for (int i = 0; i < drawn_.stages(); ++i) {
    const auto s = static_cast<size_t>(i);
    RUNNEL_RETURN_IF_ERROR(
        stages_[s].executor->ImportState(Slice(state, drawn_.starts[s], drawn_.last_layer(i))));
  }
  return absl::OkStatus();
}

std::vector<int64_t> EvaluatedSizes(const DrawnTraining& drawn) {
  return {drawn.training.eval_batch_size};
}

absl::StatusOr<NamedBytes> RunTraining(const DrawnTraining& drawn, Backend& backend) {
  RUNNEL_ASSIGN_OR_RETURN(const auto run, TrainingRun::Create(drawn, backend));
  NamedBytes seen;
  const int64_t stretch = drawn.drains ? 1 : drawn.steps;
  for (int64_t step = 0; step < drawn.steps; step += stretch) {
    RUNNEL_RETURN_IF_ERROR(run->Train(step, step + stretch, seen));
    for (const int64_t samples : EvaluatedSizes(drawn))
      RUNNEL_RETURN_IF_ERROR(run->Evaluate(samples, 1000, seen));
  }
  return seen;
}

}  // namespace runnel
