#include <algorithm>
#include <limits>
#include <utility>

#include "central/display/run_figures.h"
#include "central/planning/plan_maker.h"
#include "central/records/weights_digest.h"
#include "central/run/trainer_impl.h"
#include "proto/base/batching.h"

namespace runnel {

// How far the run is, and what it came to.

// Stage 0 is the last to be done with a micro-batch.
void Trainer::Impl::NoteProgress() {
  if (coordinator_->stages().empty()) return;
  const Telemetry& first = coordinator_->stages().front().telemetry;
  if (first.last_backward_ns == 0) return;
  timeline_.Add(coordinator_->batching().Locate(Sequence(first.backwards)).step,
                first.last_backward_ns);
}

void Trainer::Impl::StopTrainingClock() {
  if (training_since_ns_ == 0) return;
  processor_time_.Pause();
  training_ns_ += parts_.clock->NowNanos() - std::exchange(training_since_ns_, 0);
}

int64_t Trainer::Impl::TrainingNs() const {
  return training_ns_ +
         (training_since_ns_ == 0 ? 0 : parts_.clock->NowNanos() - training_since_ns_);
}

void Trainer::Impl::Note(const PlanDecided& decided) {
  // The new plan's stages count from nothing.
  plan_since_ns_ = TrainingNs();
  loss_seen_ = epoch_seen_ = Telemetry();
  outcome_.plan = decided.plan;
  outcome_.plans.push_back(decided);
  PlanBandwidth& bandwidth = outcome_.summary.plan_bandwidth;
  bandwidth = job_.planner->AssumedBandwidth(decided.plan);
  if (setup().plain_loop) return;
  parts_.display->Line(ToString(decided.plan, setup().model));
  if (!bandwidth.links.empty()) parts_.display->Line(BandwidthText(bandwidth));
}

void Trainer::Impl::Note(const BarrierPassed&) { StopTrainingClock(); }

void Trainer::Impl::Note(const EvaluationRecorded& evaluation) {
  const Telemetry& now = coordinator_->stages().back().telemetry;
  if (now.loss_samples > epoch_seen_.loss_samples) {
    epoch_loss_ = (now.loss_sum - epoch_seen_.loss_sum) /
                  static_cast<double>(now.loss_samples - epoch_seen_.loss_samples);
  }
  epoch_seen_ = now;
  evaluation_ = evaluation;
  outcome_.summary.evaluations.push_back({evaluation.step, evaluation.accuracy, evaluation.loss});
  parts_.display->Evaluation(View(), evaluation.accuracy, evaluation.loss);
}

int64_t Trainer::Impl::SamplesUntil(int64_t sequence) const {
  const Batching& batching = coordinator_->batching();
  const int64_t per_epoch = batching.sequences_per_epoch();
  const MicroBatch last = batching.Locate(Sequence(per_epoch - 1));
  const MicroBatch next = batching.Locate(Sequence(sequence));
  return next.epoch * (last.first_sample + last.samples) + next.first_sample;
}

void Trainer::Impl::UpdateLoss(const Telemetry& telemetry) {
  if (telemetry.loss_samples <= loss_seen_.loss_samples) return;
  recent_loss_ = (telemetry.loss_sum - loss_seen_.loss_sum) /
                 static_cast<double>(telemetry.loss_samples - loss_seen_.loss_samples);
  loss_seen_ = telemetry;
}

RunView Trainer::Impl::View() {
  RunView view;
  view.model = setup().model.name;
  view.plan = coordinator_->plan();
  view.stages = coordinator_->stages();
  view.training_ns = TrainingNs();
  view.plan_ns = view.training_ns - plan_since_ns_;
  ProgressState& progress = view.progress;
  progress.epochs = setup().settings.epochs;
  progress.steps = job_.stop_step;
  progress.steps_per_epoch = coordinator_->batching().steps_per_epoch();
  progress.step = coordinator_->step();
  if (view.stages.empty()) return view;
  // The first stage is the last to be done with a micro-batch.
  const int64_t done =
      std::max(view.stages.front().telemetry.backwards,
               coordinator_->batching().FirstSequence(coordinator_->step()).value());
  progress.step = coordinator_->batching().Locate(Sequence(done)).step;
  // At the end of an epoch: all of it is done, not nothing of the next.
  progress.epoch = progress.step == 0 ? 0 : (progress.step - 1) / progress.steps_per_epoch;
  progress.step_in_epoch = progress.step - progress.epoch * progress.steps_per_epoch;
  progress.samples = SamplesUntil(done);
  UpdateLoss(view.stages.back().telemetry);
  progress.loss = recent_loss_;
  const int64_t begun =
      SamplesUntil(coordinator_->batching().FirstSequence(job_.first_step).value());
  if (view.training_ns > 0) {
    view.samples_per_s =
        static_cast<double>(progress.samples - begun) * 1e9 / static_cast<double>(view.training_ns);
  }
  for (const StageSummary& stage : FiguresOf(view.plan, view.stages, view.plan_ns).stages) {
    progress.stage_busy.push_back(stage.busy_share);
  }
  return view;
}

RunSummary Trainer::Impl::Summarise() const {
  const RunSettings& settings = setup().settings;
  RunSummary summary = outcome_.summary;
  summary.predicted_samples_per_s = job_.planner->predicted_samples_per_s();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  summary.accuracy = evaluation_.has_value() ? evaluation_->accuracy : kNone;
  summary.loss = evaluation_.has_value() ? evaluation_->loss : kNone;
  summary.train_loss = epoch_loss_;
  const int64_t trained =
      SamplesUntil(coordinator_->batching().FirstSequence(outcome_.step).value()) -
      SamplesUntil(coordinator_->batching().FirstSequence(job_.first_step).value());
  if (training_ns_ > 0) {
    const auto training_ns = static_cast<double>(training_ns_);
    summary.samples_per_s = static_cast<double>(trained) * 1e9 / training_ns;
    summary.central_processor_share = static_cast<double>(processor_time_.ns()) / training_ns;
  }
  summary.wall_s = static_cast<double>(parts_.clock->NowNanos() - begin_ns_) * 1e-9;
  if (!outcome_.state.layers.empty()) summary.weights_sha256 = WeightsSha256(outcome_.state);
  summary.steps = outcome_.step;
  summary.epochs = outcome_.step / coordinator_->batching().steps_per_epoch();
  summary.model = settings.model;
  summary.dataset = settings.dataset;
  summary.schedule = settings.schedule;
  summary.policy = settings.policy;
  summary.cost = settings.cost;
  summary.seed = settings.seed;
  summary.recipe = settings.recipe;
  summary.gradient_bits = settings.gradient_bits;
  summary.codec_forward = settings.codec_forward;
  summary.codec_backward = settings.codec_backward;
  summary.plan = outcome_.plan;
  const RunFigures figures =
      FiguresOf(outcome_.plan, coordinator_->stages(), training_ns_ - plan_since_ns_);
  summary.links = figures.links;
  summary.stages = figures.stages;
  summary.timeline = timeline_.Points();
  return summary;
}

}  // namespace runnel
