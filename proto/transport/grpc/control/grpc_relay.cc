#include "proto/transport/grpc/control/grpc_relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"
#include "proto/transport/grpc/grpc_frames.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr size_t kTicketBytes = 16;

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }

 private:
  void OnDone() override { delete this; }
};

// Reads the one hello that a message must hold.
absl::StatusOr<RelayHello> ReadHello(const std::string& message) {
  if (message.size() > kFrameHeaderBytes + kMaxRelayHelloBytes)
    return absl::InvalidArgumentError("relay: the first frame is too long for a hello");
  const auto bytes =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(message.data()), message.size());
  Frame frame;
  RUNNEL_ASSIGN_OR_RETURN(frame.header, DecodeHeader(bytes.subspan(
                                            0, std::min<size_t>(bytes.size(), kFrameHeaderBytes))));
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  RUNNEL_RETURN_IF_ERROR(CheckPayload(frame.header, payload));
  frame.payload = Payload::CopyOf(payload);
  return ParseRelayHello(frame);
}

}  // namespace

// The call of one end. Members beside gRPC's methods are guarded by the desk's mutex.
class RelayLeg final : public grpc::ServerGenericBidiReactor {
 public:
  enum class State : uint8_t { kStranger, kWaiting, kThrough };

  RelayLeg(grpc::CallbackServerContext* context, std::string peer, std::shared_ptr<RelayDesk> desk)
      : peer(std::move(peer)), context_(context), desk_(std::move(desk)) {}

  // Only before the call is done.
  void Cancel() { context_->TryCancel(); }

  const std::string peer;  // by its certificate
  State state = State::kStranger;
  RelayCallId call;           // once it has said hello
  RelayLeg* other = nullptr;  // kThrough, while both are there
  std::deque<grpc::ByteBuffer> outgoing;
  grpc::ByteBuffer read;
  grpc::ByteBuffer write;
  bool reading = false;
  bool writing = false;
  bool heard_goodbye = false;
  bool ends = false;      // as soon as nothing is being written
  bool finished = false;  // Finish was called
  absl::Status end;
  int64_t bytes = 0;  // bytes that came from it

 private:
  void OnReadDone(bool ok) override { desk_->ReadEnded(*this, ok); }
  void OnWriteDone(bool ok) override { desk_->WriteEnded(*this, ok); }
  void OnCancel() override { desk_->Cancelled(*this); }
  void OnDone() override {
    const std::shared_ptr<RelayDesk> desk = desk_;  // the leg goes within
    desk->Done(*this);
  }

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<RelayDesk> desk_;
};

grpc::ServerGenericBidiReactor* RelayService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (context->method() != kGrpcMethod)
    return new Refusal(absl::UnimplementedError("central: no such method"));
  return desk_->Add(context);
}

grpc::ServerGenericBidiReactor* RelayDesk::Add(grpc::CallbackServerContext* context) {
  const GrpcSecurity& security = streams_->options().security;
  std::string peer;
  if (security.encrypts()) {
    const absl::StatusOr<CertificateInfo> info = PeerOf(*context->auth_context(), security);
    if (!info.ok()) {
      streams_->LogRefusal(info.status().message());
      return new Refusal(info.status());
    }
    peer = info->subject.ToString();
  }
  auto leg = std::make_shared<RelayLeg>(context, std::move(peer), shared_from_this());
  RelayLeg* const reactor = leg.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return new Refusal(absl::UnavailableError("central ends"));
  legs_[reactor] = std::move(leg);
  strangers_.push_back(reactor);
  if (strangers_.size() > kMostStrangers) CutOffOldestStranger();
  EndLater(*reactor, "no hello came in time");
  Pump(*reactor);
  return reactor;
}

void RelayDesk::CutOffOldestStranger() {
  RelayLeg& oldest = *strangers_.front();
  Refuse(oldest, absl::UnavailableError("relay: too many connections that said no hello yet"));
}

// Unless it is through by then.
void RelayDesk::EndLater(RelayLeg& leg, const char* why) {
  streams_->timers().PostAfter(
      streams_->options().hello_deadline_ms * kNanosPerMilli,
      [weak = weak_from_this(), leg = std::weak_ptr<RelayLeg>(legs_[&leg]), was = leg.state, why] {
        const std::shared_ptr<RelayDesk> self = weak.lock();
        const std::shared_ptr<RelayLeg> late = leg.lock();
        if (self == nullptr || late == nullptr) return;
        const std::lock_guard<std::mutex> lock(self->mutex_);
        if (late->state != was || late->ends) return;
        const absl::Status status = absl::UnavailableError(absl::StrCat("relay: ", why));
        if (was == RelayLeg::State::kStranger) return self->Refuse(*late, status);
        self->EndBoth(*late, status);
      });
}

void RelayDesk::Allow(RelayPlan plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<RelayCallId> ended = book_.Allow(std::move(plan));
  for (const auto& [leg, held] : legs_) {
    if (std::find(ended.begin(), ended.end(), leg->call) != ended.end())
      End(*leg, absl::UnavailableError("relay: another plan holds"));
  }
}

std::vector<RelayedLink> RelayDesk::Links() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<RelayCallId, RelayedLink> links;
  for (const auto& [leg, held] : legs_) {
    if (!book_.IsThrough(leg->call)) continue;
    RelayedLink& link = links.try_emplace(leg->call, book_.LinkOf(leg->call)).first->second;
    link.bytes += leg->bytes;
  }
  std::vector<RelayedLink> list;
  for (auto& [call, link] : links) list.push_back(std::move(link));
  return list;
}

