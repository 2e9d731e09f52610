#include "central/run/machines/losses/replication.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

bool ReplicatedBarrier::is_whole() const {
  return std::none_of(layers.begin(), layers.end(),
                      [](const LayersHeld& held) { return held.devices.empty(); });
}

bool Replication::Wants(int64_t step, int64_t central_step, const ActivePlan& active,
                        int64_t now_ns) {
  if (options_.every < 0 || active.plan.stages.size() < 2 || step == central_step) return false;
  const bool has_it = committed_.has_value() && committed_->step == step;
  if (has_it && !is_thinned_) return false;
  // Whoever has it now has no second one.
  const bool is_due =
      is_thinned_ ||
      (options_.every > 0 ? step - begun_step_ >= options_.every * options_.barrier_steps
                          : summary_.count == 0 || now_ns - begun_ns_ >= kTimeShare * took_ns_);
  if (is_due && under_way_.has_value()) ++summary_.skipped;
  return is_due && !under_way_.has_value();
}

int64_t Replication::BytesOf(const StagePlan& stage) const {
  if (options_.layer_bytes.empty()) return 0;
  return std::accumulate(options_.layer_bytes.begin() + stage.first_layer,
                         options_.layer_bytes.begin() + stage.last_layer + 1, int64_t{0});
}

std::optional<Replication::Short> Replication::WhoLacksMemory(
    const ActivePlan& active, const std::vector<DeviceFacts>& devices,
    const CopyHolders& holders) const {
  // A committed barrier and one on its way.
  constexpr int64_t kBarriers = 2;
  const std::vector<StagePlan>& stages = active.plan.stages;
  std::vector<int64_t> copies(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t bytes = BytesOf(stages[i]);
    copies[i] += kBarriers * bytes;
    for (const int keeper : KeepersOf(holders, static_cast<int>(i)))
      copies[static_cast<size_t>(keeper)] += kBarriers * bytes;
  }
  for (const auto [i, number] : active.plan.seats()) {
    const int64_t needed = active.stages[i].telemetry.memory_bytes + copies[i];
    const int64_t memory = devices[static_cast<size_t>(number)].memory_bytes;
    if (memory != 0 && needed > memory) return Short{number, needed};
  }
  return std::nullopt;
}

std::optional<CopyHolders> Replication::HoldersIn(const ActivePlan& active,
                                                  const std::vector<DeviceFacts>& devices,
                                                  const Roster& roster, RunEffects& effects) {
  std::vector<std::string> domains;
  for (const StagePlan& stage : active.plan.stages)
    domains.push_back(FailureDomain(roster.device(stage.sole_device()).hello));
  CopyHolders apart = HoldersApart(domains);
  if (!WhoLacksMemory(active, devices, apart).has_value()) return apart;
  CopyHolders near = NeighboursHold(static_cast<int>(domains.size()));
  const std::optional<Short> lacks = WhoLacksMemory(active, devices, near);
  if (!lacks.has_value()) return near;
  if (std::exchange(told_, active.plan.generation) == active.plan.generation) return std::nullopt;
  const DeviceFacts& device = devices[static_cast<size_t>(lacks->device)];
  effects.push_back(LogLine{
      Severity::kWarning,
      absl::StrCat("worker ", device.name, " has ", device.memory_bytes >> 20,
                   " MiB, its stage and copies of the neighbours' states need ",
                   lacks->needed_bytes >> 20,
                   ": this plan trains without copies, and after a loss training goes on from "
                   "the last state that central has")});
  return std::nullopt;
}

void Replication::Begin(int64_t step, Sequence sequence, const ActivePlan& active,
                        const CopyHolders& holders, int64_t now_ns, RunEffects& effects) {
  const std::vector<StagePlan>& stages = active.plan.stages;
  UnderWay& under_way = under_way_.emplace();
  under_way.barrier.id = {active.plan.generation, sequence};
  under_way.barrier.step = step;
  under_way.barrier.reached_ns = now_ns;
  under_way.holders = holders;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto stage = static_cast<int>(i);
    LayersHeld held{{stages[i].first_layer, stages[i].last_layer}, {stages[i].sole_device()}};
    under_way.missing.insert({stage, stage});
    for (const int keeper : KeepersOf(holders, stage))
      held.devices.push_back(stages[static_cast<size_t>(keeper)].sole_device());
    for (const int holder : holders[i]) {
      // A neighbour has it when the stage says so; those between have it before the holder.
      if (std::abs(holder - stage) > 1) under_way.missing.insert({holder, stage});
    }
    under_way.barrier.layers.push_back(std::move(held));
    effects.push_back(
        SendControl{active.connections[i], Replicate{under_way.barrier.id, holders[i]}});
  }
  begun_step_ = step;
  begun_ns_ = now_ns;
}

void Replication::AddReplicated(size_t stage, const Replicated& replicated, const Roster& roster,
                                RunEffects& effects) {
  if (!under_way_.has_value() || replicated.id != under_way_->barrier.id) return;
  const auto number = static_cast<int>(stage);
  if (under_way_->missing.erase({number, replicated.kept_of.value_or(number)}) == 0) return;
  int hops = 1;
  for (const int holder : under_way_->holders[stage])
    hops = std::max(hops, std::abs(holder - number));
  under_way_->stall_ns = std::max(under_way_->stall_ns, replicated.stall_ns);
  under_way_->took_ns = std::max(under_way_->took_ns, replicated.took_ns * hops);
  under_way_->bytes += replicated.bytes;
  if (!under_way_->missing.empty()) return;
  took_ns_ = under_way_->took_ns;
  ++summary_.count;
  summary_.step = under_way_->barrier.step;
  summary_.stall_s += static_cast<double>(under_way_->stall_ns) * 1e-9;
  summary_.took_s += static_cast<double>(took_ns_) * 1e-9;
  summary_.bytes += under_way_->bytes;
  committed_ = std::move(under_way_->barrier);
  under_way_.reset();
  is_thinned_ = false;
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    if (roster.lost()[i]) continue;
    effects.push_back(SendControl{roster.devices()[i].connection, CommitReplicas{committed_->id}});
  }
}

void Replication::Lose(int device) {
  if (!committed_.has_value()) return;
  for (LayersHeld& held : committed_->layers) is_thinned_ |= std::erase(held.devices, device) > 0;
}

void Replication::GoBackTo(int64_t step) {
  under_way_.reset();
  begun_step_ = std::min(begun_step_, step);
  if (committed_.has_value() && committed_->step > step) Forget();
}

void Replication::Forget() {
  committed_.reset();
  is_thinned_ = false;
}

}  // namespace runnel
