#include "central/run/machines/move.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

// Micro-batches on their way to a stage: enough to hide the feed behind the compute, few enough to
// be small in memory.
constexpr int64_t kFeedWindow = 8;

bool Has(const LayersHeld& held, int device) {
  return std::find(held.devices.begin(), held.devices.end(), device) != held.devices.end();
}

// Raw samples go to stage 0: they must not leave central's host.
absl::Status CheckFirstStage(const Plan& plan, const Roster& roster) {
  const Device& first = roster.device(plan.stages.front().sole_device());
  if (first.local || !roster.has_local_seats()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the plan gives stage 0 to worker ", first.hello.name,
                                          ", which is not on central's host: raw samples would "
                                          "leave it"));
}

}  // namespace

std::vector<LayerRange> LayersLeaving(const LayersHeld& held, const Plan& next) {
  std::vector<LayerRange> ranges;
  for (const StagePlan& stage : next.stages) {
    const int first = std::max(stage.first_layer, held.layers.first_layer);
    const int last = std::min(stage.last_layer, held.layers.last_layer);
    if (first <= last && !Has(held, stage.sole_device())) ranges.push_back({first, last});
  }
  return ranges;
}

absl::Status Move::Begin(MoveOrder order, const ActivePlan& from, const Roster& roster,
                         RunEffects& effects) {
  RUNNEL_RETURN_IF_ERROR(CheckPlan(order.decided.plan, order.common.model));
  RUNNEL_RETURN_IF_ERROR(CheckFirstStage(order.decided.plan, roster));
  order_ = std::move(order);
  order_.decided.plan.generation = next_generation_;
  next_generation_ = next_generation_.next();
  for (const StagePlan& stage : from.plan.stages)
    order_.held.push_back({{stage.first_layer, stage.last_layer}, {stage.sole_device()}});
  Fetch(roster, effects);
  return absl::OkStatus();
}

void Move::Fetch(const Roster& roster, RunEffects& effects) {
  state_ = State::kFetching;
  awaited_.clear();
  std::map<int, std::vector<LayerRange>> asked;
  for (const LayersHeld& held : order_.held) {
    if (held.devices.empty()) continue;
    const int holder = held.devices.front();
    const std::vector<LayerRange> leaving = LayersLeaving(held, plan());
    // A stage that hands over no layer still says how its encoders stand.
    if (leaving.empty() && order_.replica.has_value()) continue;
    std::vector<LayerRange>& ranges = asked[holder];
    ranges.insert(ranges.end(), leaving.begin(), leaving.end());
  }
  for (auto& [device, ranges] : asked) {
    std::sort(ranges.begin(), ranges.end());
    awaited_.insert(device);
    effects.push_back(SendControl{roster.device(device).connection,
                                  FetchLayers{generation(), std::move(ranges), order_.replica}});
  }
  if (awaited_.empty()) Prepare(roster, effects);
}

void Move::AddLayers(int device, const LayersFetched& fetched, const Roster& roster,
                     RunEffects& effects) {
  if (state_ != State::kFetching || fetched.generation != generation()) return;
  if (awaited_.erase(device) == 0) return;
  Merge(fetched.state, order_.state);
  if (awaited_.empty()) Prepare(roster, effects);
}

void Move::AwaitAllStages() {
  const std::vector<int> devices = plan().devices();
  awaited_ = {devices.begin(), devices.end()};
}

void Move::Prepare(const Roster& roster, RunEffects& effects) {
  state_ = State::kPreparing;
  AwaitAllStages();
  for (const auto [i, device] : plan().seats()) {
    const StagePlan& stage = plan().stages[i];
    PrepareStage message = MessageFor(i, roster);
    message.state = Slice(order_.state, stage.first_layer, stage.last_layer);
    // A device keeps the layers that it has.
    for (const LayersHeld& held : order_.held) {
      if (!Has(held, device)) continue;
      std::erase_if(message.state.layers, [&held](const LayerState& layer) {
        return held.layers.first_layer <= layer.layer && layer.layer <= held.layers.last_layer;
      });
    }
    effects.push_back(SendControl{roster.device(device).connection, std::move(message)});
  }
  order_.state = ModelState();
}

