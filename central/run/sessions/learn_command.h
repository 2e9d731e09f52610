#pragma once

// `learn`: a model that is trained goes on with new classes, from few images and latents of the old
// ones (Pellegrini et al., Latent Replay for Real-Time Continual Learning, 2020). A session is a run
// of its own: the layers behind the cut are its model, latents its data set. So pipelines, recovery,
// check-points and the contract of determinism are those of any run.

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "central/run/commands/commands.h"
#include "central/settings/run_settings.h"

namespace runnel {

struct LearnArguments {
  std::string from;              // folder of check-points
  std::string at;                // ParseLatentLayer; empty: the table is printed
  std::string classes;           // that are new (ParseClasses); empty: none, with samples 0
  int64_t samples = 100;         // new images of each class
  int64_t replay = 500;          // latents in the memory; 0: none
  std::string latents = "int8";  // LatentTypes
  int64_t sessions = 1;          // that share the classes, in ascending order
  int64_t memory_mb = 0;         // most that the memory may take; 0: a quarter of what is free
  bool lists_layers = false;     // the table is all that is wanted
  RunSettings run;               // of the flags that a session's run takes
  std::set<std::string> given;   // by name
};

// Runs the sessions that are not done yet. Errors are one line, as of all commands.
absl::Status LearnCommand(const LearnArguments& arguments, const CommandContext& context);

}  // namespace runnel
