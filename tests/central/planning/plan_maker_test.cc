// What plans and predictions charge to devices whose processor others use too.

#include "central/planning/plan_maker.h"

#include <string>
#include <vector>

#include "central/run/run_planning.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel::plan_maker_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Rows = std::vector<DeviceTimes>;

constexpr double kLayerSeconds = 0.004;

PlanningInputs TwoWorkers(const std::string& bits = "") {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 2;
  settings.schedule = "async_1f1b";
  settings.policy = "accept";
  settings.bits = bits;
  RunSetup setup = SetUpRun(settings).value();
  EXPECT_TRUE(SetTrainingSamples(1000, setup).ok());
  PlanningInputs inputs = MakePlanningInputs(setup, 100).value();
  EXPECT_EQ(inputs.barrier_every, 100);
  inputs.barrier_every = 0;  // periods below are those of the steady pipeline
  return inputs;
}

Rows Layers(const PlanningInputs& inputs, double first, double second) {
  const auto layers = static_cast<size_t>(inputs.model.layer_count());
  return {DeviceTimes::ByLayer(std::vector<double>(layers, first)),
          DeviceTimes::ByLayer(std::vector<double>(layers, second))};
}

// Of a cut after `last`, what a micro-batch takes.
double Period(const PlanningInputs& inputs, int last, const Rows& seconds,
              MeasuredCluster cluster) {
  const PlanMaker maker(inputs);
  Plan plan = maker.MakePlan({0, 1}, {.times = seconds}).value();
  plan.stages[0].last_layer = last;
  plan.stages[1].first_layer = last + 1;
  cluster.times = seconds;
  return maker.PeriodSeconds(plan, cluster).value();
}

MeasuredCluster Shares(double first, double second) {
  MeasuredCluster cluster;
  cluster.processor_shares = {first, second};
  return cluster;
}

// Of the stage that everything waits for, at these shares.
double Charged(const PlanningInputs& inputs, int last, const Rows& seconds, double first,
               double second) {
  return Period(inputs, last, seconds, Shares(first, second)) -
         Period(inputs, last, seconds, Shares(1, 1));
}

TEST(PlanMaker, DevicesWithAProcessorOfTheirOwnPayNothingForFrames) {
  const PlanningInputs inputs = TwoWorkers();
  const Rows seconds = Layers(inputs, kLayerSeconds, kLayerSeconds);
  const double free = Period(inputs, 1, seconds, {});
  EXPECT_EQ(Period(inputs, 1, seconds, Shares(1, 1)), free);
  EXPECT_EQ(Period(inputs, 1, seconds, Shares(0.95, 0.9)), free);
  EXPECT_GT(Period(inputs, 1, seconds, Shares(0.95, 0.8)), free);
}

TEST(PlanMaker, TheSmallerTheShareTheMoreFramesTake) {
  const PlanningInputs inputs = TwoWorkers();
  const Rows seconds = Layers(inputs, kLayerSeconds, kLayerSeconds);
  // The second stage, four layers of six, is what counts.
  const double half = Charged(inputs, 1, seconds, 0.5, 0.5);
  EXPECT_GT(half, 2 * 0.2e-3);  // an activation and its gradient, at half speed
  EXPECT_NEAR(Charged(inputs, 1, seconds, 0.25, 0.25), 2 * half, 1e-7);
  // The same layers on a device that is twice as slow: so is its transport.
  const Rows slow = Layers(inputs, kLayerSeconds, 2 * kLayerSeconds);
  EXPECT_NEAR(Charged(inputs, 1, slow, 0.5, 0.25), 2 * half, 1e-7);
  // A device without a share beside one with: it is reckoned from the first's whole processor.
  EXPECT_NEAR(Charged(inputs, 1, slow, 1, 0.5), half, 1e-7);
}

TEST(PlanMaker, TheFirstDevicePaysForCentralToo) {
  const PlanningInputs inputs = TwoWorkers();
  const Rows seconds = Layers(inputs, kLayerSeconds, kLayerSeconds);
  EXPECT_GT(Charged(inputs, 2, seconds, 0.5, 1), Charged(inputs, 1, seconds, 0.5, 0.5));
}

