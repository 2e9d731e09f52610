#pragma once

// StageFailed (control.h) as a protobuf message and back. Pure functions, any thread.

#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "proto/transport/control/control.h"

namespace runnel {

proto::StageFailed ToProto(const StageFailed& from);
// InvalidArgument: a field is out of its range.
absl::StatusOr<StageFailed> StageFailedFromProto(const proto::StageFailed& from);

}  // namespace runnel
