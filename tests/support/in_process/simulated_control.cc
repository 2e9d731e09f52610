#include "tests/support/in_process/simulated_control.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/transport/control/control_session.h"

namespace runnel {
namespace {

bool HasState(const WorkerMessage& message) {
  return std::holds_alternative<Snapshot>(message) ||
         std::holds_alternative<LayersFetched>(message);
}
bool HasState(const CentralMessage& message) {
  return std::holds_alternative<PrepareStage>(message);
}

// One direction of a stream, at its sender.
template <typename Message>
struct Outgoing {
  std::deque<std::shared_ptr<const Message>> waiting;  // have not left
  std::deque<std::shared_ptr<const Message>> states;   // that are handed over one after the other
  std::map<uint64_t, std::shared_ptr<const Message>> left;  // the peer may not have them
  uint64_t next = 0;
  int64_t last_arrival_ns = 0;
  std::deque<std::function<void()>> held;  // on their way to a peer that nothing reaches

  bool empty() const { return waiting.empty() && states.empty(); }
};

struct Stream {
  ConnectionId id;
  std::string worker_node, central_node, address;
  WorkerControlObserver* worker = nullptr;    // null: nobody listens any more
  CentralControlObserver* central = nullptr;  // the same
  int64_t listener = 0;                       // number of the listener that accepted it
  ControlSession worker_session, central_session;
  Outgoing<WorkerMessage> up;
  Outgoing<CentralMessage> down;
  int64_t connection = 1;  // number; what was sent on an earlier one is lost
  bool worker_connected = true, central_connected = true;
  bool worker_closes = false, central_closes = false, end_sent = false;
  bool joined = false;
  bool worker_ended = false, central_ended = false;
  int64_t broken_ns = 0, refused_ns = 0;
};
using StreamPtr = std::shared_ptr<Stream>;

// What is held holds its stream.
void DropHeld(Stream& stream) {
  stream.up.held.clear();
  stream.down.held.clear();
}

}  // namespace

class SimulatedControl::Core : public std::enable_shared_from_this<SimulatedControl::Core> {
 public:
  Core(SimulatedNetwork* network, const SimulatedControlOptions& options)
      : network_(*network),
        options_(options),
        random_(options.seed, RandomPurpose::kNetworkSimulation, 1, 1) {}
  ~Core() {
    for (const StreamPtr& stream : streams_) DropHeld(*stream);
  }

  absl::StatusOr<int64_t> Listen(const std::string& node, const std::string& address,
                                 CentralControlObserver* observer) {
    if (listeners_.contains(address))
      return absl::AlreadyExistsError(absl::StrCat("cannot listen on ", address, ": it is in use"));
    listeners_[address] = {node, observer, ++last_listener_};
    return last_listener_;
  }
  void StopListening(int64_t listener) {
    std::erase_if(listeners_, [=](const auto& entry) { return entry.second.number == listener; });
    for (const StreamPtr& stream : Streams()) {
      if (stream->listener != listener) continue;
      CloseByCentral(stream);
      stream->central = nullptr;
    }
  }

  absl::StatusOr<StreamPtr> Connect(const std::string& node, const std::string& address,
                                    WorkerControlObserver* observer) {
    const auto found = listeners_.find(address);
    if (found == listeners_.end() || !network_.passes(node, found->second.node))
      return absl::UnavailableError(absl::StrCat("no central answers at ", address));
    auto stream = std::make_shared<Stream>();
    stream->id = ConnectionId(++last_id_);
    stream->worker_node = node;
    stream->central_node = found->second.node;
    stream->address = address;
    stream->worker = observer;
    stream->central = found->second.observer;
    stream->listener = found->second.number;
    streams_.push_back(stream);
    return stream;
  }

  StreamPtr Find(ConnectionId id, int64_t listener) const {
    for (const StreamPtr& stream : streams_) {
      if (stream->id == id && stream->listener == listener && !stream->central_ended) return stream;
    }
    return nullptr;
  }

