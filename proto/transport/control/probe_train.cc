#include "proto/transport/control/probe_train.h"

#include <algorithm>

namespace runnel {
namespace {

constexpr int64_t kProbePieces = 16;

}  // namespace

std::vector<ProbePiece> MakeProbeTrain(int64_t bytes, int64_t answer_bytes) {
  ProbePiece piece;
  piece.count = kProbePieces;
  piece.answer_bytes = answer_bytes;
  piece.padding.assign(
      static_cast<size_t>(std::clamp(bytes / kProbePieces, int64_t{1}, kMaxProbePieceBytes)), '\0');
  std::vector<ProbePiece> train(kProbePieces, piece);
  for (int64_t i = 0; i < kProbePieces; ++i) train[static_cast<size_t>(i)].index = i;
  return train;
}

bool ProbeReceiver::Add(const ProbePiece& piece) {
  const auto size = static_cast<int64_t>(piece.padding.size());
  if (piece.index == 0) {
    recorder_.Begin(piece.arrived_ns);
    next_ = 0;
  } else if (piece.index == next_) {
    recorder_.Add(piece.arrived_ns, size);
  } else {
    next_ = piece.count;  // nothing more of this train counts
    return false;
  }
  if (++next_ < piece.count) return false;
  const FrameArrival arrival = recorder_.Finish();
  BandwidthMeter meter;
  meter.Add(arrival);
  measured_ = {meter.bytes_per_second(), arrival.ns};
  return true;
}

}  // namespace runnel
