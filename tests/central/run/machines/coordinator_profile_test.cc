// What the devices take: asked for before the first plan, and again at a barrier.

#include <map>
#include <string>
#include <utility>

#include "central/planning/measured/layer_profile.h"
#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_profile_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const std::vector<LayerRange> kRanges = {{0, 0}, {1, 4}, {0, 5}};

// Of a model of 6 layers, all ranges alike.
DeviceTimes Ranges(double seconds) {
  return DeviceTimes::ByRange(6, std::vector<double>(21, seconds));
}

// Two workers with half of the layers each; their sub-models take more each time they are asked.
class Cluster {
 public:
  // Devices to measure.
  using ByStep = std::map<int64_t, std::vector<int>>;
  explicit Cluster(const ByStep& to_measure = {}, bool by_range = true,
                   const std::string& model = "lenet", bool first_only = false,
                   const std::function<void(CoordinatorOptions&)>& change = nullptr)
      : by_range_(by_range), model_(MakeModel(model).value()) {
    CoordinatorOptions options = LeNetRun(1);
    options.stage.model = model_;
    options.recovers = false;  // nobody is lost, and the model is large
    options.initial_state = InitialState(options.stage.model, 1).value();
    options.needs_profile = true;
    options.profiles_first_only = first_only;
    planner_.first_plan = [this](const auto&) {
      return PlanOf({0, 1}, {half() - 1, layers() - 1});
    };
    if (by_range) options.measurement.sub_models = kRanges;
    planner_.layers = layers();
    planner_.at_barrier = [this, to_measure](const BarrierReport& report) -> BarrierDecision {
      const auto found = to_measure.find(report.step);
      if (found != to_measure.end() && std::exchange(measured_step_, report.step) != report.step)
        return MeasureDevices{found->second};
      log_ += " r" + std::to_string(report.step);
      seen_ = report.times;
      return KeepPlan{};
    };
    options.planner = &planner_;
    if (change) change(options);
    coordinator_ = Coordinator::Create(std::move(options)).value();
    JoinWorkers(*coordinator_, 2);
  }

  int layers() const { return model_.layer_count(); }
  int half() const { return layers() / 2; }

  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (RunEffect& effect : effects) {
        if (auto* send = std::get_if<SendControl>(&effect)) Answer(*send);
        if (auto* persist = std::get_if<Persist>(&effect)) {
          if (auto* plan = std::get_if<PlanDecided>(&persist->record)) plan_ = *plan;
          if (auto* measured = std::get_if<SubModelsMeasured>(&persist->record))
            measurements_.push_back(*measured);
        }
        if (auto* line = std::get_if<LogLine>(&effect)) lines_ += line->text + "\n";
        if (auto* ended = std::get_if<RunEnded>(&effect)) {
          log_ += " end" + std::to_string(ended->step);
          ended_ = ended->status;
        }
      }
    }
  }

  std::string log_, lines_;
  std::string recipe_;  // that was measured last
  absl::Status ended_ = absl::UnknownError("still running");
  PlanDecided plan_;
  std::vector<SubModelsMeasured> measurements_;
  std::vector<DeviceTimes> seen_;
  size_t asked_ = 0;  // devices, at the last request
  size_t answered_ranges_ = 3;
  double second_ = 1;           // of the first range
  bool stop_ = false;           // asked for while a device measures at a barrier
  int fails_ = -1;              // device that cannot measure at a barrier
  bool fails_at_once_ = false;  // nor before the first plan
  bool strays_ = false;         // a device answers what it was not asked

 private:
  void Answer(const SendControl& send) {
    const ConnectionId id = send.connection;
    const auto reply = [&](WorkerMessage message) { coordinator_->Received(id, message); };
    if (const auto* request = std::get_if<ProfileRequest>(&send.message)) {
      log_ += " p" + std::to_string(id.value());
      recipe_ = request->recipe;
      asked_ = coordinator_->measuring().devices().asked();
      if (strays_) coordinator_->Received(ConnectionId(1 - id.value()), Times(*request));
      if (stop_ && coordinator_->step() > 0) coordinator_->StopAtBarrier();
      if (id.value() == fails_ && (fails_at_once_ || coordinator_->step() > 0))
        return reply(ProfileFailed{"no memory", false, request->generation});
      if (by_range_) {
        EXPECT_EQ(request->ranges, kRanges);
      } else if (std::exchange(layers_next_[id.value() % 2], !layers_next_[id.value() % 2])) {
        EXPECT_EQ(request->ranges, EachLayer(layers()));
      } else {
        EXPECT_EQ(request->ranges, PartsOf(layers(), 2));
        for (size_t i = 0; i < request->ranges.size(); ++i)
          EXPECT_EQ(request->in_flight[i], InFlightOf(request->ranges[i], layers(), 2));
        EXPECT_NEAR(request->burst_ms * static_cast<double>(request->ranges.size()), 75, 1e-9)
            << "each is on a host of its own";
        answered_ranges_ = request->ranges.size();
        return reply(Times(*request));
      }
      if (!by_range_) answered_ranges_ = static_cast<size_t>(layers());
      EXPECT_EQ(request->in_flight, std::vector<int64_t>(by_range_ ? 0 : answered_ranges_, 1));
      reply(Times(*request));
    } else if (std::holds_alternative<PrepareStage>(send.message)) {
      reply(StagePrepared{Generation(1)});
    } else if (std::holds_alternative<CommitPlan>(send.message)) {
      reply(StageReady{Generation(1)});
    } else if (const auto* run = std::get_if<RunUntil>(&send.message)) {
      reply(BarrierReached{Generation(1), run->limit});
    } else if (const auto* snapshot = std::get_if<SnapshotRequest>(&send.message)) {
      const ModelState all = InitialState(model_, 1).value();
      reply(
          Snapshot{Generation(1), snapshot->sequence,
                   id.value() == 0 ? Slice(all, 0, half() - 1) : Slice(all, half(), layers() - 1)});
    }
  }

  ProfileReport Times(const ProfileRequest& request) {
    ProfileReport report;
    report.generation = request.generation;
    report.layer_seconds.assign(answered_ranges_, second_);
    second_ += 1;
    return report;
  }

  bool by_range_;
  ModelSpec model_;
  ScriptedPlanner planner_;
  int64_t measured_step_ = 0;
  bool layers_next_[2] = {true, true};  // by connection; then parts
  std::optional<Coordinator> coordinator_;
};

