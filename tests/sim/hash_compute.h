#pragma once

// A stage whose arithmetic is a chain of hashes: any change of order, version or content of
// anything changes the end.

#include <cstdint>
#include <cstring>
#include <deque>

#include "absl/status/status.h"
#include "worker/stage_compute.h"

namespace runnel {

inline uint64_t HashOf(uint64_t a, uint64_t b, uint64_t c = 0) {
  uint64_t h = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u ^
               (c + 1) * 0x94D049BB133111EBu;
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 32);
}

inline Payload HashPayload(uint64_t value) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&value), sizeof(value)));
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
    in_flight_.push_back({place.sequence, weights_, HashIn(input), HashIn(labels)});
    if (has_loss_) return Output{Payload(), 1.0, 1};
    return Output{HashPayload(HashOf(weights_, HashIn(input)))};
  }
  absl::StatusOr<Output> InputGradient(const MicroBatch& place, Payload output_gradient) override {
    const Stashed& stashed = in_flight_.front();
    if (stashed.sequence != place.sequence) return absl::InternalError("backward out of order");
    gradient_ = HashOf(stashed.weights, stashed.input,
                       has_loss_ ? stashed.labels : HashIn(output_gradient));
    return Output{HashPayload(HashOf(gradient_, 1))};
  }
  absl::Status WeightGradient(const MicroBatch&, bool step) override {
    accumulated_ = HashOf(accumulated_, gradient_);
    in_flight_.pop_front();
    if (step) {
      weights_ = HashOf(weights_, accumulated_, 2);
      accumulated_ = 0;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Output> Evaluate(int64_t, Payload, Payload) override {
    return absl::UnimplementedError("evaluation");
  }

  uint64_t weights() const { return weights_; }

 private:
  struct Stashed {
    Sequence sequence;
    uint64_t weights, input, labels;
  };
  uint64_t weights_;
  bool has_loss_;
  uint64_t gradient_ = 0;
  uint64_t accumulated_ = 0;
  std::deque<Stashed> in_flight_;
};

}  // namespace runnel
