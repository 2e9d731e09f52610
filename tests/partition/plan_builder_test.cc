#include "partition/plan_builder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "predictor/cost/measured_cost.h"
#include "tests/base/codecs.h"

namespace runnel::plan_builder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Bytes Fp32(const Shape& shape) { return Bytes(4 * shape.elements()); }

class PlanBuilder : public ::testing::Test {
 protected:
  PlanBuilder() : model_(*MakeModel("lenet")) {
    request_.model = &model_;
    request_.policy = *FindPolicy("uniform");
    request_.schedule = *FindSchedule("async_1f1b");
    request_.devices = {DeviceId(4), DeviceId(7), DeviceId(2)};
    request_.micro_batch_size = 64;
    request_.codecs.encoded_forward = Fp32;
    request_.codecs.encoded_backward = Fp32;
    request_.generation = Generation(3);
  }
  void ExpectRefused(absl::string_view words) {
    const absl::Status status = MakePlan(request_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(words)));
  }

  ModelSpec model_;
  PlanRequest request_;
};

TEST_F(PlanBuilder, PutsTheWholePlanTogether) {
  request_.codecs.forward = Codecs("mbq:2");
  request_.codecs.backward = Codecs("stochastic:8");
  const auto plan = MakePlan(request_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlan(*plan, model_).ok());
  EXPECT_EQ(plan->generation, Generation(3));
  EXPECT_EQ(plan->schedule, "async_1f1b");
  EXPECT_FALSE(plan->drains_each_step);
  EXPECT_THAT(plan->stages, ElementsAre(StagePlan{{Seat{DeviceId(4)}}, 0, 1, 3},
                                        StagePlan{{Seat{DeviceId(7)}}, 2, 3, 2},
                                        StagePlan{{Seat{DeviceId(2)}}, 4, 5, 1}));
  const LinkPlan link{Codecs("mbq:2"), Codecs("stochastic:8")};
  EXPECT_THAT(plan->links, ElementsAre(link, link));
}

// A forward that uses weights ahead of the newest ones needs a place for them.
TEST_F(PlanBuilder, LookingAheadTakesOneMoreWeightVersion) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {3, 1, 4, 1, 5, 9}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  const auto bytes = [&](int64_t cap, int64_t usual_cap) {
    const auto model = MakePipelineModel(request_);
    EXPECT_TRUE(model.ok()) << model.status();
    return StageMemoryBytes(*model, HoldOf(*model, {2, 5}), {cap}, usual_cap);
  };
  const auto plain = MakePipelineModel(request_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  int64_t state = 0, version = 0, stash = 0;
  for (int layer = 2; layer <= 5; ++layer) {
    state += plain->memory[layer].state_bytes;
    version += plain->memory[layer].version_bytes;
    stash += plain->memory[layer].stash_bytes;
  }
  ASSERT_GT(version, 0);
  stash += plain->raw_bytes[1];  // the stage's input
  for (const bool usual : {false, true}) {
    for (const bool raised : {false, true}) {
      request_.looks_ahead = usual;
      request_.raised_looks_ahead = raised;
      EXPECT_EQ(bytes(3, 3), state + (usual ? 3 : 2) * version + 3 * stash);
      EXPECT_EQ(bytes(3, 2), state + (usual ? 3 : 2) * version + 3 * stash) << "two steps old";
      EXPECT_EQ(bytes(5, 2), state + (raised ? 5 : 4) * version + 5 * stash);
      EXPECT_EQ(bytes(1, 1), state + stash) << "nothing else is in flight";
    }
  }
}