TEST(CoordinatorProfile, SubModelsArePredictedFromAndJournalled) {
  Cluster cluster;
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 r40 r80 end100");
  ASSERT_EQ(cluster.measurements_.size(), 2u);
  EXPECT_EQ(cluster.measurements_[1].name, "w1");
  EXPECT_EQ(cluster.measurements_[1].device, DeviceId(1));
  EXPECT_EQ(cluster.measurements_[1].sub_models[2].range, (LayerRange{0, 5}));
  EXPECT_EQ(cluster.measurements_[1].sub_models[2].seconds, 2);
  EXPECT_EQ(cluster.plan_.devices[0].times, Ranges(1));
  EXPECT_EQ(cluster.plan_.devices[1].times, Ranges(3));
}

TEST(CoordinatorProfile, DevicesThatChangedAreMeasuredAgainBeforeThePlan) {
  Cluster cluster(Cluster::ByStep{{40, {1}}, {80, {0, 1}}});
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 p1 r40 p0 p1 r80 end100");
  ASSERT_EQ(cluster.measurements_.size(), 5u);
  EXPECT_EQ(cluster.measurements_[2].step, 40);
  EXPECT_EQ(cluster.measurements_[4].step, 80);
  EXPECT_THAT(cluster.seen_, ElementsAre(Ranges(4), Ranges(6)));
  EXPECT_THAT(cluster.lines_, HasSubstr("step 40: worker w1 is not what it was"));
}

// With the bits that hold when it is measured, of a cycle the largest.
TEST(CoordinatorProfile, TheLevelUnderWayIsMeasured) {
  const auto measured = [](const std::string& precision, std::vector<TrainingChange> changes) {
    Cluster cluster({}, true, "lenet", false, [&](CoordinatorOptions& options) {
      options.stage.recipe = "sbm:8,8,8";
      options.stage.training.precision = precision;
      options.changes = std::move(changes);
    });
    cluster.Settle();
    return cluster.recipe_;
  };
  EXPECT_EQ(measured("recipe", {}), "sbm:8,8,8");
  EXPECT_EQ(measured("pfq:3,8/6,16", {}), "sbm:3,3,6");
  EXPECT_EQ(measured("pfq:3,8/6,16", {ChangeOfPrecision(0, 1)}), "sbm:8,8,16");
  EXPECT_EQ(measured("cpt:3,8/8", {}), "sbm:8,8,8");
}

TEST(CoordinatorProfile, StopAskedForWhileADeviceMeasuresIsHeardAtOnce) {
  Cluster cluster(Cluster::ByStep{{40, {1}}});
  cluster.stop_ = true;
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 p1 end40");
}

