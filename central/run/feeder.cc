#include "central/run/feeder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace runnel {
namespace {

Payload Floats(BufferPool& pool, int64_t count) {
  return pool.Allocate(static_cast<size_t>(count) * sizeof(float));
}

absl::Span<float> AsFloats(Payload& payload) {
  return absl::MakeSpan(reinterpret_cast<float*>(payload.mutable_bytes().data()),
                        payload.size() / sizeof(float));
}

// Tokens travel as integers.
void TurnIntoTokens(Payload& payload) {
  for (float& value : AsFloats(payload)) {
    const auto token = static_cast<int32_t>(value);
    std::memcpy(&value, &token, sizeof(token));
  }
}

absl::Span<int32_t> AsLabels(Payload& payload) {
  return absl::MakeSpan(reinterpret_cast<int32_t*>(payload.mutable_bytes().data()),
                        payload.size() / sizeof(int32_t));
}

}  // namespace

Feeder::Feeder(EventLoop* loop, BufferPool* pool, FeederOptions options, const Batching& batching,
               std::function<void(const absl::Status&)> on_failed)
    : loop_(loop),
      pool_(pool),
      options_(std::move(options)),
      batching_(batching),
      samples_source_(*options_.train, options_.run_seed, options_.augmentation),
      labels_source_(*options_.train, options_.run_seed),
      test_source_(*options_.test, options_.run_seed),
      on_failed_(std::move(on_failed)) {}

std::unique_ptr<LinkShell> Feeder::MakeLink(const LinkTarget& target) {
  LinkShell::Options options;
  options.transport = options_.transport;
  options.target = target;
  options.role = "feed";
  options.on_received = [this] { Pump(); };
  auto link = std::make_unique<LinkShell>(
      loop_, &limits_, std::move(options), [](Frame) {}, on_failed_);
  link->session().StartGeneration(generation_);
  link->Start();
  return link;
}

void Feeder::Connect(Generation generation, const LinkTarget& first, const LinkTarget& last,
                     Sequence first_sequence, int64_t window) {
  generation_ = generation;
  window_ = window;
  training_ = {first_sequence.value(), first_sequence.value(), first_sequence.value()};
  first_ = MakeLink(first);
  last_ = first == last ? nullptr : MakeLink(last);
}

void Feeder::FeedUntil(Sequence limit) {
  training_.limit = limit.value();
  Pump();
}

void Feeder::FeedEvaluation(Sequence first, int64_t micro_batches) {
  evaluation_first_ = first.value();
  evaluation_ = {first.value(), first.value(), first.value() + micro_batches};
  Pump();
}

int64_t Feeder::evaluated() const {
  if (first_ == nullptr) return 0;
  const LinkShell& link = last_ != nullptr ? *last_ : *first_;
  const int64_t sent = evaluation_.labels - evaluation_first_;
  return sent - link.session().unacknowledged(FrameKind::kEvalLabels);
}

void Feeder::Pump() {
  PumpTraining();
  PumpEvaluation();
}

void Feeder::PumpTraining() {
  while (training_.inputs < training_.limit &&
         first_->session().unacknowledged(FrameKind::kInput) < window_) {
    SendTraining(training_.inputs++, /*labels=*/false);
  }
  while (training_.labels < training_.limit &&
         last().session().unacknowledged(FrameKind::kLabels) < window_) {
    SendTraining(training_.labels++, /*labels=*/true);
  }
}

void Feeder::PumpEvaluation() {
  // The labels that the loss has consumed bound the pipeline's content, however fast the first
  // stage is.
  const auto waiting = [this] { return last().session().unacknowledged(FrameKind::kEvalLabels); };
  while (evaluation_.labels < evaluation_.limit && waiting() < window_) {
    SendEvaluation(evaluation_.labels++, /*labels=*/true);
  }
  while (evaluation_.inputs < evaluation_.limit &&
         evaluation_.inputs < evaluation_.labels - waiting() + window_) {
    SendEvaluation(evaluation_.inputs++, /*labels=*/false);
  }
}

void Feeder::SendTraining(int64_t sequence, bool labels) {
  const MicroBatch place = batching_.Locate(Sequence(sequence));
  if (labels) {
    Payload payload = Floats(*pool_, place.samples * options_.train->labels_per_sample());
    labels_source_.Fill(place, {}, AsLabels(payload));
    Send(last(), FrameKind::kLabels, sequence, place.samples, std::move(payload));
    return;
  }
  Payload payload = Floats(*pool_, place.samples * options_.train->sample_shape().elements());
  samples_source_.Fill(place, AsFloats(payload), {});
  if (options_.train->tokens() > 0) TurnIntoTokens(payload);
  Send(*first_, FrameKind::kInput, sequence, place.samples, std::move(payload));
}

void Feeder::SendEvaluation(int64_t sequence, bool labels) {
  const Dataset& test = *options_.test;
  const int64_t begin = (sequence - evaluation_first_) * options_.eval_batch_size;
  const int64_t samples = std::min(options_.eval_batch_size, test.size() - begin);
  if (labels) {
    Payload payload = Floats(*pool_, samples * test.labels_per_sample());
    test_source_.FillTest(begin, samples, {}, AsLabels(payload));
    Send(last(), FrameKind::kEvalLabels, sequence, samples, std::move(payload));
    return;
  }
  const int64_t elements = test.sample_shape().elements();
  Payload payload = Floats(*pool_, samples * elements);
  test_source_.FillTest(begin, samples, AsFloats(payload), {});
  if (test.tokens() > 0) TurnIntoTokens(payload);
  Send(*first_, FrameKind::kEvalInput, sequence, samples, std::move(payload));
}

void Feeder::Send(LinkShell& link, FrameKind kind, int64_t sequence, int64_t samples,
                  Payload payload) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.generation = generation_;
  frame.header.sequence = Sequence(sequence);
  frame.header.samples = static_cast<uint32_t>(samples);
  frame.payload = std::move(payload);
  link.session().Send(std::move(frame));
}

}  // namespace runnel
