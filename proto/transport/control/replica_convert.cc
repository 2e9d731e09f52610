#include "proto/transport/control/replica_convert.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {

proto::ReplicaId ToProto(const ReplicaId& from) {
  proto::ReplicaId to;
  to.set_generation(from.generation.value());
  to.set_sequence(from.sequence.value());
  return to;
}

absl::StatusOr<ReplicaId> FromProto(absl::string_view field, const proto::ReplicaId& from) {
  ReplicaId id;
  RUNNEL_ASSIGN_OR_RETURN(id.generation,
                          ToGeneration(absl::StrCat(field, ".generation"), from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(id.sequence,
                          ToSequence(absl::StrCat(field, ".sequence"), from.sequence()));
  return id;
}

}  // namespace runnel