// NITI keeps a byte a weight, sums gradients as int32 and has no momentum.
TEST_F(PlanBuilder, IntegerStagesTakeLessMemory) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {3, 1, 4, 1, 5, 9}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  const auto real = MakePipelineModel(request_);
  request_.format = {.activation = DType::kInt8,
                     .parameter = DType::kInt8,
                     .weight = DType::kInt8,
                     .error = DType::kInt8,
                     .weight_gradient = DType::kInt32};
  const auto integer = MakePipelineModel(request_);
  ASSERT_TRUE(real.ok() && integer.ok());
  for (size_t layer = 0; layer < real->memory.size(); ++layer) {
    SCOPED_TRACE(layer);
    EXPECT_LE(integer->memory[layer].version_bytes * 4, real->memory[layer].version_bytes);
    EXPECT_LT(integer->memory[layer].stash_bytes * 3, real->memory[layer].stash_bytes);
    EXPECT_LT(integer->raw_bytes[layer] * 3, real->raw_bytes[layer]);
  }
  const int64_t weights = integer->memory[4].version_bytes;  // fc1
  EXPECT_EQ(real->memory[4].state_bytes, 3 * real->memory[4].version_bytes);
  EXPECT_EQ(integer->memory[4].state_bytes, weights + 4 * weights + 4) << "and an exponent";
}

TEST_F(PlanBuilder, DeferredWeightGradientsTakeAStashAndTheirGradients) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {3, 1, 4, 1, 5, 9}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  auto model = MakePipelineModel(request_);
  ASSERT_TRUE(model.ok()) << model.status();
  const LayerMemory& memory = model->memory[2];
  const auto bytes = [&](const StageOrder& order) {
    return StageMemoryBytes(*model, HoldOf(*model, {2, 2}), order, 2);
  };
  const int64_t input = model->raw_bytes[1];
  EXPECT_EQ(bytes({2, 3}),
            bytes({2}) + 3 * memory.version_bytes + 6 * memory.stash_bytes + 3 * input);
  model->drain_every = 4;  // no more than a step has, and one version of the weights
  EXPECT_EQ(bytes({2, 3}), bytes({2}) + 5 * memory.stash_bytes + 2 * input);
}

// What the worker keeps beside its layers: for each micro-batch its input, and the frames that
// wait.
TEST_F(PlanBuilder, AStageKeepsItsInputAndItsFrames) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {3, 1, 4, 1, 5, 9}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  request_.codecs.encoded_backward = [](const Shape&) { return Bytes(936); };
  const auto model = MakePipelineModel(request_);
  ASSERT_TRUE(model.ok()) << model.status();
  const StageHold middle = HoldOf(*model, {2, 4, 0, 0});
  EXPECT_EQ(middle.input_bytes, model->raw_bytes[1]);
  EXPECT_EQ(middle.frame_bytes, model->raw_bytes[1] + 64 + model->raw_bytes[4] + 64 + 2 * 1000);
  EXPECT_EQ(HoldOf(*model, {0, 1, -1, 0}).input_bytes, model->input_bytes);
  const StageHold alone = HoldOf(*model, {2, 4});
  EXPECT_EQ(StageMemoryBytes(*model, middle, {3}, 3),
            StageMemoryBytes(*model, alone, {3}, 3) + 3 * middle.frame_bytes);
  EXPECT_EQ(StageMemoryBytes(*model, alone, {3}, 3) - StageMemoryBytes(*model, alone, {2}, 3),
            alone.layers.version_bytes + alone.layers.stash_bytes + alone.input_bytes);
}

TEST_F(PlanBuilder, StagesDeferWhatTheScheduleSaysOfTheirCaps) {
  ScheduleRow row = **FindSchedule("sync_1f1b");
  row.deferred = [](absl::Span<const int64_t> caps) {
    return std::vector<int64_t>{0, caps[0] - caps[1], caps[0]};
  };
  request_.schedule = &row;
  request_.caps = {5, 3, 2};
  const auto plan = MakePlan(request_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stages[0].order(), (StageOrder{5, 0}));
  EXPECT_EQ(plan->stages[1].order(), (StageOrder{3, 2}));
  EXPECT_EQ(plan->stages[2].order(), (StageOrder{2, 5}));
  const std::string text = ToString(*plan, model_, {"a", "b", "pi-1", "d", "laptop"});
  EXPECT_THAT(text, HasSubstr("cap 3, 2 weight-gradients deferred"));
  EXPECT_THAT(text, HasSubstr("stage 0: laptop, layers 0-"));
  EXPECT_THAT(text, HasSubstr("\nstage 1: device 7, layers "));
  EXPECT_THAT(text, HasSubstr("\nstage 2: pi-1, layers "));
  Plan wrong = *plan;
  wrong.stages[1].deferred_weight_gradients = -1;
  EXPECT_THAT(std::string(CheckPlan(wrong, model_).message()), HasSubstr("stage 1 defers -1"));
}

