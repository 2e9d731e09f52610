// A small discrete-event simulation: stages that do what NextAction says as soon as their input is
// there, with random times of computing, of links and of the barrier's release. Whatever the times,
// the order must be the one that StageActions gives.

#include <algorithm>
#include <iostream>
#include <queue>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "partition/schedule.h"

namespace runnel::schedule_property_test {
namespace {

struct Conditions {
  std::vector<StageOrder> stages;
  int64_t total = 0;
  int64_t drain_every = 0;    // every stage by itself (end of a mini-batch); 0: never
  int64_t barrier_every = 0;  // all together, released by a controller; 0: never
};

class Simulation {
 public:
  Simulation(const Conditions& conditions, uint64_t timing_seed)
      : conditions_(conditions), stages_(conditions.stages.size()), random_(timing_seed) {
    released_ = NextBarrier(0);
  }

  void Run() {
    for (size_t i = 0; i < stages_.size(); ++i) TryStart(i);
    while (!events_.empty() && !::testing::Test::HasFailure()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      Handle(event);
    }
  }

  const std::vector<ScheduledAction>& log(size_t stage) const { return stages_[stage].log; }
  int64_t barriers() const { return barriers_; }

 private:
  enum class Kind { kActionDone, kActivation, kGradient, kRelease };
  struct Event {
    double time;
    int64_t tie;  // events of one time run in the order in which they were made
    Kind kind;
    size_t stage;
    bool operator>(const Event& other) const {
      return std::pair(time, tie) > std::pair(other.time, other.tie);
    }
  };
  struct Stage {
    int64_t activations = 0;  // arrived
    int64_t gradients = 0;
    StageProgress done;
    bool busy = false;
    Action running = Action::kDrained;
    std::vector<ScheduledAction> log;
  };

  int64_t NextBarrier(int64_t done) const {
    if (conditions_.barrier_every == 0) return conditions_.total;
    return std::min(conditions_.total,
                    (done / conditions_.barrier_every + 1) * conditions_.barrier_every);
  }

  // The next multiple of drain_every that this stage has not drained yet, or the barrier.
  int64_t Boundary(const Stage& stage) const {
    if (conditions_.drain_every == 0) return released_;
    return std::min(released_, (stage.done.weight_gradients / conditions_.drain_every + 1) *
                                   conditions_.drain_every);
  }

  void Post(double delay, Kind kind, size_t stage) {
    events_.push({now_ + delay, next_tie_++, kind, stage});
  }

  // Times between 0 and 3 with many exact zeros and ties.
  double Delay() { return static_cast<double>(random_() % 7) / 2; }

  void TryStart(size_t i) {
    Stage& stage = stages_[i];
    if (stage.busy) return;
    const Action action = NextAction(conditions_.stages[i], Boundary(stage), stage.done);
    if (action == Action::kDrained) {
      ReleaseIfAllDrained();
      return;
    }
    const bool last = i + 1 == stages_.size();
    if (action == Action::kForward && i > 0 && stage.activations <= stage.done.forwards) return;
    if (action == Action::kInputGradient && !last && stage.gradients <= stage.done.input_gradients)
      return;
    stage.busy = true;
    stage.running = action;
    Post(Delay(), Kind::kActionDone, i);
  }

  void ReleaseIfAllDrained() {
    if (released_ == conditions_.total || releasing_) return;
    for (const Stage& stage : stages_) {
      if (stage.busy || stage.done.weight_gradients < released_) return;
    }
    for (const Stage& stage : stages_) {
      EXPECT_EQ(stage.done.forwards, released_);
      EXPECT_EQ(stage.done.weight_gradients, released_);
    }
    ++barriers_;
    releasing_ = true;
    Post(Delay(), Kind::kRelease, 0);
  }