  absl::Status Send(const StreamPtr& stream, WorkerMessage message) {
    if (stream->worker_closes || stream->worker_ended)
      return absl::UnavailableError("control stream: is closed");
    // Those that cannot leave now are left out.
    if (std::holds_alternative<Heartbeat>(message)) {
      if (!stream->worker_connected) return absl::OkStatus();
      Transmit(stream, stream->up, std::make_shared<const WorkerMessage>(std::move(message)),
               /*counts=*/false);
      return absl::OkStatus();
    }
    Queue(stream, stream->up, std::move(message));
    return absl::OkStatus();
  }
  absl::Status Send(const StreamPtr& stream, CentralMessage message) {
    if (stream->central_closes) return absl::UnavailableError("control stream: is closed");
    Queue(stream, stream->down, std::move(message));
    return absl::OkStatus();
  }

  void CloseByWorker(const StreamPtr& stream) {
    if (std::exchange(stream->worker_closes, true) || stream->worker_ended) return;
    if (!stream->worker_connected)
      return EndWorker(stream, absl::UnavailableError("control stream: the connection is broken"));
    Pump(stream);
    Later(options_.close_ns, [this, stream] { EndWorker(stream, absl::OkStatus()); });
  }
  void CloseByCentral(const StreamPtr& stream) {
    if (std::exchange(stream->central_closes, true) || stream->central_ended) return;
    if (!stream->central_connected) return EndCentralSoon(stream, absl::OkStatus());
    Pump(stream);
    Later(options_.close_ns, [this, stream] {
      EndCentral(stream, absl::UnavailableError("the worker did not end in time"));
    });
  }
  void ForgetWorker(const StreamPtr& stream) { stream->worker = nullptr; }

  void LoseNode(const std::string& node) {
    std::erase_if(listeners_, [&](const auto& entry) { return entry.second.node == node; });
    for (const StreamPtr& stream : Streams()) {
      const bool is_worker = stream->worker_node == node;
      if (!is_worker && stream->central_node != node) continue;
      ++stream->connection;
      if (is_worker) {
        stream->worker = nullptr;
        stream->worker_connected = false;
        stream->worker_ended = true;
        Arriving(stream, stream->up, [this, stream] { CentralBroken(stream); });
      } else {
        stream->central = nullptr;
        stream->central_connected = false;
        stream->central_ended = true;
        Arriving(stream, stream->down, [this, stream] { WorkerBroken(stream); });
      }
    }
  }
  void BreakConnections(const std::string& node) {
    for (const StreamPtr& stream : Streams()) {
      if (stream->worker_node != node && stream->central_node != node) continue;
      ++stream->connection;
      WorkerBroken(stream);
      CentralBroken(stream);
    }
  }
  void Flush() {
    for (const StreamPtr& stream : Streams()) {
      FlushHeld(*stream, stream->up);
      FlushHeld(*stream, stream->down);
    }
  }
  size_t most_kept() const {
    size_t most = 0;
    for (const StreamPtr& stream : streams_) {
      most = std::max(
          {most, stream->worker_session.kept_messages(), stream->central_session.kept_messages()});
    }
    return most;
  }

 private:
  struct Listener {
    std::string node;
    CentralControlObserver* observer = nullptr;
    int64_t number = 0;
  };

  // Observers may make and end streams.
  std::vector<StreamPtr> Streams() {
    std::erase_if(streams_, [](const StreamPtr& stream) {
      if (!stream->worker_ended || !stream->central_ended) return false;
      DropHeld(*stream);
      return true;
    });
    return {streams_.begin(), streams_.end()};
  }
  void Later(int64_t delay_ns, std::function<void()> what) {
    network_.ScheduleAt(network_.now_ns() + delay_ns,
                        [weak = weak_from_this(), what = std::move(what)] {
                          if (const auto alive = weak.lock()) what();
                        });
  }
  int64_t DrawDelay(int64_t least, int64_t most) {
    if (most <= least) return least;
    return least +
           static_cast<int64_t>(random_.Uniform(draws_++) * static_cast<float>(most - least));
  }

  // ---- messages

  ControlSession& SenderOf(Stream& stream, const Outgoing<WorkerMessage>&) {
    return stream.worker_session;
  }
  ControlSession& SenderOf(Stream& stream, const Outgoing<CentralMessage>&) {
    return stream.central_session;
  }

