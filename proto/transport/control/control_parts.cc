#include "proto/transport/control/control_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

// The state that a message carries; null: none, whatever its size.
proto::ModelState* StateOf(proto::FromCentral& message) {
  return message.has_prepare_stage() ? message.mutable_prepare_stage()->mutable_state() : nullptr;
}
proto::ModelState* StateOf(proto::FromWorker& message) {
  if (message.has_snapshot()) return message.mutable_snapshot()->mutable_state();
  if (message.has_layers_fetched()) return message.mutable_layers_fetched()->mutable_state();
  return nullptr;
}

// Goodbyes, which only workers send.
bool IsGoodbye(const proto::FromWorker& message) { return message.has_goodbye(); }
bool IsGoodbye(const proto::FromCentral&) { return false; }
bool IsHeartbeat(const proto::FromWorker& message) { return message.has_heartbeat(); }
bool IsHeartbeat(const proto::FromCentral&) { return false; }

// Largest wire message of a kind.
size_t MostBytes(const proto::FromWorker& message) {
  switch (message.message_case()) {
    case proto::FromWorker::kHello:
    case proto::FromWorker::kTelemetry:
      return size_t{4} << 10;
    case proto::FromWorker::kStageFailed:
    case proto::FromWorker::kProfileFailed:
      return size_t{8} << 10;
    case proto::FromWorker::kProfileReport:
      return size_t{64} << 10;
    // The matrix of kMostConfusedClasses squared counts, 8 bytes each at most.
    case proto::FromWorker::kEvaluationDone:
      return (size_t{128} << 10) + (size_t{1} << 10);
    case proto::FromWorker::kProgramReport:
    case proto::FromWorker::kTraceReport:
      return size_t{1} << 20;
    case proto::FromWorker::kProbePiece:
      return (size_t{64} << 10) + 64;
    case proto::FromWorker::kPart:
    case proto::FromWorker::kSnapshot:
    case proto::FromWorker::kLayersFetched:
      return kPartBytes + 64;
    default:
      return size_t{1} << 10;
  }
}

uint32_t CrcOf(const std::string& bytes) {
  return Crc32(0, absl::MakeSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

}  // namespace

absl::Status CheckWireSize(const proto::FromWorker& message, size_t wire_bytes) {
  const size_t most = MostBytes(message);
  if (wire_bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("message: ", wire_bytes, " bytes are more than the ", most, " of its kind"));
}

template <typename Wire>
absl::Status OutgoingMessages<Wire>::CheckRoom(size_t bytes) const {
  if (bytes > kMaxControlMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("control message: ", bytes, " bytes are over ", kMaxControlMessageBytes));
  }
  if (bytes > max_queued_bytes_ - queued_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("control stream: ", bytes,
                                                     " bytes more than the ", queued_bytes_,
                                                     " that wait are over ", max_queued_bytes_));
  }
  return absl::OkStatus();
}

template <typename Wire>
absl::Status OutgoingMessages<Wire>::Push(Wire message) {
  const size_t bytes = message.ByteSizeLong();
  RUNNEL_RETURN_IF_ERROR(CheckRoom(bytes));
  proto::ModelState* const state = StateOf(message);
  if (state == nullptr && bytes <= kWholeMessageBytes) return PushQuick(message);
  if (bulk_.empty() && window_.under_way() == 0) progress_ = TransferProgress();
  if (state != nullptr) {
    for (proto::LayerState& layer : *state->mutable_layers()) {
      Wire ahead;
      ahead.mutable_layer()->Swap(&layer);
      PushBulk(std::move(ahead));
    }
    state->clear_layers();
  }
  PushBulk(std::move(message));
  return absl::OkStatus();
}

template <typename Wire>
absl::Status OutgoingMessages<Wire>::PushQuick(const Wire& message) {
  std::string serialized;
  if (!message.SerializeToString(&serialized)) {
    return absl::InternalError("control message: cannot be serialized");
  }
  queued_bytes_ += serialized.size();
  quick_.push_back(std::move(serialized));
  return absl::OkStatus();
}

template <typename Wire>
void OutgoingMessages<Wire>::PushBulk(Wire message) {
  const size_t bytes = message.ByteSizeLong();
  queued_bytes_ += bytes;
  progress_.total_bytes += static_cast<int64_t>(bytes);
  bulk_.push_back(std::move(message));
}

template <typename Wire>
std::optional<std::string> OutgoingMessages<Wire>::Next(int64_t now_ns) {
  if (quick_.empty()) return NextPart(now_ns);
  std::string next = std::move(quick_.front());
  quick_.pop_front();
  queued_bytes_ -= next.size();
  return next;
}

template <typename Wire>
std::optional<std::string> OutgoingMessages<Wire>::NextPart(int64_t now_ns) {
  if (bulk_.empty()) return std::nullopt;
  if (first_.empty()) {
    // The layer is held once: here, or serialized.
    first_ = bulk_.front().SerializeAsString();
    bulk_.front() = Wire();
  }
  const size_t bytes = std::min(kPartBytes, first_.size() - sent_);
  if (!window_.HasRoom(static_cast<int64_t>(bytes))) return std::nullopt;
  Wire part;
  part.mutable_part()->set_data(first_.substr(sent_, bytes));
  sent_ += bytes;
  if (sent_ == first_.size()) {
    part.mutable_part()->set_last(true);
    part.mutable_part()->set_crc(CrcOf(first_));
  }
  window_.Sent(static_cast<int64_t>(bytes), now_ns);
  if (sent_ == first_.size()) {
    queued_bytes_ -= sent_;
    bulk_.pop_front();
    first_ = std::string();
    sent_ = 0;
  }
  return part.SerializeAsString();
}

