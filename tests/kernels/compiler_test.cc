#include "kernels/ir/compiler.h"

#include <cmath>
#include <iostream>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "proto/base/random.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::compiler_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 200;
constexpr int64_t kBatch = 3;

// Everything that training leaves behind.
struct Outcome {
  std::vector<std::vector<float>> first_gradients, logits, parameters, momentum, statistics;
  std::vector<double> losses, eval_losses;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class CompilerTest : public ::testing::Test {
 protected:
  CompilerTest() : backend_(*MakeRefBackend(1)) {}

  // Three steps of two micro-batches, then an evaluation.
  Outcome Train(const ModelSpec& model, std::vector<int> cuts, uint64_t seed, Checks checks,
                int64_t batch = kBatch) {
    Outcome outcome;
    auto made = TestPipeline::Make(model, std::move(cuts), batch, backend_.get(), seed, checks);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return outcome;
    TestPipeline& pipeline = *made;
    const int64_t each = *LabelsPerSample(model);
    StepContext context = {.run_seed = seed,
                           .step_labels = 2 * kBatch,
                           .learning_rate = 0.001,
                           .momentum = 0.9,
                           .weight_decay = 0.01};
    for (int64_t sequence = 0; sequence < 6; ++sequence) {
      context.sequence = Sequence(sequence);
      context.accumulate = sequence % 2 == 1;
      const auto x = RandomValues(seed, sequence, batch * model.input.elements());
      const auto labels = RandomLabels(seed, sequence, batch * each, model.classes);
      absl::Status status = pipeline.ForwardBackward(x.data(), labels.data(), context);
      EXPECT_TRUE(status.ok()) << status;
      outcome.losses.push_back(pipeline.Loss());
      outcome.logits.push_back(pipeline.logits);
      if (sequence == 1) outcome.first_gradients = pipeline.Tensors(Storage::kGradients);
      if (context.accumulate) status = pipeline.Update(context);
      EXPECT_TRUE(status.ok()) << status;
    }
    const auto x = RandomValues(seed, 99, batch * model.input.elements());
    const auto labels = RandomLabels(seed, 99, batch * each, model.classes);
    const absl::Status status =
        pipeline.Forward(Part::kForwardEval, x.data(), labels.data(), context);
    EXPECT_TRUE(status.ok()) << status;
    outcome.eval_losses.push_back(pipeline.Loss());
    outcome.parameters = pipeline.Tensors(Storage::kParameters);
    outcome.momentum = pipeline.Tensors(Storage::kSlots);
    outcome.statistics = pipeline.Tensors(Storage::kStatistics);
    return outcome;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CompilerTest, EveryCutGivesTheSameBytes) {
  int pipelines = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ModelSpec model = RandomModel(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Outcome whole = Train(model, {}, seed, Checks::kOff);
    for (double loss : whole.losses) ASSERT_TRUE(std::isfinite(loss));
    for (int a = 1; a < model.layer_count(); ++a) {
      ASSERT_EQ(Train(model, {a}, seed, Checks::kOff), whole) << "cut " << a;
      ++pipelines;
      for (int b = a + 1; b < model.layer_count(); ++b, ++pipelines) {
        ASSERT_EQ(Train(model, {a, b}, seed, Checks::kOff), whole) << "cuts " << a << ", " << b;
      }
    }
  }
  std::cout << "seeds 1.." << kSeeds << ", " << pipelines << " pipelines\n";
}

// Of random models that are frozen up to a layer: no cut changes a byte, no frozen state changes,
// and what trains gets the gradients that it gets otherwise.
TEST_F(CompilerTest, FrozenLayersStayAndAreNoBurden) {
  int same_gradients = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ModelSpec unfrozen = RandomModel(seed);
    const int front = 1 + static_cast<int>(seed % (unfrozen.layer_count() - 1));
    ModelSpec model = unfrozen;
    bool acts_alike = true;
    for (int layer = 0; layer < front; ++layer) {
      model.layers[layer].frozen = true;
      for (const OpSpec& op : model.layers[layer].ops)
        acts_alike = acts_alike && op.kind != OpKind::kBatchNorm && op.kind != OpKind::kDropout;
    }
    const Outcome whole = Train(model, {}, seed, Checks::kOff);
    ASSERT_EQ(Train(model, {}, seed, Checks::kOn), whole);
    for (int cut = 1; cut < model.layer_count(); ++cut)
      ASSERT_EQ(Train(model, {cut}, seed, Checks::kOff), whole) << "cut " << cut;
    const std::vector<std::vector<float>> initial =
        TestPipeline::Make(model, {}, kBatch, backend_.get(), seed)->Tensors(Storage::kStatistics);
    const StateLayout layout =
        PlanState(model, 0, model.layer_count() - 1, **FindRecipe("fp32"), {}).value();
    size_t i = 0;
    for (const StateTensor& tensor : layout.tensors) {
      if (tensor.storage != Storage::kStatistics) continue;
      if (tensor.spec.frozen) {
        EXPECT_EQ(whole.statistics[i], initial[i]) << tensor.spec.name;
      }
      ++i;
    }
    if (!acts_alike) continue;
    const Outcome all = Train(unfrozen, {}, seed, Checks::kOff);
    ASSERT_EQ(all.losses[0], whole.losses[0]);
    const std::vector<std::vector<float>>& gradients = whole.first_gradients;
    ASSERT_TRUE(std::equal(gradients.rbegin(), gradients.rend(), all.first_gradients.rbegin()));
    ++same_gradients;
  }
  EXPECT_GT(same_gradients, 3);
}

TEST_F(CompilerTest, AFrozenStageHasForwardsAlone) {
  ModelSpec model = RandomModel(1);
  for (int layer = 0; layer < 2; ++layer) model.layers[layer].frozen = true;
  const Recipe& recipe = **FindRecipe("fp32");
  const auto program = CompileStage(model, 0, 1, kBatch, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  for (const Part part : {Part::kInputGradient, Part::kWeightGradient, Part::kUpdate})
    EXPECT_TRUE(program->part(part).empty());
  EXPECT_EQ(program->stash_bytes, 0);
  EXPECT_EQ(program->state.gradient_bytes + program->state.slot_bytes, 0);
  EXPECT_EQ(program->state.parameter_bytes, 0) << "no version is ever made";
  const auto next = CompileStage(model, 2, model.layer_count() - 1, kBatch, recipe);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(next->needs_input_gradient);
}

// Also shows that nothing reads memory that the contract does not keep for it, and that evaluation
// and backward change no state.
TEST_F(CompilerTest, PoisonBetweenPartsChangesNothing) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ModelSpec model = RandomModel(seed);
    const Outcome plain = Train(model, {}, seed, Checks::kOff);
    ASSERT_EQ(Train(model, {}, seed, Checks::kOn), plain);
    std::vector<int> all_cuts;
    for (int cut = 1; cut < model.layer_count(); ++cut) all_cuts.push_back(cut);
    ASSERT_EQ(Train(model, all_cuts, seed, Checks::kOn), plain);
  }
}