  template <typename Message>
  void Queue(const StreamPtr& stream, Outgoing<Message>& way, Message message) {
    const bool has_state = HasState(message);
    auto shared = std::make_shared<const Message>(std::move(message));
    if (!has_state) {
      way.waiting.push_back(std::move(shared));
      return Pump(stream);
    }
    way.states.push_back(std::move(shared));
    if (way.states.size() == 1) HandOver(stream, way);
  }
  // The state in front leaves when it has been handed over.
  template <typename Message>
  void HandOver(const StreamPtr& stream, Outgoing<Message>& way) {
    Later(DrawDelay(0, options_.max_state_ns), [this, stream, &way] {
      if (way.states.empty()) return;
      way.waiting.push_back(std::move(way.states.front()));
      way.states.pop_front();
      if (!way.states.empty()) HandOver(stream, way);
      Pump(stream);
    });
  }
  void Pump(const StreamPtr& stream) {
    if (stream->worker_connected) PumpWay(stream, stream->up);
    if (stream->central_connected) PumpWay(stream, stream->down);
    const bool closes =
        (stream->worker_closes && stream->worker_connected && stream->up.empty()) ||
        (stream->central_closes && stream->central_connected && stream->down.empty());
    if (!closes || std::exchange(stream->end_sent, true)) return;
    // Behind what has left.
    const auto end = [this, stream] {
      EndWorker(stream, absl::OkStatus());
      EndCentral(stream, absl::OkStatus());
    };
    if (stream->central_closes) {
      Arriving(stream, stream->down, end);
    } else {
      Arriving(stream, stream->up, end);
    }
  }
  template <typename Message>
  void PumpWay(const StreamPtr& stream, Outgoing<Message>& way) {
    ControlSession& session = SenderOf(*stream, way);
    while (const std::optional<std::string> again = session.NextAgain()) {
      uint64_t number = 0;
      std::memcpy(&number, again->data(), sizeof(number));
      Transmit(stream, way, way.left.at(number), /*counts=*/true);
    }
    while (!way.waiting.empty()) {
      const uint64_t number = way.next++;
      std::string key(sizeof(number), '\0');
      std::memcpy(key.data(), &number, sizeof(number));
      session.Keep(std::move(key));
      way.left[number] = way.waiting.front();
      Transmit(stream, way, std::move(way.waiting.front()), /*counts=*/true);
      way.waiting.pop_front();
    }
  }
  template <typename Message>
  void Transmit(const StreamPtr& stream, Outgoing<Message>& way,
                std::shared_ptr<const Message> message, bool counts) {
    Arriving(stream, way,
             [this, stream, message = std::move(message), counts, connection = stream->connection] {
               if (stream->connection == connection) Arrived(stream, *message, counts);
             });
  }
  // `what` happens when it has travelled, behind what left before.
  template <typename Message>
  void Arriving(const StreamPtr& stream, Outgoing<Message>& way, std::function<void()> what) {
    way.last_arrival_ns =
        std::max(way.last_arrival_ns,
                 network_.now_ns() + DrawDelay(options_.min_delay_ns, options_.max_delay_ns));
    Later(way.last_arrival_ns - network_.now_ns(), [this, stream, &way, what = std::move(what)] {
      if (stream->worker_ended && stream->central_ended) return;
      way.held.push_back(what);
      FlushHeld(*stream, way);
    });
  }
  template <typename Message>
  void FlushHeld(const Stream& stream, Outgoing<Message>& way) {
    while (!way.held.empty() && network_.passes(stream.worker_node, stream.central_node)) {
      const std::function<void()> what = std::move(way.held.front());
      way.held.pop_front();
      what();
    }
  }
  template <typename Message>
  static void Settle(ControlSession& session, Outgoing<Message>& way, int64_t count) {
    session.Acknowledge(count).IgnoreError();
    while (way.left.size() > session.kept_messages()) way.left.erase(way.left.begin());
  }

