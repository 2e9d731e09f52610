#include "central/run/machines/link_probe.h"

#include <algorithm>

namespace runnel {

void LinkProbe::Begin(const Roster& roster, RunEffects& effects) {
  rates_.assign(roster.devices().size(), {});
  awaited_.clear();
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    if (!roster.devices()[i].local) awaited_.push_back(static_cast<int>(i));
  }
  asked_ = awaited_.size();
  if (under_way()) SendTrain(kFirstBytes, roster, effects);
}

void LinkProbe::SendTrain(int64_t bytes, const Roster& roster, RunEffects& effects) {
  is_second_ = bytes != kFirstBytes;
  down_ = {};
  up_ = ProbeReceiver();
  for (ProbePiece& piece : MakeProbeTrain(bytes))
    effects.push_back(SendControl{roster.device(awaited_.front()).connection, std::move(piece)});
}

void LinkProbe::AddReport(int device, const WayMeasured& measured) {
  if (under_way() && device == awaited_.front()) down_ = measured;
}

void LinkProbe::AddPiece(int device, const ProbePiece& piece, const Roster& roster,
                         RunEffects& effects) {
  if (!under_way() || device != awaited_.front() || !up_.Add(piece)) return;
  const WayMeasured& up = up_.measured();
  const int64_t longer_ns = std::max<int64_t>({down_.ns, up.ns, 1});
  if (!is_second_ && longer_ns < kLongEnoughNs) {
    const int64_t bytes = std::min(kMostBytes, kFirstBytes * kWantedNs / longer_ns);
    return SendTrain(bytes, roster, effects);
  }
  rates_[static_cast<size_t>(device)] = {LinkRate::BytesPerSecond(down_.bytes_per_second),
                                         LinkRate::BytesPerSecond(up.bytes_per_second)};
  awaited_.erase(awaited_.begin());
  if (under_way()) SendTrain(kFirstBytes, roster, effects);
}

}  // namespace runnel
