#pragma once

// What the tests of a run's machines look for among effects, and rosters and plans to show them.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "central/run/machines/active_plan.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "tests/central/sample_hello.h"

namespace runnel {

// The effects of one kind, in order.
template <typename Effect>
std::vector<Effect> EffectsOf(const RunEffects& effects) {
  std::vector<Effect> found;
  for (const RunEffect& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) found.push_back(*one);
  }
  return found;
}

// The messages of one kind, by the number of the connection that they go to.
template <typename Message>
std::vector<std::pair<int64_t, Message>> MessagesOf(const RunEffects& effects) {
  std::vector<std::pair<int64_t, Message>> found;
  for (const SendControl& send : EffectsOf<SendControl>(effects)) {
    if (const auto* one = std::get_if<Message>(&send.message))
      found.push_back({send.connection.value(), *one});
  }
  return found;
}

// To whom messages of one kind go.
template <typename Message>
std::vector<int64_t> ReceiversOf(const RunEffects& effects) {
  std::vector<int64_t> receivers;
  for (const auto& [connection, message] : MessagesOf<Message>(effects))
    receivers.push_back(connection);
  return receivers;
}

template <typename Record>
std::vector<Record> RecordsOf(const RunEffects& effects) {
  std::vector<Record> found;
  for (const Persist& persist : EffectsOf<Persist>(effects)) {
    if (const auto* one = std::get_if<Record>(&persist.record)) found.push_back(*one);
  }
  return found;
}

// Workers w0, w1, ... on connections of their own numbers, all there; w0 is local.
inline Roster FullRoster(int workers) {
  RosterOptions options;
  options.local_workers = 1;
  options.dialling_workers = workers - 1;
  options.recipe = "fp32";
  Roster roster(options);
  RunEffects effects;
  for (int i = 0; i < workers; ++i) {
    roster.Join(ConnectionId(i), SampleHello("w" + std::to_string(i)), i == 0, effects)
        .IgnoreError();
  }
  return roster;
}

// A plan that cuts the model behind these layers, for these devices.
inline Plan PlanOf(const std::vector<int>& devices, const std::vector<int>& last_layers) {
  Plan plan;
  plan.generation = Generation(1);
  for (size_t i = 0; i < devices.size(); ++i) {
    const int first = i == 0 ? 0 : last_layers[i - 1] + 1;
    plan.stages.push_back({{Seat{DeviceId(devices[i])}},
                           first,
                           last_layers[i],
                           static_cast<int64_t>(devices.size() - i)});
    if (i > 0) plan.links.emplace_back();
  }
  return plan;
}

// It holds, on the connections of FullRoster.
inline ActivePlan ActiveFor(const Plan& plan) {
  ActivePlan active;
  active.plan = plan;
  for (const StagePlan& stage : plan.stages) {
    active.connections.push_back(ConnectionId(stage.sole_device()));
    active.stages.push_back({stage, "w" + std::to_string(stage.sole_device()), {}});
  }
  return active;
}

}  // namespace runnel
