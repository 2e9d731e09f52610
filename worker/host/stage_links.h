#pragma once

// A pipeline stage's links: to its neighbours and to central's feed.

#include <functional>
#include <memory>
#include <string>

#include "proto/transport/link/link_shell.h"
#include "worker/host/stage_host.h"
#include "worker/stage/stage_effects.h"

namespace runnel {

// Call all methods on the loop's thread.
class StageLinks {
 public:
  // The parts of `environment` outlive the links.
  StageLinks(const PrepareStage& stage, const StageEnvironment& environment);

  // Makes the link to `peer`, which is dialled by Start if it is the next stage, and else comes by
  // Attach. on_received: LinkShell::Options', may be null.
  LinkShell& Open(Peer peer, std::function<void()> on_received, LinkSession::DeliverFn deliver,
                  LinkShell::FailedFn failed);
  // Null: there is none.
  LinkShell* To(Peer peer) { return links_[static_cast<int>(peer)].get(); }
  const LinkShell* To(Peer peer) const { return links_[static_cast<int>(peer)].get(); }
  // As StageHost::Attach. False: no link waits for such a connection, which is refused.
  bool Attach(const std::string& role, std::shared_ptr<LoopConnection> connection);
  // All who dial this stage have come.
  bool connected() const;
  // Rates, round trips, and frames that came late or went again.
  void Fill(Telemetry& telemetry) const;
  void Close();

 private:
  EventLoop* loop_;
  Transport* transport_;
  const FrameLimits* limits_;
  const Generation generation_;
  const LinkShaping shaping_;
  const std::string greeting_;
  const LinkTarget next_stage_;
  const std::string stage_before_;       // Connection::peer
  std::unique_ptr<LinkShell> links_[3];  // by Peer
};

}  // namespace runnel
