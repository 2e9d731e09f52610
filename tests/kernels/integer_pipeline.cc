#include "tests/kernels/integer_pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "proto/base/status_macros.h"
#include "tests/kernels/random_model.h"

namespace runnel {
namespace {

// Position in memory of element `i` of a weight (out, in, positions).
int64_t WeightIndex(const StateTensor& tensor, int64_t i) {
  if (!tensor.channels_last) return i;
  const Shape& shape = tensor.spec.shape;
  const int64_t in = shape[1], positions = shape.elements() / shape[0] / in;
  const int64_t out = i / (in * positions), c = i / positions % in, p = i % positions;
  return (out * positions + p) * in + c;
}

Scaled ReadScaled(const std::byte* data, const Shape& shape) {
  const auto* values = reinterpret_cast<const int8_t*>(data);
  return {std::vector<int8_t>(values, values + shape.elements()),
          TailOf(data, DType::kInt8, shape).exponent};
}

absl::StatusOr<IntegerStage> MakeStage(const ModelSpec& model, int first, int last, int64_t batch,
                                       const Recipe& recipe, const CompileOptions& options) {
  IntegerStage stage;
  RUNNEL_ASSIGN_OR_RETURN(stage.program, CompileStage(model, first, last, batch, recipe, options));
  const Program& p = stage.program;
  int64_t sizes[kStorageCount] = {};
  sizes[static_cast<int>(Storage::kInput)] = p.input_bytes;
  sizes[static_cast<int>(Storage::kOutput)] = p.output_bytes;
  sizes[static_cast<int>(Storage::kOutputGradient)] = p.output_bytes;
  sizes[static_cast<int>(Storage::kInputGradient)] = p.input_bytes;
  sizes[static_cast<int>(Storage::kLabels)] = batch * 4;
  sizes[static_cast<int>(Storage::kMetrics)] = 16;
  sizes[static_cast<int>(Storage::kParameters)] = p.state.parameter_bytes;
  sizes[static_cast<int>(Storage::kGradients)] = p.state.gradient_bytes;
  sizes[static_cast<int>(Storage::kStatistics)] = p.state.statistic_bytes;
  sizes[static_cast<int>(Storage::kStash)] = p.stash_bytes;
  sizes[static_cast<int>(Storage::kScratch)] = p.scratch_bytes;
  for (int i = 0; i < kStorageCount; ++i) {
    stage.memory.push_back(std::make_unique<AlignedBytes>(sizes[i]));
    stage.bindings.base[i] = stage.memory.back()->data();
  }
  stage.bindings[Storage::kNewParameters] = stage.bindings[Storage::kParameters];
  return stage;
}

}  // namespace

uint64_t SplitMix64(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

std::vector<int8_t> GoldenMantissas(uint64_t seed, int64_t count) {
  std::vector<int8_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int8_t>(static_cast<int>(SplitMix64(seed, i) % 255) - 127);
  }
  return values;
}

absl::StatusOr<IntegerPipeline> IntegerPipeline::Make(const ModelSpec& model, std::vector<int> cuts,
                                                      int64_t batch, Backend* backend,
                                                      const Recipe& recipe, bool accumulates,
                                                      const RescaleRule& rescale,
                                                      const BatchSplitRule& split, bool alone) {
  IntegerPipeline pipeline;
  cuts.push_back(model.layer_count());
  const CompileOptions options = {.accumulates_gradients = accumulates,
                                  .max_batch = batch,
                                  .one_in_flight = alone,
                                  .steps_in_backward = alone,
                                  .rescale = rescale,
                                  .rescales_in_products = backend->traits().rescales_in_products,
                                  .batch_split = split};
  int first = 0;
  for (int next : cuts) {
    RUNNEL_ASSIGN_OR_RETURN(IntegerStage stage,
                            MakeStage(model, first, next - 1, batch, recipe, options));
    for (const StateTensor& tensor : stage.program.state.tensors) {
      if (tensor.spec.role == TensorRole::kWeight) {
        pipeline.weights_.push_back({pipeline.stages.size(), tensor});
      }
    }
    pipeline.stages.push_back(std::move(stage));
    first = next;
  }
  // Programs lie still from here on.
  for (IntegerStage& stage : pipeline.stages) {
    RUNNEL_ASSIGN_OR_RETURN(stage.executable, backend->Prepare(stage.program));
  }
  return pipeline;
}

void IntegerPipeline::SetWeight(size_t index, const Scaled& weight) {
  const WeightPlace& place = weights_[index];
  std::byte* data = stages[place.stage].bindings[Storage::kParameters] + place.tensor.offset_bytes;
  for (size_t i = 0; i < weight.mantissas.size(); ++i) {
    reinterpret_cast<int8_t*>(data)[WeightIndex(place.tensor, static_cast<int64_t>(i))] =
        weight.mantissas[i];
  }
  TailOf(data, DType::kInt8, place.tensor.spec.shape).exponent = weight.exponent;
}

Scaled IntegerPipeline::Weight(size_t index) {
  const WeightPlace& place = weights_[index];
  const std::byte* data =
      stages[place.stage].bindings[Storage::kParameters] + place.tensor.offset_bytes;
  const Scaled memory = ReadScaled(data, place.tensor.spec.shape);
  Scaled result = memory;
  for (size_t i = 0; i < memory.mantissas.size(); ++i) {
    result.mantissas[i] = memory.mantissas[WeightIndex(place.tensor, static_cast<int64_t>(i))];
  }
  return result;
}

std::vector<int64_t> IntegerPipeline::Gradient(size_t index, ScaleTail* tail) {
  const WeightPlace& place = weights_[index];
  const StateTensor& tensor = place.tensor;
  const std::byte* data =
      stages[place.stage].bindings[Storage::kGradients] + tensor.gradient_offset_bytes;
  std::vector<int64_t> values(static_cast<size_t>(tensor.spec.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = WeightIndex(tensor, static_cast<int64_t>(i));
    values[i] = tensor.gradient_dtype == DType::kInt64 ? reinterpret_cast<const int64_t*>(data)[at]
                                                       : reinterpret_cast<const int32_t*>(data)[at];
  }
  if (tail != nullptr) *tail = TailOf(data, tensor.gradient_dtype, tensor.spec.shape);
  return values;
}

absl::Status IntegerPipeline::ForwardBackward(const float* x, const int32_t* labels,
                                              const StepContext& context) {
  std::memcpy(stages.front().bindings[Storage::kInput], x,
              static_cast<size_t>(stages.front().program.input_bytes));
  std::memcpy(stages.back().bindings[Storage::kLabels], labels,
              static_cast<size_t>(stages.back().program.batch) * sizeof(int32_t));
  for (size_t i = 0; i < stages.size(); ++i) {
    IntegerStage& stage = stages[i];
    RUNNEL_RETURN_IF_ERROR(stage.executable->Run(Part::kForward, context, stage.bindings));
    if (i + 1 == stages.size()) break;
    std::memcpy(stages[i + 1].bindings[Storage::kInput], stage.bindings[Storage::kOutput],
                static_cast<size_t>(stage.program.output_bytes));
  }
  for (size_t i = stages.size(); i-- > 0;) {
    IntegerStage& stage = stages[i];
    RUNNEL_RETURN_IF_ERROR(stage.executable->Run(Part::kInputGradient, context, stage.bindings));
    if (i > 0) {
      std::memcpy(stages[i - 1].bindings[Storage::kOutputGradient],
                  stage.bindings[Storage::kInputGradient],
                  static_cast<size_t>(stage.program.input_bytes));
    }
    RUNNEL_RETURN_IF_ERROR(stage.executable->Run(Part::kWeightGradient, context, stage.bindings));
  }
  return absl::OkStatus();
}

absl::Status IntegerPipeline::Update(const StepContext& context) {
  for (IntegerStage& stage : stages) {
    RUNNEL_RETURN_IF_ERROR(stage.executable->Run(Part::kUpdate, context, stage.bindings));
  }
  return absl::OkStatus();
}

Scaled IntegerPipeline::Output(size_t stage) {
  return ReadScaled(stages[stage].bindings[Storage::kOutput], stages[stage].program.output);
}

Scaled IntegerPipeline::InputGradient(size_t stage) {
  return ReadScaled(stages[stage].bindings[Storage::kInputGradient], stages[stage].program.input);
}

double IntegerPipeline::loss() const {
  return *reinterpret_cast<const double*>(stages.back().bindings[Storage::kMetrics]);
}

void SetGoldenWeights(IntegerPipeline& net, uint64_t first_seed) {
  for (size_t i = 0; i < net.weight_count(); ++i) {
    const auto count = static_cast<int64_t>(net.Weight(i).mantissas.size());
    net.SetWeight(i, {GoldenMantissas(first_seed + i, count), -9});
  }
}

std::vector<float> GoldenValues(uint64_t seed, int64_t count, int exponent) {
  const std::vector<int8_t> mantissas = GoldenMantissas(seed, count);
  std::vector<float> x(mantissas.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(static_cast<float>(mantissas[i]), exponent);
  return x;
}

absl::Status TrainStep(IntegerPipeline& net, int micro_batches, int64_t batch, int classes,
                       const std::function<std::vector<float>(int64_t sequence)>& samples,
                       StepContext& context, int64_t& sequence) {
  for (int m = 0; m < micro_batches; ++m, ++sequence) {
    const std::vector<float> x = samples(sequence);
    const std::vector<int32_t> labels = RandomLabels(5, sequence, batch, classes);
    context.sequence = Sequence(sequence);
    context.accumulate = m > 0;
    RUNNEL_RETURN_IF_ERROR(net.ForwardBackward(x.data(), labels.data(), context));
  }
  return net.Update(context);
}

}  // namespace runnel
