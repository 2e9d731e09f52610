// How a plan comes to hold, in two phases.

#include "central/run/machines/move.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::move_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> LayersOf(const ModelState& state) {
  std::vector<int> layers;
  for (const LayerState& layer : state.layers) layers.push_back(layer.layer);
  return layers;
}

class MoveTest : public ::testing::Test {
 protected:
  MoveTest()
      : model_(MakeModel("lenet").value()),
        state_(InitialState(model_, 1).value()),
        roster_(FullRoster(3)),
        move_(Generation(4), "secret") {}

  MoveOrder Order(const Plan& plan, int64_t step, const std::string& why = "") {
    MoveOrder order;
    order.decided.from_step = step;
    order.decided.plan = plan;
    order.why = why;
    order.common.model = model_;
    order.common.first_sequence = Sequence(step);
    return order;
  }

  // The first plan, all the way.
  ActivePlan Stand(const Plan& plan) {
    MoveOrder order = Order(plan, 0);
    order.state = state_;
    EXPECT_TRUE(move_.Begin(std::move(order), {}, roster_, effects_).ok());
    std::optional<ActivePlan> active;
    for (const int device : plan.devices())
      active = move_.AddPrepared(device, {move_.generation()}, roster_, effects_);
    EXPECT_TRUE(active.has_value());
    for (const int device : plan.devices()) move_.AddReady(device, {move_.generation()});
    EXPECT_FALSE(move_.under_way());
    return *active;
  }

  // Answers for a device with what it was asked for.
  void Fetch(int device) {
    for (const auto& [connection, fetch] : MessagesOf<FetchLayers>(effects_)) {
      if (connection != device) continue;
      LayersFetched fetched{fetch.generation, {}};
      for (const LayerRange& range : fetch.ranges)
        Merge(Slice(state_, range.first_layer, range.last_layer), fetched.state);
      RunEffects more;
      move_.AddLayers(device, fetched, roster_, more);
      effects_.insert(effects_.end(), more.begin(), more.end());
      return;
    }
  }

  ModelSpec model_;
  ModelState state_;
  Roster roster_;
  Move move_;
  RunEffects effects_;
};

// Raw samples go to stage 0.
TEST_F(MoveTest, StageZeroIsLocalOrNothingBegins) {
  MoveOrder order = Order(PlanOf({1, 0, 2}, {2, 3, 5}), 0);
  order.state = state_;
  const absl::Status begun = move_.Begin(std::move(order), {}, roster_, effects_);
  EXPECT_EQ(begun.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(begun.message()), HasSubstr("stage 0 to worker w1, which is not on"));
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_FALSE(move_.under_way());
}

