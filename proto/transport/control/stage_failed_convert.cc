#include "proto/transport/control/stage_failed_convert.h"

#include "proto/base/status_macros.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {

proto::StageFailed ToProto(const StageFailed& from) {
  proto::StageFailed to;
  to.set_generation(from.generation.value());
  to.set_reason(CleanUtf8(from.reason, kMaxReasonBytes));
  to.set_unfit(from.unfit);
  to.set_lost_backend(from.lost_backend);
  to.set_not_finite(static_cast<int32_t>(from.not_finite));
  return to;
}

absl::StatusOr<StageFailed> StageFailedFromProto(const proto::StageFailed& from) {
  StageFailed failed;
  RUNNEL_ASSIGN_OR_RETURN(failed.generation,
                          ToGeneration("stage_failed.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(failed.reason, ToReason("stage_failed.reason", from.reason()));
  failed.unfit = from.unfit();
  if (!from.lost_backend().empty())
    RUNNEL_RETURN_IF_ERROR(CheckName("stage_failed.lost_backend", from.lost_backend()));
  failed.lost_backend = from.lost_backend();
  RUNNEL_RETURN_IF_ERROR(CheckRange("stage_failed.not_finite", from.not_finite(), 0, 3));
  failed.not_finite = static_cast<NotFinite>(from.not_finite());
  return failed;
}

}  // namespace runnel
