#include "worker/frame_limits.h"

#include <algorithm>

namespace runnel {

std::map<std::pair<FrameKind, uint32_t>, uint64_t> AllowedPayloads(const StageFrameSizes& sizes) {
  std::map<std::pair<FrameKind, uint32_t>, uint64_t> allowed;
  if (sizes.replica_piece > 0)
    allowed[{FrameKind::kReplica, 0}] = static_cast<uint64_t>(sizes.replica_piece);
  if (sizes.clips) {
    if (!sizes.first_stage) allowed[{FrameKind::kGradientNorm, 0}] = sizeof(double);
    if (sizes.labels_per_sample == 0) allowed[{FrameKind::kGradientSquares, 0}] = sizeof(double);
  }
  for (const StageFrameSizes::BySamples& size : sizes.by_samples) {
    const auto allow = [&allowed, &size](FrameKind kind, int64_t bytes) {
      allowed[{kind, static_cast<uint32_t>(size.samples)}] = static_cast<uint64_t>(bytes);
    };
    if (sizes.first_stage) {
      allow(FrameKind::kInput, size.input);
      allow(FrameKind::kEvalInput, size.input);
      allow(FrameKind::kDryInput, size.input);
    } else {
      allow(FrameKind::kActivation, size.activation);
      allow(FrameKind::kEvalActivation, size.input);
      allow(FrameKind::kDryActivation, std::max(size.activation, size.raw_activation));
    }
    if (sizes.labels_per_sample > 0) {
      const int64_t labels = size.samples * sizes.labels_per_sample;
      allow(FrameKind::kLabels, labels * static_cast<int64_t>(sizeof(int32_t)));
      allow(FrameKind::kEvalLabels, labels * static_cast<int64_t>(sizeof(int32_t)));
      allow(FrameKind::kDryLabels, labels * static_cast<int64_t>(sizeof(int32_t)));
    } else {
      allow(FrameKind::kGradient, size.gradient);
      allow(FrameKind::kDryGradient, std::max(size.gradient, size.raw_gradient));
    }
  }
  return allowed;
}

}  // namespace runnel
