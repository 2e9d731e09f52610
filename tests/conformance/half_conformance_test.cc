// Programs of halves: every instruction of `small` and of every instruction set of cpu against ref,
// whole nets as well, wherever they are cut. All the same bytes.

#include <algorithm>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/arithmetic/half_products.h"
#include "proto/base/random.h"
#include "tests/conformance/backend_cases.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"
#include "tests/support/case_count.h"

namespace runnel::half_conformance_test {
namespace {

const uint64_t kCases = CaseCount(100);
constexpr DType kHalves[] = {DType::kBFloat16, DType::kFloat16};

// Operands that are halves; the others are what keeps FP32 sums.
bool IsValue(absl::string_view name) {
  for (absl::string_view value :
       {"x", "y", "dy", "dx", "a", "b", "sum", "logits", "logits_gradient"}) {
    if (name == value) return true;
  }
  return false;
}

std::vector<absl::string_view> Names(absl::string_view operands) {
  return absl::StrSplit(operands, absl::ByAnyChar("[], &"), absl::SkipEmpty());
}

// The case in halves. Batch normalisation's gradient meets the y of a forward as it is stored.
void Narrow(DType type, Case& c) {
  const std::vector<std::string> sides = absl::StrSplit(TraitsOf(c.code).operands, " -> ");
  const auto narrow = [type](absl::string_view names, std::vector<CaseOperand>& operands) {
    const std::vector<absl::string_view> of = Names(names);
    for (size_t i = 0; i < operands.size(); ++i) {
      CaseOperand& o = operands[i];
      if (o.dtype != DType::kFloat32 || !IsValue(of[i])) continue;
      const auto* values = reinterpret_cast<const float*>(o.bytes.data());
      std::vector<std::byte> bytes(static_cast<size_t>(o.shape.elements()) * SizeOf(type));
      NarrowHalf(type, {values, static_cast<size_t>(o.shape.elements())}, absl::MakeSpan(bytes));
      o.dtype = type;
      o.bytes = std::move(bytes);
    }
  };
  narrow(sides[0], c.inputs);
  narrow(sides[1], c.outputs);
}

// Bytes of all operands after the instruction has run, and what was counted.
absl::StatusOr<std::vector<std::string>> Run(const Case& c, DType type, Backend& backend) {
  Program program;
  program.values = type;
  Instruction instruction = {.code = c.code, .layer = 3, .op = 2, .attributes = c.attributes};
  instruction.optimizer = c.optimizer;
  std::vector<std::unique_ptr<AlignedBytes>> memory;
  int64_t ends[kStorageCount] = {};
  std::vector<const CaseOperand*> all;
  for (const auto* operands : {&c.inputs, &c.outputs}) {
    for (const CaseOperand& o : *operands) {
      all.push_back(&o);
      (operands == &c.inputs ? instruction.inputs : instruction.outputs)
          .push_back(static_cast<BufferIndex>(program.buffers.size()));
      int64_t& end = ends[static_cast<int>(o.storage)];
      program.buffers.push_back({o.storage, o.dtype, o.shape, end});
      end += (static_cast<int64_t>(o.bytes.size()) + 63) / 64 * 64;
    }
  }
  program.parts[static_cast<int>(c.part())].push_back(instruction);
  Bindings bindings;
  for (int i = 0; i < kStorageCount; ++i) {
    memory.push_back(std::make_unique<AlignedBytes>(ends[i] + 64));
    bindings.base[i] = memory.back()->data();
  }
  const auto data = [&](size_t i) {
    return bindings[program.buffers[i].storage] + program.buffers[i].offset_bytes;
  };
  for (size_t i = 0; i < all.size(); ++i)
    std::memcpy(data(i), all[i]->bytes.data(), all[i]->bytes.size());
  const auto executable = backend.Prepare(program);
  if (!executable.ok()) return executable.status();
  RangeTally tally;
  StepContext context = c.context;
  context.range = &tally;
  const absl::Status status = (*executable)->Run(c.part(), context, bindings);
  if (!status.ok()) return status;
  std::vector<std::string> bytes = {absl::StrCat(tally.activations_saturated(), ",",
                                                 tally.gradients_saturated(), ",",
                                                 tally.gradient_underflows())};
  for (size_t i = 0; i < all.size(); ++i)
    bytes.emplace_back(reinterpret_cast<const char*>(data(i)), all[i]->bytes.size());
  return bytes;
}

// Every instruction set of this machine, the portable one, one with threads, and `small`.
std::vector<std::unique_ptr<Backend>> Backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const std::string& set : CpuInstructionSets())
    backends.push_back(*MakeCappedCpuBackend(set, 1));
  backends.push_back(*MakeCappedCpuBackend(CpuInstructionSets().front(), 3));
  backends.push_back(*MakeBackend("small", 1));
  return backends;
}