  void Handle(const Event& event) {
    Stage& stage = stages_[event.stage];
    switch (event.kind) {
      case Kind::kActivation:
        ++stage.activations;
        break;
      case Kind::kGradient:
        ++stage.gradients;
        break;
      case Kind::kRelease:
        releasing_ = false;
        released_ = NextBarrier(released_);
        for (size_t i = 0; i < stages_.size(); ++i) TryStart(i);
        return;
      case Kind::kActionDone:
        Finish(event.stage);
        break;
    }
    TryStart(event.stage);
  }

  void Finish(size_t i) {
    Stage& stage = stages_[i];
    stage.busy = false;
    if (stage.running == Action::kForward) {
      stage.log.push_back({Action::kForward, stage.done.forwards++, 0});
      if (i + 1 < stages_.size()) Post(Delay(), Kind::kActivation, i + 1);
    } else if (stage.running == Action::kInputGradient) {
      stage.log.push_back({Action::kInputGradient, stage.done.input_gradients++, 0});
      if (i > 0) Post(Delay(), Kind::kGradient, i - 1);
    } else {
      stage.log.push_back({Action::kWeightGradient, stage.done.weight_gradients++, 0});
    }
    const auto& [cap, deferred] = conditions_.stages[i];
    EXPECT_LE(stage.done.forwards - stage.done.input_gradients, cap);
    EXPECT_LE(stage.done.input_gradients - stage.done.weight_gradients, deferred + 1);
    EXPECT_LE(stage.done.forwards - stage.done.weight_gradients, cap + deferred);
  }

  const Conditions& conditions_;
  std::vector<Stage> stages_;
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  int64_t next_tie_ = 0;
  int64_t released_ = 0;  // forwards allowed by the barrier
  int64_t barriers_ = 0;
  bool releasing_ = false;
};

// StageActions over the stage's own drains; a barrier is always one of them.
std::vector<ScheduledAction> Expected(const Conditions& conditions, size_t stage) {
  const int64_t every =
      conditions.drain_every > 0 ? conditions.drain_every : conditions.barrier_every;
  std::vector<ScheduledAction> actions =
      StageActions(conditions.stages[stage], conditions.total, every, 1);
  for (ScheduledAction& action : actions) action.version = 0;
  return actions;
}

Conditions RandomConditions(std::mt19937_64& random) {
  Conditions conditions;
  const int stages = 1 + static_cast<int>(random() % 6);
  const bool defers = random() % 2 == 0;
  int64_t cap = 1;
  for (int i = 0; i < stages; ++i) {
    cap += static_cast<int64_t>(random() % 3);
    const int64_t deferred = defers ? static_cast<int64_t>(random() % 5) : 0;
    conditions.stages.insert(conditions.stages.begin(), {cap, deferred});
  }
  conditions.total = 1 + static_cast<int64_t>(random() % 40);
  if (random() % 2 == 0) {  // drains by itself; barriers at multiples of whole mini-batches
    conditions.drain_every = 1 + static_cast<int64_t>(random() % 6);
    conditions.barrier_every = random() % 2 == 0 ? 0 : conditions.drain_every * (1 + random() % 3);
  } else {
    conditions.barrier_every = random() % 3 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 15);
  }
  return conditions;
}

TEST(ScheduleProperty, OrderIsAFunctionOfThePlanAlone) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const Conditions conditions = RandomConditions(random);
    for (int timing = 0; timing < 3; ++timing) {
      const uint64_t timing_seed = random();
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", timing seed ", timing_seed));
      Simulation simulation(conditions, timing_seed);
      simulation.Run();
      for (size_t i = 0; i < conditions.stages.size(); ++i) {
        // Also no deadlock: a stage that stood still has a shorter log.
        ASSERT_EQ(simulation.log(i).size(), 3 * static_cast<size_t>(conditions.total))
            << "stage " << i;
        ASSERT_EQ(simulation.log(i), Expected(conditions, i)) << "stage " << i;
      }
      if (conditions.barrier_every > 0) {
        EXPECT_EQ(simulation.barriers(), (conditions.total - 1) / conditions.barrier_every);
      }
      if (HasFailure()) return;
    }
  }
  std::cout << "seeds 1..400, three timings each\n";
}

}  // namespace
}  // namespace runnel::schedule_property_test