// A device that turned out slower computes slower; what frames took at the profile they take.
TEST(PlanMaker, FramesCostWhatTheyCostAtTheProfile) {
  const PlanningInputs inputs = TwoWorkers();
  const Rows seconds = Layers(inputs, kLayerSeconds, kLayerSeconds);
  const double half = Charged(inputs, 1, seconds, 0.5, 0.5);
  const Rows corrected = Layers(inputs, kLayerSeconds, 3 * kLayerSeconds);
  MeasuredCluster cluster = Shares(0.5, 0.5);
  const double layers = inputs.model.layer_count();
  cluster.profiled_sums = {layers * kLayerSeconds, layers * kLayerSeconds};
  EXPECT_NEAR(Period(inputs, 1, corrected, cluster) - Period(inputs, 1, corrected, {}), half, 1e-7);
}

// Codec recipe: time is that of the present level, memory that of the largest.
TEST(PlanMaker, LinksAtTheLevelsBitsCostWhatTheLevelSends) {
  PlanningInputs inputs = TwoWorkers();
  TrainingSettings training;
  training.precision = "pfq:2,8/4,16";
  inputs.codecs.levels = LinkLevels::Of("sbm:8,8,8", training, inputs.model).value();
  inputs.codecs.forward = inputs.codecs.backward = CodecSchedule(RecipeCodec());
  inputs.links.given.rate = LinkRate::Mbps(5);
  const Rows seconds = Layers(inputs, kLayerSeconds / 100, kLayerSeconds / 100);
  const auto period = [&](GridBits bits) {
    MeasuredCluster cluster;
    cluster.link_bits = bits;
    return Period(inputs, 1, seconds, cluster);
  };
  EXPECT_DOUBLE_EQ(period({}), period({2, 4})) << "the run begins at its first level";
  // The way back is what everything waits for, but for its frame's header and the layers' time.
  EXPECT_NEAR(period({8, 16}) / period({2, 4}), 4, 0.2);
  const Plan plan = PlanMaker(inputs).MakePlan({0, 1}, {.times = seconds}).value();
  EXPECT_EQ(plan.links[0].codec_forward.text(), "recipe");
  const auto fits = [&](const char* precision, int64_t bytes) {
    training.precision = precision;
    inputs.codecs.levels = LinkLevels::Of("sbm:8,8,8", training, inputs.model).value();
    MeasuredCluster cluster = {.times = seconds};
    cluster.memory = {{.name = "a", .may_take_bytes = bytes}, {.name = "b"}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).ok();
  };
  int64_t least = 1;
  for (int64_t step = int64_t{1} << 32; step > 0; step /= 2) {
    if (!fits("fixed:2/4", least + step)) least += step;
  }
  EXPECT_TRUE(fits("fixed:2/4", least + 1));
  EXPECT_FALSE(fits("pfq:2,8/4,16", least + 1)) << "the last level takes more";
}

// On a fast link bytes are worth coding only where they take a processor that computes.
TEST(PlanMaker, BitsFollowWhatBytesTakeOfAProcessor) {
  PlanningInputs inputs = TwoWorkers("bandwidth");
  const Rows seconds = Layers(inputs, kLayerSeconds / 10, kLayerSeconds / 10);
  double coder_seconds_per_byte = 1e-10;
  const auto codec = [&](MeasuredCluster cluster) {
    cluster.times = seconds;
    cluster.costs.resize(2);
    for (DeviceCosts& costs : cluster.costs) costs.coder_seconds_per_byte = coder_seconds_per_byte;
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).value().links[0].codec_forward.text();
  };
  EXPECT_EQ(codec(Shares(1, 1)), "identity");
  EXPECT_NE(codec(Shares(0.5, 0.5)), "identity");
  coder_seconds_per_byte = 1e-8;  // coding takes more of it than sending
  EXPECT_EQ(codec(Shares(0.5, 0.5)), "identity");
}

