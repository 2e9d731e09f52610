#pragma once

// Whether another plan is worth the change (AccEPT 3.5). At a barrier the policy is asked to plan
// anew from corrected times (device_corrections.h); it searches aside, while the stages train, and
// a later barrier looks at the plan that came out. That plan is proposed if, by the figures of then
// and by those of every report since,
//   (charged period now - then) * micro-batches left > seconds of moving
// and the charge (ChargedPeriod) falls by a minimal share: a short load on a device moves nothing, and the reports
// that want a change want the same one.
//
// A policy that is built as published (PolicyRow::next) has its plan as soon as it differs.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/live/plan_search.h"
#include "central/planning/measured/device_corrections.h"
#include "central/planning/plan_source.h"
#include "central/planning/planner.h"
#include "proto/base/plan/link_rate.h"

namespace runnel {

struct ReplannerOptions {
  bool layers_move = true;                     // false: only codecs may change
  bool codecs_change = false;                  // codecs follow the rates of links
  bool takes_next = false;                     // PolicyRow::next: nothing below is weighed
  std::vector<int64_t> layer_state_bytes;      // parameters, momentum, statistics, by layer
  LinkRate given_rate = LinkRate::Mbps(1000);  // rate of links that no stage has measured
  int64_t micro_batches_a_step = 1;
  int64_t stop_step = 0;
  double fixed_move_seconds = 1;  // seconds of a move without its bytes
  double min_gain = 0.1;          // share of the charged period that a new plan must save
  int confirmations = 2;          // reports in a row that must want a change
  // largest share of the time left that measuring a device again may take
  double max_measure_share = 0.1;
  // An idle device whose ratio is within this of 1 counts as its profile says.
  double idle_ratio_off = 0.05;
  // Largest share of the time left that codecs with a smaller error may cost without saving time.
  double max_codecs_share = 0.01;
  // Figures that differ by at most this much from those of the last search: it would find nothing
  // else. By more than usable_share from those of an answer: it is about another cluster, and a
  // new search begins. On a device whose figures never settle every answer comes too late, so the
  // answers count that pay by the figures of the report that sees them: after `confirmations` such
  // reports in a row the plan is taken.
  double same_share = 0.03;
  double usable_share = 0.25;
};

class Replanner {
 public:
  // `plans` is borrowed, also by the search: it outlives both.
  Replanner(const PlanSource* plans, ReplannerOptions options, const CorrectionOptions& corrections,
            std::unique_ptr<PlanSearch> search)
      : plans_(plans),
        options_(std::move(options)),
        corrections_(corrections),
        search_(std::move(search)) {}

  // Devices to measure again before ProposeChange is asked at the same barrier. The rates and
  // shares of `cluster` count, its times do not.
  std::vector<int> DevicesToMeasure(const BarrierReport& report, const MeasuredCluster& cluster);
  // None if nothing was profiled, nothing new is known, or the current plan is good enough.
  std::optional<ChangePlan> ProposeChange(const BarrierReport& report,
                                          const MeasuredCluster& cluster);

  // As ProposeChange, but at once, on the calling thread, and for any gain: an operator wants it.
  std::optional<ChangePlan> PlanNow(const BarrierReport& report, const MeasuredCluster& cluster);

  // Devices that get stages in `next`, have none in the current plan, and differed from their
  // profile when they had one. They are measured before layers move there, unless that takes too
  // much of the time left.
  std::vector<int> IdleDevicesToMeasure(const BarrierReport& report, const MeasuredCluster& cluster,
                                        const Plan& next) const;
  // Whether the plan that ProposeChange gave at this barrier still pays now that `remeasured` and
  // links to idle devices are measured again; with the figures of now.
  std::optional<ChangePlan> Reconsider(const BarrierReport& report, const MeasuredCluster& cluster,
                                       const Plan& next, const std::vector<int>& remeasured);

  const DeviceCorrections& corrections() const { return corrections_; }
  const PlanSearches& searches() const { return searches_; }

 private:
  // The question of a search; it owns all its data.
  struct Question {
    RatedPlan now;
    MeasuredCluster cluster;  // cluster with corrected times
    std::vector<int> devices;
    double micro_batches_left = 0;
    std::vector<bool> locals;  // by device number: on central's host
    LinkRate slowest;          // slowest rate of the current plan's links
  };
  // A plan that would be better, and how many reports in a row wanted it.
  struct Candidate {
    RatedPlan plan;
    MeasuredCluster cluster;  // figures that it was made from, of these devices
    std::vector<int> devices;
    int reports = 0;
  };
  // Gain of a change from `now` to `next`.
  struct Gain {
    double saved_seconds = 0;  // until the end, by what plans are charged
    double move_seconds = 0;
    bool is_better = false;
    bool loses_less = false;

    bool is_worth_it() const { return is_better || loses_less; }
  };

  static absl::StatusOr<RatedPlan> Rate(const PlanSource& plans, absl::StatusOr<Plan> plan,
                                        const MeasuredCluster& cluster);
  static absl::StatusOr<RatedPlan> FindBetterPlan(const PlanSource& plans,
                                                  const ReplannerOptions& options,
                                                  const Question& question);
  static bool LosesLess(const ReplannerOptions& options, const RatedPlan& now,
                        const RatedPlan& next);
  static LinkRate PathRate(const ReplannerOptions& options, const Question& question, int device,
                           bool is_up);
  static double MoveSeconds(const ReplannerOptions& options, const Question& question,
                            const Plan& next);
  Question Ask(const BarrierReport& report, RatedPlan now, MeasuredCluster corrected) const;
  Gain GainOf(const Question& question, const RatedPlan& next) const;
  std::optional<ChangePlan> TakeNext(const BarrierReport& report,
                                     const MeasuredCluster& corrected) const;
  double SecondsLeft(const BarrierReport& report, const MeasuredCluster& cluster) const;
  ChangePlan ChangeTo(RatedPlan next, const Gain& gain, const BarrierReport& report,
                      const Question& question) const;
  void TakeAnswer();
  // The candidate is wanted by this report too, or is none any more.
  std::optional<ChangePlan> Confirm(const BarrierReport& report, const Question& question);
  void SearchIfNeeded(Question question);
  int64_t MicroBatchesLeft(const BarrierReport& report) const;

  const PlanSource* plans_;
  ReplannerOptions options_;
  DeviceCorrections corrections_;
  Generation generation_;          // generation of the last report's plan
  std::optional<Question> asked_;  // question of the last search under this plan
  std::optional<Candidate> candidate_;
  int unsettled_reports_ = 0;  // in a row: the answer came too late, and would have paid
  PlanSearches searches_;
  std::unique_ptr<PlanSearch> search_;  // last: it reads what stands above
};

}  // namespace runnel
