#pragma once

// `eval --quantized`: the stages of a pipeline evaluate, one or several, as those of a training
// would, and nothing is trained.

#include <string>

#include "absl/status/statusor.h"
#include "central/records/quantized_model.h"
#include "central/run/commands/commands.h"
#include "central/run/run_setup.h"

namespace runnel {

// The settings of such a run: `settings` of the trained model, with what `pipeline` says of who
// takes part, links, plan, backend and --eval-batch-size. sample: that the model takes.
RunSettings ForStages(RunSettings settings, const RunSettings& pipeline, const Shape& sample);

// run: of those settings. Errors: as CutAtLayers, naming `where`; as UseIntegers; as Trainer::Run.
// A worker that is lost is done without, like in training.
absl::StatusOr<TrainingOutcome> EvaluateByStages(const QuantizedModel& model,
                                                 const std::string& where, LoadedRun run,
                                                 const CommandContext& context);

}  // namespace runnel
