#include "tests/sim/cluster/hash_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/hash_compute.h"

namespace runnel {
namespace {

constexpr int kPieces = 4;

// In pieces of 16 bits, which floats hold exactly: states are checked to be finite on their way.
void Put(uint64_t hash, TensorData& tensor) {
  for (int i = 0; i < kPieces; ++i) {
    const auto piece = static_cast<float>(hash >> (16 * i) & 0xffff);
    std::memcpy(tensor.bytes.data() + sizeof(float) * static_cast<size_t>(i), &piece,
                sizeof(piece));
  }
}

uint64_t Get(const TensorData& tensor) {
  if (tensor.bytes.empty()) return 0;
  uint64_t hash = 0;
  for (int i = 0; i < kPieces; ++i) {
    float piece = 0;
    std::memcpy(&piece, tensor.bytes.data() + sizeof(float) * static_cast<size_t>(i),
                sizeof(piece));
    hash |= static_cast<uint64_t>(piece) << (16 * i);
  }
  return hash;
}

}  // namespace

ModelSpec HashModel(int layers) {
  ModelSpec model;
  model.name = "hash_chain";
  model.input = Shape{kHashWidth};
  model.classes = kHashWidth;
  for (int i = 0; i < layers; ++i) {
    OpSpec op;
    op.kind = OpKind::kLinear;
    op.inputs = {0};
    op.out_channels = kHashWidth;
    model.layers.push_back({absl::StrCat("link", i), {op}});
  }
  return model;
}

LayerHash InitialHash(uint64_t seed, int layer) {
  return {HashOf(seed, static_cast<uint64_t>(layer), 11), 0};
}

LayerHash HashOfState(const LayerState& layer) {
  return {Get(layer.tensors.front()), layer.slots.empty() ? 0 : Get(layer.slots.front())};
}

uint64_t HashOfBytes(const Payload& payload) {
  uint64_t hash = payload.size();
  const absl::Span<const std::byte> bytes = payload.bytes();
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    hash = HashOf(hash, word);
  }
  for (size_t i = bytes.size() / sizeof(uint64_t) * sizeof(uint64_t); i < bytes.size(); ++i)
    hash = HashOf(hash, std::to_integer<uint64_t>(bytes[i]), 5);
  return hash;
}

HashEngine::HashEngine(const Options& options, HashEngines* all) : options_(options), all_(all) {
  const auto count = static_cast<size_t>(options.last_layer - options.first_layer + 1);
  layers_.resize(count);
  accumulated_.resize(count);
  all_->push_back(this);
}

HashEngine::~HashEngine() { std::erase(*all_, this); }

absl::StatusOr<StageCompute::Output> HashEngine::Forward(const MicroBatch& place, Payload input,
                                                         Payload labels) {
  InFlight& one = in_flight_.emplace_back();
  one.sequence = place.sequence;
  one.output = options_.first_layer == 0 ? HashOfBytes(input) : HashIn(input);
  for (const LayerHash& layer : layers_) {
    one.weights.push_back(layer.weights);
    one.inputs.push_back(one.output);
    one.output = HashOf(layer.weights, one.output);
  }
  overfull_ |= static_cast<int64_t>(in_flight_.size()) > options_.most_in_flight;
  if (!options_.has_loss) return Output{HashPayload(one.output)};
  one.labels = HashOfBytes(labels);
  return Output{Payload(), 1.0, static_cast<int64_t>(one.output % 2)};
}

absl::StatusOr<StageCompute::Output> HashEngine::InputGradient(const MicroBatch& place,
                                                               Payload output_gradient) {
  if (with_gradient_ == in_flight_.size()) return absl::InternalError("backward of nothing");
  InFlight& one = in_flight_[with_gradient_++];
  if (one.sequence != place.sequence) return absl::InternalError("backward out of order");
  uint64_t gradient =
      options_.has_loss ? HashOf(one.output, one.labels, 1) : HashIn(output_gradient);
  one.gradients.resize(layers_.size());
  for (size_t i = layers_.size(); i-- > 0;) {
    one.gradients[i] = HashOf(one.weights[i], one.inputs[i], gradient);
    gradient = HashOf(one.weights[i], gradient, 7);
  }
  return Output{HashPayload(gradient)};
}

absl::Status HashEngine::WeightGradient(const MicroBatch& place, bool step) {
  if (with_gradient_ == 0 || in_flight_.front().sequence != place.sequence)
    return absl::InternalError("weight-gradient out of order");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto sequence = static_cast<uint64_t>(place.sequence.value());
    accumulated_[i] = HashOf(accumulated_[i], in_flight_.front().gradients[i], sequence);
  }
  if (step) StepBy(0);
  in_flight_.pop_front();
  --with_gradient_;
  reached_ = place.sequence.value() + 1;
  return absl::OkStatus();
}

void HashEngine::StepBy(uint64_t square) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].momentum = HashOf(layers_[i].momentum, accumulated_[i], 2 + square);
    layers_[i].weights = HashOf(layers_[i].weights, layers_[i].momentum, 3);
    if (!options_.bugs.keeps_accumulated) accumulated_[i] = 0;
  }
}

// Whole numbers, whose sums are exact.
absl::StatusOr<std::vector<double>> HashEngine::GradientSquares() {
  std::vector<double> squares;
  for (const uint64_t gradient : accumulated_)
    squares.push_back(static_cast<double>(gradient % 1'000'000));
  return squares;
}

absl::Status HashEngine::Step(const MicroBatch&, double gradient_square) {
  StepBy(static_cast<uint64_t>(gradient_square));
  return absl::OkStatus();
}

void HashEngine::ApplyLastAgain() {
  for (LayerHash& layer : layers_) layer.weights = HashOf(layer.weights, layer.momentum, 3);
}

absl::StatusOr<StageCompute::Output> HashEngine::Evaluate(int64_t samples, Payload input,
                                                          Payload labels) {
  uint64_t value = options_.first_layer == 0 ? HashOfBytes(input) : HashIn(input);
  for (const LayerHash& layer : layers_) value = HashOf(layer.weights, value);
  if (!options_.has_loss) return Output{HashPayload(value)};
  value = HashOf(value, HashOfBytes(labels), 9);
  return Output{Payload(), 1.0, static_cast<int64_t>(value % static_cast<uint64_t>(samples + 1))};
}

absl::Status HashEngine::ImportState(const ModelState& state) {
  if (state.layers.size() != layers_.size() || state.layers.front().layer != options_.first_layer) {
    return absl::InvalidArgumentError(
        absl::StrCat("state: has ", state.layers.size(), " layers, the stage ", layers_.size()));
  }
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i] = HashOfState(state.layers[i]);
  return absl::OkStatus();
}

absl::Status HashEngine::DrawState() {
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i] = InitialHash(options_.seed, options_.first_layer + static_cast<int>(i));
  return absl::OkStatus();
}

absl::StatusOr<ModelState> HashEngine::ExportState() const {
  ModelState state = Slice(*options_.zeros, options_.first_layer, options_.last_layer);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Put(layers_[i].weights, state.layers[i].tensors.front());
    if (!options_.bugs.forgets_momentum) Put(layers_[i].momentum, state.layers[i].slots.front());
  }
  return state;
}

}  // namespace runnel
