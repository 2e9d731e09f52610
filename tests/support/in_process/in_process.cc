#include "tests/support/in_process/in_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

class InProcessListener final : public Listener {
 public:
  InProcessListener(std::shared_ptr<InProcessNetwork> network, std::string address,
                    std::shared_ptr<InProcessAcceptor> acceptor)
      : network_(std::move(network)),
        address_(std::move(address)),
        acceptor_(std::move(acceptor)) {}
  ~InProcessListener() override {
    network_->StopListening(address_);
    acceptor_->Shutdown();
  }

  std::string address() const override { return address_; }

 private:
  const std::shared_ptr<InProcessNetwork> network_;
  const std::string address_;
  const std::shared_ptr<InProcessAcceptor> acceptor_;
};

}  // namespace

bool InProcessAcceptor::Offer(const std::shared_ptr<InProcessLink>& link) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return false;
    offering_ = true;
    offering_thread_ = std::this_thread::get_id();
    std::erase_if(accepted_, [](const auto& weak) { return weak.expired(); });
    accepted_.push_back(link);
  }
  const Accepted accepted = accept_(std::make_shared<InProcessConnection>(link, 1));
  const bool taken =
      accepted.observer != nullptr && link->Attach(1, accepted.observer, accepted.shaping);
  std::lock_guard<std::mutex> lock(mutex_);
  offering_ = false;
  left_.notify_all();
  return taken;
}

void InProcessAcceptor::Shutdown() {
  std::vector<std::weak_ptr<InProcessLink>> accepted;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    open_ = false;
    left_.wait(lock, [&] { return !offering_ || offering_thread_ == std::this_thread::get_id(); });
    accepted.swap(accepted_);
  }
  for (const auto& weak : accepted) {
    if (const std::shared_ptr<InProcessLink> link = weak.lock()) link->Abort(1);
  }
}

absl::StatusOr<std::unique_ptr<Listener>> InProcessNetwork::Listen(const std::string& node,
                                                                   const std::string& address,
                                                                   AcceptFn accept) {
  RUNNEL_ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  auto acceptor = std::make_shared<InProcessAcceptor>(node, std::move(accept));
  std::lock_guard<std::mutex> lock(mutex_);
  while (parsed.port == 0) {
    const Address candidate{parsed.host, next_port_++};
    if (!acceptors_.contains(candidate.ToString())) parsed = candidate;
  }
  const std::string chosen = parsed.ToString();
  if (!acceptors_.emplace(chosen, acceptor).second) {
    return absl::AlreadyExistsError(absl::StrCat("listen: ", chosen, " is in use"));
  }
  return std::make_unique<InProcessListener>(shared_from_this(), chosen, std::move(acceptor));
}

void InProcessNetwork::StopListening(const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  acceptors_.erase(address);
}

absl::StatusOr<std::shared_ptr<Connection>> InProcessNetwork::Dial(const std::string& node,
                                                                   const std::string& address,
                                                                   ConnectionObserver* observer,
                                                                   const LinkShaping& shaping) {
  RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const std::string target = parsed.ToString();
  std::shared_ptr<InProcessLink> link;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = acceptors_.find(target);
    link = std::make_shared<InProcessLink>(
        scheduler_, faults_, paths_, next_link_++,
        std::array{node, found == acceptors_.end() ? std::string() : found->second->node()});
    std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
    links_.push_back(link);
  }
  // Connecting takes the least that a frame would.
  const int64_t established_ns = scheduler_->NowNanos() + faults_.min_delay_ns;
  scheduler_->ScheduleAt(established_ns, [network = shared_from_this(), target, link] {
    network->Establish(target, link);
  });
  link->EstablishAt(established_ns);
  link->Attach(0, observer, shaping);
  return std::make_shared<InProcessConnection>(link, 0);
}

void InProcessNetwork::Establish(const std::string& address,
                                 const std::shared_ptr<InProcessLink>& link) {
  std::shared_ptr<InProcessAcceptor> acceptor;
  bool reachable = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = acceptors_.find(address); found != acceptors_.end()) {
      acceptor = found->second;
    }
    for (const auto& [node, down] : unreachable_) reachable &= !(down && link->touches(node));
  }
  reachable &= link->passes();
  if (acceptor == nullptr || !reachable || !acceptor->Offer(link)) {
    link->BreakAtOnce(absl::UnavailableError(absl::StrCat("dial: no answer from ", address)));
  }
}

std::vector<std::shared_ptr<InProcessLink>> InProcessNetwork::LiveLinks() {
  std::vector<std::shared_ptr<InProcessLink>> live;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : links_) {
    if (auto link = weak.lock()) live.push_back(std::move(link));
  }
  return live;
}

void InProcessNetwork::BreakAll(const absl::Status& status) {
  for (const auto& link : LiveLinks()) link->BreakAtOnce(status);
}

void InProcessNetwork::BreakNode(const std::string& node, const absl::Status& status) {
  for (const auto& link : LiveLinks()) {
    if (link->touches(node)) link->BreakAtOnce(status);
  }
}

void InProcessNetwork::LoseNode(const std::string& node, const absl::Status& status) {
  for (const auto& link : LiveLinks()) {
    if (link->touches(node)) link->Break(link->EndOf(node), status);
  }
}

void InProcessNetwork::SetCut(const std::string& node, bool cut) {
  if (cut) return paths_->Close(node);
  paths_->Open(node);
  for (const auto& link : LiveLinks()) link->Flush();
}

void InProcessNetwork::SetLinkCut(const std::string& a, const std::string& b, bool cut) {
  if (cut) return paths_->CloseLink(a, b);
  paths_->OpenLink(a, b);
  for (const auto& link : LiveLinks()) link->Flush();
}

void InProcessNetwork::BreakBetween(const std::string& a, const std::string& b,
                                    const absl::Status& status) {
  for (const auto& link : LiveLinks()) {
    if (link->touches(a) && link->touches(b)) link->BreakAtOnce(status);
  }
}

void InProcessNetwork::SetReachable(const std::string& node, bool reachable) {
  std::lock_guard<std::mutex> lock(mutex_);
  unreachable_[node] = !reachable;
}

}  // namespace runnel
