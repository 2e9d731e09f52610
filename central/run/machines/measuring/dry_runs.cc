#include "central/run/machines/measuring/dry_runs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "central/planning/bandwidth_bits.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Of a micro-batch over all links, there and back: once as it is, once encoded. Rates that were not
// measured count for nothing.
double LinkSeconds(const std::vector<StageStatus>& stages) {
  const auto seconds = [](int64_t bytes, int64_t frames, double bytes_per_second) {
    if (frames == 0 || bytes_per_second <= 0) return 0.0;
    return static_cast<double>(bytes) / static_cast<double>(frames) / bytes_per_second;
  };
  double sum = 0;
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const Telemetry& above = stages[i].telemetry;
    const Telemetry& below = stages[i + 1].telemetry;
    sum += seconds(above.raw_bytes_down + above.bytes_down, above.frames_down,
                   below.upstream_bytes_per_second);
    sum += seconds(below.raw_bytes_up + below.bytes_up, below.frames_up,
                   above.downstream_bytes_per_second);
  }
  return sum;
}

}  // namespace

Plan DryRuns::CodecsAt(const BarrierReport& report, int64_t epoch) const {
  Plan plan = PlanInEpoch(report.plan, epoch);
  if (!options_.levels.any()) return plan;
  static const std::vector<TrainingChange> kNone;
  const GridBits bits =
      options_.levels.At(report.changes == nullptr ? kNone : *report.changes, epoch, report.step);
  for (LinkPlan& link : plan.links) {
    link.codec_forward = CodecsAtLevel(link.codec_forward, Direction::kForward, bits);
    link.codec_backward = CodecsAtLevel(link.codec_backward, Direction::kBackward, bits);
  }
  return plan;
}

bool DryRuns::Begin(const BarrierReport& report, int64_t now_ns, const ActivePlan& active,
                    RunEffects& effects) {
  if (options_.from_step < 0 || report.stages.empty()) return false;
  if (report.plan.generation != since_.generation) {
    since_ = {report.plan.generation, report.step, now_ns};
    loss_.Restart();
  }
  const double loss = loss_.Mean(report.stages.back().telemetry);
  const Sequence place = batching_.FirstSequence(report.step);
  const int64_t epoch = batching_.Locate(place).epoch;
  const Plan at_level = CodecsAt(report, epoch);
  // In a cycle bits change from barrier to barrier, which calls for no other measurement.
  const std::string codecs =
      LossyCodecsText(options_.levels.cycles() ? PlanInEpoch(report.plan, epoch) : at_level);
  if (codecs.empty() || !HasRoom(report)) return false;
  NoiseMeasured whole = {.by_table = NoiseByTable(at_level, epoch, options_.places),
                         .loss = loss,
                         .codecs = codecs,
                         .ways = LossyWays(at_level, epoch, options_.places)};
  const std::optional<NoiseMeasured> due = Due(report, std::move(whole));
  if (!due.has_value() || !IsAffordable(*due, report, now_ns)) return false;
  tried_step_ = report.step;
  measuring_ = *due;
  measuring_.step = report.step;
  measuring_.micro_batches = options_.micro_batches;
  for (size_t i = 0; i < active.stages.size(); ++i) awaited_.insert(i);
  first_ = Sequence(next_);
  next_ += kDryPasses * options_.micro_batches;
  begun_ns_ = now_ns;
  sums_ = GradientSums();
  DryRunRequest request = {active.plan.generation, first_, options_.micro_batches};
  if (const WayNoise* way = WayOf(measuring_); way != nullptr) request.coded = CodedIn(*way);
  SendToStages(active, request, effects);
  effects.push_back(FeedDryRun{first_, place, options_.micro_batches});
  return true;
}

bool DryRuns::HasRoom(const BarrierReport& report) const {
  const int64_t left = batching_.FirstSequence(options_.stop_step).value() -
                       batching_.FirstSequence(report.step).value();
  return report.step != tried_step_ && left >= options_.micro_batches;
}

// At once what all codecs of the plan add; then, barrier by barrier, what those of one way do.
std::optional<NoiseMeasured> DryRuns::Due(const BarrierReport& report, NoiseMeasured whole) const {
  const NoiseMeasured* before = last();
  if (before == nullptr) {
    const int64_t from = options_.from_step > 0 ? options_.from_step : options_.least_step;
    if (report.step < from) return std::nullopt;
    return whole;
  }
  // The text of the codecs does not tell which link has which.
  const bool is_changed = before->codecs != whole.codecs ||
                          (!options_.levels.cycles() && HaveOtherCodecs(before->ways, whole.ways));
  if (is_changed || whole.loss < before->loss / 2) return whole;
  if (!AreSameWays(before->ways, whole.ways)) return std::nullopt;
  NoiseMeasured next = *before;
  next.way = NextWay(next, not_finite_);
  if (!next.way.has_value()) return std::nullopt;
  return next;
}

