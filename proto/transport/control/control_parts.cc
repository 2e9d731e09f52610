#include "proto/transport/control/control_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {

template <typename Wire>
absl::Status OutgoingMessages<Wire>::Push(const Wire& message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes > kMaxControlMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("control message: ", bytes, " bytes are over ", kMaxControlMessageBytes));
  }
  if (bytes > max_queued_bytes_ - queued_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("control stream: ", bytes,
                                                     " bytes more than the ", queued_bytes_,
                                                     " that wait are over ", max_queued_bytes_));
  }
  std::string serialized;
  if (!message.SerializeToString(&serialized)) {
    return absl::InternalError("control message: cannot be serialized");
  }
  queued_bytes_ += serialized.size();
  messages_.push_back(std::move(serialized));
  return absl::OkStatus();
}

template <typename Wire>
std::optional<std::string> OutgoingMessages<Wire>::Next() {
  if (messages_.empty()) return std::nullopt;
  std::string& first = messages_.front();
  const size_t total = first.size();
  std::string next;
  if (total <= kWholeMessageBytes) {
    next = std::move(first);
    sent_ = total;
  } else {
    const size_t slice = std::min(kWholeMessageBytes, total - sent_);
    Wire wire;
    wire.mutable_part()->set_data(first.substr(sent_, slice));
    sent_ += slice;
    wire.mutable_part()->set_last(sent_ == total);
    next = wire.SerializeAsString();
  }
  if (sent_ == total) {
    queued_bytes_ -= total;
    messages_.pop_front();
    sent_ = 0;
  }
  return next;
}

template <typename Wire>
void OutgoingMessages<Wire>::Clear() {
  messages_.clear();
  queued_bytes_ = 0;
  sent_ = 0;
}

template <typename Wire>
absl::Status IncomingMessages<Wire>::Append(const proto::Part& part) {
  if (part.data().empty()) return absl::InvalidArgumentError("part.data: is empty");
  if (part.data().size() > max_message_bytes_ - joined_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("part.data: ", part.data().size(),
                                                   " bytes after ", joined_.size(), " are over ",
                                                   max_message_bytes_));
  }
  joined_ += part.data();
  return absl::OkStatus();
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
  if (!wire.has_part()) {
    if (!joined_.empty()) {
      return absl::InvalidArgumentError("message: comes in the middle of parts");
    }
    return wire;
  }
  RUNNEL_RETURN_IF_ERROR(Append(wire.part()));
  if (!wire.part().last()) return std::nullopt;
  const std::string whole = std::exchange(joined_, {});
  wire.Clear();
  if (!wire.ParseFromString(whole)) {
    return absl::InvalidArgumentError("message: its parts cannot be parsed");
  }
  if (wire.has_part()) return absl::InvalidArgumentError("part: is made of parts");
  return wire;
}

template class OutgoingMessages<proto::FromWorker>;
template class OutgoingMessages<proto::FromCentral>;
template class IncomingMessages<proto::FromWorker>;
template class IncomingMessages<proto::FromCentral>;

}  // namespace runnel
