#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "proto/transport/grpc/control/grpc_client_stream.h"

namespace runnel {
namespace {

constexpr char kJoinMethod[] = "/runnel.proto.Control/Join";

std::string RandomToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

}  // namespace

CentralCalls::CentralCalls(std::shared_ptr<grpc::Channel> channel, const std::string& join_secret)
    : channel_(channel), stub_(std::move(channel)) {
  if (!join_secret.empty()) metadata_[kJoinSecretKey] = join_secret;
  metadata_[kSessionKey] = RandomToken();
}

void CentralCalls::Begin(ClientCall& call, std::optional<int64_t> received) {
  if (received.has_value()) metadata_[kReceivedKey] = absl::StrCat(*received);
  call.Begin(stub_, metadata_, received.has_value());
}

void ClientCall::Begin(grpc::GenericStub& stub, const std::map<std::string, std::string>& metadata,
                       bool waits) {
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  context_.set_wait_for_ready(waits);
  stub.PrepareBidiStreamingCall(&context_, kJoinMethod, grpc::StubOptions(), this);
  AddHold();  // writes are started from outside the callbacks
  StartCall();
}

std::optional<int64_t> ClientCall::ReceivedByPeer() const {
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto found = metadata.find(kReceivedKey);
  int64_t received = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &received))
    return std::nullopt;
  return received;
}

void ClientCall::OnReadInitialMetadataDone(bool ok) {
  connected_ = ok;
  stream_->Connected(*this, ok);
  if (ok) StartRead(&read_);
}

void ClientCall::OnReadDone(bool ok) {
  const absl::Status status = ok ? stream_->Receive(read_) : absl::OkStatus();
  if (ok && status.ok()) return StartRead(&read_);
  if (ok) Cancel();
  stream_->ReadEnded(*this, status);
}

void ClientCall::OnWriteDone(bool) { stream_->WriteEnded(*this); }

void ClientCall::OnDone(const grpc::Status& status) {
  // The stream lets go of this call, which must not end here.
  const std::shared_ptr<ClientStream> stream = std::move(stream_);
  stream->Ended(*this, status);
}

}  // namespace runnel