// Linear operators on rows, a residual sum over rows, cuts between them.
TEST_F(CompilerTest, RowsOfASampleAreWhatSamplesWouldBe) {
  constexpr int64_t kRows = 7;
  const auto linear = [](int32_t input, int64_t features, bool bias) {
    return OpSpec{
        .kind = OpKind::kLinear, .inputs = {input}, .out_channels = features, .bias = bias};
  };
  const auto relu = [](int32_t input) { return OpSpec{.kind = OpKind::kRelu, .inputs = {input}}; };
  const OpSpec add = {.kind = OpKind::kAdd, .inputs = {1, 3}};
  ModelSpec rows{"rows", {kRows, 6}, 5, {}};
  rows.layers = {{"a", {linear(0, 8, true), relu(1), linear(2, 8, false), add}},
                 {"b", {relu(0), linear(1, 9, true)}},
                 {"c", {linear(0, 5, true)}}};
  ModelSpec samples = rows;
  samples.input = {6};
  const Outcome plain = Train(samples, {}, 4, Checks::kOn, kRows * kBatch);
  for (const std::vector<int>& cuts : {std::vector<int>(), {1}, {1, 2}})
    EXPECT_EQ(Train(rows, cuts, 4, Checks::kOn), plain) << cuts.size() + 1 << " stages";
  for (const char* recipe : {"fp32", "niti", "dorefa:2,2,4", "sbm:2,2,4", "sbm_range:8,8,8", "ui8",
                             "mls:2,1", "octo", "octo_lac", "afp", "wageubn", "fp8_chunk"}) {
    ModelSpec model = rows;
    for (LayerSpec& layer : model.layers) {
      for (OpSpec& op : layer.ops) op.bias = false;
    }
    const auto program = CompileStage(model, 0, 2, kBatch, **FindRecipe(recipe));
    ASSERT_TRUE(program.ok()) << program.status();
    for (const Part part : {Part::kForward, Part::kForwardEval, Part::kInputGradient}) {
      for (const Instruction& instruction : program->part(part))
        EXPECT_NE(instruction.code, OpCode::kCopy) << recipe << "\n" << ToString(*program);
    }
  }
}

