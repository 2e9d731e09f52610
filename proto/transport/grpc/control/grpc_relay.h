#pragma once

// Central's relay, at the port of its control streams: brings together data connections whose ends
// both dial here, and copies messages from one to the other as they come, without reading them.
//
// A direction holds at most kMostQueued messages. While it does, nothing more is read from its
// sender, whose transport then stops too: a slow receiver slows its sender and fills no memory
// here.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport/control/relay.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"
#include "proto/transport/relay/relay_book.h"
#include "proto/transport/relay/relay_hello.h"

namespace runnel {

class RelayLeg;

// All connections of one listener. Thread-safe.
class RelayDesk final : public std::enable_shared_from_this<RelayDesk> {
 public:
  static constexpr size_t kMostQueued = 4;
  // Connections that have not said hello; of more the oldest is cut off.
  static constexpr size_t kMostStrangers = 16;

  explicit RelayDesk(std::shared_ptr<Streams> streams) : streams_(std::move(streams)) {}

  void Allow(RelayPlan plan);
  std::vector<RelayedLink> Links();
  // The reactor of a new call.
  grpc::ServerGenericBidiReactor* Add(grpc::CallbackServerContext* context);
  // Takes nobody in any more, and ends all.
  void EndAll();
  void WaitUntilEmpty();

  // Called by legs.
  void ReadEnded(RelayLeg& leg, bool ok);
  void WriteEnded(RelayLeg& leg, bool ok);
  void Cancelled(RelayLeg& leg);
  void Done(RelayLeg& leg);

 private:
  using LegPtr = std::shared_ptr<RelayLeg>;

  // All of these expect mutex_ to be held.
  absl::Status Greet(RelayLeg& leg, const std::string& message);
  absl::Status Await(RelayLeg& leg, const RelayHello& hello);
  absl::Status BringTogether(RelayLeg& leg, const RelayHello& hello);
  void Pass(RelayLeg& leg);
  // Starts what can be started next.
  void Pump(RelayLeg& leg);
  void End(RelayLeg& leg, const absl::Status& status);
  // Ends it and the one that it leads to.
  void EndBoth(RelayLeg& leg, const absl::Status& status);
  void Refuse(RelayLeg& leg, const absl::Status& why);
  void CutOffOldestStranger();
  void EndLater(RelayLeg& leg, const char* why);

  const std::shared_ptr<Streams> streams_;
  std::mutex mutex_;  // gRPC calls nobody back on the thread that starts an operation
  std::condition_variable gone_;
  bool closed_ = false;  // guarded by mutex_, as all that follow
  RelayBook book_;
  std::map<RelayLeg*, LegPtr> legs_;          // until gRPC is done with them
  std::deque<RelayLeg*> strangers_;           // oldest first
  std::map<RelayCallId, RelayLeg*> waiting_;  // legs that wait for the end that was asked
};

// Brings calls for data connections to the desk; lives as long as the server.
class RelayService final : public grpc::CallbackGenericService {
 public:
  explicit RelayService(std::shared_ptr<RelayDesk> desk) : desk_(std::move(desk)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const std::shared_ptr<RelayDesk> desk_;
};

}  // namespace runnel
