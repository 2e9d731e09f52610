#include "proto/transport/link/link_shell.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr uint64_t kMaxHelloBytes = 1024;
constexpr int64_t kProbeTickNs = 500'000'000;
// Bytes that sockets and buffers between them may hold, and the first message of a frame: nothing
// is heard until all of it has arrived. Linux grows a socket's buffer to 4 MiB.
constexpr double kBufferedBytes = 5 << 20;
// Assumed time of these bytes while the rate is not known: then gRPC's pings find a dead connection
// as soon.
constexpr int64_t kUnknownBufferNs = 10'000'000'000;

Payload PayloadOf(absl::string_view text) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

std::string TextOf(const Payload& payload) {
  const absl::Span<const std::byte> bytes = payload.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// "worker/pi-1" is pi-1 for people.
std::string NameOf(const std::string& peer) { return peer.substr(peer.find('/') + 1); }

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

absl::Status LoopConnection::OnHeader(const FrameHeader& header) {
  mid_frame_ = true;
  if (admitted_) return limits_->Check(header);
  const bool is_hello = header.kind == FrameKind::kHello && header.payload_bytes <= kMaxHelloBytes;
  if (is_hello && !std::exchange(has_hello_, true)) return absl::OkStatus();
  return absl::InvalidArgumentError("data link: something else than one hello came first");
}

void LoopConnection::Abort() {
  Unbind();
  connection_.reset();
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
  mid_frame_ = false;
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

bool EqualTokens(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

absl::StatusOr<LinkHello> ParseHello(const Frame& frame) {
  const std::string text = TextOf(frame.payload);
  const size_t line = text.find('\n');
  if (frame.header.kind != FrameKind::kHello || line == std::string::npos) {
    return absl::InvalidArgumentError("data link: the peer did not say hello");
  }
  return LinkHello{text.substr(line + 1), text.substr(0, line)};
}

LinkShell::LinkShell(EventLoop* loop, const FrameLimits* limits, Options options,
                     LinkSession::DeliverFn deliver, FailedFn failed)
    : loop_(loop),
      limits_(limits),
      options_(std::move(options)),
      failed_(std::move(failed)),
      session_(std::move(deliver)),
      redial_(options_.redial, !options_.target.address.empty()),
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
  const LinkTarget& target = options_.target;
  auto dialled = options_.transport->Dial({target.address, target.peer, target.token},
                                          connection.get(), options_.shaping);
  if (!dialled.ok()) return Fail(dialled.status());
  connection->SetConnection(*std::move(dialled));
  // Queued until the connection stands; an unreachable peer shows as OnClosed.
  connection->connection()->Send(MakeHello({target.token, options_.role})).IgnoreError();
  Adopt(std::move(connection));
}

void LinkShell::Attach(std::shared_ptr<LoopConnection> connection) {
  Adopt(std::move(connection));
  Connected();
}

void LinkShell::Adopt(std::shared_ptr<LoopConnection> connection) {
  session_.Disconnected();
  if (connection_ != nullptr) connection_->Close();
  connection_ = std::move(connection);
  connection_->Bind([this](Frame frame) { Received(std::move(frame)); },
                    [this](const absl::Status& status) { Closed(status); });
}

void LinkShell::Connected() {
  session_.Connected(connection_->connection());
  const int64_t now = loop_->clock().NowNanos();
  probe_.Connected(now);
  silence_.Connect(now);
  round_trip_.Connected();
}

void LinkShell::AwaitGreeting(const Frame& frame) {
  const absl::StatusOr<LinkHello> hello = ParseHello(frame);
  if (hello.ok() && EqualTokens(hello->token, options_.target.greeting)) {
    redial_.Heard();
    return Connected();
  }
  // Somebody else has this port; the stage may come back to it, or be elsewhere in the next plan.
  redial_.Refused("is not the stage that was meant");
  connection_->Abort();
  Closed(absl::OkStatus());
}

void LinkShell::Received(Frame frame) {
  // The peer chose these bytes: as they are they may not reach a terminal.
  if (frame.header.kind == FrameKind::kRefusal)
    return redial_.Refused(absl::CEscape(TextOf(frame.payload)));
  if (!connected()) return AwaitGreeting(frame);
  redial_.Heard();
  silence_.Hear(loop_->clock().NowNanos());
  // Rates are training's: plans must not depend on whether there was a dry run.
  if (!IsDry(frame.header.kind)) incoming_.Add(frame.arrival);
  const bool probe =
      frame.header.kind == FrameKind::kProbe || frame.header.kind == FrameKind::kProbeReport;
  const absl::Status status = probe ? ReceivedProbe(frame) : session_.Received(std::move(frame));
  if (!status.ok()) return Fail(status);
  if (options_.on_received) options_.on_received();
}

absl::Status LinkShell::ReceivedProbe(const Frame& frame) {
  if (frame.header.kind == FrameKind::kProbe) {
    // A frame in one piece only tells that the link is fast.
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
    const int64_t queued = queued_bytes();
    if (const auto ping = round_trip_.Due(now, queued)) SendBeside(MakePing(*ping));
    if (const auto bytes = probe_.Due(now, queued)) SendBeside(MakeProbe(*bytes));
    LookForSilence(now);
  }
  loop_->PostAfter(kProbeTickNs, [this, alive = alive_] {
    if (*alive) ProbeTick();
  });
}

void LinkShell::LookForSilence(int64_t now_ns) {
  // A large frame on a slow link: nothing else comes until it is here.
  if (connection_->mid_frame()) {
    silence_.Hear(now_ns);
    return;
  }
  const double rate = received_bytes_per_second();
  const int64_t buffered_ns =
      rate > 0 ? static_cast<int64_t>(kBufferedBytes / rate * 1e9) : kUnknownBufferNs;
  const SilenceWatch::Finding finding = silence_.Look(now_ns, buffered_ns);
  if (!finding.is_dead) return;
  connection_->Abort();
  Closed(absl::UnavailableError(absl::StrFormat("nothing came for %.1f s, usually for %.2f s",
                                                static_cast<double>(finding.silence_ns) * 1e-9,
                                                static_cast<double>(finding.usual_ns) * 1e-9)));
}

// Past the session: lost with its connection, and nobody minds.
void LinkShell::SendBeside(Frame frame) {
  if (connected()) connection_->connection()->Send(frame).IgnoreError();
}

int64_t LinkShell::queued_bytes() const {
  return connected() ? connection_->connection()->queued_bytes() : 0;
}

void LinkShell::Fail(const absl::Status& status) {
  const LinkTarget& target = options_.target;
  const bool dials = !target.address.empty();
  const std::string& peer = dials ? target.peer : options_.peer;
  std::string link = dials ? absl::StrCat("to ", target.address) : "from its peer";
  if (!peer.empty())
    link = dials ? absl::StrCat("to ", NameOf(peer), " (", target.address, ")")
                 : absl::StrCat("from ", NameOf(peer));
  failed_(absl::Status(status.code(), absl::StrCat("data link ", link, ": ", status.message())));
}

void LinkShell::Closed(const absl::Status& status) {
  const bool greeted = connected();
  silence_.Break();
  session_.Disconnected();
  connection_.reset();
  // Bad bytes from somebody who never greeted are not the peer's.
  const bool strange = !greeted && absl::IsInvalidArgument(status);
  if (strange) redial_.Refused("is not the stage that was meant");
  const absl::Status verdict =
      redial_.Ended(loop_->clock().NowNanos(), strange ? absl::OkStatus() : status,
                    session_.counters().frames_received);
  if (!verdict.ok()) return Fail(verdict);
  if (options_.target.address.empty()) return;  // the peer dials again, or its control stream ends
  loop_->PostAfter(redial_.NextDelayNs(), [this, alive = alive_] {
    if (*alive) Dial();
  });
}

}  // namespace runnel
