#pragma once

// One session: new images through the front, a run of the layers behind it, what came of it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/data/latents/latent_set.h"
#include "central/records/checkpoint.h"
#include "central/run/sessions/front.h"
#include "central/run/sessions/learn_command.h"
#include "central/run/sessions/learn_plan.h"
#include "proto/json/json_fields.h"

namespace runnel {

// What goes from session to session.
struct Learner {
  Checkpoint whole;
  std::vector<bool> seen;  // by class
  std::optional<LatentSet> memory;
  std::vector<ClassTally> tallies;  // by class, of `whole` on the test images; empty: not known
  std::vector<double> best;         // by class, accuracy of any session before
};

// Evaluates, runs and evaluates; what was done already in its folder is read from there. number: of
// the session, from 1 on, over all calls of learn. Returns its part of the summary.
absl::StatusOr<Json> RunSession(const LearnPlan& plan, const LearnArguments& arguments,
                                const std::vector<bool>& new_classes, int64_t number,
                                Learner& learner, const CommandContext& context);

// Of the classes' samples in all; 0 without any.
double AccuracyOf(const std::vector<ClassTally>& tallies, const std::vector<bool>& classes);

}  // namespace runnel
