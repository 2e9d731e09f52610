#pragma once

// The search for a better plan, which takes seconds on a small device and must not hold the
// pipeline up: it is asked at a barrier and runs while the stages train; a later barrier looks at
// the answer.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/plan/plan.h"

namespace runnel {

struct PlanRating {
  double period_seconds = 0;   // for a micro-batch
  double charged_seconds = 0;  // ChargedPeriod: plans are compared by it
  double noise = 0;            // AddedNoise of its codecs
  std::vector<double> noise_by_link = {};
  double staleness = 0;  // StalenessCharge
};

struct RatedPlan {
  Plan plan;
  PlanRating rating;
};

struct SearchAnswer {
  absl::StatusOr<RatedPlan> best;
  double processor_seconds = 0;  // processor time of the search
};

// Runs one search at a time. One thread calls it.
class PlanSearch {
 public:
  using SearchFn = std::function<absl::StatusOr<RatedPlan>()>;

  virtual ~PlanSearch() = default;
  // Begins a search; only when none is under way. `search` owns all data that it reads, except
  // objects that outlive this one.
  virtual void Begin(SearchFn search) = 0;
  // A search has begun and its answer was not taken.
  virtual bool under_way() const = 0;
  // The answer; none while nothing was begun or is done.
  virtual std::optional<SearchAnswer> TakeAnswer() = 0;
};

// Searches on a thread of its own, which gives way to everything else on this host. Destroying it
// waits for the search that is under way.
std::unique_ptr<PlanSearch> MakeBackgroundSearch();

// Within Begin: for tests, where answers must not depend on time.
std::unique_ptr<PlanSearch> MakeImmediateSearch();

}  // namespace runnel