// The message without the state.
PrepareStage Move::MessageFor(size_t stage, const Roster& roster) const {
  PrepareStage message = order_.common;
  message.plan = plan();
  message.model = WithRecompute(std::move(message.model), plan());
  message.stage = static_cast<int>(stage);
  message.replica = order_.replica;
  const LinkTarget own = TargetAt(stage, roster);
  message.link_token = own.token;
  message.link_greeting = own.greeting;
  if (stage > 0) message.upstream_peer = TargetAt(stage - 1, roster).peer;
  if (stage + 1 < plan().stages.size()) message.downstream = TargetAt(stage + 1, roster);
  return message;
}

bool Move::Uses(int device) const {
  if (fetching() && AwaitsLayers(device)) return true;
  return under_way() && plan().Uses(device);
}

LinkTarget Move::TargetAt(size_t stage, const Roster& roster) const {
  const WorkerHello& hello = roster.device(plan().stages[stage].sole_device()).hello;
  const std::string place = absl::StrCat(generation().value(), ":", stage);
  return {hello.data_address, Subject{Role::kWorker, hello.name}.ToString(),
          DeriveSecret(link_token_, absl::StrCat("token:", place)),
          DeriveSecret(link_token_, absl::StrCat("greeting:", place))};
}

RelayPlan Move::Relays(const Roster& roster) const {
  RelayPlan relays{generation(), {}};
  const size_t stages = plan().stages.size();
  for (size_t i = 0; i < stages; ++i) {
    const LinkTarget target = TargetAt(i, roster);
    const Device& device = roster.device(plan().stages[i].sole_device());
    RelayPlace place{target.token, device.connection, target.peer, {}};
    if (i > 0) place.diallers.push_back(TargetAt(i - 1, roster).peer);
    // The feed.
    if (i == 0 || i + 1 == stages) place.diallers.push_back(CentralSubject().ToString());
    relays.places.push_back(std::move(place));
  }
  return relays;
}

std::optional<ActivePlan> Move::AddPrepared(int device, const StagePrepared& prepared,
                                            const Roster& roster, RunEffects& effects) {
  if (state_ != State::kPreparing || prepared.generation != generation()) return std::nullopt;
  if (awaited_.erase(device) == 0) return std::nullopt;
  if (!prepared.numerics_class.empty())
    order_.decided.devices[static_cast<size_t>(device)].numerics_class = prepared.numerics_class;
  if (!awaited_.empty()) return std::nullopt;
  // From here on there is no way back: the stages of the plan before are dropped.
  state_ = State::kConnecting;
  AwaitAllStages();
  ActivePlan active{plan(), order_.common.first_sequence, {}, {}};
  for (const StagePlan& stage : plan().stages) {
    const Device& holder = roster.device(stage.sole_device());
    active.connections.push_back(holder.connection);
    active.stages.push_back({stage, holder.hello.name, {}});
  }
  if (!order_.why.empty()) {
    effects.push_back(LogLine{Severity::kInfo, absl::StrCat("layers move at ", order_.why)});
  }
  if (order_.recovered.has_value()) effects.push_back(Persist{*order_.recovered});
  effects.push_back(Persist{order_.decided});
  // Before anybody dials.
  effects.push_back(AllowRelay{Relays(roster)});
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    if (roster.lost()[i]) continue;
    effects.push_back(SendControl{roster.devices()[i].connection, CommitPlan{generation()}});
  }
  effects.push_back(
      ConnectFeed{generation(), TargetAt(0, roster), TargetAt(plan().stages.size() - 1, roster),
                  order_.common.first_sequence, plan().stages.front().cap + kFeedWindow});
  return active;
}

bool Move::AddReady(int device, const StageReady& ready) {
  if (state_ != State::kConnecting || ready.generation != generation()) return false;
  if (awaited_.erase(device) == 0 || !awaited_.empty()) return false;
  state_ = State::kIdle;
  return true;
}

void Move::Abort(absl::string_view why, const Roster& roster, RunEffects& effects) {
  effects.push_back(
      LogLine{Severity::kWarning, absl::StrCat("the layers stay where they are at step ",
                                               order_.decided.from_step, ": ", why)});
  GiveUp(roster, effects);
}

void Move::GiveUp(const Roster& roster, RunEffects& effects) {
  const bool was_revocable = revocable();
  state_ = State::kIdle;
  order_.state = ModelState();
  if (!was_revocable) return;
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    if (roster.lost()[i]) continue;
    effects.push_back(SendControl{roster.devices()[i].connection, AbortPlan{generation()}});
  }
}

}  // namespace runnel
