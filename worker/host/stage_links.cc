#include "worker/host/stage_links.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crypto/certificate.h"

namespace runnel {
namespace {

// Whether a neighbour lives, central finds out long before, and tells with another plan. A link
// that goes by way of central must outlast a central that is stopped for a while.
constexpr int64_t kNeighbourPatienceNs = int64_t{120} * 1000 * 1000 * 1000;

}  // namespace

StageLinks::StageLinks(const PrepareStage& stage, const StageEnvironment& environment)
    : loop_(environment.loop),
      transport_(environment.transport),
      limits_(environment.limits),
      generation_(stage.plan.generation),
      shaping_(stage.shaping),
      greeting_(stage.link_greeting),
      next_stage_(stage.downstream),
      stage_before_(stage.upstream_peer) {}

LinkShell& StageLinks::Open(Peer peer, std::function<void()> on_received,
                            LinkSession::DeliverFn deliver, LinkShell::FailedFn failed) {
  LinkShell::Options options;
  options.transport = transport_;
  if (peer == Peer::kDownstream) options.target = next_stage_;
  options.peer = peer == Peer::kFeed ? CentralSubject().ToString() : stage_before_;
  options.role = "link";
  options.shaping = shaping_;
  options.probes = peer != Peer::kFeed;
  options.redial.lost_ns = kNeighbourPatienceNs;
  options.on_received = std::move(on_received);
  std::unique_ptr<LinkShell>& link = links_[static_cast<int>(peer)];
  link = std::make_unique<LinkShell>(loop_, limits_, std::move(options), std::move(deliver),
                                     std::move(failed));
  link->session().StartGeneration(generation_);
  return *link;
}

bool StageLinks::Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) {
  LinkShell* link = role == "feed"   ? To(Peer::kFeed)
                    : role == "link" ? To(Peer::kUpstream)
                                     : nullptr;
  if (link == nullptr) {
    connection->Refuse(absl::StrCat("has no link for a ", role == "feed" ? "feed" : "stage"));
    return false;
  }
  // The greeting tells the dialling end that it has reached this stage, not only a port.
  connection->connection()->Send(MakeHello({greeting_, role})).IgnoreError();
  link->Attach(std::move(connection));
  return true;
}

bool StageLinks::connected() const {
  for (const Peer peer : {Peer::kUpstream, Peer::kFeed}) {
    if (To(peer) != nullptr && !To(peer)->connected()) return false;
  }
  return true;
}

void StageLinks::Fill(Telemetry& telemetry) const {
  for (const std::unique_ptr<LinkShell>& link : links_) {
    if (link != nullptr) telemetry.stale_frames_dropped += link->session().counters().stale_dropped;
  }
  if (const LinkShell* upstream = To(Peer::kUpstream); upstream != nullptr) {
    telemetry.upstream_bytes_per_second = upstream->received_bytes_per_second();
    telemetry.upstream_round_trip_ns = upstream->round_trip_ns();
    telemetry.resent_frames_up = upstream->session().counters().frames_resent;
  }
  if (const LinkShell* downstream = To(Peer::kDownstream); downstream != nullptr) {
    telemetry.downstream_bytes_per_second = downstream->received_bytes_per_second();
    telemetry.downstream_round_trip_ns = downstream->round_trip_ns();
    telemetry.resent_frames_down = downstream->session().counters().frames_resent;
  }
}

void StageLinks::Close() {
  for (std::unique_ptr<LinkShell>& link : links_) link.reset();
}

}  // namespace runnel
