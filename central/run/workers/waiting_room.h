#pragma once

// Between runs: devices dial in, are enrolled, and wait for the next one. When a run begins, the
// room leaves its port to it, sends the devices there, and opens again when the port is free.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/run/machines/roster.h"
#include "central/run/workers/local_workers.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/control/members.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {

class WaitingRoom final : public CentralControlObserver {
 public:
  // Borrowed; all outlive the room.
  struct Parts {
    ControlTransport* control = nullptr;
    const Clock* clock = nullptr;
    Logger* logger = nullptr;
    Enrolment enrolment = {};
    // Shows the room to commands of this host, as long as the result lives.
    std::function<absl::StatusOr<std::shared_ptr<void>>(const std::string& control_address)> show;
    // A line for people.
    std::function<void(const std::string& text)> print;
  };

  // listen: HOST:PORT.
  WaitingRoom(std::string listen, Parts parts)
      : listen_(std::move(listen)), parts_(std::move(parts)) {}

  // On the calling thread, until Stop. Errors of ControlTransport::Listen the first time; later a
  // port in use is waited for.
  absl::Status Run();

  // Any thread.
  void Stop();
  // Unavailable: a run has the port.
  absl::StatusOr<MemberList> Members();
  absl::Status GiveWay();

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override;
  void OnGone(ConnectionId id, const absl::Status& status) override;

 private:
  // From listening to the end of all streams.
  absl::Status Open();
  absl::Status Begin(bool is_first);
  void Enter(ConnectionId id, const WorkerHello& hello);
  void CarryOut(const RunEffects& effects);
  // Posts to the loop, if the room is open.
  void Post(EventLoop::Task task);
  // False: told to stop meanwhile.
  bool Pause(int64_t pause_ms);

  std::string listen_;
  const Parts parts_;
  bool was_open_ = false;
  std::unique_ptr<CentralControl> server_;  // on the loop
  std::mutex mutex_;
  std::condition_variable stopping_;
  ThreadLoop* loop_ = nullptr;      // guarded by mutex_; null: closed
  std::unique_ptr<Roster> roster_;  // guarded by mutex_
  bool stopped_ = false;            // guarded by mutex_
};

}  // namespace runnel