// No network is between workers of one host: nothing is lost to spare it.
TEST(PlanMaker, WorkersOfOneHostLoseNothing) {
  const PlanningInputs inputs = TwoWorkers("bandwidth");
  MeasuredCluster cluster = Shares(0.5, 0.5);
  cluster.times = Layers(inputs, kLayerSeconds / 10, kLayerSeconds / 10);
  cluster.costs.assign(
      2, {.coder_seconds_per_byte = 5e-10, .frame_seconds = 3e-5, .link_byte_seconds = 2e-10});
  const auto link = [&] { return PlanMaker(inputs).MakePlan({0, 1}, cluster).value().links[0]; };
  EXPECT_NE(link().codec_forward.text(), "identity");
  cluster.on_host = {true, true};
  EXPECT_EQ(link().codec_forward.text(), "identity");
  EXPECT_EQ(link().codec_backward.text(), "identity");
  cluster.on_host = {true, false};
  EXPECT_NE(link().codec_forward.text(), "identity");
}

// Three workers of one host with two processors were measured at the same time, each with 2/3 of
// one. A long stage beside two short ones computes nearly alone.
TEST(PlanMaker, WorkersOfOneHostShareItsProcessors) {
  const PlanningInputs inputs = TwoWorkers();
  const double alone_seconds = kLayerSeconds;
  MeasuredCluster cluster = Shares(2.0 / 3, 2.0 / 3);
  cluster.processor_shares.push_back(2.0 / 3);
  cluster.times = Layers(inputs, 1.5 * alone_seconds, 1.5 * alone_seconds);
  cluster.times.push_back(cluster.times[0]);
  cluster.on_host = {true, true, true};
  const PlanMaker maker(inputs);
  const double layers = inputs.model.layer_count();
  ASSERT_EQ(layers, 6);
  const auto period = [&](int first, int second) {
    Plan plan = maker.MakePlan({0, 1, 2}, cluster).value();
    plan.stages[0].last_layer = first;
    plan.stages[1].first_layer = first + 1;
    plan.stages[1].last_layer = second;
    plan.stages[2].first_layer = second + 1;
    return maker.PeriodSeconds(plan, cluster).value();
  };
  // Nothing is known of the host: everybody has 2/3 of a processor, whatever the others do.
  EXPECT_GT(period(0, 1), 4 * 1.5 * alone_seconds);
  EXPECT_GT(period(1, 3), 2 * 1.5 * alone_seconds);
  cluster.host_processors = 2;
  // Frames and the rest of each worker take 1 to 2 ms of a stage and a few of all, tensors of 3 MB at
  // two ends and both ways as much again, and taking turns its part.
  const double most_beside_seconds = 10e-3;
  EXPECT_GT(period(0, 1), 4 * alone_seconds);
  EXPECT_LT(period(0, 1), 4 * alone_seconds + most_beside_seconds);
  EXPECT_GT(period(1, 3), layers / 2 * alone_seconds);
  EXPECT_LT(period(1, 3), layers / 2 * alone_seconds + most_beside_seconds);
  // Of two that are left each has a processor: nothing of the third is charged.
  MeasuredCluster whole = cluster;
  whole.processor_shares.assign(3, 1);
  const auto both = [&] {
    const Plan plan = maker.MakePlan({0, 1}, whole).value();
    return maker.PeriodSeconds(plan, whole).value();
  };
  const double with_a_third_gone = both();
  whole.on_host[2] = false;
  EXPECT_DOUBLE_EQ(with_a_third_gone, both());
  // On hosts of their own they have what was measured.
  cluster.on_host = {true, false, false};
  EXPECT_GT(period(0, 1), 4 * 1.5 * alone_seconds);
}

