#pragma once

// Settings as JSON, by their tables: those of a run under their flags' names, those of training
// under their own. For .cc files of central only.

#include "absl/status/statusor.h"
#include "central/settings/run_settings.h"
#include "proto/base/training/training.h"
#include "proto/json/json_fields.h"

namespace runnel {

Json RunSettingsToJson(const RunSettings& settings);
// A key that is missing has the default; that of a training setting which came with a later release
// has the setting's initial value, with which the recorded run trained. InvalidArgument names the
// key that is unknown or of the wrong type.
absl::StatusOr<RunSettings> RunSettingsFromJson(const Json& json);

Json TrainingToJson(const TrainingSettings& settings);
// InvalidArgument names the key that is unknown, missing, of the wrong type or out of range.
absl::StatusOr<TrainingSettings> TrainingFromJson(const Json& json);

}  // namespace runnel
