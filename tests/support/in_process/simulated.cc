#include "tests/support/in_process/simulated.h"

#include <algorithm>
#include <map>
#include <utility>

namespace runnel {

class SimulatedNetwork::VirtualTime final : public Scheduler, public Clock {
 public:
  int64_t NowNanos() const override { return now_ns_; }

  void ScheduleAt(int64_t time_ns, std::function<void()> task) override {
    if (!stopped_) tasks_.emplace(std::max(time_ns, now_ns_), std::move(task));
  }

  bool Step() {
    if (tasks_.empty()) return false;
    const auto task = tasks_.extract(tasks_.begin());
    now_ns_ = task.key();
    task.mapped()();
    return true;
  }

  void RunUntil(int64_t time_ns) {
    while (!tasks_.empty() && tasks_.begin()->first <= time_ns) Step();
    now_ns_ = std::max(now_ns_, time_ns);
  }

  // Drops what has not run: events hold what they are about, that holds us.
  void Stop() {
    stopped_ = true;
    while (!tasks_.empty()) tasks_.extract(tasks_.begin());
  }

 private:
  int64_t now_ns_ = 0;
  bool stopped_ = false;
  std::multimap<int64_t, std::function<void()>> tasks_;
};

namespace {

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(std::string name, std::shared_ptr<InProcessNetwork> network)
      : name_(std::move(name)), network_(std::move(network)) {}
  ~SimulatedTransport() override {
    network_->BreakNode(name_, absl::UnavailableError("simulated: the node's transport is gone"));
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    return network_->Listen(name_, address, std::move(accept));
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    return network_->Dial(name_, to.address, observer, shaping);
  }

 private:
  const std::string name_;
  const std::shared_ptr<InProcessNetwork> network_;
};

}  // namespace

SimulatedNetwork::SimulatedNetwork(const InProcessFaults& faults)
    : time_(std::make_shared<VirtualTime>()),
      network_(std::make_shared<InProcessNetwork>(time_, faults)) {}

SimulatedNetwork::~SimulatedNetwork() { time_->Stop(); }

std::unique_ptr<Transport> SimulatedNetwork::NewTransport(const std::string& name) {
  return std::make_unique<SimulatedTransport>(name, network_);
}

int64_t SimulatedNetwork::now_ns() const { return time_->NowNanos(); }

const Clock& SimulatedNetwork::clock() const { return *time_; }

void SimulatedNetwork::ScheduleAt(int64_t time_ns, std::function<void()> fn) {
  time_->ScheduleAt(time_ns, std::move(fn));
}

bool SimulatedNetwork::Step() { return time_->Step(); }

void SimulatedNetwork::RunUntil(int64_t time_ns) { time_->RunUntil(time_ns); }

void SimulatedNetwork::BreakConnections(const std::string& name) {
  network_->BreakNode(name, absl::UnavailableError("simulated: the connection was broken"));
}

void SimulatedNetwork::LoseNode(const std::string& name) {
  network_->LoseNode(name, absl::UnavailableError("simulated: the node is gone"));
}

void SimulatedNetwork::SetCut(const std::string& name, bool cut) { network_->SetCut(name, cut); }

void SimulatedNetwork::SetLinkCut(const std::string& a, const std::string& b, bool cut) {
  network_->SetLinkCut(a, b, cut);
}

bool SimulatedNetwork::IsLinkCut(const std::string& a, const std::string& b) const {
  return network_->paths().IsLinkClosed(a, b);
}

void SimulatedNetwork::BreakConnectionsBetween(const std::string& a, const std::string& b) {
  network_->BreakBetween(a, b, absl::UnavailableError("simulated: the connection was broken"));
}

bool SimulatedNetwork::passes(const std::string& a, const std::string& b) const {
  return network_->paths().passes(a, b);
}

bool SimulatedNetwork::listens(const std::string& address) const {
  return network_->listens(address);
}

void SimulatedNetwork::SetReachable(const std::string& name, bool reachable) {
  network_->SetReachable(name, reachable);
}

}  // namespace runnel