// A slow coder on one end is enough: each device says what coding takes of it.
TEST(PlanMaker, CodingIsDearWhereItWasMeasuredToBe) {
  PlanningInputs inputs = TwoWorkers("bandwidth");
  inputs.links.given.rate = LinkRate::Mbps(100);
  const auto codec = [&](double first, double second) {
    MeasuredCluster cluster;
    cluster.times = Layers(inputs, kLayerSeconds / 10, kLayerSeconds / 10);
    cluster.costs.resize(2);
    cluster.costs[0].coder_seconds_per_byte = first;
    cluster.costs[1].coder_seconds_per_byte = second;
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).value().links[0].codec_forward.text();
  };
  EXPECT_NE(codec(1e-10, 1e-10), "identity");
  EXPECT_EQ(codec(1e-10, 1e-6), "identity");
}

TEST(PlanMaker, FramesTakeWhatTheDeviceMeasured) {
  const PlanningInputs inputs = TwoWorkers();
  const Rows seconds = Layers(inputs, kLayerSeconds, kLayerSeconds);
  MeasuredCluster cluster = Shares(0.5, 0.5);
  cluster.costs.resize(2);
  const double free = Period(inputs, 1, seconds, {});
  for (DeviceCosts& costs : cluster.costs)
    costs = {.frame_seconds = 1e-4, .link_byte_seconds = 1e-9};
  const double dear = Period(inputs, 1, seconds, cluster) - free;
  for (DeviceCosts& costs : cluster.costs)
    costs = {.frame_seconds = 1e-5, .link_byte_seconds = 1e-10};
  const double cheap = Period(inputs, 1, seconds, cluster) - free;
  EXPECT_GT(cheap, 0);
  EXPECT_NEAR(dear, 10 * cheap, 1e-7);
}

// LeNet's first linear layer is the large one: it stays where there is room for it.
TEST(PlanMaker, AStageFitsTheMemoryOfItsDevice) {
  PlanningInputs inputs = TwoWorkers();
  inputs.policy = FindPolicy("runnel").value();
  MeasuredCluster cluster;
  cluster.times = Layers(inputs, kLayerSeconds, kLayerSeconds);
  const auto plan = [&](int64_t first_bytes, int64_t second_bytes) {
    cluster.memory = {{"pi-1", first_bytes}, {"pi-2", second_bytes}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster);
  };
  constexpr int kLinear = 4;
  constexpr int64_t kRoom = 1'000'000'000, kNoRoom = 65'000'000;
  const Plan even = plan(kRoom, kRoom).value();
  ASSERT_EQ(even.stages.size(), 2u);
  EXPECT_LE(even.stages[1].first_layer, kLinear);
  EXPECT_EQ(plan(0, 0).value().stages, even.stages) << "nothing is known";
  const Plan lopsided = plan(kRoom, kNoRoom).value();
  EXPECT_GE(lopsided.stages[0].last_layer, kLinear);
  const absl::Status none = plan(kNoRoom, kNoRoom).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("the whole model takes"), HasSubstr("pi-1 65 MB, pi-2 65 MB")));
}

// A worker that has room for its stage and not for copies of the neighbours' states gets a smaller
// stage, unless that is much slower.
TEST(PlanMaker, ThereIsRoomForCopiesOfStates) {
  PlanningInputs inputs = TwoWorkers();
  inputs.policy = FindPolicy("runnel").value();
  MeasuredCluster cluster;
  // What the layers take that the second worker may have to give up.
  const auto times = [](double given_up) {
    return DeviceTimes::ByLayer({0.002, 0.002, 0.008, given_up, given_up, 0.004});
  };
  cluster.times = {times(0.001), times(0.001)};
  const auto plan = [&](int64_t second_bytes, bool replicates) {
    cluster.memory = {{"pi-1", 0}, {"pi-2", second_bytes}};
    inputs.replicates = replicates;
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).value();
  };
  const Plan even = plan(0, false);
  int64_t just_fits = 64'100'000;
  while (plan(just_fits, false).stages != even.stages) just_fits += 50'000;
  constexpr int64_t kRoom = 1'000'000'000;
  EXPECT_EQ(plan(kRoom, true).stages, even.stages);
  const Plan roomy = plan(just_fits, true);
  ASSERT_EQ(roomy.stages.size(), 2u);
  EXPECT_GT(roomy.stages[1].first_layer, even.stages[1].first_layer);
  EXPECT_EQ(plan(0, true).stages, even.stages) << "nothing is known";
  cluster.times[0] = times(0.006);
  EXPECT_EQ(plan(just_fits, true).stages, even.stages) << "twice as slow";
}

