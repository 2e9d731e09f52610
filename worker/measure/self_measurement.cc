#include "worker/measure/self_measurement.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "worker/measure/side_costs.h"

namespace runnel {
namespace {

constexpr int64_t kProgressIntervalNs = int64_t{250} * 1000 * 1000;

// Central measures the workers of its host a second time, after layers and parts, which are many
// ranges, or have costs beside them, or may be answered from an earlier run.
bool IsSecond(const ProfileRequest& request) {
  return request.ranges.size() == 1 && request.cost_codecs.empty() && !request.accepts_kept;
}

// The shares of all ranges together.
void AddShares(const std::vector<RangeTime>& times, DeviceCosts& costs) {
  double all = 0, forward = 0, input_gradient = 0;
  for (const RangeTime& time : times) {
    all += time.seconds;
    forward += time.seconds * time.forward_share;
    input_gradient += time.seconds * time.input_gradient_share;
  }
  if (all <= 0) return;
  costs.forward_share = forward / all;
  costs.input_gradient_share = input_gradient / all;
}

}  // namespace

SelfMeasurement::SelfMeasurement(MeasurementStore store, Transport* transport, const Clock* clock,
                                 Logger* logger, double processors)
    : store_(std::move(store)),
      transport_(transport),
      clock_(clock),
      logger_(logger),
      processors_(processors) {}

absl::StatusOr<ProfileReport> SelfMeasurement::Answer(const ProfileRequest& request,
                                                      const ProfileFn& profile,
                                                      const ProgressFn& on_progress,
                                                      const MeasuredOnFn& measured_on) {
  if (request.accepts_kept) {
    if (std::optional<ProfileReport> kept = store_.Find(request); kept.has_value()) {
      shares_processor_ = kept->processor_share < kWholeProcessor;
      return *std::move(kept);
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(ProfileReport report, Measure(request, profile, on_progress));
  const MeasuredOn on = measured_on == nullptr ? MeasuredOn() : measured_on();
  report.backend = on.backend;
  report.choice = on.why;
  report.numerics_class = on.numerics_class;
  // Whoever accepts kept answers measures before a run, as the next run will: these are kept.
  if (request.accepts_kept && on.is_usual && !WasDisturbed(request, report)) Keep(request, report);
  return report;
}

bool SelfMeasurement::WasDisturbed(const ProfileRequest& request, const ProfileReport& report) {
  // Less than this part of the share that it would have alone with its neighbours.
  constexpr double kDisturbed = 0.75;
  const double alone = std::min(1.0, processors_ / static_cast<double>(request.neighbours + 1));
  // A thread that waits for a GPU or DSP has little of a processor, and is not disturbed.
  const std::string& backend = report.backend;
  const bool computes_itself =
      backend.empty() || backend == "ref" || backend == "small" || backend == "torch" ||
      (absl::StartsWith(backend, "cpu") && !absl::StrContains(backend, ','));
  if (!computes_itself || processors_ == 0 || report.processor_share >= kDisturbed * alone)
    return false;
  logger_->Log(
      Severity::kInfo,
      absl::StrFormat("measured beside other work, with %.0f %% of a processor in place of "
                      "%.0f %%: the next run measures again",
                      report.processor_share * 100, alone * 100));
  return true;
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
  if (!request.cost_codecs.empty()) report.costs = MeasureCosts(request.cost_codecs);
  AddShares(times, report.costs);
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
    // Beside more neighbours than processors nobody has a whole one; that says nothing of the device.
    const auto measuring = static_cast<double>(request.neighbours + 1);
    const bool has_room = request.neighbours == 0 || processors_ == 0 || measuring <= processors_;
    if (has_room && !IsSecond(request))
      shares_processor_ = report.processor_share < kWholeProcessor;
  }
  // If others use the processor too, a short measurement is held up by chance: the sum over all of
  // them shows the share better.
  const bool shares = report.processor_share < kWholeProcessor && request.nominal_step_ns == 0;
  for (const RangeTime& time : times) {
    report.layer_seconds.push_back(shares ? time.processor_seconds / report.processor_share
                                          : time.seconds);
  }
  return report;
}

// A figure that cannot be measured stays 0, and central assumes one: no reason to end a run.
DeviceCosts SelfMeasurement::MeasureCosts(const std::vector<std::string>& codecs) {
  DeviceCosts costs;
  const auto warn = [this](const char* what, const absl::Status& status) {
    logger_->Log(Severity::kWarning,
                 absl::StrCat("the cost of ", what, " is not known: ", status.message()));
  };
  const absl::StatusOr<double> coding = MeasureCoding(codecs);
  if (coding.ok()) {
    costs.coder_seconds_per_byte = *coding;
  } else {
    warn("coding", coding.status());
  }
  if (transport_ == nullptr) return costs;
  const absl::StatusOr<TransportCosts> transport = MeasureTransport(*transport_);
  if (transport.ok()) {
    costs.frame_seconds = transport->frame_seconds;
    costs.link_byte_seconds = transport->byte_seconds;
  } else {
    warn("the transport", transport.status());
  }
  return costs;
}

std::vector<WorkerMessage> SelfMeasurement::Answer(const ProbePiece& piece) {
  std::vector<WorkerMessage> messages;
  if (piece.is_ping()) return {ProbePiece{.count = 1}};
  if (!probe_.Add(piece)) return messages;
  messages.push_back(probe_.measured());
  if (piece.answer_bytes == 0) return messages;
  for (ProbePiece& one : MakeProbeTrain(piece.answer_bytes)) messages.push_back(std::move(one));
  return messages;
}

}  // namespace runnel
