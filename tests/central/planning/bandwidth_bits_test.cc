// Plans whose bits follow their links, beside plans that compress nothing and beside every pair of
// codecs that a link could have.

#include "central/planning/bandwidth_bits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/measured/codec_timing.h"
#include "central/settings/codec_settings.h"
#include "compress/codec.h"
#include "compress/link_bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/policy.h"
#include "partition/zoo/zoo.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/random.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "tests/base/codecs.h"

namespace runnel::bandwidth_bits_test {
namespace {

BitSwitches BitSwitchesOf(absl::string_view model) { return (*FindModel(model))->bit_switches; }

constexpr double kCodecSecondsPerByte = 1e-9;
constexpr int64_t kEpochs = 200;

// har_cnn on devices whose layers take as long as the draws say, over links of one speed.
class Case {
 public:
  Case(const std::string& policy, int devices, double mbps, double slow = 1, uint64_t draw = 0)
      : model_(MakeModel("har_cnn").value()) {
    const CounterRandom random(draw, RandomPurpose::kTest, 1, 0);
    std::vector<std::vector<double>> seconds(devices);
    uint64_t next = 0;
    for (auto& row : seconds) {
      const double speed = draw == 0 ? 1 : 1 + 3 * random.Uniform(next++);
      for (int l = 0; l < model_.layer_count(); ++l) {
        row.push_back(slow * 0.05 * (draw == 0 ? 1 : 0.1 + random.Uniform(next++)) / speed);
      }
    }
    cost_ = MeasuredCost::ByLayer(seconds).value();
    request_.model = &model_;
    request_.policy = FindPolicy(policy).value();
    request_.schedule = FindSchedule("async_1f1b").value();
    request_.micro_batch_size = 64;
    for (int i = 0; i < devices; ++i) request_.devices.push_back(DeviceId(i));
    request_.compute = &*cost_;
    request_.codecs.encoded_forward = MeanEncodedBytes(CodecSchedule(), kEpochs).value();
    request_.codecs.encoded_backward = request_.codecs.encoded_forward;
    request_.device_costs.resize(devices);
    for (DeviceCost& device : request_.device_costs) {
      device.codec_seconds_per_byte = kCodecSecondsPerByte;
    }
    request_.link_speeds.assign(devices,
                                std::vector<LinkSpeed>(devices, {LinkRate::Mbps(mbps), 0.001}));
    bits_.switches = BitSwitchesOf("har_cnn");
    bits_.epochs = kEpochs;
  }
  Case(const Case&) = delete;

  PlanRequest& request() { return request_; }
  BandwidthBits& bits() { return bits_; }
  const BandwidthBits& bits() const { return bits_; }

  FittedPlan Fitted() const {
    const absl::StatusOr<FittedPlan> fitted = PlanWithBits(bits_, request_);
    EXPECT_TRUE(fitted.ok()) << fitted.status();
    return fitted.value_or(FittedPlan());
  }

  double Period(const Plan& plan) const { return Rating(plan).first; }
  double Charge(const Plan& plan) const { return Rating(plan).second; }
  double Noise(const Plan& plan) const {
    const auto [model, placement] = Placed(plan);
    return AddedNoise(model, placement);
  }

  // What the policy would do without codecs.
  Plan Uncompressed() const { return MakePlan(request_).value(); }

 private:
  std::pair<PipelineModel, Placement> Placed(const Plan& plan) const {
    PlanRequest request = request_;
    EXPECT_TRUE(AddCodecsOf(plan, kEpochs, request).ok());
    PipelineModel model = MakePipelineModel(request).value();
    Placement placement = PlacementOf(request, model, plan).value();
    return {std::move(model), std::move(placement)};
  }

  // Simulated and charged period.
  std::pair<double, double> Rating(const Plan& plan) const {
    const auto [model, placement] = Placed(plan);
    const double period = SimulatedPeriod(model, placement).value();
    return {period, ChargedPeriod(model, placement, period)};
  }