void RelayDesk::EndAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  for (const auto& [leg, held] : legs_) End(*leg, absl::UnavailableError("central ends"));
}

void RelayDesk::WaitUntilEmpty() {
  std::unique_lock<std::mutex> lock(mutex_);
  gone_.wait(lock, [this] { return legs_.empty(); });
}

void RelayDesk::ReadEnded(RelayLeg& leg, bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  leg.reading = false;
  if (leg.ends) return;
  if (!ok) return EndBoth(leg, absl::UnavailableError("relay: the other end is gone"));
  if (leg.state == RelayLeg::State::kThrough) {
    Pass(leg);
  } else if (absl::Status greeted = Greet(leg, ToBytes(leg.read)); !greeted.ok()) {
    return Refuse(leg, greeted);
  }
  leg.read.Clear();
  Pump(leg);
}

void RelayDesk::Pass(RelayLeg& leg) {
  leg.bytes += static_cast<int64_t>(leg.read.Length());
  leg.heard_goodbye = leg.read.Length() == 0;
  leg.other->outgoing.emplace_back();
  leg.other->outgoing.back().Swap(&leg.read);
  Pump(*leg.other);
}

absl::Status RelayDesk::Greet(RelayLeg& leg, const std::string& message) {
  RUNNEL_ASSIGN_OR_RETURN(const RelayHello hello, ReadHello(message));
  std::erase(strangers_, &leg);
  return hello.answers ? BringTogether(leg, hello) : Await(leg, hello);
}

absl::Status RelayDesk::Await(RelayLeg& leg, const RelayHello& hello) {
  RUNNEL_ASSIGN_OR_RETURN(RelayBook::Wanted wanted,
                          book_.Dial(hello.secret, hello.from, leg.peer,
                                     absl::BytesToHexString(RandomBytes(kTicketBytes))));
  leg.call = wanted.call;
  leg.state = RelayLeg::State::kWaiting;
  waiting_[wanted.call] = &leg;
  EndLater(leg, "the worker that was asked did not come");
  const absl::Status asked = streams_->Send(wanted.worker, std::move(wanted.message));
  if (!asked.ok()) EndBoth(leg, absl::UnavailableError("relay: the worker is not there"));
  return absl::OkStatus();
}

absl::Status RelayDesk::BringTogether(RelayLeg& leg, const RelayHello& hello) {
  RUNNEL_ASSIGN_OR_RETURN(leg.call, book_.Answer(hello.secret, leg.peer));
  RelayLeg& dialler = *waiting_.extract(leg.call).mapped();
  leg.other = &dialler;
  dialler.other = &leg;
  leg.state = dialler.state = RelayLeg::State::kThrough;
  Pump(dialler);
  return absl::OkStatus();
}

void RelayDesk::Pump(RelayLeg& leg) {
  if (leg.finished) return;
  if (!leg.writing && leg.ends) {
    leg.finished = true;
    return leg.Finish(ToGrpc(leg.end));
  }
  if (!leg.writing && !leg.outgoing.empty()) {
    leg.write.Swap(&leg.outgoing.front());
    leg.outgoing.pop_front();
    leg.writing = true;
    leg.StartWrite(&leg.write);
  }
  const bool has_room = leg.state == RelayLeg::State::kStranger ||
                        (leg.other != nullptr && leg.other->outgoing.size() < kMostQueued);
  if (!leg.reading && !leg.ends && !leg.heard_goodbye && has_room) {
    leg.reading = true;
    leg.StartRead(&leg.read);
  }
}

void RelayDesk::WriteEnded(RelayLeg& leg, bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  leg.writing = false;
  const bool was_goodbye = leg.write.Length() == 0;
  leg.write.Clear();
  if (!leg.ends && (!ok || was_goodbye)) {
    EndBoth(leg, ok ? absl::OkStatus() : absl::UnavailableError("relay: the other end is gone"));
  }
  Pump(leg);
  // There is room again for what comes from the other end.
  if (leg.other != nullptr) Pump(*leg.other);
}

void RelayDesk::End(RelayLeg& leg, const absl::Status& status) {
  if (leg.ends) return;
  leg.ends = true;
  leg.end = status;
  leg.outgoing.clear();
  std::erase(strangers_, &leg);
  waiting_.erase(leg.call);
  book_.End(leg.call);
  // An end in order lets the current write arrive. Otherwise nobody waits for it.
  if (leg.writing && !status.ok()) leg.Cancel();
  Pump(leg);
}

void RelayDesk::EndBoth(RelayLeg& leg, const absl::Status& status) {
  End(leg, status);
  if (leg.other != nullptr) End(*leg.other, status);
}

void RelayDesk::Refuse(RelayLeg& leg, const absl::Status& why) {
  streams_->LogRefusal(why.message());
  EndBoth(leg, why);
}

void RelayDesk::Cancelled(RelayLeg& leg) {
  const std::lock_guard<std::mutex> lock(mutex_);
  EndBoth(leg, absl::UnavailableError("relay: the other end is gone"));
}

void RelayDesk::Done(RelayLeg& leg) {
  LegPtr held;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  leg.finished = true;
  EndBoth(leg, absl::UnavailableError("relay: the other end is gone"));
  if (leg.other != nullptr) leg.other->other = nullptr;
  held = legs_.extract(&leg).mapped();
  gone_.notify_all();
}

}  // namespace runnel
