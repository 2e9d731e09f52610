#include "central/data/sample_payloads.h"

#include <cstring>

namespace runnel {
namespace {

absl::Span<float> AsFloats(Payload& payload) {
  return absl::MakeSpan(reinterpret_cast<float*>(payload.mutable_bytes().data()),
                        payload.size() / sizeof(float));
}

absl::Span<int32_t> AsLabels(Payload& payload) {
  return absl::MakeSpan(reinterpret_cast<int32_t*>(payload.mutable_bytes().data()),
                        payload.size() / sizeof(int32_t));
}

// Tokens travel as integers.
void TurnIntoTokens(Payload& payload) {
  for (float& value : AsFloats(payload)) {
    const auto token = static_cast<int32_t>(value);
    std::memcpy(&value, &token, sizeof(token));
  }
}

}  // namespace

SamplePayloads::SamplePayloads(BufferPool* pool, const Dataset& train, const Dataset& test,
                               uint64_t run_seed, const Augmentation& augmentation,
                               int64_t batch_size)
    : pool_(pool),
      train_(train),
      test_(test),
      samples_source_(train, run_seed, augmentation, batch_size),
      labels_source_(train, run_seed, augmentation, batch_size),
      test_source_(test, run_seed) {}

// Labels have four bytes, too.
Payload SamplePayloads::Floats(int64_t count) {
  return pool_->Allocate(static_cast<size_t>(count) * sizeof(float));
}

Payload SamplePayloads::TrainingSamples(const MicroBatch& place) {
  Payload payload = Floats(place.samples * train_.sample_shape().elements());
  samples_source_.Fill(place, AsFloats(payload), {});
  if (train_.tokens() > 0) TurnIntoTokens(payload);
  return payload;
}

Payload SamplePayloads::TrainingLabels(const MicroBatch& place) {
  Payload payload = Floats(place.samples * train_.labels_per_sample());
  labels_source_.Fill(place, {}, AsLabels(payload));
  return payload;
}

Payload SamplePayloads::TestSamples(int64_t first, int64_t count) {
  Payload payload = Floats(count * test_.sample_shape().elements());
  test_source_.FillTest(first, count, AsFloats(payload), {});
  if (test_.tokens() > 0) TurnIntoTokens(payload);
  return payload;
}

Payload SamplePayloads::TestLabels(int64_t first, int64_t count) {
  Payload payload = Floats(count * test_.labels_per_sample());
  test_source_.FillTest(first, count, {}, AsLabels(payload));
  return payload;
}

}  // namespace runnel
