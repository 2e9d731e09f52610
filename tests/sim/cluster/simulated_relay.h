#pragma once

// Central's relay in a simulation: brings together, by the production RelayBook, ends that cannot
// dial each other, and passes frames from one to the other. In production the bytes are copied by
// gRPC's threads (grpc_relay.h), beside central's loop; so here it has none.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "proto/transport/relay/relay_book.h"
#include "proto/transport/relay/relay_hello.h"
#include "tests/sim/cluster/world.h"

namespace runnel {

class SimulatedRelay {
 public:
  using AskFn = std::function<absl::Status(ConnectionId worker, RelayWanted wanted)>;

  // Listens at `address`, on central's transport. Both outlive it. ask: sends the message to the
  // worker.
  SimulatedRelay(World* world, Transport* transport, const std::string& address, AskFn ask);
  ~SimulatedRelay();

  // As CentralControl::AllowRelay.
  void Allow(RelayPlan plan);

 private:
  // One end's connection.
  struct Leg final : public ConnectionObserver {
    absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
    void OnFrame(Frame frame) override { relay->Receive(*this, std::move(frame)); }
    void OnClosed(const absl::Status&) override { relay->End(*this); }

    SimulatedRelay* relay = nullptr;
    std::shared_ptr<Connection> connection;
    RelayCallId call;
    bool greeted = false;
    bool ended = false;
    Leg* other = nullptr;        // when it is through
    std::vector<Frame> waiting;  // until then
  };

  void Receive(Leg& leg, Frame frame);
  absl::Status Greet(Leg& leg, const Frame& frame);
  absl::Status Await(Leg& leg, const RelayHello& hello);
  void BringTogether(Leg& dialler, Leg& answerer);
  void Pass(Leg& to, const Frame& frame);
  // Both ends.
  void End(Leg& leg);
  void EndCall(RelayCallId call);

  World& world_;
  const AskFn ask_;
  RelayBook book_;
  std::map<Leg*, std::unique_ptr<Leg>> legs_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // timers check it
  int tickets_ = 0;
  int plans_ = 0;
  int64_t passed_ = 0;  // frames
  std::unique_ptr<Listener> listener_;
};

}  // namespace runnel