TEST_F(PlanBuilder, EveryPolicyAndScheduleMakesACheckedPlan) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {3, 1, 4, 1, 5, 9}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  request_.micro_batches = 4;
  for (const PolicyRow& policy : BuiltinPolicies()) {
    for (const ScheduleRow& schedule : BuiltinSchedules()) {
      request_.policy = &policy;
      request_.schedule = &schedule;
      const auto plan = MakePlan(request_);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_TRUE(CheckPlan(*plan, model_).ok());
      EXPECT_EQ(plan->drains_each_step, schedule.drains_each_step);
    }
  }
}

// conv1's boundary is 64x20x24x24 FP32: 2,949,120 + 64 bytes; pool1's a quarter of that.
TEST_F(PlanBuilder, LinkSecondsComeFromBytesAndBandwidth) {
  request_.link_speed.rate = LinkRate::Mbps(8);
  request_.link_speed.delay_seconds = 0.25;
  request_.codecs.encoded_backward = [](const Shape&) { return Bytes(936); };
  const auto seconds = MakeLinkSeconds(request_);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_DOUBLE_EQ((*seconds)(0, 0, Direction::kForward), 0.25 + 2.949184);
  EXPECT_DOUBLE_EQ((*seconds)(1, 1, Direction::kForward), 0.25 + 0.737344);
  EXPECT_DOUBLE_EQ((*seconds)(0, 0, Direction::kBackward), 0.25 + 0.001);
  request_.link_speed.rate = LinkRate::Mbps(0);
  EXPECT_EQ((*MakeLinkSeconds(request_))(0, 0, Direction::kForward), 0.25);
}

// Equal layers: without links the middle is best; over 1 Mbit/s the cut goes to the smallest
// boundary.
TEST_F(PlanBuilder, SlowLinksMoveTheCut) {
  request_.policy = *FindPolicy("dp");
  request_.devices = {DeviceId(0), DeviceId(1)};
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(2, {1, 1, 1, 1, 1, 1}));
  ASSERT_TRUE(compute.ok());
  request_.compute = &*compute;
  EXPECT_EQ(MakePlan(request_)->stages[0].last_layer, 2);
  request_.link_speed.rate = LinkRate::Mbps(1);
  EXPECT_EQ(MakePlan(request_)->stages[0].last_layer, 3);
  request_.link_speed.rate = LinkRate::Mbps(0.1);
  EXPECT_EQ(MakePlan(request_)->stages[0].last_layer, 4);
}

// Of eight equal layers the first four are frozen and take a third each, so that both halves of the
// time are no halves of the model.
TEST_F(PlanBuilder, FrozenLayersMoveTheCut) {
  model_ = *Rewrite(*MakeModel("vgg11"), {"freeze:6"});
  request_.devices = {DeviceId(0), DeviceId(1)};
  const std::vector<double> trained(9, 3);
  std::vector<double> frozen = trained;
  std::fill(frozen.begin(), frozen.begin() + 6, 1);
  const auto cut = [&](const char* policy, const std::vector<double>& seconds, bool freezes) {
    const ModelSpec whole = *MakeModel("vgg11");
    request_.policy = *FindPolicy(policy);
    request_.model = freezes ? &model_ : &whole;
    const auto compute = MeasuredCost::ByLayer(std::vector<std::vector<double>>(2, seconds));
    request_.compute = &*compute;
    return MakePlan(request_)->stages[0].last_layer;
  };
  for (const char* policy : {"dp", "accept", "runnel"}) {
    SCOPED_TRACE(policy);
    EXPECT_LE(cut(policy, trained, false), 4);
    EXPECT_GE(cut(policy, frozen, true), 5);
  }
}