TEST_F(MoveTest, TheFirstPlanIsPreparedCommittedAndOnlyThenDialled) {
  MoveOrder order = Order(PlanOf({0, 1}, {2, 5}), 0);
  order.state = state_;
  ASSERT_TRUE(move_.Begin(std::move(order), {}, roster_, effects_).ok());
  const auto prepare = MessagesOf<PrepareStage>(effects_);
  ASSERT_EQ(prepare.size(), 2u);
  EXPECT_THAT(LayersOf(prepare[0].second.state), ElementsAre(0, 1, 2));
  EXPECT_THAT(LayersOf(prepare[1].second.state), ElementsAre(3, 4, 5));
  EXPECT_EQ(prepare[0].second.downstream.address, "127.0.0.1:w1");
  // What a stage is told of the next is what that one expects, and who is told may be there.
  EXPECT_EQ(prepare[0].second.downstream.token, prepare[1].second.link_token);
  EXPECT_EQ(prepare[0].second.downstream.greeting, prepare[1].second.link_greeting);
  EXPECT_EQ(prepare[0].second.downstream.peer, "worker/w1");
  EXPECT_EQ(prepare[1].second.upstream_peer, "worker/w0");
  EXPECT_EQ(prepare[0].second.upstream_peer, "");
  // Whoever has heard one of them knows no other.
  EXPECT_EQ((std::set<std::string>{prepare[0].second.link_token, prepare[0].second.link_greeting,
                                   prepare[1].second.link_token, prepare[1].second.link_greeting})
                .size(),
            4u);
  EXPECT_EQ(prepare[1].second.downstream, LinkTarget());
  EXPECT_THAT(EffectsOf<ConnectFeed>(effects_), IsEmpty());

  effects_.clear();
  EXPECT_FALSE(move_.AddPrepared(0, {Generation(4)}, roster_, effects_).has_value());
  EXPECT_FALSE(move_.AddPrepared(0, {Generation(4)}, roster_, effects_).has_value())
      << "said twice";
  EXPECT_FALSE(move_.AddPrepared(2, {Generation(4)}, roster_, effects_).has_value())
      << "has no stage";
  EXPECT_FALSE(move_.AddPrepared(1, {Generation(3)}, roster_, effects_).has_value())
      << "another plan";
  EXPECT_THAT(effects_, IsEmpty());
  const std::optional<ActivePlan> active = move_.AddPrepared(1, {Generation(4)}, roster_, effects_);
  ASSERT_TRUE(active.has_value());
  EXPECT_EQ(active->plan.generation, Generation(4));
  EXPECT_EQ(active->stages[1].worker, "w1");
  // Journalled before anything is committed; everybody hears of it, the spare too.
  EXPECT_TRUE(std::holds_alternative<Persist>(effects_[0]));
  EXPECT_THAT(ReceiversOf<CommitPlan>(effects_), ElementsAre(0, 1, 2));
  EXPECT_EQ(EffectsOf<ConnectFeed>(effects_)[0].first.token, prepare[0].second.link_token);
  EXPECT_EQ(EffectsOf<ConnectFeed>(effects_)[0].last.greeting, prepare[1].second.link_greeting);
  EXPECT_FALSE(move_.revocable());
  // Who may be relayed to whom is known before anybody dials.
  ASSERT_TRUE(std::holds_alternative<AllowRelay>(effects_[1]));
  const RelayPlan& relays = std::get<AllowRelay>(effects_[1]).plan;
  EXPECT_EQ(relays.generation, Generation(4));
  ASSERT_EQ(relays.places.size(), 2u);
  EXPECT_EQ(relays.places[0].token, prepare[0].second.link_token);
  EXPECT_THAT(relays.places[0].diallers, ElementsAre("server/central"));
  EXPECT_EQ(relays.places[1].token, prepare[1].second.link_token);
  EXPECT_EQ(relays.places[1].worker, ConnectionId(1));
  EXPECT_EQ(relays.places[1].peer, "worker/w1");
  EXPECT_THAT(relays.places[1].diallers, ElementsAre("worker/w0", "server/central"));

  EXPECT_FALSE(move_.AddReady(1, {Generation(4)}));
  EXPECT_FALSE(move_.AddReady(1, {Generation(4)})) << "said twice";
  EXPECT_TRUE(move_.AddReady(0, {Generation(4)}));
  EXPECT_FALSE(move_.under_way());
}

TEST_F(MoveTest, OnlyLayersThatMoveTravel) {
  const ActivePlan active = Stand(PlanOf({0, 1, 2}, {1, 3, 5}));
  effects_.clear();
  ASSERT_TRUE(
      move_.Begin(Order(PlanOf({0, 1, 2}, {0, 3, 5}), 40, "why"), active, roster_, effects_).ok());
  const auto fetch = MessagesOf<FetchLayers>(effects_);
  EXPECT_THAT(fetch[0].second.ranges, ElementsAre(LayerRange{1, 1}));
  EXPECT_THAT(fetch[1].second.ranges, IsEmpty());
  EXPECT_TRUE(move_.fetching());
  EXPECT_TRUE(move_.AwaitsLayers(0));
  Fetch(0);
  EXPECT_FALSE(move_.AwaitsLayers(0));
  Fetch(0);  // said twice
  Fetch(1);
  EXPECT_THAT(MessagesOf<PrepareStage>(effects_), IsEmpty());
  Fetch(2);
  EXPECT_FALSE(move_.fetching());
  const auto prepare = MessagesOf<PrepareStage>(effects_);
  ASSERT_EQ(prepare.size(), 3u);
  EXPECT_THAT(LayersOf(prepare[0].second.state), IsEmpty());
  EXPECT_THAT(LayersOf(prepare[1].second.state), ElementsAre(1));
  EXPECT_EQ(prepare[1].second.first_sequence, Sequence(40));
}

