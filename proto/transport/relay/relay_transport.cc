#include "proto/transport/relay/relay_transport.h"

#include <functional>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/transport/link/address.h"
#include "proto/transport/relay/relay_hello.h"

namespace runnel {

using Way = DialRoute::Way;

// Routes by address. Thread-safe.
class RelayTransport::Routes {
 public:
  explicit Routes(const Clock* clock) : clock_(clock) {}

  int64_t NowNanos() const { return clock_->NowNanos(); }
  Way Next(const std::string& address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return by_address_[address].Next(NowNanos());
  }
  void Heard(const std::string& address, Way way) {
    const std::lock_guard<std::mutex> lock(mutex_);
    by_address_[address].Heard(way, NowNanos());
  }
  void Ended(const std::string& address, Way way, bool heard, int64_t began_ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    by_address_[address].Ended(way, heard, began_ns, NowNanos());
  }

 private:
  const Clock* const clock_;
  std::mutex mutex_;
  std::map<std::string, DialRoute> by_address_;  // guarded by mutex_
};

namespace {

// The accepting end of a relayed connection, which is dialled all the same. What its owner sends
// before it stands waits.
class AnsweredConnection final : public Connection {
 public:
  explicit AnsweredConnection(std::string from) : from_(std::move(from)) {}
  ~AnsweredConnection() override { Abort(); }

  absl::Status Send(const Frame& frame) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (inner_ != nullptr) return inner_->Send(frame);
    if (is_open_ || closing_ || aborted_)
      return absl::UnavailableError("connection: closed, the frame is not sent");
    waiting_.push_back(frame);
    return absl::OkStatus();
  }
  void Close() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    if (inner_ != nullptr) inner_->Close();
  }
  int64_t queued_bytes() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (inner_ != nullptr) return inner_->queued_bytes();
    int64_t bytes = 0;
    for (const Frame& frame : waiting_)
      bytes += kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
    return bytes;
  }
  std::string peer() const override { return from_; }

  // Once.
  void Open(const RelayOptions& options, const Accepted& accepted, const std::string& ticket) {
    absl::Status failed;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (aborted_) return;
      is_open_ = true;
      auto dialled = options.transport->Dial(options.relay, accepted.observer, accepted.shaping);
      failed = dialled.status();
      if (dialled.ok()) Begin(*std::move(dialled), ticket);
    }
    if (!failed.ok()) accepted.observer->OnClosed(failed);
  }
  void Abort() {
    std::shared_ptr<Connection> inner;  // destroyed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    inner.swap(inner_);
  }

 private:
  void Begin(std::shared_ptr<Connection> inner, const std::string& ticket) {
    inner_ = std::move(inner);
    inner_->Send(MakeRelayHello({true, ticket})).IgnoreError();
    // A closed connection reports that itself.
    for (const Frame& frame : std::exchange(waiting_, {})) inner_->Send(frame).IgnoreError();
    if (closing_) inner_->Close();
  }

  const std::string from_;
  mutable std::mutex mutex_;
  std::shared_ptr<Connection> inner_;  // guarded by mutex_, as all that follow
  std::vector<Frame> waiting_;
  bool is_open_ = false;
  bool closing_ = false;
  bool aborted_ = false;
};

// Reports the outcome of a dial to the routes.
class Watcher final : public ConnectionObserver, public std::enable_shared_from_this<Watcher> {
 public:
  struct Events {
    std::function<void()> heard;
    std::function<void(bool heard)> ended;
  };
  Watcher(ConnectionObserver* observer, Events events)
      : observer_(observer), events_(std::move(events)) {}

  absl::Status OnHeader(const FrameHeader& header) override { return observer_->OnHeader(header); }
  void OnFrame(Frame frame) override {
    // The owner may let go of the connection, and so of this, within the call.
    const std::shared_ptr<Watcher> self = shared_from_this();
    if (!std::exchange(heard_, true)) events_.heard();
    observer_->OnFrame(std::move(frame));
  }
  void OnClosed(const absl::Status& status) override {
    const std::shared_ptr<Watcher> self = shared_from_this();
    events_.ended(heard_);
    observer_->OnClosed(status);
  }

 private:
  ConnectionObserver* const observer_;
  const Events events_;
  bool heard_ = false;
};

// The dialling end, straight or relayed.
class RoutedConnection final : public Connection {
 public:
  RoutedConnection(std::shared_ptr<Watcher> watcher, std::shared_ptr<Connection> inner)
      : watcher_(std::move(watcher)), inner_(std::move(inner)) {}
  // Before its observer.
  ~RoutedConnection() override { inner_.reset(); }

