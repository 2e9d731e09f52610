#include "tests/support/in_process/loopback.h"

#include <string>
#include <utility>

#include "tests/support/in_process/in_process.h"

namespace runnel {
namespace {

constexpr char kNode[] = "loopback";

class LoopbackTransport final : public Transport {
 public:
  ~LoopbackTransport() override {
    scheduler_->Stop();
    network_->BreakAll(absl::UnavailableError("loopback: the transport is gone"));
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    return network_->Listen(kNode, address, std::move(accept));
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    return network_->Dial(kNode, to.address, observer, shaping);
  }

 private:
  const std::shared_ptr<ThreadScheduler> scheduler_ = std::make_shared<ThreadScheduler>();
  const std::shared_ptr<InProcessNetwork> network_ =
      std::make_shared<InProcessNetwork>(scheduler_, InProcessFaults{});
};

}  // namespace

std::unique_ptr<Transport> MakeLoopbackTransport() { return std::make_unique<LoopbackTransport>(); }

}  // namespace runnel
