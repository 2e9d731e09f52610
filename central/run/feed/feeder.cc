#include "central/run/feed/feeder.h"

#include <algorithm>
#include <utility>

namespace runnel {

Feeder::Feeder(EventLoop* loop, BufferPool* pool, const FeederOptions& options,
               const Batching& batching, std::function<void(const absl::Status&)> on_failed)
    : loop_(loop),
      transport_(options.transport),
      eval_batch_size_(options.eval_batch_size),
      payloads_(pool, *options.train, *options.test, options.run_seed, options.augmentation,
                options.batch_size),
      batching_(batching),
      on_failed_(std::move(on_failed)) {}

std::unique_ptr<LinkShell> Feeder::MakeLink(const LinkTarget& target) {
  LinkShell::Options options;
  options.transport = transport_;
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
  dry_run_ = {};
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

void Feeder::FeedDryRun(Sequence first, Sequence training_first, int64_t micro_batches) {
  dry_run_first_ = first.value();
  dry_run_training_first_ = training_first.value();
  dry_run_ = {first.value(), first.value(), first.value() + kDryPasses * micro_batches};
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
  PumpDryRun();
}

void Feeder::PumpTraining() {
  while (training_.inputs < training_.limit &&
         first_->session().unacknowledged(FrameKind::kInput) < window_ &&
         IsTrainingReady(training_.inputs)) {
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
         evaluation_.inputs < evaluation_.labels - waiting() + window_ &&
         IsEvaluationReady(evaluation_.inputs)) {
    SendEvaluation(evaluation_.inputs++, /*labels=*/false);
  }
}

void Feeder::PumpDryRun() {
  while (dry_run_.inputs < dry_run_.limit &&
         first_->session().unacknowledged(FrameKind::kDryInput) < window_) {
    SendDryRun(dry_run_.inputs++, /*labels=*/false);
  }
  while (dry_run_.labels < dry_run_.limit &&
         last().session().unacknowledged(FrameKind::kDryLabels) < window_) {
    SendDryRun(dry_run_.labels++, /*labels=*/true);
  }
}

void Feeder::PumpLater() {
  constexpr int64_t kDelayNs = int64_t{2'000'000};
  if (std::exchange(will_pump_, true)) return;
  loop_->PostAfter(kDelayNs, [this, lives = std::weak_ptr<bool>(lives_)] {
    if (lives.expired()) return;
    will_pump_ = false;
    Pump();
  });
}

bool Feeder::IsTrainingReady(int64_t sequence) {
  if (payloads_.AreTrainingSamplesReady(batching_.Locate(Sequence(sequence)))) return true;
  PumpLater();
  return false;
}

bool Feeder::IsEvaluationReady(int64_t sequence) {
  const auto [begin, samples] = EvaluationSamples(sequence);
  if (payloads_.AreTestSamplesReady(begin, samples)) return true;
  PumpLater();
  return false;
}

std::pair<int64_t, int64_t> Feeder::EvaluationSamples(int64_t sequence) const {
  const int64_t begin = (sequence - evaluation_first_) * eval_batch_size_;
  return {begin, std::min(eval_batch_size_, payloads_.test_size() - begin)};
}

void Feeder::SendDryRun(int64_t sequence, bool labels) {
  const int64_t trained = dry_run_training_first_ + (sequence - dry_run_first_) / kDryPasses;
  const MicroBatch place = batching_.Locate(Sequence(trained));
  if (labels) {
    Send(last(), FrameKind::kDryLabels, sequence, place.samples, payloads_.TrainingLabels(place));
  } else {
    Send(*first_, FrameKind::kDryInput, sequence, place.samples, payloads_.TrainingSamples(place));
  }
}

void Feeder::SendTraining(int64_t sequence, bool labels) {
  const MicroBatch place = batching_.Locate(Sequence(sequence));
  if (labels) {
    Send(last(), FrameKind::kLabels, sequence, place.samples, payloads_.TrainingLabels(place));
  } else {
    Send(*first_, FrameKind::kInput, sequence, place.samples, payloads_.TrainingSamples(place));
  }
}

void Feeder::SendEvaluation(int64_t sequence, bool labels) {
  const auto [begin, samples] = EvaluationSamples(sequence);
  if (labels) {
    Send(last(), FrameKind::kEvalLabels, sequence, samples, payloads_.TestLabels(begin, samples));
  } else {
    Send(*first_, FrameKind::kEvalInput, sequence, samples, payloads_.TestSamples(begin, samples));
  }
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