TEST(PlanMaker, APolicyThatKnowsNothingOfMemoryIsChecked) {
  PlanningInputs inputs = TwoWorkers();
  inputs.policy = FindPolicy("uniform").value();
  MeasuredCluster cluster;
  const auto plan = [&](int64_t second_bytes) {
    cluster.memory = {{"pi-1", 0}, {"pi-2", second_bytes}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster);
  };
  EXPECT_TRUE(plan(0).ok()) << "nothing is known";
  EXPECT_TRUE(plan(1'000'000'000).ok());
  const absl::Status refused = plan(65'000'000).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("worker pi-2: layers 3 to 5 take "), HasSubstr("it may take 65 MB"),
                    HasSubstr("--memory-mb")));
}

// The least memory of a worker, to 100 kB, with which there is a plan.
int64_t LeastMemory(const PlanningInputs& inputs, MeasuredCluster cluster, bool of_both) {
  int64_t bytes = 64'000'000;
  const auto fits = [&] {
    cluster.memory = {{"pi-1", bytes}, {"pi-2", of_both ? bytes : 0}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).ok();
  };
  while (!fits() && bytes < 200'000'000) bytes += 100'000;
  return bytes;
}

PlanningInputs OfDeepLayers(const char* policy) {
  PlanningInputs inputs = TwoWorkers();
  inputs.policy = FindPolicy(policy).value();
  inputs.model = *MakeModel("resnet20");
  inputs.micro_batch_size = 32;
  return inputs;
}