  void Arrived(const StreamPtr& stream, const WorkerMessage& message, bool counts) {
    if (stream->central_ended) return;
    if (counts) {
      stream->central_session.Take();
      if (const auto count = stream->central_session.DueAck()) {
        Arriving(stream, stream->down, [stream, count = *count, connection = stream->connection] {
          if (stream->connection == connection) Settle(stream->worker_session, stream->up, count);
        });
      }
    }
    if (stream->central == nullptr || stream->central_closes) return;
    if (!std::exchange(stream->joined, true)) stream->central->OnJoined(stream->id);
    stream->central->OnMessage(stream->id, message);
  }
  void Arrived(const StreamPtr& stream, const CentralMessage& message, bool) {
    if (stream->worker_ended) return;
    stream->worker_session.Take();
    if (const auto count = stream->worker_session.DueAck()) {
      Arriving(stream, stream->up, [stream, count = *count, connection = stream->connection] {
        if (stream->connection == connection) Settle(stream->central_session, stream->down, count);
      });
    }
    if (stream->worker != nullptr) stream->worker->OnMessage(message);
  }

  // ---- connections

  void WorkerBroken(const StreamPtr& stream) {
    if (stream->worker_ended || !std::exchange(stream->worker_connected, false)) return;
    if (stream->worker_closes) return EndWorker(stream, absl::UnavailableError("central is gone"));
    stream->broken_ns = network_.now_ns();
    stream->refused_ns = 0;
    Later(options_.redial_ns, [this, stream] { Redial(stream); });
  }
  void CentralBroken(const StreamPtr& stream) {
    if (stream->central_ended || !std::exchange(stream->central_connected, false)) return;
    if (stream->central_closes) return EndCentral(stream, absl::OkStatus());
    const absl::Status why = absl::UnavailableError("the connection broke");
    if (!stream->joined || stream->central == nullptr ||
        !stream->central->OnBroken(stream->id, why))
      EndCentral(stream, why);
  }
  void Redial(const StreamPtr& stream) {
    if (stream->worker_ended || stream->worker_connected) return;
    const int64_t now_ns = network_.now_ns();
    if (now_ns - stream->broken_ns > options_.resume_ns)
      return EndWorker(stream, absl::UnavailableError("central is gone: nothing came for long"));
    const auto again = [this, stream] {
      Later(options_.redial_ns, [this, stream] { Redial(stream); });
    };
    if (!network_.passes(stream->worker_node, stream->central_node)) {
      stream->refused_ns = 0;
      return again();
    }
    const auto found = listeners_.find(stream->address);
    if (found == listeners_.end()) {
      if (stream->refused_ns == 0) stream->refused_ns = now_ns;
      if (now_ns - stream->refused_ns > options_.refused_ns)
        return EndWorker(stream, absl::UnavailableError("central is gone: nobody listens there"));
      return again();
    }
    if (found->second.number != stream->listener || stream->central_ended)
      return EndWorker(stream, absl::UnavailableError("central does not know this stream"));
    Reconnect(stream);
  }
  void Reconnect(const StreamPtr& stream) {
    ++stream->connection;
    stream->worker_connected = stream->central_connected = true;
    const int64_t at_worker = stream->worker_session.received();
    const int64_t at_central = stream->central_session.received();
    stream->worker_session.Connect(at_central).IgnoreError();
    stream->central_session.Connect(at_worker).IgnoreError();
    while (stream->up.left.size() > stream->worker_session.kept_messages())
      stream->up.left.erase(stream->up.left.begin());
    while (stream->down.left.size() > stream->central_session.kept_messages())
      stream->down.left.erase(stream->down.left.begin());
    if (stream->joined && stream->central != nullptr) stream->central->OnResumed(stream->id);
    Pump(stream);
  }
  void EndWorker(const StreamPtr& stream, const absl::Status& status) {
    if (std::exchange(stream->worker_ended, true)) return;
    ++stream->connection;
    if (stream->worker != nullptr) std::exchange(stream->worker, nullptr)->OnClosed(status);
    if (!stream->central_ended && !stream->central_closes)
      Arriving(stream, stream->up, [this, stream] { CentralBroken(stream); });
  }
  void EndCentralSoon(const StreamPtr& stream, const absl::Status& status) {
    Later(0, [this, stream, status] { EndCentral(stream, status); });
  }
  void EndCentral(const StreamPtr& stream, const absl::Status& status) {
    if (std::exchange(stream->central_ended, true)) return;
    if (stream->joined && stream->central != nullptr)
      std::exchange(stream->central, nullptr)->OnGone(stream->id, status);
    if (!stream->worker_ended)
      Arriving(stream, stream->down, [this, stream] { WorkerBroken(stream); });
  }