// Two micro-batches in flight: each with its own stash and boundary tensors, one scratch.
TEST_F(CompilerTest, MicroBatchesInFlightDoNotMeet) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ModelSpec model = RandomModel(seed);
    std::vector<std::vector<std::vector<float>>> gradients;
    for (bool interleave : {false, true}) {
      auto one = TestPipeline::Make(model, {}, kBatch, backend_.get(), seed);
      auto two = TestPipeline::Make(model, {}, kBatch, backend_.get(), seed);
      ASSERT_TRUE(one.ok() && two.ok());
      TestStage& a = *one->stages[0];
      TestStage& b = *two->stages[0];
      b.bindings[Storage::kScratch] = a.bindings[Storage::kScratch];
      b.bindings[Storage::kGradients] = a.bindings[Storage::kGradients];
      const auto forward = [&](TestPipeline& p, int64_t sequence) {
        const auto x = RandomValues(seed, sequence, kBatch * model.input.elements());
        const auto labels = RandomLabels(seed, sequence, kBatch, model.classes);
        const StepContext context = {.run_seed = seed, .sequence = Sequence(sequence)};
        ASSERT_TRUE(p.Forward(Part::kForward, x.data(), labels.data(), context).ok());
      };
      const auto backward = [&](TestStage& stage, int64_t sequence) {
        const StepContext context = {
            .run_seed = seed, .sequence = Sequence(sequence), .accumulate = sequence > 0};
        ASSERT_TRUE(stage.Run(Part::kInputGradient, context).ok());
        ASSERT_TRUE(stage.Run(Part::kWeightGradient, context).ok());
      };
      forward(*one, 0);
      if (interleave) forward(*two, 1);
      backward(a, 0);
      if (!interleave) forward(*two, 1);
      backward(b, 1);
      gradients.push_back(a.Tensors(Storage::kGradients));
    }
    ASSERT_EQ(gradients[0], gradients[1]);
  }
}

