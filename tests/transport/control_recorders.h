#pragma once

// Observers of control streams that write down what they see and can be waited for.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "proto/transport/control/control_channel.h"

namespace runnel {

// Something that threads change and a test waits for. No timing is asserted: the deadline only
// ends a test that would hang.
class Awaited {
 public:
  // False: the condition did not come true in time.
  bool WaitFor(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), condition);
  }

 protected:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class WorkerRecorder final : public WorkerControlObserver, public Awaited {
 public:
  void OnMessage(CentralMessage message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    after_close_ |= closed_.has_value();
    messages_.push_back(std::move(message));
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    after_close_ |= closed_.has_value();
    closed_ = status;
    changed_.notify_all();
  }

  bool WaitForMessages(size_t count) {
    return WaitFor([&] { return messages_.size() >= count; });
  }
  // How it ended; Internal: it did not.
  absl::Status WaitForClosed() {
    if (!WaitFor([&] { return closed_.has_value(); })) return absl::InternalError("still open");
    return *closed_;
  }
  std::vector<CentralMessage> messages() {
    std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }
  bool closed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_.has_value();
  }
  // Whether anything came after the end.
  bool after_close() {
    std::lock_guard<std::mutex> lock(mutex_);
    return after_close_;
  }

 private:
  std::vector<CentralMessage> messages_;
  std::optional<absl::Status> closed_;
  bool after_close_ = false;
};

class CentralRecorder final : public CentralControlObserver, public Awaited {
 public:
  void OnJoined(ConnectionId id) override {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_rule_ |= streams_.count(id) > 0;
    streams_[id];
    order_.push_back(id);
    changed_.notify_all();
  }
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_rule_ |= streams_.count(id) == 0 || streams_[id].gone.has_value();
    streams_[id].messages.push_back(std::move(message));
    changed_.notify_all();
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_rule_ |= streams_.count(id) == 0 || streams_[id].gone.has_value();
    streams_[id].gone = status;
    changed_.notify_all();
  }

  // The id of the n-th stream that joined, counted from 1.
  std::optional<ConnectionId> WaitForJoined(size_t n) {
    if (!WaitFor([&] { return order_.size() >= n; })) return std::nullopt;
    return order_[n - 1];
  }
  bool WaitForMessages(ConnectionId id, size_t count) {
    return WaitFor([&] { return streams_[id].messages.size() >= count; });
  }
  // How it ended; Internal: it did not.
  absl::Status WaitForGone(ConnectionId id) {
    if (!WaitFor([&] { return streams_[id].gone.has_value(); })) {
      return absl::InternalError("still there");
    }
    return *streams_[id].gone;
  }
  std::vector<WorkerMessage> messages(ConnectionId id) {
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_[id].messages;
  }
  size_t joined() {
    std::lock_guard<std::mutex> lock(mutex_);
    return order_.size();
  }
  // Whether a call came out of order: before OnJoined, after OnGone, or twice.
  bool broken_rule() {
    std::lock_guard<std::mutex> lock(mutex_);
    return broken_rule_;
  }

 private:
  struct Seen {
    std::vector<WorkerMessage> messages;
    std::optional<absl::Status> gone;
  };
  std::map<ConnectionId, Seen> streams_;
  std::vector<ConnectionId> order_;
  bool broken_rule_ = false;
};

// A hello that is valid.
inline WorkerHello HelloOf(const std::string& name) {
  WorkerHello hello;
  hello.name = name;
  hello.data_address = "127.0.0.1:1";
  hello.numerics_class = "n";
  return hello;
}

}  // namespace runnel