  SimulatedNetwork& network_;
  const SimulatedControlOptions options_;
  const CounterRandom random_;
  uint64_t draws_ = 0;
  std::map<std::string, Listener> listeners_;  // by address
  int64_t last_listener_ = 0;
  std::vector<StreamPtr> streams_;
  int64_t last_id_ = 0;
};

namespace {

using Core = SimulatedControl::Core;

class SimulatedWorkerControl final : public WorkerControl {
 public:
  SimulatedWorkerControl(std::shared_ptr<Core> core, StreamPtr stream, std::string host)
      : core_(std::move(core)), stream_(std::move(stream)), host_(std::move(host)) {}
  ~SimulatedWorkerControl() override {
    core_->CloseByWorker(stream_);
    core_->ForgetWorker(stream_);
  }
  absl::Status Send(WorkerMessage message) override {
    return core_->Send(stream_, std::move(message));
  }
  absl::StatusOr<std::string> LocalHost() const override { return host_; }
  void Close() override { core_->CloseByWorker(stream_); }

 private:
  const std::shared_ptr<Core> core_;
  const StreamPtr stream_;
  const std::string host_;
};

class SimulatedCentralControl final : public CentralControl {
 public:
  SimulatedCentralControl(std::shared_ptr<Core> core, std::string address, int64_t listener)
      : core_(std::move(core)), address_(std::move(address)), listener_(listener) {}
  ~SimulatedCentralControl() override { core_->StopListening(listener_); }
  std::string address() const override { return address_; }
  absl::Status Send(ConnectionId id, CentralMessage message) override {
    const StreamPtr stream = core_->Find(id, listener_);
    if (stream == nullptr) return absl::NotFoundError("control stream: is not there");
    return core_->Send(stream, std::move(message));
  }
  TransferProgress Transfer(ConnectionId) override { return {}; }
  void Close(ConnectionId id) override {
    if (const StreamPtr stream = core_->Find(id, listener_)) core_->CloseByCentral(stream);
  }

 private:
  const std::shared_ptr<Core> core_;
  const std::string address_;
  const int64_t listener_;
};

class SimulatedControlTransport final : public ControlTransport {
 public:
  SimulatedControlTransport(std::shared_ptr<Core> core, std::string node, std::string host)
      : core_(std::move(core)), node_(std::move(node)), host_(std::move(host)) {}

  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(
      const std::string& address, CentralControlObserver* observer) override {
    const absl::StatusOr<int64_t> listener = core_->Listen(node_, address, observer);
    if (!listener.ok()) return listener.status();
    return std::make_unique<SimulatedCentralControl>(core_, address, *listener);
  }
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address, int64_t,
                                                         WorkerControlObserver* observer) override {
    absl::StatusOr<StreamPtr> stream = core_->Connect(node_, address, observer);
    if (!stream.ok()) return stream.status();
    return std::make_unique<SimulatedWorkerControl>(core_, *std::move(stream), host_);
  }

 private:
  const std::shared_ptr<Core> core_;
  const std::string node_;
  const std::string host_;
};

}  // namespace

SimulatedControl::SimulatedControl(SimulatedNetwork* network,
                                   const SimulatedControlOptions& options)
    : core_(std::make_shared<Core>(network, options)) {}
SimulatedControl::~SimulatedControl() = default;

std::unique_ptr<ControlTransport> SimulatedControl::NewTransport(const std::string& node,
                                                                 const std::string& host) {
  return std::make_unique<SimulatedControlTransport>(core_, node, host);
}
void SimulatedControl::LoseNode(const std::string& node) { core_->LoseNode(node); }
void SimulatedControl::BreakConnections(const std::string& node) { core_->BreakConnections(node); }
void SimulatedControl::Flush() { core_->Flush(); }
size_t SimulatedControl::most_kept() const { return core_->most_kept(); }

}  // namespace runnel