// Recipes of halves refuse models with gates.
bool IsOfGates(OpCode code) {
  return code == OpCode::kHoldSamples || code == OpCode::kAllSamples ||
         code == OpCode::kGatherSamples || code == OpCode::kScatterSamples ||
         code == OpCode::kChooseSamples || code == OpCode::kMaskGradient ||
         code == OpCode::kChoiceGradient || code == OpCode::kLstmForward ||
         code == OpCode::kLstmInputGradient || code == OpCode::kLstmStateGradient;
}

// Stages of halves keep no masks (passes/mask_stash.h).
bool IsOfMasks(OpCode code) {
  return code == OpCode::kReluMask || code == OpCode::kRelu6Mask ||
         code == OpCode::kMaskedInputGradient;
}

std::vector<OpCode> CodesOfHalves() {
  std::vector<OpCode> codes;
  for (int i = 0; i < OpCodeCount(); ++i) {
    const auto code = static_cast<OpCode>(i);
    const Numbers numbers = TraitsOf(code).numbers;
    if ((numbers == Numbers::kFloats || numbers == Numbers::kAnyNumbers) && !IsOfGates(code) &&
        !IsOfMasks(code))
      codes.push_back(code);
  }
  return codes;
}

bool MayBeMissing(const Backend& backend, OpCode code) {
  constexpr OpCode kOfTransformers[] = {OpCode::kLayerNormForward, OpCode::kLayerNormInputGradient,
                                        OpCode::kGeluForward,      OpCode::kGeluInputGradient,
                                        OpCode::kAttentionForward, OpCode::kAttentionInputGradient};
  return backend.name() == "small" &&
         std::find(std::begin(kOfTransformers), std::end(kOfTransformers), code) !=
             std::end(kOfTransformers);
}

void ExpectTheBytesOfRef(const Case& c, DType type,
                         const std::vector<std::unique_ptr<Backend>>& backends) {
  static Backend& ref = *MakeRefBackend(1)->release();
  const auto want = Run(c, type, ref);
  if (c.attributes.kind == OpKind::kAvgPool && c.attributes.is_padded()) {
    EXPECT_TRUE(absl::IsUnimplemented(want.status())) << "means over padding are of FP32";
    return;
  }
  ASSERT_TRUE(want.ok()) << want.status();
  for (const auto& backend : backends) {
    const auto got = Run(c, type, *backend);
    const bool is_left_out = c.attributes.is_dilated() && !backend->traits().dilates;
    if ((is_left_out || MayBeMissing(*backend, c.code)) && absl::IsUnimplemented(got.status()))
      continue;
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < want->size(); ++i)
      EXPECT_EQ((*got)[i] == (*want)[i], true)
          << backend->description() << ", operand " << i << " - 1: " << c.ToString();
  }
}

