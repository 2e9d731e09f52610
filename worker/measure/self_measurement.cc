#include "worker/measure/self_measurement.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kProgressIntervalNs = int64_t{250} * 1000 * 1000;

}  // namespace

SelfMeasurement::SelfMeasurement(MeasurementStore store, const Clock* clock, Logger* logger)
    : store_(std::move(store)), clock_(clock), logger_(logger) {}

absl::StatusOr<ProfileReport> SelfMeasurement::Answer(const ProfileRequest& request,
                                                      const ProfileFn& profile,
                                                      const ProgressFn& on_progress) {
  if (request.accepts_kept) {
    if (std::optional<ProfileReport> kept = store_.Find(request); kept.has_value()) {
      shares_processor_ = kept->processor_share < kWholeProcessor;
      return *std::move(kept);
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(ProfileReport report, Measure(request, profile, on_progress));
  // Whoever accepts kept answers measures before a run, as the next run will: these are kept.
  if (request.accepts_kept) Keep(request, report);
  return report;
}

void SelfMeasurement::Keep(const ProfileRequest& request, const ProfileReport& report) {
  const absl::Status kept = store_.Keep(request, report);
  if (kept.ok() || std::exchange(warned_, true)) return;
  logger_->Log(Severity::kWarning,
               absl::StrCat("measurements are not kept, so every run measures again (",
                            kept.message(), "): --state-dir names a folder for them"));
}

absl::StatusOr<ProfileReport> SelfMeasurement::Measure(const ProfileRequest& request,
                                                       const ProfileFn& profile,
                                                       const ProgressFn& on_progress) {
  const ProfileOptions options{.samples = request.micro_batch_size,
                               .repetitions = request.repetitions,
                               .ranges = request.ranges,
                               .in_flight = request.in_flight,
                               .shared_caches = shares_processor_,
                               .burst_ms = request.burst_ms,
                               .nominal_step_ns = request.nominal_step_ns,
                               .enough_ms = request.enough_ms};
  int64_t told_ns = clock_->NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<RangeTime> times, profile(options, [&](double share) {
                            const int64_t now_ns = clock_->NowNanos();
                            if (now_ns - told_ns < kProgressIntervalNs) return;
                            told_ns = now_ns;
                            on_progress(ProfileProgress{std::min(share, 1.0)});
                          }));
  ProfileReport report;
  double wall_seconds = 0;
  double processor_seconds = 0;
  for (const RangeTime& time : times) {
    report.spreads.push_back(time.spread);
    wall_seconds += time.all_wall_seconds;
    processor_seconds += time.all_processor_seconds;
  }
  if (wall_seconds > 0) {
    report.processor_share =
        std::clamp(processor_seconds / wall_seconds, kLeastProcessorShare, 1.0);
    shares_processor_ = report.processor_share < kWholeProcessor;
  }
  // Where others use the processor too, when a short measurement was held up is chance: the share
  // of all of them says it better.
  const bool shares = shares_processor_ && request.nominal_step_ns == 0;
  for (const RangeTime& time : times) {
    report.layer_seconds.push_back(shares ? time.processor_seconds / report.processor_share
                                          : time.seconds);
  }
  return report;
}

std::vector<WorkerMessage> SelfMeasurement::Answer(const ProbePiece& piece) {
  std::vector<WorkerMessage> messages;
  if (!probe_.Add(piece)) return messages;
  messages.push_back(probe_.measured());
  for (ProbePiece& one : MakeProbeTrain(probe_.bytes())) messages.push_back(std::move(one));
  return messages;
}

}  // namespace runnel
