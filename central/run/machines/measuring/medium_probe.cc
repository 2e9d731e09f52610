#include "central/run/machines/measuring/medium_probe.h"

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
  // A train up is asked for by a train down of a byte a piece. These go first, so that they wait
  // behind nothing.
  for (const Flow& flow : flows_) {
    if (!flow.is_up) continue;
    ++unreported_[static_cast<size_t>(flow.device)];
    received_[static_cast<size_t>(flow.device)] = ProbeReceiver();
    send(flow.device, 0, BytesOf(flow));
  }
  for (const Flow& flow : flows_) {
    if (!flow.is_up) send(flow.device, BytesOf(flow), 0);
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
  if (Flow* flow = FlowOf(device, /*is_up=*/false); flow != nullptr)
    EndFlow(*flow, ShareOf(*flow, measured.bytes_per_second), roster, effects);
}

void MediumProbe::AddPiece(int device, const ProbePiece& piece, const Roster& roster,
                           RunEffects& effects) {
  if (!under_way()) return;
  if (piece.is_ping()) return AddPing(device, piece.arrived_ns, roster, effects);
  ProbeReceiver& receiver = received_[static_cast<size_t>(device)];
  if (!receiver.Add(piece)) return;
  Flow* flow = FlowOf(device, /*is_up=*/true);
  if (flow == nullptr) return;
  const double share = std::min(ShareOf(*flow, receiver.measured().bytes_per_second),
                                ShareSinceAsked(*flow, piece.arrived_ns));
  EndFlow(*flow, share, roster, effects);
}

void MediumProbe::AddPing(int device, int64_t arrived_ns, const Roster& roster,
                          RunEffects& effects) {
  if (round_ != Round::kPings) return;
  std::erase_if(flows_, [device](const Flow& flow) { return flow.device == device; });
  if (!flows_.empty()) return;
  asked_ns_ = arrived_ns;
  Send(Round::kBothWays, std::exchange(both_ways_, {}), roster, effects);
}

// Under way, or null.
MediumProbe::Flow* MediumProbe::FlowOf(int device, bool is_up) {
  for (Flow& flow : flows_) {
    if (flow.device == device && flow.is_up == is_up && !flow.share.has_value()) return &flow;
  }
  return nullptr;
}

int64_t MediumProbe::BytesOf(const Flow& flow) const {
  const double bytes = AloneRate(flow.device, flow.is_up).bytes_per_second() * kTrainSeconds;
  return std::clamp(static_cast<int64_t>(bytes), kLeastBytes, kMostBytes);
}

// A train that passed in no time has met nobody.
double MediumProbe::ShareOf(const Flow& flow, double bytes_per_second) const {
  const double alone = AloneRate(flow.device, flow.is_up).bytes_per_second();
  return bytes_per_second > 0 ? std::min(1.0, bytes_per_second / alone) : 1;
}

double MediumProbe::ShareSinceAsked(const Flow& flow, int64_t arrived_ns) const {
  const PathFigures& path = paths_[static_cast<size_t>(flow.device)];
  const double alone = static_cast<double>(BytesOf(flow)) / path.up.rate.bytes_per_second() +
                       path.down.delay_seconds.value_or(0) + path.up.delay_seconds.value_or(0);
  const double seconds = static_cast<double>(arrived_ns - asked_ns_) * 1e-9;
  return seconds > alone ? alone / seconds : 1;
}

void MediumProbe::EndFlow(Flow& flow, double share, const Roster& roster, RunEffects& effects) {
  flow.share = share;
  const bool is_over = std::all_of(flows_.begin(), flows_.end(),
                                   [](const Flow& one) { return one.share.has_value(); });
  if (is_over) EndRound(roster, effects);
}

void MediumProbe::EndRound(const Roster& roster, RunEffects& effects) {
  const std::vector<Flow> flows = std::exchange(flows_, {});
  if (round_ == Round::kBothWays) return SetMedia(flows);
  double sum = 0;
  for (const Flow& flow : flows) sum += *flow.share;
  if (round_ == Round::kPair) {
    (sum < kShared ? groups_.back() : rest_).push_back(flows.back().device);
    return GroupNext(roster, effects);
  }
  const bool is_one = sum < kShared;
  if (is_one) groups_.emplace_back();
  for (const Flow& flow : flows) {
    if (is_one) {
      groups_.back().push_back(flow.device);
    } else if (*flow.share > kShared / 2) {
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
  round_ = Round::kPings;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const Flow up = {groups_[group].back(), true, group};
    both_ways_.push_back({groups_[group].front(), false, group});
    both_ways_.push_back(up);
    flows_.push_back(up);
    effects.push_back(SendControl{roster.device(up.device).connection, ProbePiece{.count = 1}});
  }
}

void MediumProbe::SetMedia(const std::vector<Flow>& flows) {
  int media = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    double sum = 0, up = 1;
    for (const Flow& flow : flows) {
      if (flow.group != group) continue;
      sum += *flow.share;
      if (flow.is_up) up = *flow.share;
    }
    const bool is_half_duplex = sum < kShared || up < kShared / 2;
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