// It has its stage, and what was known of it stays: no reason to end a run.
TEST(CoordinatorProfile, WhoCannotMeasureAtABarrierKeepsWhatWasKnown) {
  Cluster cluster(Cluster::ByStep{{40, {0, 1}}, {80, {1}}});
  cluster.fails_ = 0;
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 p0 p1 r40 p1 r80 end100");
  EXPECT_THAT(cluster.lines_, HasSubstr("step 40: worker w0 could not measure (no memory)"));
  EXPECT_THAT(cluster.seen_, ElementsAre(Ranges(1), Ranges(5)));
}

// What the others take, their stages will show.
TEST(CoordinatorProfile, TheFirstDeviceAloneIsMeasured) {
  Cluster cluster({}, /*by_range=*/false, "lenet", /*first_only=*/true);
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p0 r40 r80 end100") << "layers, then parts";
  EXPECT_EQ(cluster.asked_, 1u);
  ASSERT_EQ(cluster.plan_.devices.size(), 2u);
  EXPECT_FALSE(cluster.plan_.devices[0].times.empty());
  EXPECT_TRUE(cluster.plan_.devices[1].times.empty());
}

// By layers all are asked at once, and parts only of those that answered.
TEST(CoordinatorProfile, WhoCannotMeasureLayersIsNotAskedForParts) {
  Cluster cluster(Cluster::ByStep{{40, {0, 1}}}, /*by_range=*/false, "vgg11");
  cluster.fails_ = 1;
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 p0 p1 p0 p1 p0 r40 r80 end100");
}

TEST(CoordinatorProfile, BeforeThereIsAPlanWhoCannotMeasureIsLeftOut) {
  Cluster cluster;
  cluster.fails_ = 1;
  cluster.fails_at_once_ = true;
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_.substr(0, 6), " p0 p1");
  EXPECT_THAT(cluster.lines_,
              HasSubstr("worker w1 could not measure (no memory): the start goes on "
                        "without it"));
}

TEST(CoordinatorProfile, OnlyWhoWasAskedIsHeard) {
  Cluster cluster(Cluster::ByStep{{40, {1}}});
  cluster.strays_ = true;
  cluster.Settle();
  EXPECT_EQ(cluster.log_, " p0 p1 p1 r40 r80 end100");
  ASSERT_EQ(cluster.measurements_.size(), 3u);
  EXPECT_EQ(cluster.measurements_[0].sub_models[0].seconds, 2);
}

TEST(CoordinatorProfile, WrongAnswersEndTheRun) {
  for (const bool zero : {false, true}) {
    Cluster cluster;
    zero ? cluster.second_ = 0 : cluster.answered_ranges_ = 2;
    cluster.Settle();
    EXPECT_EQ(cluster.log_, " p0 end0");
    EXPECT_THAT(std::string(cluster.ended_.message()),
                HasSubstr(zero ? "is not a time" : "does not have the ranges asked for"));
  }
}

// Parts of four and five layers take 3 and 4 s, each layer took 1 or 2; and at the barrier 6 and 5.
TEST(CoordinatorProfile, WithoutRangesLayersTakeWhatTheirPartTook) {
  Cluster cluster(Cluster::ByStep{{40, {0}}}, /*by_range=*/false, "vgg11");
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  // Parts when both have answered for the layers.
  EXPECT_EQ(cluster.log_, " p0 p1 p0 p1 p0 p0 r40 r80 end100");
  EXPECT_TRUE(cluster.measurements_.empty());
  const auto seconds = [](double part) {
    std::vector<double> layers(4, part / 4);
    layers.insert(layers.end(), 5, part / 5);
    return layers;
  };
  EXPECT_FALSE(cluster.plan_.devices[0].times.by_range());
  EXPECT_THAT(cluster.plan_.devices[0].times.figures(), Pointwise(DoubleEq(), seconds(3)));
  EXPECT_THAT(cluster.plan_.devices[1].times.figures(), Pointwise(DoubleEq(), seconds(4)));
  EXPECT_THAT(cluster.seen_[0].figures(), Pointwise(DoubleEq(), seconds(6)));
}

// There the ranges' own times are what the plan is made from.
TEST(CoordinatorProfile, OfFewLayersAllRangesAreMeasured) {
  Cluster cluster(Cluster::ByStep{{40, {0}}}, /*by_range=*/false);
  cluster.Settle();
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  EXPECT_EQ(cluster.log_, " p0 p1 p0 p1 p0 p0 r40 r80 end100");
  EXPECT_TRUE(cluster.measurements_.empty());
  EXPECT_EQ(cluster.plan_.devices[0].times, Ranges(3));
  EXPECT_EQ(cluster.plan_.devices[1].times, Ranges(4));
  EXPECT_EQ(cluster.seen_[0], Ranges(6));
}

}  // namespace
}  // namespace runnel::coordinator_profile_test
