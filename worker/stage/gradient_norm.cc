#include "worker/stage/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr int kLanes = 8;

Payload PayloadOf(double square) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&square), sizeof(square)));
}

}  // namespace

double SquareSum(const float* values, int64_t elements) {
  double lanes[kLanes] = {};
  const int64_t whole = elements / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int k = 0; k < kLanes; ++k)
      lanes[k] += static_cast<double>(values[i + k]) * static_cast<double>(values[i + k]);
  }
  for (int64_t i = whole; i < elements; ++i)
    lanes[i - whole] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double AddSquares(double sum, absl::Span<const double> by_layer) {
  for (auto square = by_layer.rbegin(); square != by_layer.rend(); ++square) sum += *square;
  return sum;
}

double ClipFactor(double clip_norm, double square, double loss_scale) {
  const double norm = std::sqrt(square) / loss_scale;
  if (!std::isfinite(norm)) return 1;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

absl::Status GradientNorm::Arrived(FrameKind kind, const MicroBatch& place, int64_t version,
                                   const Payload& payload, std::vector<Effect>& effects) {
  const bool is_whole = kind == FrameKind::kGradientNorm;
  const bool fits = is_whole ? sent_ && !steps_ : !below_.has_value() && !sent_;
  double square = 0;
  if (!fits || !place.last_in_step || place.step != version || payload.size() != sizeof(square)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gradient's norm of kind ", static_cast<int>(kind), ", micro-batch ",
                     place.sequence.value(), ", is out of order, or no number"));
  }
  std::memcpy(&square, payload.bytes().data(), sizeof(square));
  if (square < 0) return absl::InvalidArgumentError("a gradient's norm is negative");
  effects.push_back(
      AcknowledgeEffect{is_whole ? Peer::kUpstream : Peer::kDownstream, kind, place.sequence});
  if (is_whole) {
    Know(square, effects);
  } else {
    below_ = square;
    if (place_.has_value()) AddOwn(effects);
  }
  return absl::OkStatus();
}

void GradientNorm::Begin(const MicroBatch& place, std::vector<double> squares,
                         std::vector<Effect>& effects) {
  place_ = place;
  squares_ = std::move(squares);
  if (ways_.has_loss) below_ = 0;
  if (below_.has_value()) AddOwn(effects);
}

void GradientNorm::AddOwn(std::vector<Effect>& effects) {
  const double square = AddSquares(*below_, squares_);
  if (!ways_.sends_up) return Know(square, effects);
  sent_ = true;
  effects.push_back(SendEffect{Peer::kUpstream, FrameKind::kGradientSquares, place_->sequence,
                               /*samples=*/0, PayloadOf(square)});
}

void GradientNorm::Know(double square, std::vector<Effect>& effects) {
  if (!ways_.has_loss) {
    effects.push_back(SendEffect{Peer::kDownstream, FrameKind::kGradientNorm, place_->sequence,
                                 /*samples=*/0, PayloadOf(square)});
  }
  steps_ = true;
  effects.push_back(StepEffect{*place_, square});
}

void GradientNorm::End() {
  place_.reset();
  below_.reset();
  sent_ = steps_ = false;
}

}  // namespace runnel
