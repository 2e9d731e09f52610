#pragma once

// ReplicaId (control.h) as a protobuf message and back. Pure functions, any thread.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/control.pb.h"
#include "proto/transport/control/control.h"

namespace runnel {

proto::ReplicaId ToProto(const ReplicaId& from);
// `field` is where it stands. InvalidArgument: a number is out of its range.
absl::StatusOr<ReplicaId> FromProto(absl::string_view field, const proto::ReplicaId& from);

}  // namespace runnel
