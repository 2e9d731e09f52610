#include "worker/host/stage_lanes.h"

namespace runnel {

StageLanes::StageLanes(EventLoop* loop, SpanLog* spans, const MakeLaneFn& make, bool codes_apart)
    : loop_(loop),
      spans_(spans),
      alive_(std::make_shared<bool>(true)),
      compute_(MakeLane(make, LaneKind::kCompute)),
      codec_(codes_apart ? MakeLane(make, LaneKind::kCodec) : nullptr) {}

StageLanes::~StageLanes() {
  if (alive_ != nullptr) Detach();
}

void StageLanes::Detach() { *std::exchange(alive_, nullptr) = false; }

}  // namespace runnel
