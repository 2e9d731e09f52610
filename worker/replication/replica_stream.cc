#include "worker/replication/replica_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/replication/changed_blocks.h"

namespace runnel {
namespace {

// What is behind the tensors: how many bytes follow; the checksums, one for each layer and one for
// the encoders; then boundary, direction, codec and state of each encoder. Numbers are little-endian,
// of 4 bytes; a text is its length and its bytes. A state is kWhole and a text, or kChanged, its length
// and as a text the blocks that are others than in the base.
constexpr size_t kNumberBytes = 4;
constexpr size_t kWhole = 0, kChanged = 1;

void PutNumber(size_t number, std::string& to) {
  for (size_t i = 0; i < kNumberBytes; ++i)
    to.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

void PutText(const std::string& text, std::string& to) {
  PutNumber(text.size(), to);
  to += text;
}

size_t NumberAt(const char* at) {
  size_t number = 0;
  for (size_t i = kNumberBytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(at[i]);
  return number;
}

// The state of this boundary's encoder in the copy; nullptr: it has none of this codec.
const std::string* StateIn(const SummedState* copy, const EncoderState& encoder) {
  if (copy == nullptr) return nullptr;
  for (const EncoderState& other : copy->state.encoders) {
    if (other.boundary == encoder.boundary && other.direction == encoder.direction &&
        other.codec == encoder.codec) {
      return &other.state;
    }
  }
  return nullptr;
}

void PutState(const EncoderState& encoder, const SummedState* base, std::string& to) {
  if (const std::string* was = StateIn(base, encoder); was != nullptr) {
    const std::string changes = ChangedBlocks(*was, encoder.state);
    if (changes.size() + kNumberBytes < encoder.state.size()) {
      PutNumber(kChanged, to);
      PutNumber(encoder.state.size(), to);
      return PutText(changes, to);
    }
  }
  PutNumber(kWhole, to);
  PutText(encoder.state, to);
}

std::string EndToBytes(const SummedState& copy, const SummedState* base) {
  std::string entries;
  for (const uint32_t sum : copy.sums.layers) PutNumber(sum, entries);
  PutNumber(copy.sums.encoders, entries);
  for (const EncoderState& encoder : copy.state.encoders) {
    PutNumber(static_cast<size_t>(encoder.boundary), entries);
    PutNumber(encoder.direction == Direction::kForward ? 0 : 1, entries);
    PutText(encoder.codec, entries);
    PutState(encoder, base, entries);
  }
  std::string bytes;
  PutNumber(entries.size(), bytes);
  return bytes + entries;
}

absl::Status BadEncoders(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("replica: encoders: ", why));
}

// False: they end within it.
bool TakeNumber(absl::string_view& from, size_t& number) {
  if (from.size() < kNumberBytes) return false;
  number = NumberAt(from.data());
  from.remove_prefix(kNumberBytes);
  return true;
}

bool TakeText(absl::string_view& from, std::string& text) {
  size_t size = 0;
  if (!TakeNumber(from, size) || from.size() < size) return false;
  text = std::string(from.substr(0, size));
  from.remove_prefix(size);
  return true;
}

// `sums` has as many layers as the state.
absl::Status TakeSums(absl::string_view& from, StateSums& sums) {
  size_t sum = 0;
  for (uint32_t& layer : sums.layers) {
    if (!TakeNumber(from, sum)) return BadEncoders("the bytes end within the checksums");
    layer = static_cast<uint32_t>(sum);
  }
  if (!TakeNumber(from, sum)) return BadEncoders("the bytes end within the checksums");
  sums.encoders = static_cast<uint32_t>(sum);
  return absl::OkStatus();
}

// left: bytes that states may have still.
absl::Status TakeState(absl::string_view& from, const SummedState* base, size_t& left,
                       EncoderState& encoder) {
  constexpr absl::string_view kEnd = "the bytes end within one";
  size_t form = 0, size = 0;
  std::string changes;
  if (!TakeNumber(from, form)) return BadEncoders(kEnd);
  if (form == kWhole) {
    if (!TakeText(from, encoder.state)) return BadEncoders(kEnd);
    size = encoder.state.size();
  } else if (form != kChanged || !TakeNumber(from, size) || !TakeText(from, changes)) {
    return BadEncoders(form == kChanged ? kEnd : absl::StrCat("a state of form ", form));
  }
  if (size > left) return BadEncoders("their states are too large");
  left -= size;
  if (form == kWhole) return absl::OkStatus();
  const std::string* was = StateIn(base, encoder);
  if (was == nullptr) return BadEncoders("changes to a state that is not here");
  absl::StatusOr<std::string> state = WithChangedBlocks(*was, size, changes);
  if (!state.ok()) return BadEncoders(state.status().message());
  encoder.state = *std::move(state);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<EncoderState>> EncodersFromBytes(absl::string_view from,
                                                            const SummedState* base, size_t left) {
  std::vector<EncoderState> encoders;
  while (!from.empty()) {
    EncoderState encoder;
    size_t boundary = 0, direction = 0;
    if (!TakeNumber(from, boundary) || !TakeNumber(from, direction) ||
        !TakeText(from, encoder.codec)) {
      return BadEncoders("the bytes end within one");
    }
    if (boundary >= static_cast<size_t>(kMaxLayers) || direction > 1)
      return BadEncoders(absl::StrCat("boundary ", boundary, ", direction ", direction));
    encoder.boundary = static_cast<int>(boundary);
    encoder.direction = direction == 0 ? Direction::kForward : Direction::kBackward;
    RUNNEL_RETURN_IF_ERROR(TakeState(from, base, left, encoder));
    encoders.push_back(std::move(encoder));
  }
  return encoders;
}

// Visits the parts of a state in the order of the stream.
template <typename State, typename Use>
void ForEachTensor(State& state, Use use) {
  for (auto& layer : state.layers) {
    for (auto& tensor : layer.tensors) use(tensor);
    for (auto& tensor : layer.slots) use(tensor);
  }
}

}  // namespace

ReplicaWriter::ReplicaWriter(std::shared_ptr<const SummedState> copy, const SummedState* base)
    : copy_(std::move(copy)), end_(EndToBytes(*copy_, base)) {
  ForEachTensor(copy_->state,
                [this](const TensorData& tensor) { pieces_.push_back(&tensor.bytes); });
  pieces_.push_back(&end_);
  for (const std::string* piece : pieces_) left_ += static_cast<int64_t>(piece->size());
}

void ReplicaWriter::Read(absl::Span<std::byte> to) {
  left_ -= static_cast<int64_t>(to.size());
  while (!to.empty()) {
    const std::string& piece = *pieces_[piece_];
    const size_t bytes = std::min(piece.size() - offset_, to.size());
    std::memcpy(to.data(), piece.data() + offset_, bytes);
    to.remove_prefix(bytes);
    offset_ += bytes;
    if (offset_ < piece.size()) continue;
    ++piece_;
    offset_ = 0;
  }
}

absl::StatusOr<ReplicaReader> ReplicaReader::Create(const ModelSpec& model, int first_layer,
                                                    int last_layer, const NumberFormat& format,
                                                    int64_t max_encoder_bytes,
                                                    std::shared_ptr<const SummedState> base) {
  RUNNEL_ASSIGN_OR_RETURN(ModelState zeros, ZeroState(model, first_layer, last_layer, format));
  return ReplicaReader(std::move(zeros), max_encoder_bytes, std::move(base));
}

ReplicaReader::ReplicaReader(ModelState zeros, int64_t max_encoder_bytes,
                             std::shared_ptr<const SummedState> base)
    : state_(std::move(zeros)), base_(std::move(base)), max_encoder_bytes_(max_encoder_bytes) {
  sums_.layers.resize(state_.layers.size());
  ForEachTensor(state_, [this](const TensorData& tensor) {
    sizes_.push_back(static_cast<size_t>(tensor.shape.elements()) * SizeOf(tensor.dtype));
  });
}

absl::Status ReplicaReader::Add(absl::Span<const std::byte> bytes) {
  size_t tensor = 0;
  ForEachTensor(state_, [&](TensorData& one) {
    if (tensor++ != tensor_ || bytes.empty()) return;
    const size_t size = sizes_[tensor_];
    if (one.bytes.empty()) one.bytes.reserve(size);
    const size_t taken = std::min(size - one.bytes.size(), bytes.size());
    one.bytes.append(reinterpret_cast<const char*>(bytes.data()), taken);
    bytes.remove_prefix(taken);
    if (one.bytes.size() == size) ++tensor_;
  });
  return bytes.empty() ? absl::OkStatus() : AddEnd(bytes);
}

absl::Status ReplicaReader::AddEnd(absl::Span<const std::byte> bytes) {
  if (whole_) return absl::InvalidArgumentError("replica: bytes behind its end");
  const size_t most_bytes = static_cast<size_t>(max_encoder_bytes_) +
                            kNumberBytes * (sums_.layers.size() + 2);  // length, encoders' sum
  if (end_.size() + bytes.size() > most_bytes)
    return BadEncoders(absl::StrCat("more than ", max_encoder_bytes_, " bytes"));
  end_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (end_.size() < kNumberBytes) return absl::OkStatus();
  const size_t size = NumberAt(end_.data());
  if (end_.size() - kNumberBytes > size) return BadEncoders("bytes behind their end");
  if (end_.size() - kNumberBytes < size) return absl::OkStatus();
  whole_ = true;
  absl::string_view entries = absl::string_view(end_).substr(kNumberBytes);
  RUNNEL_RETURN_IF_ERROR(TakeSums(entries, sums_));
  RUNNEL_ASSIGN_OR_RETURN(
      state_.encoders,
      EncodersFromBytes(entries, base_.get(), static_cast<size_t>(max_encoder_bytes_)));
  end_ = std::string();
  base_ = nullptr;
  return absl::OkStatus();
}

}  // namespace runnel