  ModelSpec model_;
  std::optional<MeasuredCost> cost_;
  PlanRequest request_;
  BandwidthBits bits_;
};

double BitsIn(const CodecSchedule& codecs, int64_t epoch) {
  const CodecId& codec = codecs.steps()[codecs.StepIn(epoch)].codec;
  return FindCodec(codec).value()->BitsOf(codec);
}

double FloorIn(Direction direction, int64_t epoch) {
  double bits = 0;
  for (const BitStep& step : MinBitsByEpoch(BitSwitchesOf("har_cnn"), direction, kEpochs)) {
    if (epoch >= step.epoch) bits = step.bits;
  }
  return bits;
}

void ExpectFloors(const Plan& plan) {
  for (const LinkPlan& link : plan.links) {
    for (int64_t epoch : {0, 59, 60, 159, 160, 199}) {
      EXPECT_GE(BitsIn(link.codec_forward, epoch), FloorIn(Direction::kForward, epoch));
      EXPECT_GE(BitsIn(link.codec_backward, epoch), FloorIn(Direction::kBackward, epoch));
    }
  }
}

TEST(BandwidthBits, TwoStagesByBandwidth) {
  struct Row {
    double mbps;
    std::string forward, backward;
  };
  const Row rows[] = {
      {0, "identity", "identity"},
      {1000, "identity", "identity"},
      // Gradients have at least 4 bits, and fewer forward would save nothing.
      {0.25, "eden:4", "eden:4"},
  };
  for (const Row& row : rows) {
    const Case run("uniform", 2, row.mbps);
    const Plan plan = run.Fitted().plan;
    ASSERT_EQ(plan.links.size(), 1u);
    EXPECT_EQ(plan.links[0].codec_forward.text(), row.forward) << row.mbps;
    EXPECT_EQ(plan.links[0].codec_backward.text(), row.backward) << row.mbps;
    ExpectFloors(plan);
  }
}

// One cut: the less a link carries, the more the plan is charged, and the fewer bits it has. Where a
// pipeline waits for other things than the link, a bit more may cost next to nothing.
TEST(BandwidthBits, OnASlowerLinkThereAreFewerBits) {
  double down = 33, up = 33, charged = 0;
  int fewer = 0, more = 0;
  for (double mbps = 2048; mbps > 0.1; mbps /= 1.25) {
    const FittedPlan fitted = Case("uniform", 2, mbps).Fitted();
    const double down_now = BitsIn(fitted.plan.links[0].codec_forward, 0);
    const double up_now = BitsIn(fitted.plan.links[0].codec_backward, 0);
    EXPECT_LE(down_now, down + 1) << mbps;
    EXPECT_LE(up_now, up + 1) << mbps;
    EXPECT_GE(fitted.charged_seconds, charged * (1 - 1e-9)) << mbps;
    fewer += down_now < down || up_now < up ? 1 : 0;
    more += down_now > down || up_now > up ? 1 : 0;
    down = down_now;
    up = up_now;
    charged = fitted.charged_seconds;
  }
  EXPECT_GE(fewer, 5);
  EXPECT_LE(more, 2);
  EXPECT_EQ(down, 4);
  EXPECT_EQ(up, 4);
}

// Whoever cuts, and however slow the links are.
TEST(BandwidthBits, KeepsToTheLearningBudget) {
  for (const std::string policy : {"uniform", "dp", "runnel"}) {
    double charged = 0;
    for (const double budget : {1.0, 0.05, 0.02, 0.0}) {
      Case run(policy, 3, 1);
      run.bits().noise_budget = budget;
      const FittedPlan fitted = run.Fitted();
      const double noise = run.Noise(fitted.plan);
      EXPECT_LE(noise, budget) << policy;
      EXPECT_EQ(noise > 0, budget > 0) << policy << " " << budget;
      EXPECT_GE(fitted.charged_seconds, charged * (1 - 1e-4)) << policy << " " << budget;
      charged = fitted.charged_seconds;
    }
  }
}

// Links alike by the table that differ by what they add: a plan that knows it is charged no more for
// what it adds, and often less.
TEST(BandwidthBits, PlansThatKnowWhereNoiseArisesAreChargedNoMore) {
  int better = 0;
  for (uint64_t seed = 1; seed <= 90; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kTest, 4, 0);
    uint64_t next = 0;
    const auto log_real = [&](double low, double high) {
      return low * std::pow(high / low, random.Uniform(next++));
    };
    Case run("runnel", 2 + static_cast<int>(seed % 3), log_real(0.5, 20), log_real(0.1, 1), seed);
    run.bits().noise_budget = kLearningBudgetPercent / 100;
    NoiseRatios truth;
    const int layers = run.request().model->layer_count();
    double sum = 0;
    for (int layer = 0; layer + 1 < layers; ++layer) {
      truth.forward[layer] = log_real(0.02, 3);
      truth.backward[layer] = log_real(0.02, 3);
      sum += truth.forward[layer] + truth.backward[layer];
    }
    run.request().noise_ratios = {.all = sum / (2 * (layers - 1))};
    const Plan alike = run.Fitted().plan;
    run.request().noise_ratios = truth;
    const absl::StatusOr<FittedPlan> knowing = FitBits(run.bits(), run.request(), alike);
    ASSERT_TRUE(knowing.ok()) << knowing.status();
    const double charged = run.Charge(alike);
    EXPECT_LE(knowing->charged_seconds, charged * (1 + 1e-9));
    EXPECT_DOUBLE_EQ(knowing->charged_seconds, run.Charge(knowing->plan));
    better += knowing->charged_seconds < charged * 0.999 ? 1 : 0;
  }
  RecordProperty("better", better);
  EXPECT_GT(better, 2);
}

double LeastForwardBits(const Plan& plan) {
  double least = 32;
  for (const LinkPlan& link : plan.links) {
    for (const CodecStep& step : link.codec_forward.steps())
      least = std::min(least, BitsIn(link.codec_forward, step.epoch));
  }
  return least;
}

// Links of their own speeds, each schedule, two to five devices, with the budget and without one.
TEST(BandwidthBits, FewerThanFourBitsForwardAreWorthThreePercentOfSpeed) {
  constexpr double kWorth = 1.03;
  int with_fewer = 0;
  std::string cheap;
  for (uint64_t seed = 1; seed <= 244; ++seed) {
    const CounterRandom random(seed, RandomPurpose::kTest, 3, 0);
    uint64_t next = 0;
    const auto log_real = [&](double low, double high) {
      return low * std::pow(high / low, random.Uniform(next++));
    };
    const int devices = 2 + static_cast<int>(seed % 4);
    Case run("runnel", devices, 1, log_real(0.1, 3), seed);
    PlanRequest& request = run.request();
    const char* schedules[] = {"async_1f1b", "async_1f1b", "sync_1f1b", "gpipe"};
    request.schedule = FindSchedule(schedules[seed / 4 % 4]).value();
    if (seed / 4 % 4 > 1) request.micro_batches = 4;
    const double slowest = log_real(0.25, 200);
    for (std::vector<LinkSpeed>& row : request.link_speeds) {
      for (LinkSpeed& speed : row) speed.rate = LinkRate::Mbps(log_real(slowest, 10 * slowest));
    }
    if (seed % 2 == 0) run.bits().noise_budget = kLearningBudgetPercent / 100;
    const FittedPlan fitted = run.Fitted();
    if (LeastForwardBits(fitted.plan) >= 4) continue;
    ++with_fewer;
    run.bits().switches.forward_3_bits = run.bits().switches.forward_4_bits = 0;
    const FittedPlan four = run.Fitted();
    ASSERT_GE(LeastForwardBits(four.plan), 4);
    if (four.period_seconds < kWorth * fitted.period_seconds) cheap += absl::StrCat(" ", seed);
  }
  RecordProperty("with_fewer", with_fewer);
  EXPECT_GT(with_fewer, 0) << "nothing was compared";
  EXPECT_EQ(cheap, "");
}

TEST(BandwidthBits, TheNoiseIsSaidInWords) {
  Plan plan;
  plan.links = {{Codecs("0:eden:4,5:eden:5"), Codecs("eden:4")}};
  EXPECT_EQ(NoiseText(plan, {0.0234}),
            "4 to 5 bits forward and 4 bits back add about 2.3 % to the gradients' noise");
  plan.links = {{Codecs("eden:4"), CodecSchedule()}, {Codecs("eden:4"), CodecSchedule()}};
  EXPECT_EQ(NoiseText(plan, {0.01, 0.01}), "4 bits forward add about 2 % to the gradients' noise");
  EXPECT_EQ(NoiseText(plan, {0.015, 0.005}),
            "4 bits forward add about 2 % to the gradients' noise (by link 1.5, 0.5)");
  plan.links = {{CodecSchedule(), Codecs("topk:0.1")}};
  EXPECT_EQ(NoiseText(plan, {0.3}), "topk:0.1 back add about 30 % to the gradients' noise");
}

TEST(BandwidthBits, DirectionsAndLinksAreApart) {
  Case run("uniform", 3, 1000);
  auto& speeds = run.request().link_speeds;
  speeds[0][1].rate = LinkRate::Mbps(2);
  speeds[2][1].rate = LinkRate::Mbps(0.05);
  const Plan plan = run.Fitted().plan;
  EXPECT_LT(BitsIn(plan.links[0].codec_forward, 0), 9);
  EXPECT_EQ(plan.links[0].codec_backward.text(), "identity");
  EXPECT_EQ(plan.links[1].codec_forward.text(), "identity");
  EXPECT_LT(BitsIn(plan.links[1].codec_backward, 0), 9);
}

// Never below the floor, never charged more than without codecs, by the model's own simulation.
TEST(BandwidthBits, NeverBelowTheFloorNorDearerThanUncompressed) {
  for (const PolicyRow& policy : BuiltinPolicies()) {
    if (policy.name == "brute_force") continue;
    for (uint64_t draw = 1; draw <= 6; ++draw) {
      for (double mbps : {0.25, 2.0, 20.0, 500.0}) {
        Case run(std::string(policy.name), draw % 2 == 0 ? 2 : 3, mbps, 1, draw);
        if (draw > 3) {
          run.request().schedule = FindSchedule("sync_1f1b").value();
          run.request().micro_batches = 4;
        }
        const FittedPlan fitted = run.Fitted();
        ExpectFloors(fitted.plan);
        EXPECT_NEAR(fitted.period_seconds, run.Period(fitted.plan), 1e-9);
        EXPECT_LE(run.Charge(fitted.plan), run.Charge(run.Uncompressed()) * (1 + 1e-9))
            << policy.name << " " << draw << " " << mbps;
      }
    }
  }
}

// Codecs that take longer than what they save.
TEST(BandwidthBits, ASlowCodecIsLeftOut) {
  Case run("uniform", 2, 50);
  for (DeviceCost& device : run.request().device_costs) device.codec_seconds_per_byte = 1e-6;
  const FittedPlan fitted = run.Fitted();
  EXPECT_LE(fitted.period_seconds, run.Period(run.Uncompressed()) * (1 + 1e-9));
  EXPECT_EQ(fitted.plan.links[0].codec_forward.text(), "identity");
}

TEST(BandwidthBits, OnOneLinkItIsAsGoodAsTryingEveryPair) {
  const auto choices = BitsChoices(kBandwidthFamily).value();
  for (double mbps : {0.25, 1.0, 4.0, 8.0, 16.0, 64.0, 256.0}) {
    const Case run("uniform", 2, mbps);
    const FittedPlan fitted = run.Fitted();
    double least = std::numeric_limits<double>::infinity();
    for (const BitsChoice& down : choices) {
      for (const BitsChoice& up : choices) {
        Plan plan = fitted.plan;
        plan.links[0] = {
            CodecsWithBits(choices, down.bits,
                           MinBitsByEpoch(BitSwitchesOf("har_cnn"), Direction::kForward, kEpochs)),
            CodecsWithBits(
                choices, up.bits,
                MinBitsByEpoch(BitSwitchesOf("har_cnn"), Direction::kBackward, kEpochs))};
        least = std::min(least, run.Charge(plan));
      }
    }
    EXPECT_LE(fitted.charged_seconds, least * 1.0001) << mbps;
  }
}

// With `runnel` cut and bits are chosen together: on slow links it is faster than its own cut for
// uncompressed tensors with the fewest bits.
TEST(BandwidthBits, RunnelChoosesTheCutWithTheBits) {
  bool cut_differs = false;
  for (double mbps : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) {
    Case run("runnel", 3, mbps);
    const FittedPlan fitted = run.Fitted();
    const Plan uncompressed = run.Uncompressed();
    EXPECT_LE(fitted.period_seconds, run.Period(uncompressed) * (1 + 1e-9));
    cut_differs |= fitted.plan.stages != uncompressed.stages;
    const FittedPlan own_cut = FitBits(run.bits(), run.request(), uncompressed).value();
    EXPECT_LE(fitted.charged_seconds, own_cut.charged_seconds);
  }
  EXPECT_TRUE(cut_differs);
}

std::vector<std::string> Names(const std::vector<CodecId>& codecs) {
  std::vector<std::string> names;
  for (const CodecId& codec : codecs) names.push_back(codec.text());
  return names;
}

// The settings say the floor, whichever family, and again when they are read from a journal.
TEST(BandwidthBits, SettingsAreTheFloor) {
  RunSettings settings;
  settings.model = "har_cnn";
  settings.epochs = 10;
  settings.bits = "bandwidth";
  ASSERT_TRUE(ResolveCodecs({}, BitSwitchesOf("har_cnn"), settings).ok());
  EXPECT_EQ(settings.bits, "bandwidth");
  EXPECT_EQ(settings.codec_forward.text(), "0:eden:2,3:eden:3,8:eden:4");
  EXPECT_EQ(settings.codec_backward.text(), "eden:4");
  const RunSettings once = settings;
  ASSERT_TRUE(ResolveCodecs({}, BitSwitchesOf("har_cnn"), settings).ok());
  EXPECT_EQ(settings, once);
  EXPECT_THAT(Names(CodecsInSettings(settings)),
              testing::UnorderedElementsAre("eden:2", "eden:3", "eden:4", "eden:5", "eden:6",
                                            "eden:7", "eden:8", "identity"));

  settings.codec_forward = Codecs("mbq:7");
  settings.codec_backward = Codecs("stochastic");
  ASSERT_TRUE(ResolveCodecs({}, BitSwitchesOf("har_cnn"), settings).ok());
  EXPECT_EQ(settings.codec_forward.text(), "0:mbq:2,3:mbq:3,8:mbq:4");
  EXPECT_EQ(settings.codec_backward.text(), "stochastic:4");
  settings.codec_backward = Codecs("amsgrad_mbq:2");
  EXPECT_FALSE(ResolveCodecs({}, BitSwitchesOf("har_cnn"), settings).ok());

  for (const char* bits : {"bandwidth", "accept"}) {
    RunSettings both = once;
    both.recipe = "sbm:8,8,8";
    both.bits = bits;
    both.codec_backward = Codecs("recipe");
    const absl::Status refused = ResolveCodecs({}, BitSwitchesOf("har_cnn"), both);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(
        refused.message(),
        absl::StrCat("--codec-backward recipe: the recipe's level gives the bits, and --bits ",
                     bits, " would give others; leave out --bits or codec recipe"));
    both.bits.clear();
    EXPECT_TRUE(ResolveCodecs({}, BitSwitchesOf("har_cnn"), both).ok());
    EXPECT_EQ(both.codec_backward.text(), "recipe");
  }

  // Between integer stages int8 loses nothing.
  RunSettings integers = once;
  integers.recipe = "niti";
  const NumberFormat format = FormatOf(integers).value();
  ASSERT_TRUE(ResolveCodecs(format, BitSwitchesOf("har_cnn"), integers).ok());
  EXPECT_THAT(Names(CodecsInSettings(integers)), testing::Contains("int8"));
  EXPECT_THAT(Names(CodecsInSettings(integers)), testing::Not(testing::Contains("identity")));
  EXPECT_THAT(Names(CodecsInSettings(integers)), testing::Not(testing::Contains("eden:8")));
}

TEST(BandwidthBits, DevicesTimeWhatTheyMayCode) {
  CodecInputs codecs;
  EXPECT_THAT(*CodecsToTime(codecs), testing::ElementsAre("identity"));
  codecs.backward = CodecSchedule::Parse("0:stochastic:8,3:stochastic:4").value();
  EXPECT_THAT(*CodecsToTime(codecs), testing::ElementsAre("identity", "stochastic:4"));
  codecs.follow_links = true;
  EXPECT_THAT(*CodecsToTime(codecs), testing::ElementsAre("eden:4"));
  codecs.bits.family_backward = "tile";
  EXPECT_THAT(*CodecsToTime(codecs), testing::ElementsAre("eden:4", "tile:4"));
  codecs.bits.family_forward = "zip";
  EXPECT_FALSE(CodecsToTime(codecs).ok());
}

TEST(BandwidthBits, ErrorsNameWhatIsMissing) {
  Case run("runnel", 2, 1);
  run.request().compute = nullptr;
  EXPECT_FALSE(PlanWithBits(run.bits(), run.request()).ok());
  BandwidthBits bits = run.bits();
  bits.family_backward = "identity";
  EXPECT_THAT(std::string(PlanWithBits(bits, run.request()).status().message()),
              testing::HasSubstr("no family with bits"));
}

}  // namespace
}  // namespace runnel::bandwidth_bits_test