// The loss along one parameter at a time against the compiled gradient. A sample near a kink (relu,
// max-pool) shows in two sides that disagree and is left out.
TEST_F(CompilerTest, GradientsAreThoseOfTheLoss) {
  int compared = 0, left_out = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ModelSpec model = RandomModel(seed);
    auto made = TestPipeline::Make(model, {}, kBatch, backend_.get(), seed);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto x = RandomValues(seed, 0, kBatch * model.input.elements());
    const auto labels = RandomLabels(seed, 0, kBatch, model.classes);
    const StepContext context = {.run_seed = seed, .sequence = Sequence(5)};
    ASSERT_TRUE(made->ForwardBackward(x.data(), labels.data(), context).ok());
    TestStage& stage = *made->stages[0];
    for (const StateTensor& tensor : stage.program.state.tensors) {
      if (tensor.storage != Storage::kParameters) continue;
      const CounterRandom random(seed, RandomPurpose::kTest, 3, tensor.offset_bytes);
      for (int sample = 0; sample < 3; ++sample) {
        const int64_t at =
            tensor.offset_bytes / 4 +
            random.Below(sample, static_cast<uint32_t>(tensor.spec.shape.elements()));
        float& value = stage.data(Storage::kParameters)[at];
        const float kept = value;
        const auto loss_at = [&](float there) {
          value = there;
          EXPECT_TRUE(made->Forward(Part::kForward, x.data(), labels.data(), context).ok());
          value = kept;
          return made->Loss();
        };
        constexpr float kStep = 2e-3f;
        const double here = loss_at(kept);
        const double left = (here - loss_at(kept - kStep)) / (kept - (kept - kStep));
        const double right = (loss_at(kept + kStep) - here) / ((kept + kStep) - kept);
        const double gradient = stage.data(Storage::kGradients)[at];
        const double tolerance = 2e-3 + 1e-2 * std::abs(gradient);
        if (std::abs(left - right) > tolerance) {
          ++left_out;
          continue;
        }
        ++compared;
        ASSERT_NEAR((left + right) / 2, gradient, tolerance)
            << tensor.spec.name << " of layer " << tensor.layer << "\n"
            << ToString(stage.program);
      }
    }
  }
  std::cout << "seeds 1.." << kSeeds << ": compared " << compared << ", near a kink " << left_out
            << "\n";
  EXPECT_GT(compared, 4 * left_out);
}

int CountCode(const Program& program, Part part, OpCode code) {
  int count = 0;
  for (const Instruction& instruction : program.part(part)) count += instruction.code == code;
  return count;
}

TEST_F(CompilerTest, FirstLayerHasNoInputGradient) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 4;
  conv.kernel = {3, 3};
  OpSpec second = conv;
  second.inputs = {3};
  const std::vector<OpSpec> first = {conv, OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu, {2}),
                                     second};
  const ModelSpec model = ModelOf(
      {3, 8, 8}, 4, {first, {OpOf(OpKind::kBatchNorm, {0}), OpOf(OpKind::kGlobalAvgPool, {1})}});
  auto program = CompileStage(model, 0, 1, 2, **FindRecipe("fp32"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_FALSE(program->needs_input_gradient);
  EXPECT_EQ(CountCode(*program, Part::kInputGradient, OpCode::kConvInputGradient), 1);
  EXPECT_EQ(CountCode(*program, Part::kInputGradient, OpCode::kBatchNormInputGradient), 2);
  EXPECT_EQ(CountCode(*program, Part::kWeightGradient, OpCode::kConvWeightGradient), 2);
  EXPECT_EQ(CountCode(*program, Part::kWeightGradient, OpCode::kBatchNormWeightGradient), 2);
  // Batch norm on what enters the model: its sums are wanted though its gradient is not.
  const ModelSpec norm =
      ModelOf({4, 5}, 4, {{OpOf(OpKind::kBatchNorm, {0})}, {OpOf(OpKind::kGlobalAvgPool, {0})}});
  program = CompileStage(norm, 0, 0, 2, **FindRecipe("fp32"));
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(CountCode(*program, Part::kInputGradient, OpCode::kBatchNormInputGradient), 1);
}

TEST_F(CompilerTest, FlattenIsAView) {
  const ModelSpec model = ModelOf({2, 3, 4}, 5,
                                  {{OpOf(OpKind::kRelu, {0})},
                                   {OpOf(OpKind::kFlatten, {0})},
                                   {LinearOp(5)},
                                   {OpOf(OpKind::kRelu, {0})}});
  auto inside = CompileStage(model, 0, 2, 2, **FindRecipe("fp32"));
  auto alone = CompileStage(model, 1, 1, 2, **FindRecipe("fp32"));
  auto first = CompileStage(model, 0, 1, 2, **FindRecipe("fp32"));
  ASSERT_TRUE(inside.ok() && alone.ok() && first.ok());
  for (Part part : {Part::kForward, Part::kForwardEval, Part::kInputGradient}) {
    EXPECT_EQ(CountCode(*inside, part, OpCode::kCopy), 0);
    EXPECT_EQ(CountCode(*first, part, OpCode::kCopy), 0);
    // What enters is what leaves: the bytes have to move.
    EXPECT_EQ(CountCode(*alone, part, OpCode::kCopy), 1);
  }
  EXPECT_EQ(alone->stash_bytes, 0);
  EXPECT_EQ(alone->scratch_bytes, 0);
}

TEST_F(CompilerTest, StateLayoutDoesNotDependOnBatchOrCut) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ModelSpec model = RandomModel(seed);
    const int last = model.layer_count() - 1;
    auto layout = PlanState(model, 0, last, **FindRecipe("fp32"), {});
    auto program = CompileStage(model, 0, last, 7, **FindRecipe("fp32"));
    ASSERT_TRUE(layout.ok() && program.ok());
    EXPECT_EQ(layout->parameter_bytes, program->state.parameter_bytes);
    int64_t parameters = 0;
    ASSERT_EQ(layout->tensors.size(), program->state.tensors.size());
    for (size_t i = 0; i < layout->tensors.size(); ++i) {
      const StateTensor& tensor = layout->tensors[i];
      EXPECT_EQ(tensor.offset_bytes, program->state.tensors[i].offset_bytes);
      EXPECT_EQ(tensor.offset_bytes % 64, 0);
      if (tensor.storage == Storage::kParameters) parameters += tensor.spec.shape.elements();
    }
    EXPECT_EQ(parameters, *CountParameters(model));
  }
}