TEST_F(PlanBuilder, FrozenLayersKeepTheirWeightsAlone) {
  const auto compute = MeasuredCost::ByLayer({{1, 1, 1, 1, 1, 1}});
  request_.compute = &*compute;
  request_.devices = {DeviceId(0)};
  const PipelineModel whole = *MakePipelineModel(request_);
  model_ = *Rewrite(model_, {"freeze:4"});
  const PipelineModel model = *MakePipelineModel(request_);
  EXPECT_EQ(model.frozen_front, 4);
  const int64_t weights = 4 * InferShapes(model_, 1)->at(0).parameters;
  EXPECT_EQ(whole.memory[0].version_bytes, weights);
  EXPECT_EQ(model.memory[0].version_bytes, 0);
  EXPECT_EQ(model.memory[0].stash_bytes, 0);
  EXPECT_LT(model.memory[0].state_bytes, whole.memory[0].state_bytes + model.raw_bytes[0]);
  EXPECT_EQ(model.memory[5].state_bytes, whole.memory[5].state_bytes);
  EXPECT_EQ(model.memory[5].stash_bytes, whole.memory[5].stash_bytes);
}

// Nothing but an acknowledgement goes back over a link behind frozen layers.
TEST_F(PlanBuilder, NoGradientCrossesALinkBehindFrozenLayers) {
  model_ = *Rewrite(model_, {"freeze:2"});
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {1, 1, 1, 1, 1, 1}));
  request_.compute = &*compute;
  request_.link_speed = {LinkRate::Mbps(8), 0.25};
  const PipelineModel model = *MakePipelineModel(request_);
  const auto up = [&](int layer) { return WayCost(model, 0, layer, 0, 1, Direction::kBackward); };
  EXPECT_DOUBLE_EQ(up(1).total(), 0.25);
  EXPECT_GT(up(2).total(), 0.25);
  EXPECT_GT(WayCost(model, 0, 1, 0, 1, Direction::kForward).total(), 0.25);
  EXPECT_EQ((*MakeLinkSeconds(request_))(1, 0, Direction::kBackward), 0);
  const SimulatedPipeline pipeline = ToPipeline(model, {{0, 1, 2}, {1, 3, 5}, {3, 2, 1}, {0, 0}});
  EXPECT_TRUE(pipeline.stages[0].forward_only);
  EXPECT_EQ(pipeline.stages[0].forward_ns, 2'000'000'000) << "what was measured is all forward";
  EXPECT_EQ(pipeline.stages[0].input_gradient_ns + pipeline.stages[0].weight_gradient_ns, 0);
  EXPECT_FALSE(pipeline.stages[1].forward_only);
}

// Links carry what is expected of a frame, memory holds the most that it may be.
TEST_F(PlanBuilder, FramesThatVaryTakeTheirExpectedSizeOfALinkAndTheirMostOfMemory) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {1, 1, 1, 1, 1, 1}));
  request_.compute = &*compute;
  request_.link_speed = {LinkRate::Mbps(8), 0};
  const PipelineModel most = *MakePipelineModel(request_);
  const double most_seconds = (*MakeLinkSeconds(request_))(1, 0, Direction::kForward);
  request_.codecs.forward_share = 0.5;
  const PipelineModel model = *MakePipelineModel(request_);
  EXPECT_DOUBLE_EQ((*MakeLinkSeconds(request_))(1, 0, Direction::kForward), most_seconds / 2);
  const auto seconds = [](const PipelineModel& of, Direction direction) {
    return WayCost(of, 0, 1, 0, 1, direction).send;
  };
  EXPECT_DOUBLE_EQ(seconds(model, Direction::kForward), seconds(most, Direction::kForward) / 2);
  EXPECT_DOUBLE_EQ(seconds(model, Direction::kBackward), seconds(most, Direction::kBackward));
  const StageEnds ends = {2, 2, 0, 0};
  EXPECT_EQ(HoldOf(model, ends).frame_bytes, HoldOf(most, ends).frame_bytes);
  request_.codecs.forward_share = 1.5;
  EXPECT_FALSE(CheckPipelineModel(*MakePipelineModel(request_)).ok());
}