template <typename Wire>
absl::Status OutgoingMessages<Wire>::Settle(const PartNews& news, int64_t now_ns) {
  RUNNEL_RETURN_IF_ERROR(window_.Arrived(news.arrived, now_ns));
  progress_.arrived_bytes = std::min(progress_.arrived_bytes + news.arrived, progress_.total_bytes);
  if (news.read == 0) return absl::OkStatus();
  Wire message;
  message.mutable_parts_arrived()->set_bytes(news.read);
  return PushQuick(message);
}

template <typename Wire>
void OutgoingMessages<Wire>::DropBulk() {
  if (bulk_.empty()) return;
  Wire message;
  message.mutable_parts_dropped();
  bulk_.clear();
  first_ = std::string();
  sent_ = 0;
  progress_ = TransferProgress();
  queued_bytes_ = 0;
  quick_.push_back(message.SerializeAsString());
  for (const std::string& quick : quick_) queued_bytes_ += quick.size();
}

template <typename Wire>
void OutgoingMessages<Wire>::Clear() {
  heartbeat_.clear();
  quick_.clear();
  bulk_.clear();
  first_ = std::string();
  sent_ = 0;
  queued_bytes_ = 0;
}

template <typename Wire>
PartNews IncomingMessages<Wire>::TakeNews() {
  return std::exchange(news_, {});
}

template <typename Wire>
absl::StatusOr<std::optional<Wire>> IncomingMessages<Wire>::Add(const std::string& bytes) {
  if (bytes.size() > kMaxWireMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: ", bytes.size(), " bytes are over ", kMaxWireMessageBytes));
  }
  Wire wire;
  if (!wire.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("message: cannot be parsed");
  }
  if (wire.has_received()) {
    news_.received = wire.received().messages();
    return std::nullopt;
  }
  if (IsGoodbye(wire)) {
    news_.goodbye = true;
    return std::nullopt;
  }
  if (IsHeartbeat(wire)) return wire;
  ++news_.counted;
  if (wire.has_part()) return AddPart(wire.part());
  if (wire.has_layer()) return absl::InvalidArgumentError("layer: comes outside of parts");
  if (wire.has_parts_arrived()) {
    news_.arrived = wire.parts_arrived().bytes();
    return std::nullopt;
  }
  if (wire.has_parts_dropped()) {
    joined_ = std::string();
    ahead_.Clear();
    ahead_bytes_ = 0;
    return std::nullopt;
  }
  return wire;
}

template <typename Wire>
absl::StatusOr<std::optional<Wire>> IncomingMessages<Wire>::AddPart(const proto::Part& part) {
  if (part.data().empty()) return absl::InvalidArgumentError("part.data: is empty");
  const size_t held = joined_.size() + ahead_bytes_;
  if (held + part.data().size() > max_message_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("part.data: ", part.data().size(),
                                                   " bytes after ", held, " are over ",
                                                   max_message_bytes_));
  }
  news_.read += static_cast<int64_t>(part.data().size());
  joined_ += part.data();
  if (!part.last()) return std::nullopt;
  Wire message;
  const std::string whole = std::exchange(joined_, {});
  if (CrcOf(whole) != part.crc()) return absl::DataLossError("part: CRC does not fit the bytes");
  if (!message.ParseFromString(whole)) {
    return absl::InvalidArgumentError("message: its parts cannot be parsed");
  }
  if (message.has_layer()) ahead_bytes_ += whole.size();
  return Complete(std::move(message));
}

template <typename Wire>
absl::StatusOr<std::optional<Wire>> IncomingMessages<Wire>::Complete(Wire message) {
  if (message.has_part() || message.has_parts_arrived() || message.has_parts_dropped() ||
      message.has_received() || IsGoodbye(message) || IsHeartbeat(message)) {
    return absl::InvalidArgumentError("part: is made of parts");
  }
  if (message.has_layer()) {
    if (ahead_.layers_size() >= kMaxLayers) {
      return absl::InvalidArgumentError(absl::StrCat("layer: more than ", kMaxLayers));
    }
    ahead_.add_layers()->Swap(message.mutable_layer());
    return std::nullopt;
  }
  proto::ModelState* const state = StateOf(message);
  if (state == nullptr && ahead_.layers_size() == 0) return message;
  if (state == nullptr || state->layers_size() > 0) {
    return absl::InvalidArgumentError("layer: belongs to no message with a state");
  }
  state->mutable_layers()->Swap(ahead_.mutable_layers());
  ahead_.Clear();
  ahead_bytes_ = 0;
  return message;
}

template class OutgoingMessages<proto::FromWorker>;
template class OutgoingMessages<proto::FromCentral>;
template class IncomingMessages<proto::FromWorker>;
template class IncomingMessages<proto::FromCentral>;

}  // namespace runnel