TEST_F(CompilerTest, BadInputIsNamed) {
  const Recipe& recipe = **FindRecipe("fp32");
  ModelSpec model = ModelOf({4}, 3, {{LinearOp(4), OpOf(OpKind::kRelu, {1})}, {LinearOp(3)}});
  EXPECT_THAT(CompileStage(model, 1, 2, 2, recipe).status().message(), HasSubstr("1..2"));
  EXPECT_THAT(CompileStage(model, 1, 0, 2, recipe).status().message(), HasSubstr("1..0"));
  EXPECT_FALSE(CompileStage(model, -1, 0, 2, recipe).ok());
  EXPECT_FALSE(PlanState(model, 0, 5, **FindRecipe("fp32"), {}).ok());
  EXPECT_FALSE(CompileStage(model, 0, 1, 0, recipe).ok());
  const Recipe empty = {.name = "nothing"};
  EXPECT_THAT(CompileStage(model, 0, 1, 2, empty).status().message(),
              testing::AllOf(HasSubstr("layer l0"), HasSubstr("linear"), HasSubstr("nothing")));
  model.layers[0].ops[1].inputs = {0};
  EXPECT_THAT(CompileStage(model, 0, 1, 2, recipe).status().message(),
              testing::AllOf(HasSubstr("layer l0, op 0"), HasSubstr("nobody reads")));
}

TEST(Recipes, EveryFamilyIsMade) {
  EXPECT_THAT(FindRecipe("fp99").status().message(), HasSubstr("fp32"));
  for (const char* name : {"fp32", "niti", "niti:niti2020", "niti:niti2021"}) {
    const Recipe* recipe = *FindRecipe(name);
    EXPECT_EQ(recipe, *FindRecipe(name));
    EXPECT_EQ(recipe->name, name);
    std::set<OpKind> kinds;
    for (const OpRule& rule : recipe->rules) EXPECT_TRUE(kinds.insert(rule.op).second);
    EXPECT_TRUE(CheckRecipe(*recipe).ok()) << CheckRecipe(*recipe);
    EXPECT_NE(recipe->Find(OpKind::kConv), nullptr);
    EXPECT_EQ(recipe->numbers, recipe->family->format);
  }
}

TEST(ProgramText, ListsInstructionsAndSizes) {
  const ModelSpec model = ModelOf({4}, 3, {{LinearOp(3)}});
  const std::string text = ToString(*CompileStage(model, 0, 0, 2, **FindRecipe("fp32")));
  EXPECT_THAT(text, HasSubstr("0.0 linear_forward input+0:f32:2x4, params+0:f32:3x4 -> output+0"));
  EXPECT_THAT(text, HasSubstr("softmax_cross_entropy"));
  EXPECT_THAT(text, HasSubstr("stash 64 B"));
}

}  // namespace
}  // namespace runnel::compiler_test
