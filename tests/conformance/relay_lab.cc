#include "tests/conformance/relay_lab.h"

#include <future>
#include <utility>
#include <variant>

#include "proto/base/clock.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/relay/relay_transport.h"

namespace runnel {
namespace {

constexpr char kToken[] = "token";
constexpr char kDialler[] = "worker/dialler";
constexpr char kAcceptor[] = "worker/acceptor";

// A link's target, as a stage has it.
class WithToken final : public Transport {
 public:
  explicit WithToken(Transport* inner) : inner_(inner) {}
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    return inner_->Listen(address, std::move(accept));
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    return inner_->Dial({to.address, to.peer, kToken}, observer, shaping);
  }

 private:
  Transport* const inner_;
};

class RelayLab final : public TransportLab, CentralControlObserver, WorkerControlObserver {
 public:
  RelayLab() {
    central_ = *control_->Listen("127.0.0.1:0", this);
    dialler_relay_ = NewRelay(dialler_base_.get(), kDialler);
    dialler_ = std::make_unique<WithToken>(dialler_relay_.get());
    acceptor_ = NewRelay(acceptor_base_.get(), kAcceptor);
    worker_ = *control_->Connect(central_->address(), kDeadline.count() * 1000, this);
    WorkerHello hello;
    hello.name = "acceptor";
    hello.data_address = "127.0.0.1:1";
    (void)worker_->Send(hello);
    const ConnectionId joined = joined_.get_future().get();
    central_->AllowRelay({Generation(1), {{kToken, joined, kAcceptor, {kDialler}}}});
  }
  ~RelayLab() override {
    worker_.reset();
    central_.reset();
  }

  Transport& dialler() override { return *dialler_; }
  Transport& acceptor() override { return *acceptor_; }
  int64_t NowNanos() const override { return clock_.NowNanos(); }
  int64_t blocks_made() const override { return pool_.blocks_made(); }
  void DestroyTransports() override {
    dialler_.reset();
    dialler_relay_.reset();
    dialler_base_.reset();
  }

 private:
  void OnJoined(ConnectionId id) override { joined_.set_value(id); }
  void OnMessage(ConnectionId, WorkerMessage) override {}
  void OnGone(ConnectionId, const absl::Status&) override {}
  void OnMessage(CentralMessage message) override {
    if (const auto* wanted = std::get_if<RelayWanted>(&message))
      acceptor_->Answer(wanted->ticket, wanted->from);
  }
  void OnClosed(const absl::Status&) override {}

  std::unique_ptr<Transport> NewBase() {
    GrpcTransportOptions options;
    options.pool = &pool_;
    return MakeGrpcTransport(options);
  }
  std::unique_ptr<RelayTransport> NewRelay(Transport* base, const std::string& self) {
    return std::make_unique<RelayTransport>(
        RelayOptions{base, &clock_, central_->address(), self, /*relays_all=*/true});
  }

  MonotonicClock clock_;
  BufferPool pool_;
  // Who waits for somebody that does not come waits for so long.
  std::unique_ptr<ControlTransport> control_ = MakeGrpcControl({.hello_deadline_ms = 2'000});
  std::promise<ConnectionId> joined_;
  std::unique_ptr<Transport> dialler_base_ = NewBase();
  std::unique_ptr<Transport> acceptor_base_ = NewBase();
  std::unique_ptr<CentralControl> central_;
  std::unique_ptr<RelayTransport> dialler_relay_;
  std::unique_ptr<WithToken> dialler_;
  std::unique_ptr<RelayTransport> acceptor_;
  std::unique_ptr<WorkerControl> worker_;
};

}  // namespace

std::unique_ptr<TransportLab> MakeRelayLab() { return std::make_unique<RelayLab>(); }

}  // namespace runnel