TEST(PlanMaker, AStageThatDoesNotFitMakesItsLayersAgain) {
  PlanningInputs inputs = OfDeepLayers("uniform");
  MeasuredCluster cluster;
  cluster.times = Layers(inputs, kLayerSeconds, kLayerSeconds);
  const int64_t without = LeastMemory(inputs, cluster, false);
  inputs.recomputes = true;
  const int64_t with = LeastMemory(inputs, cluster, false);
  EXPECT_LT(with, without - 1'000'000);
  const auto plan = [&](int64_t bytes) {
    cluster.memory = {{"pi-1", bytes}, {"pi-2", 0}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).value();
  };
  const Plan tight = plan(with);
  EXPECT_TRUE(tight.stages[0].recompute);
  EXPECT_FALSE(tight.stages[1].recompute) << "it has room";
  EXPECT_THAT(ToString(tight, inputs.model, {}),
              HasSubstr(", made again in the backward for want of memory"));
  for (const StagePlan& stage : plan(1'000'000'000).stages) EXPECT_FALSE(stage.recompute);
  // What it costs counts.
  Plan same = tight;
  same.stages[0].recompute = false;
  const PlanMaker maker(inputs);
  EXPECT_GT(maker.PeriodSeconds(tight, cluster).value(),
            maker.PeriodSeconds(same, cluster).value());
}

// A stage that fits without copies of states alone keeps its flag for them, unless that is slow.
TEST(PlanMaker, AStageMakesItsLayersAgainForRoomForCopies) {
  PlanningInputs inputs = OfDeepLayers("uniform");
  inputs.recomputes = true;
  inputs.micro_batch_size = 64;  // what a stage keeps is much beside copies of states
  MeasuredCluster cluster;
  cluster.times = Layers(inputs, 3 * kLayerSeconds, kLayerSeconds);
  // Not enough for the first stage as it is, but for the stage that makes its layers again and its
  // copies.
  const int64_t first = LeastMemory(inputs, cluster, false) + 3'000'000;
  const auto remakes = [&](int64_t second, bool replicates) {
    cluster.memory = {{"pi-1", first}, {"pi-2", second}};
    inputs.replicates = replicates;
    const Plan plan = PlanMaker(inputs).MakePlan({0, 1}, cluster).value();
    EXPECT_TRUE(plan.stages[0].recompute);
    return plan.stages[1].recompute;
  };
  const auto fits = [&](int64_t second) {
    cluster.memory = {{"pi-1", first}, {"pi-2", second}};
    return PlanMaker(inputs).MakePlan({0, 1}, cluster).ok();
  };
  int64_t just_fits = 80'000'000;
  while (!fits(just_fits)) just_fits += 1'000'000;
  while (remakes(just_fits, false)) just_fits += 100'000;
  EXPECT_TRUE(remakes(just_fits, true));
  EXPECT_FALSE(remakes(1'000'000'000, true)) << "there is room";
  cluster.times = Layers(inputs, kLayerSeconds, 4 * kLayerSeconds);
  EXPECT_FALSE(remakes(just_fits, true)) << "a third slower";
}

// A policy that cuts by memory finds plans for smaller workers.
TEST(PlanMaker, WithRecomputeThereArePlansForSmallerWorkers) {
  PlanningInputs inputs = OfDeepLayers("runnel");
  MeasuredCluster cluster;
  cluster.times = Layers(inputs, kLayerSeconds, kLayerSeconds);
  const int64_t without = LeastMemory(inputs, cluster, true);
  inputs.recomputes = true;
  EXPECT_LT(LeastMemory(inputs, cluster, true), without - 1'000'000);
}

// Where the fast worker has little memory, it can take more layers if it makes them again.
TEST(PlanMaker, RecomputeIsWeighedAgainstOtherPlans) {
  PlanningInputs kept = OfDeepLayers("runnel"), weighed = kept;
  weighed.recomputes = true;
  MeasuredCluster cluster;
  cluster.times = Layers(kept, kLayerSeconds, 4 * kLayerSeconds);
  int recomputing = 0;
  for (int64_t bytes = 80'000'000; bytes < 160'000'000; bytes += 4'000'000) {
    cluster.memory = {{"pi-1", bytes}, {"pi-2", 0}};
    const PlanMaker maker(weighed);
    const Plan plan = maker.MakePlan({0, 1}, cluster).value();
    const Plan other = PlanMaker(kept).MakePlan({0, 1}, cluster).value();
    const double with = maker.PeriodSeconds(plan, cluster).value();
    const double without = maker.PeriodSeconds(other, cluster).value();
    recomputing += plan.stages[0].recompute ? 1 : 0;
    EXPECT_LE(with, (plan.stages[0].recompute ? 0.95 : 1) * without) << bytes;
  }
  EXPECT_GT(recomputing, 0);
}

// Room for copies is weighed against the fastest plan there is, whatever layers that makes again.
TEST(PlanMaker, RoomForCopiesCostsAQuarterOfTheFastestPlanAtMost) {
  PlanningInputs roomy = OfDeepLayers("runnel");
  roomy.model = *MakeModel("vgg11");
  roomy.recomputes = roomy.replicates = true;
  PlanningInputs lean = roomy;
  lean.replicates = false;
  MeasuredCluster cluster;
  cluster.times = Layers(lean, kLayerSeconds, 4 * kLayerSeconds);
  int dearer = 0;
  for (int64_t bytes = 144'000'000; bytes < 230'000'000; bytes += 3'000'000) {
    cluster.memory = {{"pi-1", bytes}, {"pi-2", 0}};
    const PlanMaker maker(roomy);
    const Plan plan = maker.MakePlan({0, 1}, cluster).value();
    const Plan fastest = PlanMaker(lean).MakePlan({0, 1}, cluster).value();
    const double with = maker.PeriodSeconds(plan, cluster).value();
    const double without = maker.PeriodSeconds(fastest, cluster).value();
    EXPECT_LE(with, 1.2501 * without) << bytes;
    dearer += with > 1.0001 * without ? 1 : 0;
  }
  EXPECT_GT(dearer, 0);
}

}  // namespace
}  // namespace runnel::plan_maker_test
