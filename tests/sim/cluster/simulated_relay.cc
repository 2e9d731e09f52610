#include "tests/sim/cluster/simulated_relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// For the worker that was asked to come.
constexpr int64_t kPatienceNs = 5'000'000'000;
// Of the frames that a relay with the planted bug loses.
constexpr int64_t kLosesOneIn = 100;

}  // namespace

SimulatedRelay::SimulatedRelay(World* world, Transport* transport, const std::string& address,
                               AskFn ask)
    : world_(*world), ask_(std::move(ask)) {
  const auto accept = [this](std::shared_ptr<Connection> connection) -> Accepted {
    auto leg = std::make_unique<Leg>();
    Leg* const observer = leg.get();
    observer->relay = this;
    observer->connection = std::move(connection);
    legs_[observer] = std::move(leg);
    return {observer, {}};
  };
  listener_ = transport->Listen(address, accept).value();
}

SimulatedRelay::~SimulatedRelay() {
  *alive_ = false;
  listener_.reset();
}

void SimulatedRelay::Allow(RelayPlan plan) {
  if (world_.Has(PlantedBug::kRelayOfEarlierPlan) && plans_++ > 0) return;
  for (const RelayCallId call : book_.Allow(std::move(plan))) EndCall(call);
}

void SimulatedRelay::EndCall(RelayCallId call) {
  const auto found = std::find_if(legs_.begin(), legs_.end(), [call](const auto& entry) {
    return !entry.second->ended && entry.second->greeted && entry.second->call == call;
  });
  if (found != legs_.end()) End(*found->second);
}

void SimulatedRelay::Receive(Leg& leg, Frame frame) {
  if (leg.ended) return;
  if (!std::exchange(leg.greeted, true)) {
    if (!Greet(leg, frame).ok()) End(leg);
  } else if (leg.other == nullptr) {
    leg.waiting.push_back(std::move(frame));
  } else {
    Pass(*leg.other, frame);
  }
}

void SimulatedRelay::Pass(Leg& to, const Frame& frame) {
  if (world_.Has(PlantedBug::kRelayLosesFrame) && ++passed_ % kLosesOneIn == 0) return;
  to.connection->Send(frame).IgnoreError();
}

absl::Status SimulatedRelay::Greet(Leg& leg, const Frame& frame) {
  RUNNEL_ASSIGN_OR_RETURN(const RelayHello hello, ParseRelayHello(frame));
  if (!hello.answers) return Await(leg, hello);
  RUNNEL_ASSIGN_OR_RETURN(leg.call, book_.Answer(hello.secret, ""));
  const auto dialler = std::find_if(legs_.begin(), legs_.end(), [&leg](const auto& entry) {
    return entry.first != &leg && !entry.second->ended && entry.second->call == leg.call;
  });
  if (dialler == legs_.end()) return absl::UnavailableError("relay: who waited is gone");
  BringTogether(*dialler->second, leg);
  return absl::OkStatus();
}

absl::Status SimulatedRelay::Await(Leg& leg, const RelayHello& hello) {
  RUNNEL_ASSIGN_OR_RETURN(
      RelayBook::Wanted wanted,
      book_.Dial(hello.secret, hello.from, "", absl::StrCat("ticket-", ++tickets_)));
  leg.call = wanted.call;
  world_.network.ScheduleAt(world_.now_ns() + kPatienceNs,
                            [this, call = wanted.call, alive = alive_] {
                              if (*alive && !book_.IsThrough(call)) EndCall(call);
                            });
  return ask_(wanted.worker, std::move(wanted.message));
}

void SimulatedRelay::BringTogether(Leg& dialler, Leg& answerer) {
  dialler.other = &answerer;
  answerer.other = &dialler;
  ++world_.relayed;
  world_.Record(absl::StrCat("central relays ", book_.LinkOf(dialler.call).from, " to ",
                             book_.LinkOf(dialler.call).to));
  for (const Frame& frame : std::exchange(dialler.waiting, {})) Pass(answerer, frame);
}

void SimulatedRelay::End(Leg& leg) {
  if (std::exchange(leg.ended, true)) return;
  book_.End(leg.call);
  if (Leg* const other = std::exchange(leg.other, nullptr); other != nullptr) {
    other->other = nullptr;
    End(*other);
  }
  // It goes when nobody is within it.
  world_.network.ScheduleAt(world_.now_ns(), [this, &leg, alive = alive_] {
    if (*alive) legs_.erase(&leg);
  });
  const std::shared_ptr<Connection> connection = std::move(leg.connection);
}

}  // namespace runnel
