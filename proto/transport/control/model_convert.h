#pragma once

// Model, plan, state and settings as protobuf messages (model.proto) and back: on the control
// stream and in files. Messages come from outside: everything is checked before it is used, each
// error is InvalidArgument and names the field, and no more is allocated than a small multiple of
// the message's size. Pure functions, any thread.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"
#include "proto/model.pb.h"

namespace runnel {

proto::Model ToProto(const ModelSpec& model);
// A model that passes InferShapes with batch 1. Labels and rates are in range.
absl::StatusOr<ModelSpec> FromProto(proto::Model message);

proto::Plan ToProto(const Plan& plan);
// Counts and ranges only; with the model at hand call CheckPlan.
absl::StatusOr<Plan> FromProto(proto::Plan message);

// Moves the bytes out of an rvalue. zeros: whether tensors of zeros go without their bytes.
proto::ModelState ToProto(ModelState state, ZeroTensors zeros = ZeroTensors::kWhole);
// Layers ascend, tensors have as many bytes as their shape says, or none where zeros may be left
// out; with the model at hand call CheckState.
absl::StatusOr<ModelState> FromProto(proto::ModelState message,
                                     ZeroTensors zeros = ZeroTensors::kWhole);

// Both convert by the table TrainingFields.
proto::TrainingSettings ToProto(const TrainingSettings& settings);
// Settings that pass MakeBatching. The error names a setting that is unknown, given twice, missing,
// of the wrong kind or out of its range: "training.momentum: must be below 1".
absl::StatusOr<TrainingSettings> FromProto(const proto::TrainingSettings& message);

proto::TrainingChange ToProto(const TrainingChange& change);
// Changes that pass CheckTrainingChanges; `field` is where they stand.
absl::StatusOr<std::vector<TrainingChange>> FromProto(
    const std::string& field, google::protobuf::RepeatedPtrField<proto::TrainingChange> messages);

}  // namespace runnel
