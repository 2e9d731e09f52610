#include "central/run/run_record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/noise_by_way.h"
#include "central/records/shown_figures.h"
#include "central/records/weights_digest.h"
#include "compress/codec.h"
#include "proto/base/training/rates/rate.h"

namespace runnel {

RunRecord::RunRecord(const RunSetup* setup, const Batching& batching, int64_t first_step,
                     int64_t stop_step, const Clock* clock)
    : setup_(setup),
      batching_(batching),
      first_step_(first_step),
      stop_step_(stop_step),
      clock_(clock) {}

void RunRecord::KeepLog(TrainingLog log, std::function<void(const std::string& line)> warn) {
  const double seconds_before = log.seconds();
  log_.emplace(Log{std::move(log), std::move(warn), seconds_before, {}, {}});
  log_->last.step = first_step_;
}

LogRow RunRecord::RowAt(int64_t step) const {
  LogRow row;
  row.step = step;
  row.epoch = 1 + (step == 0 ? 0 : (step - 1) / batching_.steps_per_epoch());
  row.seconds = log_->seconds_before + static_cast<double>(clock_.training_ns()) * 1e-9;
  return row;
}

void RunRecord::LogBarrier(int64_t step, const Telemetry& last_stage) {
  const LogRow& before = log_->last;
  if (step <= before.step) return;
  LogRow row = RowAt(step);
  const double loss = log_->loss.Mean(last_stage);
  if (!std::isnan(loss)) row.loss = loss;
  row.learning_rate =
      RunRate(setup_->training, row.epoch - 1, step - 1) * WarmUpShare(setup_->training, step - 1);
  const double seconds = row.seconds - std::max(before.seconds, log_->seconds_before);
  if (seconds > 0) {
    row.samples_per_s =
        static_cast<double>(SamplesUntilStep(step) - SamplesUntilStep(before.step)) / seconds;
  }
  Check(log_->file.Append(row));
  if (log_.has_value()) log_->last = row;
}

// A log that fails is no reason to end a run.
void RunRecord::Check(const absl::Status& logged) {
  if (logged.ok()) return;
  log_->warn(absl::StrCat("--log ends here: ", logged.message()));
  log_.reset();
}

// Stage 0 is the last to be done with a micro-batch.
void RunRecord::AddTelemetry(const std::vector<StageStatus>& stages) {
  if (stages.empty() || stages.front().telemetry.last_backward_ns == 0) return;
  const Telemetry& first = stages.front().telemetry;
  timeline_.Add(batching_.Locate(Sequence(first.backwards)).step, first.last_backward_ns);
}

void RunRecord::AddPlan(const PlanDecided& decided, PlanBandwidth bandwidth) {
  clock_.StartPlan();
  recent_loss_.Restart();
  epoch_loss_.Restart();
  if (log_.has_value()) log_->loss.Restart();
  plans_.push_back(decided);
  bandwidth_ = std::move(bandwidth);
}

void RunRecord::AddBarrier(int64_t step, const std::vector<StageStatus>& stages) {
  if (log_.has_value() && !stages.empty()) LogBarrier(step, stages.back().telemetry);
  if (stages.empty() || setup_->settings.eval_every < 0) return;
  if (step >= stop_step_ || setup_->barriers.IsEvaluation(step))
    epoch_loss_.Mean(stages.back().telemetry);
}

void RunRecord::AddEvaluation(const EvaluationRecorded& evaluation, double effective_macs) {
  if (!evaluations_.empty()) evaluations_.back().counts = {};
  evaluations_.push_back(
      {evaluation.step, evaluation.accuracy, evaluation.loss, evaluation.counts, effective_macs});
  if (!log_.has_value()) return;
  LogRow row = RowAt(evaluation.step);
  row.test_accuracy = evaluation.accuracy;
  row.test_loss = evaluation.loss;
  Check(log_->file.Append(row));
}

void RunRecord::AddNoise(const NoiseMeasured& noise) {
  const WayNoise* way = WayOf(noise);
  noise_.push_back({noise.step, way == nullptr ? noise.added : way->added,
                    way == nullptr ? noise.by_table : way->by_table, noise.scale_samples,
                    noise.micro_batches, noise.seconds,
                    way == nullptr ? noise.codecs : ToString(*way), way != nullptr});
}

void RunRecord::GoBackTo(int64_t step) {
  std::erase_if(noise_, [step](const NoiseSummary& one) { return one.step > step; });
  std::erase_if(evaluations_, [step](const EvaluationSummary& one) { return one.step > step; });
  if (!log_.has_value()) return;
  log_->last.step = std::min(log_->last.step, step);
  Check(log_->file.GoBackTo(step));
}

int64_t RunRecord::SamplesUntil(int64_t sequence) const {
  const MicroBatch last = batching_.Locate(Sequence(batching_.sequences_per_epoch() - 1));
  const MicroBatch next = batching_.Locate(Sequence(sequence));
  return next.epoch * (last.first_sample + last.samples) + next.first_sample;
}

// Micro-batches are counted over the run, time since the plan holds.
std::vector<StageSeconds> RunRecord::SecondsOf(const std::vector<StageStatus>& stages) const {
  std::vector<StageSeconds> result(stages.size());
  if (plans_.empty()) return result;
  const PlanDecided& decided = plans_.back();
  const int64_t first = batching_.FirstSequence(decided.from_step).value();
  for (size_t i = 0; i < stages.size(); ++i) {
    const StagePlan& stage = stages[i].plan;
    const auto device = static_cast<size_t>(stage.sole_device());
    if (device < decided.devices.size() && !decided.devices[device].times.empty()) {
      result[i].predicted =
          decided.devices[device].times.Seconds({stage.first_layer, stage.last_layer});
    }
    const int64_t done = stages[i].telemetry.backwards - first;
    if (done > 0) {
      result[i].measured =
          static_cast<double>(stages[i].telemetry.busy_ns) * 1e-9 / static_cast<double>(done);
    }
  }
  return result;
}

std::vector<int64_t> RunRecord::SamplesOf(const std::vector<StageStatus>& stages) const {
  std::vector<int64_t> result(stages.size());
  if (plans_.empty()) return result;
  const int64_t first = SamplesUntilStep(plans_.back().from_step);
  for (size_t i = 0; i < stages.size(); ++i)
    result[i] = std::max<int64_t>(0, SamplesUntil(stages[i].telemetry.backwards) - first);
  return result;
}

std::vector<LinkView> RunRecord::LinksOf(const Plan& plan, int64_t epoch) const {
  const auto bits_of = [epoch](const CodecSchedule& codecs) {
    const CodecId& codec = codecs.steps()[codecs.StepIn(epoch)].codec;
    const CodecRow* row = FindCodecFamily(codec.family);
    return row == nullptr || row->bits == nullptr ? 0 : row->BitsOf(codec);
  };
  std::vector<LinkView> links;
  for (size_t i = 0; i < plan.links.size(); ++i) {
    links.push_back({bits_of(plan.links[i].codec_forward), bits_of(plan.links[i].codec_backward)});
    if (i < bandwidth_.links.size()) links.back().expected = bandwidth_.links[i];
  }
  return links;
}

RunView RunRecord::View(const Plan& plan, const std::vector<StageStatus>& stages, int64_t step) {
  RunView view;
  view.plan = plan;
  view.stages = stages;
  view.first_step = first_step_;
  view.training_ns = clock_.training_ns();
  view.plan_ns = clock_.plan_ns();
  view.recoveries = recoveries_.summaries();
  view.gradient_noise = noise_;
  view.stage_seconds = SecondsOf(stages);
  view.stage_samples = SamplesOf(stages);
  ProgressState& progress = view.progress;
  progress.epochs = setup_->settings.epochs;
  progress.steps = stop_step_;
  progress.steps_per_epoch = batching_.steps_per_epoch();
  progress.step = step;
  if (stages.empty()) return view;
  const int64_t done =
      std::max(stages.front().telemetry.backwards, batching_.FirstSequence(step).value());
  progress.step = batching_.Locate(Sequence(done)).step;
  // At the end of an epoch: all of it is done, not nothing of the next.
  progress.epoch = progress.step == 0 ? 0 : (progress.step - 1) / progress.steps_per_epoch;
  progress.step_in_epoch = progress.step - progress.epoch * progress.steps_per_epoch;
  progress.samples = SamplesUntil(done);
  view.links = LinksOf(plan, progress.epoch);
  view.learning_rate = RunRate(setup_->training, progress.epoch, progress.step) *
                       WarmUpShare(setup_->training, progress.step);
  progress.loss = recent_loss_.Mean(stages.back().telemetry);
  if (view.training_ns > 0) {
    view.samples_per_s = static_cast<double>(progress.samples - SamplesUntilStep(first_step_)) *
                         1e9 / static_cast<double>(view.training_ns);
  }
  for (const StageStatus& stage : stages) {
    const auto busy_ns = static_cast<double>(stage.telemetry.busy_ns);
    progress.stage_busy.push_back(view.plan_ns > 0 ? busy_ns / static_cast<double>(view.plan_ns)
                                                   : 0);
  }
  return view;
}

RunSummary RunRecord::Summarise(const std::vector<StageStatus>& stages, int64_t step,
                                const ModelState& state) const {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const RunSettings& settings = setup_->settings;
  RunSummary summary;
  summary.evaluations = evaluations_;
  summary.recoveries = recoveries_.summaries();
  summary.gradient_noise = noise_;
  summary.accuracy = evaluations_.empty() ? kNone : evaluations_.back().accuracy;
  summary.loss = evaluations_.empty() ? kNone : evaluations_.back().loss;
  summary.train_loss = epoch_loss_.last();
  if (clock_.training_ns() > 0) {
    const auto training_ns = static_cast<double>(clock_.training_ns());
    const int64_t trained = SamplesUntilStep(step) - SamplesUntilStep(first_step_);
    summary.samples_per_s = static_cast<double>(trained) * 1e9 / training_ns;
    summary.central_processor_share = static_cast<double>(clock_.processor_ns()) / training_ns;
  }
  summary.wall_s = static_cast<double>(clock_.wall_ns()) * 1e-9;
  if (!state.layers.empty()) summary.weights_sha256 = WeightsSha256(state);
  summary.steps = step;
  summary.epochs = step / batching_.steps_per_epoch();
  summary.model = settings.model;
  summary.dataset = settings.dataset;
  summary.schedule = settings.schedule;
  summary.policy = settings.policy;
  summary.cost = settings.predictor.empty() ? "measured" : "predicted";
  summary.predictor = settings.predictor;
  summary.seed = static_cast<int64_t>(settings.training.seed);
  summary.recipe = settings.recipe;
  summary.gradient_bits = settings.gradient_bits;
  summary.codec_forward = settings.codec_forward.text();
  summary.codec_backward = settings.codec_backward.text();
  summary.plan_bandwidth = bandwidth_;
  if (!plans_.empty()) {
    summary.plan = plans_.back().plan;
    for (const JournalDevice& device : plans_.back().devices) {
      summary.device_names.push_back(device.name);
    }
  }
  const RunFigures figures =
      SummariseStages(summary.plan, stages, clock_.plan_ns(), SamplesOf(stages));
  summary.links = figures.links;
  summary.stages = figures.stages;
  const std::vector<StageSeconds> seconds = SecondsOf(stages);
  for (size_t i = 0; i < seconds.size(); ++i) {
    summary.stages[i].numerics_class =
        OfSoleDevice(summary.plan.stages[i], plans_.back().devices).numerics_class;
    summary.stages[i].seconds = seconds[i];
  }
  summary.timeline = timeline_.Points();
  return summary;
}

void ShowLevelBits(const LinkLevels& levels, const std::vector<TrainingChange>& changes,
                   RunView& view) {
  const ProgressState& progress = view.progress;
  if (!levels.any() || progress.steps_per_epoch == 0) return;
  const int64_t step = std::min(progress.step, std::max<int64_t>(0, progress.steps - 1));
  // Not progress.epoch, which is the one before at an epoch's first step.
  const GridBits bits = levels.At(changes, step / progress.steps_per_epoch, step);
  view.grid_bits = bits;
  const auto is_recipe = [&progress](const CodecSchedule& codecs) {
    return codecs.steps()[codecs.StepIn(progress.epoch)].codec == RecipeCodec();
  };
  for (size_t i = 0; i < view.links.size() && i < view.plan.links.size(); ++i) {
    const LinkPlan& link = view.plan.links[i];
    if (is_recipe(link.codec_forward)) view.links[i].bits_forward = bits.forward;
    if (is_recipe(link.codec_backward)) view.links[i].bits_backward = bits.backward;
  }
}

}  // namespace runnel
