#include "worker/stage/plain_loop.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<LossResult> TrainMicroBatch(StageCompute& whole_model, const MicroBatch& place,
                                           Payload input, Payload labels, const Clock* clock) {
  RUNNEL_ASSIGN_OR_RETURN(const StageCompute::Output output,
                          whole_model.Forward(place, std::move(input), std::move(labels)));
  const int64_t forward_ended_ns = clock == nullptr ? 0 : clock->NowNanos();
  RUNNEL_RETURN_IF_ERROR(whole_model.InputGradient(place, Payload()).status());
  RUNNEL_RETURN_IF_ERROR(whole_model.WeightGradient(place, place.last_in_step));
  return LossResult{output.loss_sum, output.correct, {}, forward_ended_ns};
}

}  // namespace runnel
