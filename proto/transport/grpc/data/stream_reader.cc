#include "proto/transport/grpc/data/stream_reader.h"

namespace runnel {

absl::StatusOr<FrameAssembler::Progress> StreamReader::Take() {
  slices_.clear();
  pieces_.clear();
  const bool readable = buffer_.Dump(&slices_).ok();
  buffer_.Clear();
  if (!readable) return absl::DataLossError("frame: a message that cannot be read");
  for (const grpc::Slice& slice : slices_) {
    pieces_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  in_pieces_ = assembler_.mid_frame();
  const absl::StatusOr<FrameAssembler::Progress> progress = assembler_.Add(pieces_);
  if (!progress.ok()) return progress;
  if (*progress == FrameAssembler::Progress::kPartial) Arriving(!in_pieces_);
  if (*progress == FrameAssembler::Progress::kFrame && in_pieces_) Arriving(false);
  return progress;
}

Frame StreamReader::TakeFrame() {
  Frame frame = assembler_.TakeFrame();
  if (in_pieces_) frame.arrival = arrival_.Finish();
  return frame;
}

void StreamReader::Arriving(bool first) {
  const int64_t now_ns = clock_->NowNanos();
  if (first) return arrival_.Begin(now_ns);
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> piece : pieces_) {
    bytes += static_cast<int64_t>(piece.size());
  }
  arrival_.Add(now_ns, bytes);
}

}  // namespace runnel
