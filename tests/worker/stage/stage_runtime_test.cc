#include "worker/stage/stage_runtime.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"

namespace runnel::stage_runtime_test {
namespace {

using ::testing::HasSubstr;

Payload Bytes(size_t size) {
  const std::string text(size, 'x');
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), size));
}

StageRuntime MakeStage(int stage, std::vector<int64_t> caps, const std::string& codec = "identity",
                       int64_t micro_batches = 1, std::vector<int64_t> deferred = {},
                       int frozen_front = 0, bool clips = false) {
  StageRuntimeOptions options{.plan = {},
                              .stage = stage,
                              .batching = Batching::Create(1000, 10, micro_batches, 1).value(),
                              .first_sequence = Sequence(0),
                              .frozen_front = frozen_front,
                              .clips = clips};
  options.plan.generation = Generation(1);
  options.plan.drains_each_step = micro_batches > 1;
  for (size_t i = 0; i < caps.size(); ++i) {
    const int layer = static_cast<int>(i);
    options.plan.stages.push_back(
        {{Seat{DeviceId(layer)}}, layer, layer, caps[i], deferred.empty() ? 0 : deferred[i]});
    if (i > 0) options.plan.links.push_back({Codecs(codec), Codecs(codec)});
  }
  options.eval_batch_size = 10;
  options.eval_samples = 25;
  return StageRuntime(options);
}

// Names of the effects, "F3" for a forward of micro-batch 3 and so on.
std::string Names(StageRuntime& stage) {
  struct Namer {
    std::string operator()(const SendEffect& e) { return "S" + std::to_string(e.sequence.value()); }
    std::string operator()(const AcknowledgeEffect& e) {
      return "A" + std::to_string(e.sequence.value());
    }
    std::string operator()(const ForwardEffect& e) {
      return "F" + std::to_string(e.place.sequence.value()) + "/" + std::to_string(e.version);
    }
    std::string operator()(const InputGradientEffect& e) {
      return "I" + std::to_string(e.place.sequence.value());
    }
    std::string operator()(const WeightGradientEffect& e) {
      return (e.step ? "W!" : "W") + std::to_string(e.place.sequence.value());
    }
    std::string operator()(const StepEffect& e) {
      return "P" + std::to_string(e.place.step) + ":" + std::to_string(e.gradient_square);
    }
    std::string operator()(const EvaluateEffect& e) {
      return "E" + std::to_string(e.sequence.value()) + "x" + std::to_string(e.samples);
    }
    std::string operator()(const EncodeEffect& e) {
      return "C" + std::to_string(e.place.sequence.value());
    }
    std::string operator()(const DecodeEffect& e) {
      return "D" + std::to_string(e.place.sequence.value());
    }
    std::string operator()(const BarrierEffect& e) {
      return "B" + std::to_string(e.sequence.value());
    }
    std::string operator()(const EvaluationDoneEffect& e) {
      return "V" + std::to_string(e.samples);
    }
    std::string operator()(const BeginDryRunEffect&) { return "<"; }
    std::string operator()(const CompareGradientEffect& e) {
      return (e.is_coded ? "c" : "x") + std::to_string(e.place.sequence.value());
    }
    std::string operator()(const EndDryRunEffect&) { return ">"; }
    std::string operator()(const DryRunDoneEffect& e) {
      return "R" + std::to_string(e.first.value());
    }
  };
  std::string names;
  for (const Effect& effect : stage.TakeEffects())
    names += (names.empty() ? "" : " ") + std::visit(Namer(), effect);
  return names;
}

Payload Number(double number) {
  return Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&number), sizeof(number)));
}

