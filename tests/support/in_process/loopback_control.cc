#include "tests/support/in_process/loopback_control.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {

class LoopbackControl::Core {
 public:
  // One worker's stream. What is guarded is guarded by Core::mutex_, the rest lives on the loop.
  struct Stream {
    ConnectionId id;
    WorkerControlObserver* worker = nullptr;
    CentralControlObserver* central = nullptr;
    const void* listener = nullptr;  // the CentralControl
    bool worker_closes = false;      // guarded
    bool central_closes = false;     // guarded
    bool joined = false;
    bool ended = false;
  };
  using StreamPtr = std::shared_ptr<Stream>;

  Core() : thread_([this] { loop_.Run(); }) {}
  ~Core() {
    loop_.Stop();
    thread_.join();
  }

  // ---- any thread

  absl::StatusOr<std::string> AddListener(std::string address, const void* listener,
                                          CentralControlObserver* observer);
  // Nothing of the listener's is called afterwards.
  void RemoveListener(const std::string& address, const void* listener);
  absl::StatusOr<StreamPtr> AddStream(const std::string& address, int64_t timeout_ms,
                                      WorkerControlObserver* observer);
  absl::Status SendToCentral(const StreamPtr& stream, WorkerMessage message);
  absl::Status SendToWorker(ConnectionId id, const void* listener, CentralMessage message);
  void CloseByWorker(const StreamPtr& stream);
  void CloseByCentral(ConnectionId id, const void* listener);
  void Break(ConnectionId id);
  // Returns when everything posted before has run.
  void Flush();

 private:
  struct Listening {
    const void* listener = nullptr;
    CentralControlObserver* observer = nullptr;
  };

  StreamPtr FindLocked(ConnectionId id, const void* listener) const;
  void PostEnd(StreamPtr stream, absl::Status status);

  // ---- on the loop

  void DeliverToCentral(const StreamPtr& stream, WorkerMessage message);
  void End(const StreamPtr& stream, const absl::Status& status);

  MonotonicClock clock_;
  ThreadLoop loop_{&clock_};
  mutable std::mutex mutex_;
  std::condition_variable listener_added_;
  std::map<std::string, Listening> listeners_;  // guarded by mutex_
  std::map<ConnectionId, StreamPtr> streams_;   // that have not ended; guarded by mutex_
  ConnectionId last_id_;                        // guarded by mutex_
  int last_port_ = 0;                           // guarded by mutex_
  std::thread thread_;                          // last: it runs while all of the above lives
};

namespace {

using Core = LoopbackControl::Core;

class LoopbackWorker final : public WorkerControl {
 public:
  LoopbackWorker(std::shared_ptr<Core> core, Core::StreamPtr stream)
      : core_(std::move(core)), stream_(std::move(stream)) {}
  ~LoopbackWorker() override {
    Close();
    core_->Flush();
  }
  absl::Status Send(WorkerMessage message) override {
    return core_->SendToCentral(stream_, std::move(message));
  }
  absl::StatusOr<std::string> LocalHost() const override { return "127.0.0.1"; }
  void Close() override { core_->CloseByWorker(stream_); }

 private:
  std::shared_ptr<Core> core_;
  Core::StreamPtr stream_;
};

class LoopbackCentral final : public CentralControl {
 public:
  explicit LoopbackCentral(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~LoopbackCentral() override {
    if (!address_.empty()) core_->RemoveListener(address_, this);
  }
  absl::Status Listen(const std::string& address, CentralControlObserver* observer) {
    absl::StatusOr<std::string> chosen = core_->AddListener(address, this, observer);
    if (chosen.ok()) address_ = *std::move(chosen);
    return chosen.status();
  }
  std::string address() const override { return address_; }
  absl::Status Send(ConnectionId id, CentralMessage message) override {
    return core_->SendToWorker(id, this, std::move(message));
  }
  TransferProgress Transfer(ConnectionId) override { return {}; }
  void Close(ConnectionId id) override { core_->CloseByCentral(id, this); }

 private:
  std::shared_ptr<Core> core_;
  std::string address_;  // empty: does not listen
};

}  // namespace

absl::StatusOr<std::string> LoopbackControl::Core::AddListener(std::string address,
                                                               const void* listener,
                                                               CentralControlObserver* observer) {
  if (address.empty()) return absl::InvalidArgumentError("address '': is empty");
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::EndsWith(address, ":0")) {
    address.pop_back();
    absl::StrAppend(&address, ++last_port_);
  }
  if (!listeners_.emplace(address, Listening{listener, observer}).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address, ": the port is in use"));
  }
  listener_added_.notify_all();
  return address;
}

void LoopbackControl::Core::RemoveListener(const std::string& address, const void* listener) {
  std::vector<StreamPtr> streams;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    listeners_.erase(address);
    for (const auto& [id, stream] : streams_) {
      if (stream->listener != listener) continue;
      stream->central_closes = true;
      streams.push_back(stream);
    }
  }
  for (StreamPtr& stream : streams) PostEnd(std::move(stream), absl::OkStatus());
  Flush();
}

