#pragma once

// Asks the workers of a plan's stages what they would run on which processor. Pure: events in,
// effects out.

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/plan/plan.h"
#include "proto/base/plan/program_listing.h"
#include "proto/base/training/training.h"

namespace runnel {

class ProgramLists {
 public:
  // Asks each stage's worker. common: model, recipe, what computes, micro-batch.
  void Begin(const Plan& plan, const ProfileRequest& common, const TrainingSettings& training,
             const Roster& roster, RunEffects& effects);
  // True: that was the last one. False: others are to come, or nobody asked. Errors: a worker
  // cannot, with its name and reason.
  absl::StatusOr<bool> Add(int device, const ProgramReport& report, const Roster& roster);

  // Listings by stage; complete when Add was true.
  const std::vector<ProgramListing>& listings() const { return listings_; }

 private:
  Plan plan_;
  std::vector<ProgramListing> listings_;
  std::set<size_t> awaited_;  // stages
};

}  // namespace runnel