  absl::Status Send(const Frame& frame) override { return inner_->Send(frame); }
  void Close() override { inner_->Close(); }
  int64_t queued_bytes() const override { return inner_->queued_bytes(); }

 private:
  const std::shared_ptr<Watcher> watcher_;
  std::shared_ptr<Connection> inner_;
};

}  // namespace

// State shared by a listener and the connections that answer for it. Thread-safe.
class RelayTransport::Door {
 public:
  explicit Door(AcceptFn accept) : accept_(std::move(accept)) {}

  void Answer(const RelayOptions& options, const std::string& ticket, const std::string& from) {
    const auto connection = std::make_shared<AnsweredConnection>(from);
    Accepted accepted;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return;
      std::erase_if(answered_, [](const auto& weak) { return weak.expired(); });
      answered_.push_back(connection);
      accepted = accept_(connection);
    }
    if (accepted.observer != nullptr) connection->Open(options, accepted, ticket);
  }
  // Admits nobody any more, and cuts off those inside.
  void Close() {
    std::vector<std::weak_ptr<AnsweredConnection>> answered;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      answered.swap(answered_);
    }
    for (const auto& weak : answered) {
      if (const auto connection = weak.lock()) connection->Abort();
    }
  }

 private:
  const AcceptFn accept_;
  std::mutex mutex_;
  bool closed_ = false;                                      // guarded by mutex_
  std::vector<std::weak_ptr<AnsweredConnection>> answered_;  // guarded by mutex_
};

class RelayTransport::RelayListener final : public Listener {
 public:
  RelayListener(std::unique_ptr<Listener> inner, std::shared_ptr<Door> door)
      : inner_(std::move(inner)), door_(std::move(door)) {}
  ~RelayListener() override { door_->Close(); }

  std::string address() const override { return inner_->address(); }

 private:
  const std::unique_ptr<Listener> inner_;
  const std::shared_ptr<Door> door_;
};

RelayTransport::RelayTransport(RelayOptions options)
    : options_(std::move(options)), routes_(std::make_shared<Routes>(options_.clock)) {}

RelayTransport::~RelayTransport() = default;

absl::StatusOr<std::unique_ptr<Listener>> RelayTransport::Listen(const std::string& address,
                                                                 AcceptFn accept) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Listener> inner,
                          options_.transport->Listen(address, accept));
  auto door = std::make_shared<Door>(std::move(accept));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (door_.expired()) door_ = door;
  }
  return std::make_unique<RelayListener>(std::move(inner), std::move(door));
}

absl::StatusOr<std::shared_ptr<Connection>> RelayTransport::DialBy(Way way, const DialTarget& to,
                                                                   ConnectionObserver* observer,
                                                                   const LinkShaping& shaping) {
  const auto watcher = std::make_shared<Watcher>(
      observer, Watcher::Events{
                    [routes = routes_, way, address = to.address] { routes->Heard(address, way); },
                    [routes = routes_, way, address = to.address, began_ns = routes_->NowNanos()](
                        bool heard) { routes->Ended(address, way, heard, began_ns); }});
  const bool by_relay = way == Way::kRelay;
  RUNNEL_ASSIGN_OR_RETURN(
      std::shared_ptr<Connection> connection,
      options_.transport->Dial(by_relay ? options_.relay : to, watcher.get(), shaping));
  if (by_relay) connection->Send(MakeRelayHello({false, to.token, options_.self})).IgnoreError();
  return std::make_shared<RoutedConnection>(watcher, std::move(connection));
}

absl::StatusOr<std::shared_ptr<Connection>> RelayTransport::Dial(const DialTarget& to,
                                                                 ConnectionObserver* observer,
                                                                 const LinkShaping& shaping) {
  if (to.token.empty()) return options_.transport->Dial(to, observer, shaping);
  if (options_.relays_all) {
    RUNNEL_RETURN_IF_ERROR(ParseAddress(to.address).status());
    return DialBy(Way::kRelay, to, observer, shaping);
  }
  const Way way = routes_->Next(to.address);
  auto dialled = DialBy(way, to, observer, shaping);
  if (dialled.ok()) return dialled;
  // An address that may not be dialled from here, or a relay that is none.
  routes_->Ended(to.address, way, false, routes_->NowNanos());
  auto other = DialBy(way == Way::kRelay ? Way::kStraight : Way::kRelay, to, observer, shaping);
  return other.ok() || way == Way::kRelay ? std::move(other) : std::move(dialled);
}

void RelayTransport::Answer(const std::string& ticket, const std::string& from) {
  std::shared_ptr<Door> door;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    door = door_.lock();
  }
  if (door != nullptr) door->Answer(options_, ticket, from);
}

}  // namespace runnel