TEST(StageRuntime, AMiddleStageStepsWhenTheNormIsThere) {
  for (const bool sum_comes_first : {false, true}) {
    StageRuntime stage = MakeStage(1, {2, 2, 1}, "identity", 2, {}, 0, /*clips=*/true);
    const auto sum = [&stage] {
      ASSERT_TRUE(stage.Arrived(FrameKind::kGradientSquares, Sequence(1), 0, Number(5)).ok());
    };
    ASSERT_TRUE(stage.RunUntil(Sequence(2)).ok());
    for (int64_t s = 0; s < 2; ++s) {
      ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(s), 5, Bytes(8)).ok());
      ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
    }
    for (int64_t s = 0; s < 2; ++s)
      ASSERT_TRUE(stage.Arrived(FrameKind::kGradient, Sequence(s), 5, Bytes(8)).ok());
    ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());  // I0
    ASSERT_TRUE(stage.ComputeDone({}).ok());
    ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());  // I1
    Names(stage);
    if (sum_comes_first) sum();
    ASSERT_TRUE(stage.ComputeDone({.squares = {1, 2}}).ok());
    if (!sum_comes_first) sum();
    EXPECT_EQ(Names(stage), "A1 S1") << "no barrier, and no step";
    EXPECT_EQ(stage.version(), 0);
    ASSERT_TRUE(stage.Arrived(FrameKind::kGradientNorm, Sequence(1), 0, Number(9)).ok());
    EXPECT_EQ(Names(stage), "A1 S1 P0:9.000000");
    ASSERT_TRUE(stage.ComputeDone({}).ok());
    EXPECT_EQ(Names(stage), "B2");
    EXPECT_EQ(stage.version(), 1);
  }
}

TEST(StageRuntime, ANormThatDoesNotBelongHereFailsTheStage) {
  struct Wrong {
    FrameKind kind;
    int64_t sequence;
    Payload payload;
  };
  const auto status_of = [](const Wrong& wrong, int stage, bool clips) {
    StageRuntime runtime = MakeStage(stage, {2, 2, 1}, "identity", 2, {}, 0, clips);
    EXPECT_TRUE(runtime.RunUntil(Sequence(2)).ok());
    return std::string(
        runtime.Arrived(wrong.kind, Sequence(wrong.sequence), 0, wrong.payload).message());
  };
  const FrameKind sum = FrameKind::kGradientSquares, norm = FrameKind::kGradientNorm;
  EXPECT_EQ(status_of({sum, 1, Number(1)}, 1, true), "");
  EXPECT_THAT(status_of({sum, 1, Number(1)}, 1, false), HasSubstr("does not belong here"));
  EXPECT_THAT(status_of({sum, 1, Number(1)}, 2, true), HasSubstr("does not belong here"));
  EXPECT_THAT(status_of({norm, 1, Number(1)}, 0, true), HasSubstr("does not belong here"));
  EXPECT_THAT(status_of({norm, 1, Number(1)}, 1, true), HasSubstr("out of order"));
  EXPECT_THAT(status_of({sum, 0, Number(1)}, 1, true), HasSubstr("out of order"));
  EXPECT_THAT(status_of({sum, 3, Number(1)}, 1, true), HasSubstr("out of order"));
  EXPECT_THAT(status_of({sum, 1, Bytes(4)}, 1, true), HasSubstr("no number"));
  EXPECT_THAT(status_of({sum, 1, Number(-1)}, 1, true), HasSubstr("negative"));
}