// A device without a processor for its transport pays for the tensor too, within its host.
TEST_F(PlanBuilder, TensorsComeFromMemoryWhateverCodecTheyPass) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {1, 1, 1, 1, 1, 1}));
  request_.compute = &*compute;
  request_.device_costs.assign(
      3, {.shares_processor = true, .within_host = {1e-3, 0}, .tensor_byte_seconds = 1e-6});
  const auto takes = [this](bool within_host) {
    request_.link_speed.within_host = within_host;
    const PipelineModel model = *MakePipelineModel(request_);
    const WaySeconds way = WayCost(model, 0, 1, 0, 1, Direction::kForward);
    EXPECT_DOUBLE_EQ(way.sender_takes, way.receiver_takes);
    const auto tensor_seconds = 1e-6 * static_cast<double>(model.raw_bytes[1]);
    EXPECT_NEAR(way.sender_takes, within_host ? 1e-3 + tensor_seconds : 0, 1e-12);
    return way.sender_takes;
  };
  EXPECT_GT(takes(true), takes(false));
  for (DeviceCost& cost : request_.device_costs) cost.shares_processor = false;
  EXPECT_EQ(WayCost(*MakePipelineModel(request_), 0, 1, 0, 1, Direction::kForward).sender_takes, 0);
}

// Steps of four micro-batches, and one of a single one at an epoch's end: three in flight may have
// begun before two steps.
TEST_F(PlanBuilder, AShortLastStepTakesOneMoreWeightVersion) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(3, {1, 1, 1, 1, 1, 1}));
  request_.compute = &*compute;
  request_.micro_batches = 4;
  const auto bytes = [this](int64_t short_step, int64_t cap) {
    request_.short_step = short_step;
    const PipelineModel model = *MakePipelineModel(request_);
    EXPECT_TRUE(CheckPipelineModel(model).ok());
    return StageMemoryBytes(model, HoldOf(model, {2, 5}), {cap}, cap);
  };
  const PipelineModel model = *MakePipelineModel(request_);
  const int64_t version = HoldOf(model, {2, 5}).layers.version_bytes;
  ASSERT_GT(version, 0);
  EXPECT_EQ(bytes(1, 3), bytes(0, 3) + version);
  EXPECT_EQ(bytes(2, 3), bytes(0, 3)) << "two micro-batches";
  EXPECT_EQ(bytes(2, 4), bytes(0, 4) + version);
  EXPECT_EQ(bytes(1, 2), bytes(0, 2)) << "one step between two of them";
}

TEST_F(PlanBuilder, OneDeviceHasNoLink) {
  request_.devices = {DeviceId(0)};
  const auto plan = MakePlan(request_);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->links.empty());
  EXPECT_EQ(plan->stages[0], (StagePlan{{Seat{DeviceId(0)}}, 0, 5, 1}));
}

TEST_F(PlanBuilder, CapsMayBeGiven) {
  request_.caps = {5, 5, 2};
  const auto plan = MakePlan(request_);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages[1].cap, 5);
  request_.caps = {2, 5, 1};
  ExpectRefused("cap 5 of stage 1");
  request_.caps = {1, 1, 0};
  ExpectRefused("cap 0 of stage 2");
  request_.caps = {3, 2};
  ExpectRefused("2 caps for 3 stages");
}

TEST_F(PlanBuilder, RefusesWhatCannotRun) {
  PlanRequest good = request_;
  request_.devices.clear();
  ExpectRefused("at least one of each");
  for (int i = 0; i < 7; ++i) request_.devices.push_back(DeviceId(i));
  ExpectRefused("6 layers cannot make 7 stages; use at most 6 devices");
  request_ = good;
  request_.devices[2] = DeviceId(4);
  ExpectRefused("device 4 is listed twice");
  request_ = good;
  request_.micro_batches = 0;
  ExpectRefused("0 micro-batches a step");
  request_ = good;
  request_.micro_batch_size = 0;
  ExpectRefused("micro-batches of 0 samples");
  request_ = good;
  request_.policy = *FindPolicy("dp");
  ExpectRefused("profile the devices");
  request_.link_speed.rate = LinkRate::Mbps(-1);
  ExpectRefused("link of -1 Mbit/s");
  request_ = good;
  request_.model = nullptr;
  ExpectRefused("needs a model");
}

}  // namespace
}  // namespace runnel::plan_builder_test
