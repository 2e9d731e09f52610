#pragma once

// From what the user asked for to what sessions need, checked before anything is computed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/data/latents/latent_set.h"
#include "central/records/checkpoint.h"
#include "central/run/run_setup.h"
#include "central/run/sessions/learn_command.h"
#include "proto/base/log.h"

namespace runnel {

struct LearnPlan {
  Checkpoint whole;  // with which the first session begins
  LoadedRun run;     // of the whole model, and all classes of its data
  int layer = 0;     // the first one that trains
  ModelSpec tail;    // from this layer on
  const LatentType* type = nullptr;
  std::vector<bool> seen;                      // by class
  std::vector<std::vector<bool>> new_classes;  // by session
  std::optional<LatentSet> memory;             // of sessions before; none: it is filled
  int64_t sessions_before = 0;
  RunSettings tail_settings;  // but for model, data, start and folders
  std::string folder;         // for what comes out
};

// Errors name the flag and what would be right.
absl::StatusOr<LearnPlan> MakeLearnPlan(const LearnArguments& arguments, Logger* logger);

// ---- files of a folder that `learn` has written

std::string MemoryFile(const std::string& folder);
absl::Status WriteLatents(const LatentSet& set, const std::string& path);
absl::StatusOr<LatentSet> ReadLatents(const std::string& path);
// Where the memory was taken and of how many sessions it is, beside it.
absl::Status WriteLearned(const std::string& folder, int layer, int64_t sessions);

}  // namespace runnel
