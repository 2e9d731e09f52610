#include "tests/sim/cluster/oracle.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/base/plan/next_action.h"

namespace runnel {
namespace {

Payload FloatsOf(const std::vector<float>& values) {
  return Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                             values.size() * sizeof(float)));
}
Payload LabelsOf(const std::vector<int32_t>& values) {
  return Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                             values.size() * sizeof(int32_t)));
}

}  // namespace

struct Oracle::Stage {
  std::unique_ptr<HashEngine> engine;
  StageProgress done;
  bool waits = false;                            // for the norm of the step's gradient
  std::map<int64_t, Payload> inputs, gradients;  // by sequence
};

Oracle::Oracle(const TrainingSettings& training, const DatasetSplits& data, const ModelState& zeros)
    : training_(training),
      batching_(MakeBatching(training).value()),
      data_(data),
      zeros_(zeros),
      source_(*data.train, training.seed) {
  std::vector<LayerHash>& initial = known_[0];
  for (const LayerState& layer : zeros.layers)
    initial.push_back(InitialHash(training.seed, layer.layer));
}

void Oracle::SetPlan(int64_t from_step, const Plan& plan) {
  plan_ = plan;
  known_.erase(known_.upper_bound(from_step), known_.end());
}

const std::vector<LayerHash>* Oracle::At(int64_t step) {
  if (const auto found = known_.find(step); found != known_.end()) return &found->second;
  const auto before = std::prev(known_.upper_bound(step));
  if (plan_.stages.empty()) return nullptr;
  return &(known_[step] = Train(before->second, before->first, step));
}

std::vector<LayerHash> Oracle::Train(const std::vector<LayerHash>& from, int64_t from_step,
                                     int64_t to_step) {
  HashEngines engines;
  std::vector<Stage> stages(plan_.stages.size());
  const int64_t begin = batching_.FirstSequence(from_step).value();
  const int64_t end = batching_.FirstSequence(to_step).value();
  for (size_t i = 0; i < stages.size(); ++i) {
    const StagePlan& plan = plan_.stages[i];
    HashEngine::Options options;
    options.first_layer = plan.first_layer;
    options.last_layer = plan.last_layer;
    options.has_loss = i + 1 == stages.size();
    options.zeros = &zeros_;
    stages[i].engine = std::make_unique<HashEngine>(options, &engines);
    std::copy(from.begin() + plan.first_layer, from.begin() + plan.last_layer + 1,
              stages[i].engine->layers().begin());
    stages[i].done = {begin, begin, begin};
  }
  // One action after the other, of whoever can.
  for (bool moved = true; std::exchange(moved, false);) {
    for (size_t i = 0; i < stages.size(); ++i) moved |= Advance(stages, i, end);
  }
  std::vector<LayerHash> layers;
  for (const Stage& stage : stages)
    layers.insert(layers.end(), stage.engine->layers().begin(), stage.engine->layers().end());
  return layers;
}

bool Oracle::Advance(std::vector<Stage>& stages, size_t at, int64_t end) {
  Stage& stage = stages[at];
  if (stage.waits) return false;
  if (plan_.drains_each_step) {
    const int64_t step = batching_.Locate(Sequence(stage.done.weight_gradients)).step;
    end = std::min(end, batching_.FirstSequence(step + 1).value());
  }
  switch (NextAction(plan_.stages[at].order(), end, stage.done)) {
    case Action::kDrained:
      return false;
    case Action::kForward:
      return Forward(stages, at);
    case Action::kInputGradient: {
      const bool last = at + 1 == stages.size();
      Payload gradient;
      if (!last) {
        const auto found = stage.gradients.find(stage.done.input_gradients);
        if (found == stage.gradients.end()) return false;
        gradient = found->second;
        stage.gradients.erase(found);
      }
      const MicroBatch place = batching_.Locate(Sequence(stage.done.input_gradients));
      Payload output = stage.engine->InputGradient(place, gradient)->tensor;
      if (at > 0) stages[at - 1].gradients[stage.done.input_gradients] = std::move(output);
      ++stage.done.input_gradients;
      return true;
    }
    case Action::kWeightGradient: {
      const MicroBatch place = batching_.Locate(Sequence(stage.done.weight_gradients++));
      const bool clips = training_.clip_norm > 0;
      stage.engine->WeightGradient(place, place.last_in_step && !clips).IgnoreError();
      stage.waits = place.last_in_step && clips;
      StepTogether(place, stages);
      return true;
    }
  }
  return false;
}

void Oracle::StepTogether(const MicroBatch& place, std::vector<Stage>& stages) {
  double square = 0;
  for (const Stage& stage : stages) {
    if (!stage.waits) return;
    const std::vector<double> squares = stage.engine->GradientSquares().value();
    for (const double one : squares) square += one;
  }
  for (Stage& stage : stages) {
    stage.engine->Step(place, square).IgnoreError();
    stage.waits = false;
  }
}

bool Oracle::Forward(std::vector<Stage>& stages, size_t at) {
  Stage& stage = stages[at];
  const bool last = at + 1 == stages.size();
  const MicroBatch place = batching_.Locate(Sequence(stage.done.forwards));
  Payload input, labels;
  if (at > 0) {
    const auto found = stage.inputs.find(stage.done.forwards);
    if (found == stage.inputs.end()) return false;
    input = found->second;
    stage.inputs.erase(found);
  }
  std::vector<float> samples(at == 0 ? static_cast<size_t>(place.samples * kHashWidth) : 0);
  std::vector<int32_t> classes(last ? static_cast<size_t>(place.samples) : 0);
  source_.Fill(place, absl::MakeSpan(samples), absl::MakeSpan(classes));
  if (at == 0) input = FloatsOf(samples);
  if (last) labels = LabelsOf(classes);
  Payload output = stage.engine->Forward(place, input, labels)->tensor;
  if (!last) stages[at + 1].inputs[stage.done.forwards] = std::move(output);
  ++stage.done.forwards;
  return true;
}

double Oracle::AccuracyAt(int64_t step) {
  HashEngines engines;
  const int last_layer = static_cast<int>(zeros_.layers.size()) - 1;
  HashEngine whole({0, last_layer, true, 1, training_.seed, &zeros_, {}}, &engines);
  whole.layers() = *At(step);
  int64_t correct = 0;
  for (int64_t first = 0; first < data_.test->size(); first += training_.eval_batch_size) {
    const int64_t count = std::min(training_.eval_batch_size, data_.test->size() - first);
    std::vector<float> samples(static_cast<size_t>(count * kHashWidth));
    std::vector<int32_t> classes(static_cast<size_t>(count));
    BatchSource(*data_.test, training_.seed)
        .FillTest(first, count, absl::MakeSpan(samples), absl::MakeSpan(classes));
    correct += whole.Evaluate(count, FloatsOf(samples), LabelsOf(classes))->correct;
  }
  return static_cast<double>(correct) / static_cast<double>(data_.test->size());
}

}  // namespace runnel
