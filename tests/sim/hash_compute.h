#pragma once

// A stage whose arithmetic is a chain of hashes: any change of order, version or content of
// anything changes the end.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "worker/stage/stage_compute.h"

namespace runnel {

inline uint64_t HashOf(uint64_t a, uint64_t b, uint64_t c = 0) {
  uint64_t h = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u ^
               (c + 1) * 0x94D049BB133111EBu;
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  // Each half is finite as an FP32 number, since what passes a boundary is checked for that.
  return (h ^ (h >> 32)) & ~uint64_t{0x0080000000800000};
}

inline Payload HashPayload(uint64_t value) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&value), sizeof(value)));
}
// Of a micro-batch.
inline Payload HashPayload(uint64_t stream, Sequence sequence) {
  return HashPayload(HashOf(stream, static_cast<uint64_t>(sequence.value())));
}

inline uint64_t HashIn(const Payload& payload) {
  uint64_t value = 0;
  if (payload.size() == sizeof(value)) std::memcpy(&value, payload.bytes().data(), sizeof(value));
  return value;
}

class HashCompute final : public StageCompute {
 public:
  HashCompute(uint64_t weights, bool has_loss) : weights_(weights), has_loss_(has_loss) {}

  absl::StatusOr<Output> Forward(const MicroBatch& place, Payload input, Payload labels) override {
    in_flight_.push_back({place.sequence, weights_, HashIn(input), HashIn(labels), 0});
    most_in_flight_ = std::max(most_in_flight_, in_flight_.size());
    if (has_loss_) return Output{Payload(), 1.0, 1};
    return Output{HashPayload(HashOf(weights_, HashIn(input)))};
  }
  absl::StatusOr<Output> InputGradient(const MicroBatch& place, Payload output_gradient) override {
    if (with_gradient_ == in_flight_.size()) return absl::InternalError("backward of nothing");
    Stashed& stashed = in_flight_[with_gradient_++];
    if (stashed.sequence != place.sequence) return absl::InternalError("backward out of order");
    stashed.gradient = HashOf(stashed.weights, stashed.input,
                              has_loss_ ? stashed.labels : HashIn(output_gradient));
    return Output{HashPayload(HashOf(stashed.gradient, 1))};
  }
  absl::Status WeightGradient(const MicroBatch& place, bool step) override {
    if (with_gradient_ == 0 || in_flight_.front().sequence != place.sequence) {
      return absl::InternalError("weight-gradient out of order");
    }
    accumulated_ = HashOf(accumulated_, in_flight_.front().gradient);
    in_flight_.pop_front();
    --with_gradient_;
    if (step) {
      weights_ = HashOf(weights_, accumulated_, 2);
      accumulated_ = 0;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> GradientSquares() override {
    return std::vector<double>{static_cast<double>(accumulated_ % 1024)};
  }
  absl::Status Step(const MicroBatch&, double gradient_square) override {
    weights_ = HashOf(weights_, accumulated_, static_cast<uint64_t>(gradient_square));
    accumulated_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<Output> Evaluate(int64_t, Payload, Payload) override {
    return absl::UnimplementedError("evaluation");
  }

  uint64_t weights() const { return weights_; }
  // Micro-batches that were kept at the same time.
  int64_t most_in_flight() const { return static_cast<int64_t>(most_in_flight_); }

 private:
  struct Stashed {
    Sequence sequence;
    uint64_t weights, input, labels, gradient;
  };
  uint64_t weights_;
  bool has_loss_;
  uint64_t accumulated_ = 0;
  std::deque<Stashed> in_flight_;
  size_t with_gradient_ = 0;  // the oldest ones, whose input-gradient has run
  size_t most_in_flight_ = 0;
};

}  // namespace runnel
