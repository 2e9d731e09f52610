#include "central/run/machines/medium_probe.h"

#include <algorithm>
#include <utility>

namespace runnel {

LinkRate MediumProbe::AloneRate(int device, bool is_up) const {
  const PathFigures& path = paths_[static_cast<size_t>(device)];
  return is_up ? path.up.rate : path.down.rate;
}

void MediumProbe::Begin(std::vector<PathFigures> paths, const Roster& roster, RunEffects& effects) {
  *this = MediumProbe();
  paths_ = std::move(paths);
  unreported_.resize(paths_.size());
  received_.resize(paths_.size());
  std::vector<Flow> flows;
  for (size_t i = 0; i < paths_.size(); ++i) {
    const auto device = static_cast<int>(i);
    const double down = AloneRate(device, false).mbps(), up = AloneRate(device, true).mbps();
    if (std::min(down, up) > 0 && std::max(down, up) <= kMostMbps) flows.push_back({device, false});
  }
  if (flows.size() > 1) return Send(Round::kAllDown, std::move(flows), roster, effects);
  for (const Flow& flow : flows) groups_.push_back({flow.device});
  BeginBothWays(roster, effects);
}

void MediumProbe::Send(Round round, std::vector<Flow> flows, const Roster& roster,
                       RunEffects& effects) {
  round_ = round;
  flows_ = std::move(flows);
  const auto send = [&](int device, int64_t bytes, int64_t answer_bytes) {
    for (ProbePiece& piece : MakeProbeTrain(bytes, answer_bytes))
      effects.push_back(SendControl{roster.device(device).connection, std::move(piece)});
  };
  const auto bytes_of = [this](const Flow& flow) {
    const double bytes = AloneRate(flow.device, flow.is_up).bytes_per_second() * kTrainSeconds;
    return std::clamp(static_cast<int64_t>(bytes), kLeastBytes, kMostBytes);
  };
  // A train up is asked for by a train down of a byte a piece. These go first, so that they wait
  // behind nothing.
  for (const Flow& flow : flows_) {
    if (!flow.is_up) continue;
    ++unreported_[static_cast<size_t>(flow.device)];
    received_[static_cast<size_t>(flow.device)] = ProbeReceiver();
    send(flow.device, 0, bytes_of(flow));
  }
  for (const Flow& flow : flows_) {
    if (!flow.is_up) send(flow.device, bytes_of(flow), 0);
  }
}

void MediumProbe::AddReport(int device, const WayMeasured& measured, const Roster& roster,
                            RunEffects& effects) {
  if (!under_way()) return;
  int& unreported = unreported_[static_cast<size_t>(device)];
  if (unreported > 0) {
    --unreported;
    return;
  }
  SetShare(device, /*is_up=*/false, measured.bytes_per_second, roster, effects);
}

void MediumProbe::AddPiece(int device, const ProbePiece& piece, const Roster& roster,
                           RunEffects& effects) {
  if (!under_way() || piece.is_ping()) return;
  ProbeReceiver& receiver = received_[static_cast<size_t>(device)];
  if (receiver.Add(piece))
    SetShare(device, /*is_up=*/true, receiver.measured().bytes_per_second, roster, effects);
}

// A train that passed in no time has met nobody.
void MediumProbe::SetShare(int device, bool is_up, double bytes_per_second, const Roster& roster,
                           RunEffects& effects) {
  for (Flow& flow : flows_) {
    if (flow.device != device || flow.is_up != is_up || flow.share >= 0) continue;
    const double alone = AloneRate(device, is_up).bytes_per_second();
    flow.share = bytes_per_second > 0 ? std::min(1.0, bytes_per_second / alone) : 1;
  }
  const bool is_over =
      std::all_of(flows_.begin(), flows_.end(), [](const Flow& flow) { return flow.share >= 0; });
  if (is_over) EndRound(roster, effects);
}

void MediumProbe::EndRound(const Roster& roster, RunEffects& effects) {
  const std::vector<Flow> flows = std::exchange(flows_, {});
  if (round_ == Round::kBothWays) return SetMedia(flows);
  double sum = 0;
  for (const Flow& flow : flows) sum += flow.share;
  if (round_ == Round::kPair) {
    (sum < kShared ? groups_.back() : rest_).push_back(flows.back().device);
    return GroupNext(roster, effects);
  }
  const bool is_one = sum < kShared;
  if (is_one) groups_.emplace_back();
  for (const Flow& flow : flows) {
    if (is_one) {
      groups_.back().push_back(flow.device);
    } else if (flow.share > kShared / 2) {
      groups_.push_back({flow.device});  // by itself
    } else {
      ungrouped_.push_back(flow.device);
    }
  }
  if (!ungrouped_.empty()) {
    groups_.push_back({ungrouped_.front()});
    ungrouped_.erase(ungrouped_.begin());
  }
  GroupNext(roster, effects);
}

// The next one beside the first of the last group; when all were, the rest has a group of its own.
void MediumProbe::GroupNext(const Roster& roster, RunEffects& effects) {
  if (ungrouped_.empty() && !rest_.empty()) {
    groups_.push_back({rest_.front()});
    ungrouped_.assign(rest_.begin() + 1, rest_.end());
    rest_.clear();
    return GroupNext(roster, effects);
  }
  if (ungrouped_.empty()) return BeginBothWays(roster, effects);
  const int next = ungrouped_.front();
  ungrouped_.erase(ungrouped_.begin());
  Send(Round::kPair, {{groups_.back().front(), false}, {next, false}}, roster, effects);
}

// Groups have nothing in common: all at once.
void MediumProbe::BeginBothWays(const Roster& roster, RunEffects& effects) {
  std::vector<Flow> flows;
  for (size_t group = 0; group < groups_.size(); ++group) {
    flows.push_back({groups_[group].front(), false, group});
    flows.push_back({groups_[group].back(), true, group});
  }
  if (!flows.empty()) Send(Round::kBothWays, std::move(flows), roster, effects);
}

void MediumProbe::SetMedia(const std::vector<Flow>& flows) {
  int media = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    double sum = 0;
    for (const Flow& flow : flows) sum += flow.group == group ? flow.share : 0;
    const bool is_half_duplex = sum < kShared;
    if (groups_[group].size() < 2 && !is_half_duplex) continue;
    for (const int device : groups_[group]) {
      PathFigures& path = paths_[static_cast<size_t>(device)];
      path.medium = media;
      path.half_duplex = is_half_duplex;
    }
    ++media;
  }
}

}  // namespace runnel