absl::StatusOr<LoopbackControl::Core::StreamPtr> LoopbackControl::Core::AddStream(
    const std::string& address, int64_t timeout_ms, WorkerControlObserver* observer) {
  if (address.empty()) return absl::InvalidArgumentError("address '': is empty");
  std::unique_lock<std::mutex> lock(mutex_);
  const auto listens = [&] { return listeners_.count(address) > 0; };
  if (!listener_added_.wait_for(lock, std::chrono::milliseconds(timeout_ms), listens)) {
    return absl::UnavailableError(
        absl::StrCat("no central answers at ", address, " within ", timeout_ms, " ms"));
  }
  const Listening& listening = listeners_.at(address);
  auto stream = std::make_shared<Stream>();
  last_id_ = last_id_.next();
  stream->id = last_id_;
  stream->worker = observer;
  stream->central = listening.observer;
  stream->listener = listening.listener;
  streams_.emplace(stream->id, stream);
  return stream;
}

absl::Status LoopbackControl::Core::SendToCentral(const StreamPtr& stream, WorkerMessage message) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream->worker_closes) return absl::UnavailableError("control stream: is closed");
  loop_.Post([this, stream, message = std::move(message)]() mutable {
    DeliverToCentral(stream, std::move(message));
  });
  return absl::OkStatus();
}

absl::Status LoopbackControl::Core::SendToWorker(ConnectionId id, const void* listener,
                                                 CentralMessage message) {
  std::lock_guard<std::mutex> lock(mutex_);
  const StreamPtr stream = FindLocked(id, listener);
  if (stream == nullptr) {
    return absl::NotFoundError(absl::StrCat("control stream ", id.value(), ": is not there"));
  }
  if (stream->central_closes) return absl::UnavailableError("control stream: is closed");
  loop_.Post([stream, message = std::move(message)]() mutable {
    if (!stream->ended) stream->worker->OnMessage(std::move(message));
  });
  return absl::OkStatus();
}

void LoopbackControl::Core::CloseByWorker(const StreamPtr& stream) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stream->worker_closes = true;
  }
  PostEnd(stream, absl::OkStatus());
}

void LoopbackControl::Core::CloseByCentral(ConnectionId id, const void* listener) {
  StreamPtr stream;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stream = FindLocked(id, listener);
    if (stream == nullptr) return;
    stream->central_closes = true;
  }
  PostEnd(std::move(stream), absl::OkStatus());
}

void LoopbackControl::Core::Break(ConnectionId id) {
  StreamPtr stream;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stream = FindLocked(id, nullptr);
  }
  if (stream != nullptr) {
    PostEnd(std::move(stream), absl::UnavailableError("control stream: the connection broke"));
  }
}

void LoopbackControl::Core::Flush() {
  std::promise<void> done;
  loop_.Post([&done] { done.set_value(); });
  done.get_future().wait();
}

LoopbackControl::Core::StreamPtr LoopbackControl::Core::FindLocked(ConnectionId id,
                                                                   const void* listener) const {
  const auto at = streams_.find(id);
  if (at == streams_.end()) return nullptr;
  return listener == nullptr || at->second->listener == listener ? at->second : nullptr;
}

void LoopbackControl::Core::PostEnd(StreamPtr stream, absl::Status status) {
  loop_.Post(
      [this, stream = std::move(stream), status = std::move(status)] { End(stream, status); });
}

void LoopbackControl::Core::DeliverToCentral(const StreamPtr& stream, WorkerMessage message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stream->ended || stream->central_closes) return;
  }
  if (!stream->joined) {
    if (!std::holds_alternative<WorkerHello>(message)) {
      return End(stream, absl::InvalidArgumentError("hello: is not the first message"));
    }
    stream->joined = true;
    stream->central->OnJoined(stream->id);
  }
  stream->central->OnMessage(stream->id, std::move(message));
}

void LoopbackControl::Core::End(const StreamPtr& stream, const absl::Status& status) {
  if (stream->ended) return;
  stream->ended = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stream->worker_closes = true;
    streams_.erase(stream->id);
  }
  stream->worker->OnClosed(status);
  if (stream->joined) stream->central->OnGone(stream->id, status);
}

LoopbackControl::LoopbackControl() : core_(std::make_shared<Core>()) {}
LoopbackControl::~LoopbackControl() = default;

absl::StatusOr<std::unique_ptr<CentralControl>> LoopbackControl::Listen(
    const std::string& address, CentralControlObserver* observer) {
  auto central = std::make_unique<LoopbackCentral>(core_);
  if (absl::Status status = central->Listen(address, observer); !status.ok()) return status;
  return central;
}

absl::StatusOr<std::unique_ptr<WorkerControl>> LoopbackControl::Connect(
    const std::string& address, int64_t timeout_ms, WorkerControlObserver* observer) {
  absl::StatusOr<Core::StreamPtr> stream = core_->AddStream(address, timeout_ms, observer);
  if (!stream.ok()) return stream.status();
  return std::make_unique<LoopbackWorker>(core_, *std::move(stream));
}

void LoopbackControl::Break(ConnectionId id) { core_->Break(id); }

}  // namespace runnel
