#include "proto/transport/link/link_shell.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr uint64_t kMaxHelloBytes = 1024;
constexpr int64_t kProbeTickNs = 500'000'000;

Payload PayloadOf(absl::string_view text) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

std::string TextOf(const Payload& payload) {
  const absl::Span<const std::byte> bytes = payload.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool IsShort(FrameKind kind) {
  return kind == FrameKind::kHello || kind == FrameKind::kProbeReport ||
         kind == FrameKind::kRefusal;
}

}  // namespace

void FrameLimits::Set(std::map<std::pair<FrameKind, uint32_t>, uint64_t> payload_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  payload_bytes_ = std::move(payload_bytes);
}

absl::Status FrameLimits::Check(const FrameHeader& header) const {
  uint64_t limit = 0;
  if (header.kind == FrameKind::kAck) return absl::OkStatus();
  if (IsShort(header.kind)) {
    limit = kMaxHelloBytes;
  } else if (header.kind == FrameKind::kProbe) {
    limit = BandwidthProbe::kMaxBytes;
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = payload_bytes_.find({header.kind, header.samples});
    if (found != payload_bytes_.end()) limit = found->second;
  }
  if (header.payload_bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "frame: payload_bytes ", header.payload_bytes, " of kind ", static_cast<int>(header.kind),
      " and ", header.samples, " samples is over the ", limit, " that were agreed"));
}

void LoopConnection::Bind(FrameFn on_frame, ClosedFn on_closed) {
  on_frame_ = std::move(on_frame);
  on_closed_ = std::move(on_closed);
}

void LoopConnection::Unbind() {
  on_frame_ = nullptr;
  on_closed_ = nullptr;
}

void LoopConnection::Close() {
  Unbind();
  if (connection_ != nullptr) connection_->Close();
}

void LoopConnection::Refuse(absl::string_view reason) {
  // A connection that is closed already needs no reason.
  if (connection_ != nullptr) connection_->Send(MakeRefusal(reason)).IgnoreError();
  Close();
}

void LoopConnection::OnFrame(Frame frame) {
  loop_->Post([weak = weak_from_this(), frame = std::move(frame)]() mutable {
    const std::shared_ptr<LoopConnection> self = weak.lock();
    if (self != nullptr && self->on_frame_) self->on_frame_(std::move(frame));
  });
}

void LoopConnection::OnClosed(const absl::Status& status) {
  loop_->Post([weak = weak_from_this(), status] {
    const std::shared_ptr<LoopConnection> self = weak.lock();
    if (self == nullptr) return;
    // The callbacks may bind anew or let go of us.
    if (const ClosedFn closed = self->on_closed_) closed(status);
    self->Unbind();
    self->connection_.reset();
    if (const auto gone = std::exchange(self->gone_, nullptr)) gone();
  });
}

Frame MakeHello(const LinkHello& hello) {
  Frame frame;
  frame.header.kind = FrameKind::kHello;
  frame.payload = PayloadOf(absl::StrCat(hello.role, "\n", hello.token));
  SealFrame(frame);
  return frame;
}

Frame MakeRefusal(absl::string_view reason) {
  Frame frame;
  frame.header.kind = FrameKind::kRefusal;
  frame.payload = PayloadOf(reason.substr(0, kMaxHelloBytes));
  SealFrame(frame);
  return frame;
}

absl::StatusOr<LinkHello> ParseHello(const Frame& frame) {
  const std::string text = TextOf(frame.payload);
  const size_t line = text.find('\n');
  if (frame.header.kind != FrameKind::kHello || line == std::string::npos) {
    return absl::InvalidArgumentError("data link: the peer did not say hello");
  }
  return LinkHello{text.substr(line + 1), text.substr(0, line)};
}

LinkAcceptor::~LinkAcceptor() {
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

void LinkAcceptor::Expect(std::string token, const LinkShaping& shaping) {
  std::lock_guard<std::mutex> lock(mutex_);
  token_ = std::move(token);
  shaping_ = shaping;
}

// On a transport thread. The map's reference keeps the observer until its end has come through the
// loop.
Accepted LinkAcceptor::Accept(std::shared_ptr<Connection> connection) {
  auto accepted = std::make_shared<LoopConnection>(loop_, limits_);
  LoopConnection* const observer = accepted.get();
  accepted->SetConnection(std::move(connection));
  const std::weak_ptr<LoopConnection> weak = accepted;
  accepted->Bind([this, weak](Frame frame) { Greeted(weak, frame); }, nullptr);
  accepted->OnGone([this, observer] {
    std::lock_guard<std::mutex> lock(mutex_);
    connections_.erase(observer);
  });
  std::lock_guard<std::mutex> lock(mutex_);
  connections_[observer] = std::move(accepted);
  return {observer, shaping_};
}

void LinkAcceptor::Greeted(const std::weak_ptr<LoopConnection>& weak, const Frame& frame) {
  std::shared_ptr<LoopConnection> connection = weak.lock();
  if (connection == nullptr) return;
  const absl::StatusOr<LinkHello> hello = ParseHello(frame);
  if (!hello.ok()) return connection->Close();
  std::string token;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    token = token_;
  }
  if (token.empty()) return connection->Refuse("has no stage yet");
  if (hello->token != token) return connection->Refuse("has a stage of another plan");
  connection->Unbind();
  on_hello_(hello->role, std::move(connection));
}

