#include "proto/base/model/initial_state.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/quantize.h"

namespace runnel {
namespace {

void PutFloat(float value, char* out) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(bits >> (8 * i));
}

TensorData MakeTensor(const StateTensorSpec& spec, const std::function<double(uint64_t)>& value) {
  TensorData tensor{spec.name, DType::kFloat32, spec.shape, {}};
  const int64_t elements = spec.shape.elements();
  tensor.bytes.resize(static_cast<size_t>(elements) * 4);
  for (int64_t e = 0; e < elements; ++e) {
    PutFloat(static_cast<float>(value(static_cast<uint64_t>(e))), &tensor.bytes[e * 4]);
  }
  return tensor;
}

// Deviation of the normal kinds. weight as in DrawWeightOrBias.
double Deviation(const OpSpec& op, const Shape& weight) {
  const double fan_in = static_cast<double>(weight.elements() / weight[0]);
  const double fan_out = fan_in / static_cast<double>(weight[1]) * static_cast<double>(weight[0]);
  if (op.init == InitKind::kNormalFanOut) return std::sqrt(2.0 / fan_out);
  if (op.init == InitKind::kXavierNormal) return std::sqrt(2.0 / (fan_in + fan_out));
  return op.init_std;
}

// weight: (out, in / groups, k...) or (out, in), of the same op.
TensorData DrawWeightOrBias(const StateTensorSpec& spec, const OpSpec& op, const Shape& weight,
                            const CounterRandom& random) {
  const int64_t fan_in = weight.elements() / weight[0];
  if (op.init == InitKind::kUniformFanIn) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    return MakeTensor(spec, [&random, bound](uint64_t e) {
      return (2.0 * static_cast<double>(random.Uniform(e)) - 1.0) * bound;
    });
  }
  if (spec.role == TensorRole::kBias) return MakeTensor(spec, [](uint64_t) { return 0.0; });
  const double deviation = Deviation(op, weight);
  return MakeTensor(spec,
                    [&random, deviation](uint64_t e) { return random.Normal(e) * deviation; });
}

// The weight that belongs to `spec`'s op.
const Shape& WeightShape(const LayerInfo& info, const StateTensorSpec& spec) {
  for (const StateTensorSpec& other : info.state) {
    if (other.op == spec.op && other.role == TensorRole::kWeight) return other.shape;
  }
  return spec.shape;
}

TensorData Draw(const StateTensorSpec& spec, const LayerSpec& layer, const LayerInfo& info,
                const CounterRandom& random) {
  switch (spec.role) {
    case TensorRole::kWeight:
    case TensorRole::kBias:
    case TensorRole::kPositions:
      return DrawWeightOrBias(spec, layer.ops[spec.op], WeightShape(info, spec), random);
    case TensorRole::kScale:
    case TensorRole::kRunningVar:
      return MakeTensor(spec, [](uint64_t) { return 1.0; });
    case TensorRole::kShift:
    case TensorRole::kRunningMean:
    case TensorRole::kExponent:    // follows from its weight
    case TensorRole::kKeptScales:  // nothing is drawn
    case TensorRole::kInputRange:  // likewise
    case TensorRole::kWidths:      // likewise
      break;
    case TensorRole::kGain:
      return MakeTensor(spec, [](uint64_t) { return 1.0; });
    case TensorRole::kCompensation:
      return MakeTensor(spec, [&random](uint64_t e) { return random.Normal(e) * 1e-3; });
  }
  return MakeTensor(spec, [](uint64_t) { return 0.0; });
}

TensorData ZeroTensor(const StateTensorSpec& spec) {
  const size_t bytes = static_cast<size_t>(spec.shape.elements()) * SizeOf(spec.dtype);
  return {spec.name, spec.dtype, spec.shape, std::string(bytes, '\0')};
}

// An FP32 tensor's values in another floating type.
TensorData Converted(const TensorData& tensor, DType dtype) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  TensorData converted = {tensor.name, dtype, tensor.shape, {}};
  converted.bytes.resize(values.size() * SizeOf(dtype));
  TypeOf(dtype).from_float(
      values, {reinterpret_cast<std::byte*>(converted.bytes.data()), converted.bytes.size()});
  return converted;
}

// Replaces an FP32 weight by its int8 mantissas and appends its exponent, as NITI initialises.
void AppendQuantized(const TensorData& weight, const StateTensorSpec& exponent,
                     std::vector<TensorData>* tensors) {
  std::vector<float> values(static_cast<size_t>(weight.shape.elements()));
  std::memcpy(values.data(), weight.bytes.data(), weight.bytes.size());
  std::vector<int8_t> mantissas(values.size());
  const int32_t e = Quantize(values, QuantizeRule::kFullRange, absl::MakeSpan(mantissas));
  tensors->push_back(
      {weight.name, DType::kInt8, weight.shape, std::string(mantissas.begin(), mantissas.end())});
  TensorData& last = tensors->emplace_back();
  last = {exponent.name, DType::kInt32, exponent.shape, std::string(4, '\0')};
  for (int i = 0; i < 4; ++i)
    last.bytes[i] = static_cast<char>(static_cast<uint32_t>(e) >> (8 * i));
}

}  // namespace

LayerState InitialLayer(const ModelSpec& model, const LayerInfo& info, int layer, uint64_t seed,
                        const NumberFormat& format, const GivenTensorFn& given) {
  LayerState drawn;
  drawn.layer = layer;
  const std::vector<StateTensorSpec> specs = StateOf(info, format);
  // Index of the model's own drawn tensors: the same draws in every format.
  uint64_t index = 0;
  constexpr uint64_t kRecipeDraws = uint64_t{1} << 32;  // those of the recipe's are behind
  for (size_t t = 0; t < specs.size(); ++t) {
    const TensorData* start = given ? given(specs[t]) : nullptr;
    const bool is_same_type = start != nullptr && start->dtype == specs[t].dtype;
    if (specs[t].role == TensorRole::kExponent) {
      // Behind its weight, which brought it along unless it was given in this type.
      if (is_same_type && drawn.tensors.back().name != specs[t].name)
        drawn.tensors.push_back(*start);
      continue;
    }
    if (IsOfRecipe(specs[t].role) && !IsTrainable(specs[t].role)) {
      const bool takes = is_same_type && specs[t].role != TensorRole::kKeptScales;
      drawn.tensors.push_back(takes ? *start : ZeroTensor(specs[t]));
      continue;
    }
    const uint64_t draws = IsOfRecipe(specs[t].role) ? kRecipeDraws + t : index++;
    const CounterRandom random(seed, RandomPurpose::kInitialWeights, static_cast<uint64_t>(layer),
                               draws);
    if (is_same_type) {
      drawn.tensors.push_back(*start);
      continue;
    }
    TensorData tensor =
        start != nullptr ? *start : Draw(specs[t], model.layers[layer], info, random);
    if (IsScaled(specs[t].dtype)) {
      AppendQuantized(tensor, specs[t + 1], &drawn.tensors);
    } else {
      drawn.tensors.push_back(Converted(tensor, specs[t].dtype));
    }
  }
  for (const StateTensorSpec& slot : SlotsOf(specs, format))
    drawn.slots.push_back(ZeroTensor(slot));
  return drawn;
}

absl::StatusOr<ModelState> InitialState(const ModelSpec& model, uint64_t seed,
                                        const NumberFormat& format) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  ModelState state;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    state.layers.push_back(InitialLayer(model, infos[layer], layer, seed, format));
  }
  return state;
}

}  // namespace runnel
