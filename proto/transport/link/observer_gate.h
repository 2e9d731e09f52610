#pragma once

// The door to a ConnectionObserver: lets one call in at a time, nothing after OnClosed, and nothing
// once the connection's owner has let go of it.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Thread-safe. No lock is held while the observer runs, so it may call the connection.
class ObserverGate {
 public:
  explicit ObserverGate(ConnectionObserver* observer) : observer_(observer) {}

  // The observer's answer; Cancelled if nobody listens any more.
  absl::Status Header(const FrameHeader& header);
  void Deliver(Frame frame);
  // The first call reaches the observer; later ones have no effect. On return of any of them no
  // other call is running nor will one come: the observer may go. Within one of the observer's own
  // calls it does not wait for that one.
  void Closed(const absl::Status& status);

 private:
  // Waits for its turn. Null: nobody listens.
  ConnectionObserver* Enter();
  void Leave();

  std::mutex mutex_;
  std::condition_variable left_;
  ConnectionObserver* observer_;  // guarded by mutex_; null once closed
  int depth_ = 0;                 // guarded by mutex_: calls of `inside_` that are running
  std::thread::id inside_;        // guarded by mutex_
};

}  // namespace runnel