TEST(StageRuntime, MiddleStageSendsTheGradientBeforeItComputesTheWeightGradient) {
  StageRuntime stage = MakeStage(1, {3, 2, 1});
  ASSERT_TRUE(stage.RunUntil(Sequence(2)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "A0 F0/0");
  ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(1), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "A1");  // one action at a time
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "S0 F1/0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "S1");  // two in flight: waits for a gradient
  ASSERT_TRUE(stage.Arrived(FrameKind::kGradient, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "A0 I0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "S0 W!0");
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(stage.version(), 1);
  ASSERT_TRUE(stage.Arrived(FrameKind::kGradient, Sequence(1), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "A1 I1");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "S1 W!1 B2");
}

// Between them what Names calls "<" and ">": each micro-batch exactly, then through codecs.
TEST(StageRuntime, RunsDryAtABarrier) {
  StageRuntime stage = MakeStage(1, {3, 2, 1}, "stochastic:8");
  ASSERT_TRUE(stage.Arrived(FrameKind::kDryActivation, Sequence(4), 10, Bytes(8)).ok()) << "early";
  ASSERT_TRUE(stage.DryRun(Sequence(4), 1, {}).ok());
  EXPECT_EQ(Names(stage), "<");
  EXPECT_TRUE(stage.runs_dry());
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "A4 F0/0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "S4");
  ASSERT_TRUE(stage.Arrived(FrameKind::kDryGradient, Sequence(4), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "A4 I0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "S4 x0");
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "");
  ASSERT_TRUE(stage.Arrived(FrameKind::kDryActivation, Sequence(5), 10, Bytes(4)).ok());
  EXPECT_EQ(Names(stage), "A5 D0");
  ASSERT_TRUE(stage.Decoded(Direction::kForward, Sequence(0), Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "F0/0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "C0");
  ASSERT_TRUE(stage.Encoded(Direction::kForward, Sequence(0), 10, Bytes(4)).ok());
  EXPECT_EQ(Names(stage), "S5");
  ASSERT_TRUE(stage.Arrived(FrameKind::kDryGradient, Sequence(5), 10, Bytes(4)).ok());
  EXPECT_EQ(Names(stage), "A5 D0");
  ASSERT_TRUE(stage.Decoded(Direction::kBackward, Sequence(0), Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "I0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(stage), "C0 c0") << "the weight-gradient beside the encoder";
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "") << "the encoder is copied back when it has done its work";
  ASSERT_TRUE(stage.Encoded(Direction::kBackward, Sequence(0), 10, Bytes(4)).ok());
  EXPECT_EQ(Names(stage), "S5 >");
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "R4");
  EXPECT_EQ(stage.version(), 0);
  EXPECT_EQ(stage.forwards(), 0);
  EXPECT_EQ(stage.evaluated(), 2);
  ASSERT_TRUE(stage.RunUntil(Sequence(1)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(0), 10, Bytes(4)).ok());
  EXPECT_EQ(Names(stage), "D0");
}

// Of the second stage of three, what passes codecs in the second pass: activation in and out, gradient
// in and out.
TEST(StageRuntime, ADryRunCodesTheTensorsOfOneWay) {
  const auto coded_of = [](const CodedWays& coded) {
    StageRuntime stage = MakeStage(1, {3, 2, 1}, "stochastic:8");
    EXPECT_TRUE(stage.DryRun(Sequence(4), 1, coded).ok());
    std::string codings;
    // Whether it has the effect, whose letter Names knows.
    const auto has = [&](char effect) {
      const bool found = Names(stage).find(effect) != std::string::npos;
      codings += found ? effect : '-';
      return found;
    };
    const auto done = [&stage] { EXPECT_TRUE(stage.ComputeDone({Bytes(8)}).ok()); };
    done();  // it has begun
    for (const int64_t pass : {4, 5}) {
      codings.clear();
      for (const Direction direction : kDirections) {
        const bool is_forward = direction == Direction::kForward;
        Names(stage);
        EXPECT_TRUE(stage
                        .Arrived(is_forward ? FrameKind::kDryActivation : FrameKind::kDryGradient,
                                 Sequence(pass), 10, Bytes(8))
                        .ok());
        if (has('D')) {
          EXPECT_TRUE(stage.Decoded(direction, Sequence(0), Bytes(8)).ok());
        }
        Names(stage);
        done();
        if (has('C')) {
          EXPECT_TRUE(stage.Encoded(direction, Sequence(0), 10, Bytes(8)).ok());
        }
      }
      done();  // the weight-gradient
      if (pass == 4) {
        EXPECT_EQ(codings, "----") << "the exact pass";
      }
    }
    EXPECT_EQ(Names(stage).back(), '>');
    return codings;
  };
  EXPECT_EQ(coded_of({}), "DCDC");
  EXPECT_EQ(coded_of({.link = 0, .forward = true}), "D---");
  EXPECT_EQ(coded_of({.link = 0, .backward = true}), "---C");
  EXPECT_EQ(coded_of({.link = 1, .forward = true}), "-C--");
  EXPECT_EQ(coded_of({.link = 1, .backward = true}), "--D-");
  EXPECT_EQ(coded_of({.link = 1, .forward = true, .backward = true}), "-CD-");
  EXPECT_EQ(coded_of({.link = 2, .forward = true, .backward = true}), "----");
}

TEST(StageRuntime, RefusesWhatADryRunDoesNotWaitFor) {
  const auto begun = [] {
    StageRuntime stage = MakeStage(1, {3, 2, 1});
    EXPECT_TRUE(stage.DryRun(Sequence(4), 1, {}).ok());
    return stage;
  };
  StageRuntime granted = begun();
  EXPECT_FALSE(granted.RunUntil(Sequence(2)).ok());
  StageRuntime twice = begun();
  EXPECT_FALSE(twice.DryRun(Sequence(6), 1, {}).ok());
  StageRuntime gradient = begun();
  EXPECT_FALSE(gradient.Arrived(FrameKind::kDryGradient, Sequence(4), 10, Bytes(8)).ok());
  StageRuntime old = begun();
  EXPECT_FALSE(old.Arrived(FrameKind::kDryActivation, Sequence(3), 10, Bytes(8)).ok());
  StageRuntime labels = begun();
  EXPECT_FALSE(labels.Arrived(FrameKind::kDryLabels, Sequence(4), 10, Bytes(8)).ok());
  StageRuntime training = MakeStage(1, {3, 2, 1});
  ASSERT_TRUE(training.RunUntil(Sequence(2)).ok());
  EXPECT_FALSE(training.DryRun(Sequence(0), 1, {}).ok());
}

// The stage with the loss gets labels and sends gradients; a frozen one runs forwards alone.
TEST(StageRuntime, EndsOfThePipelineRunDry) {
  StageRuntime last = MakeStage(1, {2, 1});
  ASSERT_TRUE(last.DryRun(Sequence(0), 1, {}).ok());
  ASSERT_TRUE(last.ComputeDone({}).ok());
  ASSERT_TRUE(last.Arrived(FrameKind::kDryActivation, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(last), "<");
  ASSERT_TRUE(last.Arrived(FrameKind::kDryLabels, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(last), "A0 A0 F0/0");
  ASSERT_TRUE(last.ComputeDone({}).ok());
  EXPECT_EQ(Names(last), "I0");
  ASSERT_TRUE(last.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(last), "S0 x0");
  StageRuntime frozen = MakeStage(0, {2, 1, 1}, "identity", 1, {}, 2);
  ASSERT_TRUE(frozen.DryRun(Sequence(0), 1, {}).ok());
  ASSERT_TRUE(frozen.ComputeDone({}).ok());
  for (int64_t pass = 0; pass < kDryPasses; ++pass) {
    ASSERT_TRUE(frozen.Arrived(FrameKind::kDryInput, Sequence(pass), 10, Bytes(8)).ok());
    ASSERT_TRUE(frozen.ComputeDone({Bytes(8)}).ok());
  }
  ASSERT_TRUE(frozen.ComputeDone({}).ok());
  EXPECT_EQ(Names(frozen), "< A0 F0/0 S0 A1 F0/0 S1 > R0");
}

// Of three stages the first two are frozen: a micro-batch is in flight until the next stage begins.
TEST(StageRuntime, FrozenStagesRunForwardsAlone) {
  StageRuntime first = MakeStage(0, {2, 1, 1}, "identity", 1, {}, 2);
  ASSERT_TRUE(first.RunUntil(Sequence(3)).ok());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(first.Arrived(FrameKind::kInput, Sequence(i), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(first), "A0 F0/0");
  ASSERT_TRUE(first.ComputeDone({Bytes(8)}).ok());
  ASSERT_TRUE(first.Waiting(1).ok());
  EXPECT_EQ(Names(first), "S0 A1 F1/0");
  ASSERT_TRUE(first.ComputeDone({Bytes(8)}).ok());
  EXPECT_EQ(Names(first), "S1") << "two wait: no third";
  ASSERT_TRUE(first.Waiting(1).ok());
  EXPECT_EQ(Names(first), "A2 F2/0");
  EXPECT_EQ(first.backwards(), 1);
  ASSERT_TRUE(first.ComputeDone({Bytes(8)}).ok());
  ASSERT_TRUE(first.Waiting(1).ok());
  EXPECT_EQ(Names(first), "S2");
  ASSERT_TRUE(first.Waiting(0).ok());
  EXPECT_EQ(Names(first), "B3");
  EXPECT_EQ(first.version(), 0);
  EXPECT_THAT(std::string(first.Arrived(FrameKind::kGradient, Sequence(2), 10, Bytes(8)).message()),
              HasSubstr("does not belong here"));

  StageRuntime last = MakeStage(2, {2, 1, 1}, "identity", 1, {}, 2);
  ASSERT_TRUE(last.RunUntil(Sequence(2)).ok());
  ASSERT_TRUE(last.Arrived(FrameKind::kLabels, Sequence(0), 10, Bytes(8)).ok());
  ASSERT_TRUE(last.Arrived(FrameKind::kActivation, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(last), "A0 A0 F0/0") << "told of when it begins";
  ASSERT_TRUE(last.Arrived(FrameKind::kActivation, Sequence(1), 10, Bytes(8)).ok());
  ASSERT_TRUE(last.ComputeDone({Payload(), 1.0, 1}).ok());
  EXPECT_EQ(Names(last), "I0");
  ASSERT_TRUE(last.ComputeDone({}).ok());
  EXPECT_EQ(Names(last), "W!0") << "no gradient leaves";
  EXPECT_THAT(
      std::string(last.Arrived(FrameKind::kActivation, Sequence(2), 10, Bytes(8)).message()),
      HasSubstr("beyond the cap"));
}

TEST(StageRuntime, CodecsGoThroughTheirLaneAndHoldTheBarrier) {
  StageRuntime stage = MakeStage(1, {2, 1, 1}, "mbq:2");
  ASSERT_TRUE(stage.RunUntil(Sequence(1)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "D0");
  ASSERT_TRUE(stage.Decoded(Direction::kForward, Sequence(0), Bytes(40)).ok());
  EXPECT_EQ(Names(stage), "A0 F0/0");
  ASSERT_TRUE(stage.ComputeDone({Bytes(40)}).ok());
  EXPECT_EQ(Names(stage), "C0");
  ASSERT_TRUE(stage.Encoded(Direction::kForward, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "S0");
  ASSERT_TRUE(stage.Arrived(FrameKind::kGradient, Sequence(0), 10, Bytes(8)).ok());
  ASSERT_TRUE(stage.Decoded(Direction::kBackward, Sequence(0), Bytes(40)).ok());
  ASSERT_TRUE(stage.ComputeDone({Bytes(40)}).ok());
  ASSERT_TRUE(stage.ComputeDone({}).ok());
  EXPECT_EQ(Names(stage), "D0 A0 I0 C0 W!0");  // no barrier while the gradient is in the codec lane
  ASSERT_TRUE(stage.Encoded(Direction::kBackward, Sequence(0), 10, Bytes(8)).ok());
  EXPECT_EQ(Names(stage), "S0 B1");
}

TEST(StageRuntime, LossStageNeedsSamplesAndLabels) {
  StageRuntime stage = MakeStage(0, {1});
  ASSERT_TRUE(stage.RunUntil(Sequence(1)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kLabels, Sequence(0), 10, Bytes(40)).ok());
  EXPECT_EQ(Names(stage), "");
  ASSERT_TRUE(stage.Arrived(FrameKind::kInput, Sequence(0), 10, Bytes(40)).ok());
  EXPECT_EQ(Names(stage), "A0 A0 F0/0");
  ASSERT_TRUE(stage.ComputeDone({{}, 5.0, 3}).ok());
  EXPECT_EQ(Names(stage), "I0");
  EXPECT_EQ(stage.loss().loss_sum, 5.0);
  EXPECT_EQ(stage.loss().correct, 3);
  EXPECT_EQ(stage.loss().samples, 10);
}

TEST(StageRuntime, SynchronousScheduleStepsOncePerMiniBatchAndDrains) {
  StageRuntime stage = MakeStage(0, {2}, "identity", 2);
  ASSERT_TRUE(stage.RunUntil(Sequence(4)).ok());
  std::string names;
  for (int64_t s = 0; s < 4; ++s) {
    ASSERT_TRUE(stage.Arrived(FrameKind::kInput, Sequence(s), 5, Bytes(8)).ok());
    ASSERT_TRUE(stage.Arrived(FrameKind::kLabels, Sequence(s), 5, Bytes(8)).ok());
    names += Names(stage) + " ";
  }
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(stage.ComputeDone({}).ok());
    names += Names(stage) + " ";
  }
  EXPECT_EQ(names, "A0 A0 F0/0    A1 A1 F1/0 I0 W0 I1 W!1 A2 A2 F2/1 A3 A3 F3/1 I2 W2 I3 W!3 B4 ");
}

// Forwards and input-gradients go on before the weight-gradients; the step comes with the last one,
// and the barrier waits for it.
TEST(StageRuntime, DeferredWeightGradientsLeaveTheOrderToThePlan) {
  StageRuntime stage = MakeStage(1, {2, 1}, "identity", 4, {0, 2});
  ASSERT_TRUE(stage.RunUntil(Sequence(4)).ok());
  std::string names;
  const auto feed = [&](int64_t s) {
    ASSERT_TRUE(stage.Arrived(FrameKind::kLabels, Sequence(s), s < 2 ? 3 : 2, Bytes(8)).ok());
    ASSERT_TRUE(stage.Arrived(FrameKind::kActivation, Sequence(s), s < 2 ? 3 : 2, Bytes(8)).ok());
    names += Names(stage) + " ";
  };
  const auto done = [&] {
    ASSERT_TRUE(stage.ComputeDone({Bytes(8)}).ok());
    names += Names(stage) + " ";
  };
  feed(0);
  feed(1);
  done();  // F0
  done();  // I0
  done();  // F1
  done();  // I1: two are deferred, and a third forward is next, although its input is not here
  EXPECT_EQ(names, "A0 A0 F0/0 A1 I0 S0 A1 F1/0 I1 S1 ");
  EXPECT_EQ(stage.backwards(), 0);
  names.clear();
  feed(2);
  feed(3);
  done();  // F2
  done();  // I2: one too many
  done();  // W0
  done();  // F3
  EXPECT_EQ(names, "A2 A2 F2/0 A3 I2 S2 W0 A3 F3/0 I3 ");
  names.clear();
  done();  // I3
  for (int i = 0; i < 3; ++i) done();
  EXPECT_EQ(names, "S3 W1 W2 W!3 B4 ");
  EXPECT_EQ(stage.version(), 1);
}

TEST(StageRuntime, EvaluationRunsForwardOnlyAndReportsWhereTheLossIs) {
  StageRuntime stage = MakeStage(0, {1});
  ASSERT_TRUE(stage.Arrived(FrameKind::kEvalInput, Sequence(7), 10, Bytes(8))
                  .ok());  // the feed may be early
  ASSERT_TRUE(stage.Evaluate(Sequence(7), 3).ok());
  for (int64_t s = 7; s < 10; ++s) {
    if (s > 7) {
      ASSERT_TRUE(
          stage.Arrived(FrameKind::kEvalInput, Sequence(s), s == 9 ? 5 : 10, Bytes(8)).ok());
    }
    ASSERT_TRUE(stage.Arrived(FrameKind::kEvalLabels, Sequence(s), s == 9 ? 5 : 10, Bytes(8)).ok());
  }
  EXPECT_EQ(Names(stage), "A7 A7 E7x10");
  ASSERT_TRUE(stage.ComputeDone({{}, 1.0, 4}).ok());
  EXPECT_EQ(Names(stage), "A8 A8 E8x10");
  ASSERT_TRUE(stage.ComputeDone({{}, 1.0, 4}).ok());
  EXPECT_EQ(Names(stage), "A9 A9 E9x5");
  EXPECT_EQ(stage.evaluated(), 2);  // heartbeats tell central that the stage moves
  ASSERT_TRUE(stage.ComputeDone({{}, 1.0, 4}).ok());
  EXPECT_EQ(Names(stage), "V25");
  EXPECT_EQ(stage.forwards(), 0);
}

TEST(StageRuntime, RefusesWhatCannotBe) {
  const auto arrival = [](FrameKind kind, int64_t sequence, int64_t samples) {
    StageRuntime stage = MakeStage(1, {3, 2, 1});
    return std::string(stage.Arrived(kind, Sequence(sequence), samples, Bytes(8)).message());
  };
  EXPECT_THAT(arrival(FrameKind::kInput, 0, 10), HasSubstr("does not belong here"));
  EXPECT_THAT(arrival(FrameKind::kLabels, 0, 10), HasSubstr("does not belong here"));
  EXPECT_THAT(arrival(FrameKind::kActivation, 0, 9), HasSubstr("9 samples"));
  EXPECT_THAT(arrival(FrameKind::kActivation, 4, 10), HasSubstr("beyond the cap"));
  EXPECT_THAT(arrival(FrameKind::kGradient, 0, 10), HasSubstr("out of order"));
  StageRuntime stage = MakeStage(1, {3, 2, 1});
  EXPECT_FALSE(stage.ComputeDone({}).ok());
  EXPECT_TRUE(stage.RunUntil(Sequence(5)).ok());  // failed: emits nothing more
  EXPECT_EQ(Names(stage), "");
}

TEST(StageRuntime, ALossThatIsNotFiniteEndsTheStage) {
  StageRuntime stage = MakeStage(0, {1});
  ASSERT_TRUE(stage.RunUntil(Sequence(1)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kLabels, Sequence(0), 10, Bytes(40)).ok());
  ASSERT_TRUE(stage.Arrived(FrameKind::kInput, Sequence(0), 10, Bytes(40)).ok());
  const absl::Status status = stage.ComputeDone({{}, std::numeric_limits<double>::quiet_NaN(), 0});
  EXPECT_THAT(std::string(status.message()), HasSubstr("smaller --lr"));
}

}  // namespace
}  // namespace runnel::stage_runtime_test