TEST(HalfConformance, EveryInstructionGivesTheBytesOfRef) {
  const auto backends = Backends();
  for (const DType type : kHalves) {
    for (const OpCode code : CodesOfHalves()) {
      for (uint64_t seed = 1; seed <= kCases; ++seed) {
        std::optional<Case> c = MakeCase(code, seed);
        ASSERT_TRUE(c.has_value()) << std::string(Name(code));
        Narrow(type, *c);
        SCOPED_TRACE(absl::StrCat(Name(type), ", seed ", seed));
        ExpectTheBytesOfRef(*c, type, backends);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

CaseOperand Values(Storage storage, const Shape& shape, uint64_t stream, double spread) {
  CaseOperand operand = {.storage = storage, .shape = shape};
  operand.bytes.resize(static_cast<size_t>(shape.elements()) * sizeof(float));
  const CounterRandom random(11, RandomPurpose::kTest, 3, stream);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const auto value = static_cast<float>(spread * random.Normal(static_cast<uint64_t>(i)));
    std::memcpy(operand.bytes.data() + 4 * i, &value, 4);
  }
  return operand;
}

// Sums of 1, 2, 3 and more terms, odd numbers of them too, and weight-gradients beyond one partial
// sum; subnormal operands and results.
TEST(HalfConformance, SumsOfAnyLength) {
  const auto backends = Backends();
  for (const DType type : kHalves) {
    for (const double spread : {1.0, 1e-20}) {
      for (const int64_t k : {1, 2, 3, 7, 31, 128, 129, 257}) {
        for (const int64_t outs : {1, 5, 33}) {
          const Shape x = {3, k}, y = {3, outs}, w = {outs, k}, long_x = {k, 7}, long_y = {k, outs};
          Case forward = {.code = OpCode::kLinearForward};
          forward.attributes = LinearOp(outs);
          forward.inputs = {Values(Storage::kStash, x, 1, spread),
                            Values(Storage::kParameters, w, 2, spread),
                            Values(Storage::kParameters, {outs}, 3, spread)};
          forward.outputs = {Values(Storage::kScratch, y, 4, 1)};
          Case input = forward;
          input.code = OpCode::kLinearInputGradient;
          input.inputs = {Values(Storage::kStash, {3, k}, 5, spread),
                          Values(Storage::kParameters, {k, outs}, 6, spread)};
          Case weight = forward;
          weight.code = OpCode::kLinearWeightGradient;
          weight.inputs = {Values(Storage::kStash, long_y, 7, spread),
                           Values(Storage::kStash, long_x, 8, spread)};
          weight.outputs = {Values(Storage::kGradients, {outs, 7}, 9, 1),
                            Values(Storage::kGradients, {outs}, 10, 1)};
          for (Case* c : {&forward, &input, &weight}) {
            Narrow(type, *c);
            for (const bool accumulate : {false, true}) {
              c->context.accumulate = accumulate;
              ExpectTheBytesOfRef(*c, type, backends);
            }
          }
        }
      }
    }
  }
}

// vdpbf16ps: of a pair the second element first, each product added with one rounding.
TEST(HalfConformance, AddsTheSecondOfAPairFirst) {
  const float a[] = {1.0f, 1.0f, 0x1p-25f}, b[] = {-1.0f, 1.0f + 0x1p-7f, 1.0f};
  float want = std::fma(a[1], b[1], 0x1p-30f);
  want = std::fma(a[0], b[0], want);
  want = std::fma(a[2], b[2], want);
  EXPECT_EQ(AddPairs(a, b, 0x1p-30f), want);
  const FlushSubnormals flush;
  const float tiny[] = {0x1p-100f};
  EXPECT_EQ(AddPairs(tiny, tiny, 0.0f), 0.0f);
}

// The state after some steps, as bytes, and the gradients that did not fit.
std::string Train(const ModelSpec& model, const char* recipe, std::vector<int> cuts, Steps steps,
                  Backend& backend, Checks checks, double scale = 1) {
  constexpr int64_t kBatch = 5;
  auto net = TestPipeline::Make(model, std::move(cuts), kBatch, &backend, 1, checks, steps, recipe);
  if (!net.ok()) return std::string(net.status().message());
  RangeTally tally;
  StepContext context = {.run_seed = 3,
                         .step_labels = kBatch,
                         .loss_scale = scale,
                         .range = &tally,
                         .learning_rate = 0.05,
                         .momentum = 0.9,
                         .weight_decay = 5e-4};
  for (int step = 0; step < 3; ++step) {
    context.sequence = Sequence(step);
    context.step = step;
    const auto x = RandomValues(3, static_cast<uint64_t>(step), kBatch * model.input.elements());
    const int64_t classes = net->stages.back()->program.output[1];
    const auto labels = RandomLabels(3, static_cast<uint64_t>(step), kBatch, classes);
    const absl::Status trained = net->ForwardBackward(x.data(), labels.data(), context);
    if (!trained.ok()) return std::string(trained.message());
    if (steps == Steps::kApart && !net->Update(context).ok()) return "no update";
  }
  std::string bytes;
  for (const Storage storage : {Storage::kParameters, Storage::kStatistics}) {
    for (const std::vector<float>& tensor : net->Tensors(storage))
      bytes.append(reinterpret_cast<const char*>(tensor.data()), 4 * tensor.size());
  }
  bytes.append(reinterpret_cast<const char*>(net->logits.data()), 4 * net->logits.size());
  return absl::StrCat(bytes, " ", tally.gradients_saturated(), " ", tally.gradient_underflows());
}

// A residual net in small: strides, shortcuts, batch norm.
ModelSpec SmallResidual() {
  const auto norm = [](int32_t input) { return OpOf(OpKind::kBatchNorm, {input}); };
  const auto block = [&](int64_t channels, int64_t stride) {
    return std::vector<OpSpec>{ConvOp(channels, {3, stride, 1}),
                               norm(1),
                               ReluOp(2),
                               ConvOp(channels, {3, 1, 1}, 3),
                               norm(4),
                               ConvOp(channels, {1, stride, 0}),
                               norm(6),
                               OpOf(OpKind::kAdd, {5, 7}),
                               ReluOp(8)};
  };
  return ModelOf({3, 12, 12}, 5,
                 {{ConvOp(8, {3, 1, 1}), norm(1), ReluOp(2)},
                  block(8, 1),
                  block(16, 2),
                  {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(5, {1})}});
}

TEST(HalfConformance, NetsEndWithTheSameWeights) {
  const auto backends = Backends();
  auto ref = *MakeRefBackend(1);
  std::vector<ModelSpec> models = {LeNetModel(), SmallResidual()};
  for (uint64_t seed = 1; seed <= 12; ++seed) models.push_back(RandomModel(seed));
  for (const char* recipe : {"bf16", "fp16"}) {
    const double scale = recipe[0] == 'f' ? 1024 : 1;
    for (const ModelSpec& model : models) {
      SCOPED_TRACE(absl::StrCat(recipe, ", ", model.name));
      const auto train = [&](std::vector<int> cuts, Steps steps, Backend& backend) {
        return Train(model, recipe, std::move(cuts), steps, backend, Checks::kOn, scale);
      };
      const std::string want = train({}, Steps::kApart, *ref);
      ASSERT_GT(want.size(), 100) << want;
      for (const auto& backend : backends) {
        EXPECT_TRUE(train({}, Steps::kApart, *backend) == want);
        EXPECT_TRUE(train({}, Steps::kAlone, *backend) == want);
        if (model.layer_count() < 3) continue;
        EXPECT_TRUE(train({1, model.layer_count() - 1}, Steps::kApart, *backend) == want);
      }
    }
  }
}

// The update takes the scale out: what is left are the gradients that become 0, or are held. Without
// it the second run's steps would be twice as long.
TEST(HalfConformance, TheLossScaleIsTakenOutOfTheUpdate) {
  auto cpu = *MakeCpuBackend(1);
  const auto at = [&](double scale) {
    return Train(LeNetModel(), "fp16", {}, Steps::kApart, *cpu, Checks::kOff, scale);
  };
  const auto counts = [](const std::string& bytes) {
    const std::vector<std::string> words = absl::StrSplit(bytes, ' ');
    return std::pair(std::stoll(words[words.size() - 2]), std::stoll(words.back()));
  };
  const std::string small = at(0x1p-12), large = at(1 << 12), twice = at(1 << 13),
                    most = at(1 << 24);
  EXPECT_GT(counts(small).second, 10 * counts(large).second);
  EXPECT_EQ(counts(large).first, 0);
  EXPECT_GT(counts(most).first, 0);
  ASSERT_EQ(large.substr(0, 4000).size(), 4000);
  for (size_t i = 0; i < 4000; i += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, large.data() + i, sizeof(a));
    std::memcpy(&b, twice.data() + i, sizeof(b));
    EXPECT_NEAR(a, b, 1e-6) << i;
  }
}

// Boundaries, the stash and the gradients between operators have half of the bytes.
TEST(HalfConformance, TakesHalfOfTheMemory) {
  const auto memory = [](const char* recipe) {
    const auto program = CompileStage(LeNetModel(), 1, 2, 16, **FindRecipe(recipe));
    return program.ok() ? program->stash_bytes + program->input_bytes + program->output_bytes +
                              program->input_gradient_bytes + program->output_gradient_bytes
                        : 0;
  };
  EXPECT_GT(memory("bf16"), 0);
  EXPECT_LE(memory("bf16"), memory("fp32") * 0.65);
}

// In one line, with what to take instead.
TEST(HalfConformance, OtherBackendsAreRefused) {
  BackendTraits torch;
  torch.name = "torch";
  EXPECT_EQ(CompileOptionsFor(torch, **FindRecipe("bf16"), {}).status().message(),
            "recipe bf16: backend torch does not compute in bf16; take --backend cpu or ref");
}

}  // namespace
}  // namespace runnel::half_conformance_test
