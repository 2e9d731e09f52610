// Admission to a stage's data port.

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/link_shell.h"

namespace runnel {

LinkAcceptor::~LinkAcceptor() {
  *alive_ = false;
  listener_.reset();
  std::map<LoopConnection*, std::shared_ptr<LoopConnection>> connections;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    connections.swap(connections_);
  }
}

absl::Status LinkAcceptor::Listen(Transport* transport, const std::string& address) {
  RUNNEL_ASSIGN_OR_RETURN(
      listener_, transport->Listen(address, [this](std::shared_ptr<Connection> connection) {
        return Accept(std::move(connection));
      }));
  return absl::OkStatus();
}

void LinkAcceptor::Expect(LinkExpectation expectation, const LinkShaping& shaping) {
  expectation_ = std::move(expectation);
  std::lock_guard<std::mutex> lock(mutex_);
  shaping_ = shaping;
}

void LinkAcceptor::CutOff(const std::weak_ptr<LoopConnection>& stranger, absl::string_view why) {
  const std::shared_ptr<LoopConnection> connection = stranger.lock();
  if (connection == nullptr || connection->admitted() || connection->connection() == nullptr)
    return;
  if (on_refused_) on_refused_(absl::StrCat("data link: ", why));
  connection->Abort();
}

void LinkAcceptor::CutOffOldestStranger() {
  std::weak_ptr<LoopConnection> oldest;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (strangers_.size() <= kMostStrangers) return;
    oldest = std::move(strangers_.front());
    strangers_.pop_front();
  }
  CutOff(oldest, "too many connections that said no hello yet; the oldest is cut off");
}

// Called on a transport thread. The map's reference keeps the observer until its end has come
// through the loop.
Accepted LinkAcceptor::Accept(std::shared_ptr<Connection> connection) {
  auto accepted = std::make_shared<LoopConnection>(loop_, limits_, /*admitted=*/false);
  LoopConnection* const observer = accepted.get();
  accepted->SetConnection(std::move(connection));
  const std::weak_ptr<LoopConnection> weak = accepted;
  accepted->Bind([this, weak](Frame frame) { Greeted(weak, frame); }, nullptr);
  accepted->OnGone([this, observer] {
    std::lock_guard<std::mutex> lock(mutex_);
    connections_.erase(observer);
  });
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(strangers_, [](const auto& stranger) {
    const std::shared_ptr<LoopConnection> there = stranger.lock();
    return there == nullptr || there->admitted();
  });
  // The loop has not come round to cutting them off.
  if (strangers_.size() >= 4 * kMostStrangers) return {};
  strangers_.push_back(weak);
  loop_->PostAfter(kHelloPatienceNs, [this, weak, alive = alive_] {
    if (*alive) CutOff(weak, "no hello came in time");
  });
  if (strangers_.size() > kMostStrangers) {
    loop_->Post([this, alive = alive_] {
      if (*alive) CutOffOldestStranger();
    });
  }
  connections_[observer] = std::move(accepted);
  return {observer, shaping_};
}

void LinkAcceptor::Greeted(const std::weak_ptr<LoopConnection>& weak, const Frame& frame) {
  std::shared_ptr<LoopConnection> connection = weak.lock();
  if (connection == nullptr) return;
  const absl::StatusOr<LinkHello> hello = ParseHello(frame);
  if (!hello.ok()) return CutOff(weak, hello.status().message());
  if (expectation_.token.empty()) return connection->Refuse("has no stage yet");
  if (!EqualTokens(hello->token, expectation_.token))
    return connection->Refuse("has a stage of another plan");
  const std::string peer =
      connection->connection() == nullptr ? "" : connection->connection()->peer();
  const std::string& expected =
      hello->role == "feed" ? expectation_.feed_peer : expectation_.upstream_peer;
  if (!peer.empty() && peer != expected) {
    return CutOff(weak, absl::StrCat(peer, " dialled as a ", absl::CEscape(hello->role), ", which ",
                                     expected.empty() ? "nobody" : expected, " is"));
  }
  connection->Unbind();
  connection->Admit();
  on_hello_(hello->role, std::move(connection));
}

}  // namespace runnel
