#include "central/run/machines/measuring/link_probe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Bytes of the next train on a way that took the first one in this many nanoseconds; 0: there is
// nothing more to learn.
int64_t SecondBytes(int64_t first_ns) {
  if (first_ns >= LinkProbe::kLongEnoughNs) return 0;
  return std::min(LinkProbe::kMostBytes,
                  LinkProbe::kFirstBytes * LinkProbe::kWantedNs / std::max<int64_t>(first_ns, 1));
}

}  // namespace

void LinkProbe::Begin(std::vector<int> devices, Media media, const Roster& roster,
                      RunEffects& effects) {
  std::vector<PathFigures> known = paths();
  *this = LinkProbe();
  finds_media_ = media == Media::kFind;
  paths_ = std::move(known);
  paths_.resize(roster.devices().size());
  pings_.resize(roster.devices().size());
  pinged_ = std::move(devices);
  awaited_ = pinged_;
  asked_ = pinged_.size();
  for (const int device : pinged_)
    effects.push_back(SendControl{roster.device(device).connection, ProbePiece{.count = 1}});
}

void LinkProbe::Skip(int device, const Roster& roster, RunEffects& effects) {
  const auto found = std::find(awaited_.begin(), awaited_.end(), device);
  if (found == awaited_.end()) return;
  // Trains begin when nobody is pinged any more.
  const bool begins = std::erase(pinged_, device) > 0
                          ? pinged_.empty()
                          : pinged_.empty() && found == awaited_.begin();
  awaited_.erase(found);
  if (begins) BeginNext(roster, effects);
}

void LinkProbe::Forget(int device) {
  const auto at = static_cast<size_t>(device);
  if (at < paths_.size()) paths_[at] = PathFigures();
  media_.Forget(device);
}

void LinkProbe::Cancel() {
  paths_ = paths();
  media_ = MediumProbe();
  pinged_.clear();
  awaited_.clear();
}

void LinkProbe::SendTrain(const Exchange& exchange, const Roster& roster, RunEffects& effects) {
  exchange_ = exchange;
  receiver_ = ProbeReceiver();
  // Without a train down, one of a byte a piece asks for the train up.
  for (ProbePiece& piece : MakeProbeTrain(exchange.down_bytes, exchange.up_bytes))
    effects.push_back(SendControl{roster.device(awaited_.front()).connection, std::move(piece)});
}

void LinkProbe::AddReport(int device, const WayMeasured& measured, const Roster& roster,
                          RunEffects& effects) {
  if (media_.under_way()) return media_.AddReport(device, measured, roster, effects);
  if (!pinged_.empty() || awaited_.empty() || device != awaited_.front()) return;
  if (exchange_.down_bytes > 0) down_ = measured;
  if (exchange_.up_bytes == 0) Exchanged(roster, effects);
}

void LinkProbe::AddPiece(int device, const ProbePiece& piece, const Roster& roster,
                         RunEffects& effects) {
  if (!under_way()) return;
  if (media_.under_way()) return media_.AddPiece(device, piece, roster, effects);
  now_ns_ = piece.arrived_ns;
  if (!began_ns_.has_value()) began_ns_ = now_ns_;
  if (piece.is_ping()) return AddPing(device, piece.arrived_ns, roster, effects);
  if (!pinged_.empty() || device != awaited_.front() || exchange_.up_bytes == 0) return;
  if (!receiver_.Add(piece)) return;
  up_ = receiver_.measured();
  Exchanged(roster, effects);
}

// A ping is sent when the one before is answered: the time between two answers is a round trip.
void LinkProbe::AddPing(int device, int64_t arrived_ns, const Roster& roster, RunEffects& effects) {
  const auto found = std::find(pinged_.begin(), pinged_.end(), device);
  if (found == pinged_.end()) return;
  Pings& pings = pings_[static_cast<size_t>(device)];
  if (pings.answered++ > 0) {
    const int64_t round_trip_ns = arrived_ns - pings.last_ns;
    pings.least_ns = std::min(pings.least_ns.value_or(round_trip_ns), round_trip_ns);
  }
  pings.last_ns = arrived_ns;
  if (pings.answered < kPings) {
    effects.push_back(SendControl{roster.device(device).connection, ProbePiece{.count = 1}});
    return;
  }
  pinged_.erase(found);
  if (pinged_.empty()) BeginNext(roster, effects);
}

void LinkProbe::Exchanged(const Roster& roster, RunEffects& effects) {
  if (!exchange_.is_second) {
    const Exchange second = {SecondBytes(down_.ns), SecondBytes(up_.ns), true};
    if (second.down_bytes > 0 || second.up_bytes > 0) return SendTrain(second, roster, effects);
  }
  Finish(awaited_.front(), /*has_rates=*/true);
  awaited_.erase(awaited_.begin());
  BeginNext(roster, effects);
}

void LinkProbe::BeginNext(const Roster& roster, RunEffects& effects) {
  if (awaited_.empty()) {
    if (finds_media_) media_.Begin(paths_, roster, effects);
    return;
  }
  if (now_ns_ - *began_ns_ < kMostNs)
    return SendTrain({kFirstBytes, kFirstBytes, false}, roster, effects);
  effects.push_back(LogLine{
      Severity::kInfo, absl::StrCat("the links to ", asked_ - awaited_.size(), " of ", asked_,
                                    " workers are measured; the others are taken for no faster")});
  for (const int device : awaited_) Finish(device, /*has_rates=*/false);
  awaited_.clear();
  BeginNext(roster, effects);
}

// The ping's own time on the bandwidth is no delay.
void LinkProbe::Finish(int device, bool has_rates) {
  const auto at = static_cast<size_t>(device);
  PathFigures& path = paths_[at];
  if (has_rates) {
    path.down.rate = LinkRate::BytesPerSecond(down_.bytes_per_second);
    path.up.rate = LinkRate::BytesPerSecond(up_.bytes_per_second);
  }
  if (!pings_[at].least_ns.has_value()) return;
  const double round_trip = static_cast<double>(*pings_[at].least_ns) * 1e-9;
  const double sending = path.down.rate.Seconds(kPingBytes) + path.up.rate.Seconds(kPingBytes);
  path.down.delay_seconds = path.up.delay_seconds = std::max(0.0, round_trip - sending) / 2;
}

}  // namespace runnel
