#include "proto/transport/link/frame_assembler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Pieces = absl::Span<const absl::Span<const std::byte>>;

// The pieces' first bytes, as many as there are room for.
void CopyPrefix(Pieces pieces, absl::Span<std::byte> to) {
  for (absl::Span<const std::byte> piece : pieces) {
    const size_t bytes = std::min(piece.size(), to.size());
    std::copy_n(piece.begin(), bytes, to.begin());
    to.remove_prefix(bytes);
    if (to.empty()) return;
  }
}

}  // namespace

absl::StatusOr<FrameAssembler::Progress> FrameAssembler::Add(Pieces pieces) {
  if (failed_) return absl::InvalidArgumentError("frame: after an error");
  uint64_t size = 0;
  for (absl::Span<const std::byte> piece : pieces) size += piece.size();
  absl::StatusOr<Progress> progress = AddChecked(pieces, size);
  failed_ = !progress.ok();
  if (failed_) frame_ = Frame();
  return progress;
}

absl::StatusOr<FrameAssembler::Progress> FrameAssembler::AddChecked(Pieces pieces, uint64_t size) {
  if (goodbye_) return absl::InvalidArgumentError("frame: a message after the goodbye");
  if (size == 0) {
    if (in_frame_) {
      return absl::DataLossError(absl::StrCat("frame: the stream ends after ", received_bytes_,
                                              " of ", frame_.header.payload_bytes,
                                              " payload bytes"));
    }
    goodbye_ = true;
    return Progress::kGoodbye;
  }
  const bool first = !in_frame_;
  if (first) RUNNEL_RETURN_IF_ERROR(BeginFrame(pieces, size));
  const uint64_t skip = first ? kFrameHeaderBytes : 0;
  const uint64_t left = frame_.header.payload_bytes - received_bytes_;
  if (size - skip > std::min(left, uint64_t{kMaxChunkBytes})) {
    return absl::InvalidArgumentError(absl::StrCat("frame: a message with ", size - skip,
                                                   " payload bytes where ", left, " are missing"));
  }
  if (first) {
    // Memory only after everything that can be checked has been.
    try {
      frame_.payload = pool_->Allocate(frame_.header.payload_bytes);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("out of memory for a frame of ", frame_.header.payload_bytes, " bytes"));
    }
    in_frame_ = true;
  }
  Append(pieces, skip);
  if (received_bytes_ < frame_.header.payload_bytes) return Progress::kPartial;
  if (crc_ != frame_.header.payload_crc) {
    return absl::DataLossError("frame payload: CRC does not fit the bytes");
  }
  in_frame_ = false;
  return Progress::kFrame;
}

absl::Status FrameAssembler::BeginFrame(Pieces pieces, uint64_t size) {
  if (size < kFrameHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: a first message of ", size, " bytes is too short for a header"));
  }
  std::array<std::byte, kFrameHeaderBytes> bytes;
  CopyPrefix(pieces, absl::MakeSpan(bytes));
  frame_ = Frame();
  received_bytes_ = 0;
  crc_ = 0;
  RUNNEL_ASSIGN_OR_RETURN(frame_.header, DecodeHeader(bytes));
  return on_header_(frame_.header);
}

void FrameAssembler::Append(Pieces pieces, uint64_t skip) {
  for (absl::Span<const std::byte> piece : pieces) {
    const uint64_t skipped = std::min<uint64_t>(skip, piece.size());
    skip -= skipped;
    piece.remove_prefix(skipped);
    if (piece.empty()) continue;
    std::memcpy(frame_.payload.mutable_bytes().data() + received_bytes_, piece.data(),
                piece.size());
    // Now, while the bytes are in the cache.
    crc_ = Crc32(crc_, piece);
    received_bytes_ += piece.size();
  }
}

}  // namespace runnel