LinkShell::LinkShell(EventLoop* loop, const FrameLimits* limits, Options options,
                     LinkSession::DeliverFn deliver, FailedFn failed)
    : loop_(loop),
      limits_(limits),
      options_(std::move(options)),
      failed_(std::move(failed)),
      session_(std::move(deliver)),
      redial_(options_.redial, !options_.address.empty()),
      alive_(std::make_shared<bool>(true)) {
  if (options_.probes) ProbeTick();
}

LinkShell::~LinkShell() {
  *alive_ = false;
  // The session lets go first: a connection must not outlive its observer.
  session_.Disconnected();
  if (connection_ != nullptr) connection_->Close();
}

void LinkShell::Start() {
  redial_.Begin(loop_->clock().NowNanos());
  Dial();
}

void LinkShell::Dial() {
  auto connection = std::make_shared<LoopConnection>(loop_, limits_);
  auto dialled = options_.transport->Dial(options_.address, connection.get(), options_.shaping);
  if (!dialled.ok()) {
    failed_(dialled.status());
    return;
  }
  connection->SetConnection(*std::move(dialled));
  // Queued until the connection stands; an unreachable peer shows as OnClosed.
  connection->connection()->Send(MakeHello(options_.hello)).IgnoreError();
  Adopt(std::move(connection));
}

void LinkShell::Attach(std::shared_ptr<LoopConnection> connection) { Adopt(std::move(connection)); }

void LinkShell::Adopt(std::shared_ptr<LoopConnection> connection) {
  session_.Disconnected();
  if (connection_ != nullptr) connection_->Close();
  connection_ = std::move(connection);
  connection_->Bind([this](Frame frame) { Received(std::move(frame)); },
                    [this](const absl::Status& status) { Closed(status); });
  session_.Connected(connection_->connection());
  probe_.Connected(loop_->clock().NowNanos());
  round_trip_.Connected();
}

void LinkShell::Received(Frame frame) {
  // The peer chose these bytes: as they are they may not reach a terminal.
  if (frame.header.kind == FrameKind::kRefusal)
    return redial_.Refused(absl::CEscape(TextOf(frame.payload)));
  redial_.Heard();
  if (frame.header.kind == FrameKind::kHello) return;  // the accepting end's greeting
  incoming_.Add(frame.arrival);
  const bool probe =
      frame.header.kind == FrameKind::kProbe || frame.header.kind == FrameKind::kProbeReport;
  const absl::Status status = probe ? ReceivedProbe(frame) : session_.Received(std::move(frame));
  if (!status.ok()) {
    failed_(status);
    return;
  }
  if (options_.on_received) options_.on_received();
}

absl::Status LinkShell::ReceivedProbe(const Frame& frame) {
  if (frame.header.kind == FrameKind::kProbe) {
    // In one piece it says nothing but that the link is fast.
    const FrameArrival& arrival = frame.arrival;
    SendBeside(
        MakeProbeReport({std::max<int64_t>(arrival.bytes, 1), std::max<int64_t>(arrival.ns, 1)},
                        frame.header.sequence));
    return absl::OkStatus();
  }
  RUNNEL_ASSIGN_OR_RETURN(const FrameArrival arrival, ParseProbeReport(frame.payload.bytes()));
  const int64_t now = loop_->clock().NowNanos();
  if (IsPing(frame.header)) {
    round_trip_.Answered(frame.header.sequence, now);
  } else {
    probe_.Reported(now, arrival);
  }
  return absl::OkStatus();
}

void LinkShell::ProbeTick() {
  const int64_t now = loop_->clock().NowNanos();
  const int64_t large = session_.counters().large_frames_sent;
  if (std::exchange(large_frames_seen_, large) != large) probe_.Sent(now);
  if (connected()) {
    // First: behind a probe it would wait.
    const int64_t queued_bytes = connection_->connection()->queued_bytes();
    if (const auto ping = round_trip_.Due(now, queued_bytes)) SendBeside(MakePing(*ping));
    if (const auto bytes = probe_.Due(now, queued_bytes)) SendBeside(MakeProbe(*bytes));
  }
  loop_->PostAfter(kProbeTickNs, [this, alive = alive_] {
    if (*alive) ProbeTick();
  });
}

// Past the session: lost with its connection, and nobody minds.
void LinkShell::SendBeside(Frame frame) {
  if (connected()) connection_->connection()->Send(frame).IgnoreError();
}

void LinkShell::Closed(const absl::Status& status) {
  session_.Disconnected();
  connection_.reset();
  const absl::Status verdict =
      redial_.Ended(loop_->clock().NowNanos(), status, session_.counters().frames_received);
  const bool dials = !options_.address.empty();
  if (!verdict.ok()) {
    const std::string peer = dials ? absl::StrCat("to ", options_.address) : "from its peer";
    return failed_(
        absl::Status(verdict.code(), absl::StrCat("data link ", peer, ": ", verdict.message())));
  }
  if (!dials) return;  // the peer dials again, or its control stream ends
  loop_->PostAfter(redial_.NextDelayNs(), [this, alive = alive_] {
    if (*alive) Dial();
  });
}

}  // namespace runnel
