#pragma once

// Control messages (control.h) as protobuf messages (control.proto) and back. Messages come from
// outside: everything is checked, each error is InvalidArgument and names the field. A Part is not
// a message (control_parts.h joins them first). Pure functions, any thread.

#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "proto/transport/control/control.h"

namespace runnel {

// Bytes that are not UTF-8 become '?'. Bytes of a state are moved, not copied.
proto::FromWorker ToProto(WorkerMessage message);
proto::FromCentral ToProto(CentralMessage message);

// A Hello of another protocol version passes with any contents, so that central can refuse it.
absl::StatusOr<WorkerMessage> FromProto(proto::FromWorker message);
// PrepareStage: model, plan (CheckPlan), stage and settings fit together; CheckState is left to
// who uses the state.
absl::StatusOr<CentralMessage> FromProto(proto::FromCentral message);

}  // namespace runnel