bool DryRuns::IsAffordable(const NoiseMeasured& due, const BarrierReport& report,
                           int64_t now_ns) const {
  const bool is_way = due.way.has_value();
  if (options_.from_step > 0 && (!is_way || WholesTo(report.step) <= 1)) return true;
  const double most_share = is_way ? options_.most_share / 2 : options_.most_share;
  const int64_t steps = report.step - since_.step;
  if (steps == 0) return false;
  const double step_seconds =
      static_cast<double>(now_ns - since_.ns) * 1e-9 / static_cast<double>(steps);
  const double micro_batch_seconds =
      step_seconds * static_cast<double>(options_.stop_step) /
      static_cast<double>(batching_.FirstSequence(options_.stop_step).value());
  double seconds = 0;
  for (const auto& [step, noise] : measured_) seconds = std::max(seconds, noise.seconds);
  // One pass after the other goes through all stages, of which none takes longer than a period.
  if (seconds == 0) {
    const double computed = static_cast<double>(report.stages.size()) * micro_batch_seconds;
    seconds = static_cast<double>(options_.micro_batches) *
              (kDryPasses * computed + LinkSeconds(report.stages));
  }
  const double run_seconds = step_seconds * static_cast<double>(options_.stop_step);
  return spent_seconds_ + seconds <= most_share * run_seconds;
}

std::optional<NoiseMeasured> DryRuns::Add(size_t stage, const DryRunDone& done,
                                          const ActivePlan& active) {
  if (done.generation != active.plan.generation || done.first != first_ ||
      awaited_.erase(stage) == 0)
    return std::nullopt;
  sums_ += done.sums;
  if (!awaited_.empty()) return std::nullopt;
  measuring_.seconds = static_cast<double>(done.arrived_ns - begun_ns_) * 1e-9;
  spent_seconds_ += measuring_.seconds;
  // The pace is training's.
  since_.ns += done.arrived_ns - begun_ns_;
  const MicroBatch place = batching_.Locate(batching_.FirstSequence(measuring_.step));
  const int64_t micro_batches_a_step =
      batching_.FirstSequence(place.step + 1).value() - batching_.FirstSequence(place.step).value();
  const GradientNoise noise = NoiseOf(sums_, micro_batches_a_step, place.samples);
  measuring_.scale_samples = noise.scale_samples;
  const NoiseMeasured* before = last();
  if (!std::isfinite(noise.added)) {
    if (measuring_.way.has_value()) not_finite_.insert(*measuring_.way);
    measuring_.added = noise.added;
    return measuring_;
  }
  if (measuring_.way.has_value()) {
    SetWayNoise(*measuring_.way, noise.added, measuring_);
  } else {
    not_finite_.clear();
    measuring_.added = noise.added;
    ShareNoise(before == nullptr ? NoiseRatios() : NoiseRatiosOf(*before), measuring_);
  }
  measured_[measuring_.step] = measuring_;
  return measuring_;
}

// tried_step_ stays: what a dry run took down is not tried again at the same place.
void DryRuns::GoBackTo(int64_t step) {
  measured_.erase(measured_.upper_bound(step), measured_.end());
  awaited_.clear();
  not_finite_.clear();
}

int64_t DryRuns::WholesTo(int64_t step) const {
  return earlier_wholes_ +
         std::count_if(measured_.begin(), measured_.upper_bound(step),
                       [](const auto& entry) { return !entry.second.way.has_value(); });
}

// The measurement; in a second line all measurements of all codecs, and the seconds of all. Earlier
// releases wrote one line.
std::string DryRuns::StateAt(int64_t step) const {
  const auto behind = measured_.upper_bound(step);
  if (behind == measured_.begin()) return "";
  return absl::StrCat(JournalLine(std::prev(behind)->second), "\n", WholesTo(step), " ",
                      absl::StrFormat("%.9g", spent_seconds_));
}

absl::Status DryRuns::Restore(absl::string_view state) {
  if (state.empty()) return absl::OkStatus();
  const std::vector<absl::string_view> lines = absl::StrSplit(state, '\n');
  RUNNEL_ASSIGN_OR_RETURN(JournalRecord record, ParseJournalLine(lines[0]));
  const auto* noise = std::get_if<NoiseMeasured>(&record);
  if (noise == nullptr) return absl::InvalidArgumentError("is no measurement of gradient noise");
  int64_t wholes = 1;
  double spent_seconds = noise->seconds;
  if (lines.size() > 1) {
    const std::vector<absl::string_view> numbers = absl::StrSplit(lines[1], ' ');
    if (lines.size() > 2 || numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &wholes) ||
        !absl::SimpleAtod(numbers[1], &spent_seconds) || wholes < 1 || !(spent_seconds >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", lines[1], "' says no measurements and their seconds"));
    }
  }
  // The whole itself is in measured_, unless ways have followed it.
  earlier_wholes_ = wholes - (noise->way.has_value() ? 0 : 1);
  spent_seconds_ = spent_seconds;
  measured_[noise->step] = *noise;
  return absl::OkStatus();
}

absl::Status DryRuns::CheckState(absl::string_view state) {
  return DryRuns({}, Batching::Create(1, 1, 1, 1).value()).Restore(state);
}

std::string ToString(const NoiseMeasured& noise) {
  if (!std::isfinite(noise.added))
    return "what codecs add to the gradients' noise could not be measured: they are not finite";
  const auto percent = [](double share) {
    return share < 0.1 ? absl::StrFormat("%.2g", 100 * share)
                       : absl::StrFormat("%.0f", 100 * share);
  };
  const WayNoise* way = WayOf(noise);
  const auto text = [&percent](absl::string_view codecs, double added, double by_table) {
    return absl::StrCat(codecs, " ", percent(added), " % to the gradients' noise, by measurement (",
                        percent(by_table), " % by the table of codecs)");
  };
  if (way == nullptr) return text(noise.codecs + " add", noise.added, noise.by_table);
  return text(ToString(*way) + " alone adds", way->added, way->by_table);
}

}  // namespace runnel