// Of a recovery: each layer comes from whoever is nearest.
TEST_F(MoveTest, ReplicasComeFromTheDeviceItselfFromAnotherOrFromCentral) {
  MoveOrder order = Order(PlanOf({0, 1}, {1, 5}), 40);
  order.recovered = Recovered{40, {"w1"}};
  order.state = Slice(state_, 5, 5);  // nobody has it
  order.replica = ReplicaId{Generation(1), Sequence(40)};
  order.held = {{{0, 2}, {0, 1}}, {{3, 3}, {1}}, {{4, 4}, {2, 0}}, {{5, 5}, {}}};
  ASSERT_TRUE(move_.Begin(std::move(order), {}, roster_, effects_).ok());
  const auto fetch = MessagesOf<FetchLayers>(effects_);
  ASSERT_EQ(fetch.size(), 1u) << "w1 has all but layers 4 and 5";
  EXPECT_EQ(fetch[0].first, 2);
  EXPECT_THAT(fetch[0].second.ranges, ElementsAre(LayerRange{4, 4}));
  EXPECT_EQ(fetch[0].second.replica, (ReplicaId{Generation(1), Sequence(40)}));
  EXPECT_TRUE(move_.Uses(2)) << "it has no stage in the plan, but what the plan needs";
  Fetch(2);
  EXPECT_FALSE(move_.Uses(2));
  const auto prepare = MessagesOf<PrepareStage>(effects_);
  ASSERT_EQ(prepare.size(), 2u);
  EXPECT_THAT(LayersOf(prepare[0].second.state), IsEmpty());
  EXPECT_THAT(LayersOf(prepare[1].second.state), ElementsAre(4, 5));
  EXPECT_EQ(prepare[1].second.replica, (ReplicaId{Generation(1), Sequence(40)}));
}

// A late answer to the move that was taken back must fit no other.
TEST_F(MoveTest, AnAbortedMoveKeepsItsGeneration) {
  const ActivePlan active = Stand(PlanOf({0, 1}, {2, 5}));
  const Plan next = PlanOf({0, 1, 2}, {0, 3, 5});
  effects_.clear();
  ASSERT_TRUE(move_.Begin(Order(next, 40, "why"), active, roster_, effects_).ok());
  EXPECT_EQ(move_.generation(), Generation(5));
  Fetch(0);
  Fetch(1);
  effects_.clear();
  move_.Abort("no memory", roster_, effects_);
  EXPECT_FALSE(move_.under_way());
  EXPECT_THAT(ReceiversOf<AbortPlan>(effects_), ElementsAre(0, 1, 2));
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[0].text,
              HasSubstr("stay where they are at step 40: no memory"));

  effects_.clear();
  ASSERT_TRUE(move_.Begin(Order(next, 80, "why"), active, roster_, effects_).ok());
  EXPECT_EQ(move_.generation(), Generation(6));
  Fetch(0);
  Fetch(1);
  for (const int device : {0, 1, 2}) {
    EXPECT_FALSE(move_.AddPrepared(device, {Generation(5)}, roster_, effects_).has_value());
  }
  EXPECT_THAT(MessagesOf<CommitPlan>(effects_), IsEmpty());
}

TEST_F(MoveTest, WhoIsLostIsNotSpokenTo) {
  const ActivePlan active = Stand(PlanOf({0, 1}, {2, 5}));
  ASSERT_TRUE(
      move_.Begin(Order(PlanOf({0, 1}, {1, 5}), 40, "why"), active, roster_, effects_).ok());
  effects_.clear();
  roster_.Leave(ConnectionId(2), effects_);
  move_.Abort("w2 was lost", roster_, effects_);
  EXPECT_THAT(ReceiversOf<AbortPlan>(effects_), ElementsAre(0, 1));
}

TEST_F(MoveTest, APlanThatDoesNotFitTheModelIsNotBegun) {
  Plan gap = PlanOf({0, 1}, {2, 5});
  gap.stages[1].first_layer = 4;
  EXPECT_EQ(move_.Begin(Order(gap, 0), {}, roster_, effects_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(move_.under_way());
  EXPECT_THAT(effects_, IsEmpty());
}

}  // namespace
}  // namespace runnel::move_test
