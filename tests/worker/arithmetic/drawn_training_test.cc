// Drawn trainings give the same bytes whatever the memory plan: fused steps in the memory that
// production plans, and in memory plans that are drawn, against instructions one by one in a memory where
// no two values share a byte; and against ref. Draws that no test elsewhere thinks of: a fused step that
// reads what another part of it has overwritten is wrong for some models, batches and plans alone.
//
// Not drawn: gates (LiveSamples moves values by what samples choose, tests/kernels/gates_test.cc), and
// plans where an elementwise instruction lies over a part of its input: OpTraits::in_place allows the
// same place alone.

#include "tests/worker/arithmetic/drawn_training.h"

#include <cmath>
#include <cstring>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/codes/code_kernels.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fused_steps.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/backends/ref/ref_backend.h"
#include "tests/kernels/integer_backends.h"
#include "tests/kernels/rearranged_backend.h"

namespace runnel::drawn_training_test {
namespace {

RearrangedOptions Arranged(Arrangement arrangement, uint64_t seed) {
  return {.rewrite = [=](const Program& program) {
    return Rearrange(program, arrangement, seed + static_cast<uint64_t>(program.batch));
  }};
}

std::unique_ptr<Backend> Cpu(const std::string& set, int threads, bool fused) {
  auto backend = MakeCappedCpuBackend(set, threads, fused);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

std::string InstructionSetOf(uint64_t seed) {
  const std::vector<std::string> sets = CpuInstructionSets();
  return sets[seed / 2 % sets.size()];
}

struct Result {
  NamedBytes seen;
  SeenGradients gradients;
};

// Fails the test where the training cannot run.
Result TrainOn(const DrawnTraining& drawn, Backend& backend, RearrangedOptions options = {}) {
  Result result;
  RearrangedBackend arranged(backend, std::move(options), &result.gradients);
  auto seen = RunTraining(drawn, arranged);
  EXPECT_TRUE(seen.ok()) << seen.status();
  if (seen.ok()) result.seen = *std::move(seen);
  return result;
}

// All losses are numbers: else two results agree in NaN whatever was computed.
bool IsFinite(const Result& result) {
  bool has_loss = false;
  for (const auto& [name, bytes] : result.seen.all()) {
    if (!absl::StrContains(name, "loss")) continue;
    has_loss = true;
    double loss = 0;
    if (bytes.size() != sizeof loss) return false;
    std::memcpy(&loss, bytes.data(), sizeof loss);
    if (!std::isfinite(loss)) return false;
  }
  return has_loss;
}

// Of training, and of gradients by stage: but of those that step in their backward on one side.
std::string DifferenceOf(const Result& a, const Result& b) {
  for (const auto& [program, left] : a.gradients.bytes) {
    const auto other = b.gradients.bytes.find(program);
    if (other == b.gradients.bytes.end()) continue;
    const std::vector<std::string>& right = other->second;
    const auto text = [&, layer = program.first](const std::string& what) {
      return absl::StrCat(what, " of the stage from layer ", layer, "; ",
                          FirstDifference(a.seen, b.seen));
    };
    if (left.size() != right.size())
      return text(absl::StrCat(left.size(), " and ", right.size(), " gradients"));
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] != right[i]) return text(absl::StrCat("gradient ", i));
    }
  }
  return FirstDifference(a.seen, b.seen);
}

TEST(DrawnTraining, FusedStepsGiveTheBytesOfInstructionsInMemoryThatNobodyShares) {
  std::vector<uint64_t> seeds = SeedsOf(60);
  // A batch norm's sum lies over what is added; a window of one tap with stride and padding whose
  // output is as long as its input.
  seeds.insert(seeds.end(), {205, 251});
  size_t finite = 0;
  for (const uint64_t seed : seeds) {
    const DrawnTraining drawn = DrawTraining(seed);
    const std::string set = InstructionSetOf(seed);
    const auto threads = static_cast<int>(1 + seed % 3);
    SCOPED_TRACE(absl::StrCat(drawn.text(), ", ", set, ", threads ", threads));
    const auto plain = Cpu(set, 1, false), fused = Cpu(set, threads, true);
    RearrangedOptions apart = Arranged(Arrangement::kSpread, seed);
    apart.masks_stash = seed % 2 == 0;
    const Result spread = TrainOn(drawn, *plain, apart);
    finite += IsFinite(spread) ? 1 : 0;
    EXPECT_EQ(DifferenceOf(spread, TrainOn(drawn, *fused)), "") << "as production plans";
    for (const uint64_t plan : {0, 1, 2}) {
      const Arrangement arrangement = plan < 2 ? Arrangement::kDrawn : Arrangement::kLoose;
      const Result drawn_plan = TrainOn(drawn, *fused, Arranged(arrangement, 1000 * seed + plan));
      EXPECT_EQ(DifferenceOf(spread, drawn_plan), "") << "plan " << plan;
    }
    const Result one_by_one = TrainOn(drawn, *plain, Arranged(Arrangement::kLoose, seed));
    EXPECT_EQ(DifferenceOf(spread, one_by_one), "") << "one by one";
  }
  EXPECT_GE(10 * finite, 9 * seeds.size()) << "trainings that do not diverge";
}

// Batches of several blocks: one part of a step has overwritten some images before another part comes to
// them.
TEST(DrawnTraining, BlocksOfImagesGiveTheBytesOfWholeBatches) {
  const TrainingDraw draw = {.recipes = {"fp32"}, .blocks = true};
  for (const uint64_t seed : SeedsOf(40)) {
    const DrawnTraining drawn = DrawTraining(seed, draw);
    const std::string set = CpuInstructionSets().front();
    SCOPED_TRACE(drawn.text());
    const auto plain = Cpu(set, 1, false), fused = Cpu(set, static_cast<int>(1 + seed % 2), true);
    const Result spread = TrainOn(drawn, *plain, Arranged(Arrangement::kSpread, seed));
    EXPECT_EQ(DifferenceOf(spread, TrainOn(drawn, *fused)), "") << "as production plans";
    for (uint64_t plan = 0; plan < 4; ++plan) {
      const Result drawn_plan =
          TrainOn(drawn, *fused, Arranged(Arrangement::kDrawn, 1000 * seed + plan));
      EXPECT_EQ(DifferenceOf(spread, drawn_plan), "") << "plan " << plan;
    }
  }
}

// ---- against ref

const float* FloatsOf(const std::string& bytes) {
  return reinterpret_cast<const float*>(bytes.data());
}

// |a - b| / |b| of all values together; 0 where b is.
double RelativeError(const std::string& a, const std::string& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < b.size() / sizeof(float); ++i) {
    const double x = FloatsOf(a)[i], y = FloatsOf(b)[i];
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

TEST(DrawnTraining, ExactRecipesGiveTheBytesOfRef) {
  const TrainingDraw draw = {.recipes = {"niti", "niti", "bf16", "fp16"}, .large = false};
  for (const uint64_t seed : SeedsOf(40)) {
    const DrawnTraining drawn = DrawTraining(seed, draw);
    const std::string set = InstructionSetOf(seed);
    SCOPED_TRACE(absl::StrCat(drawn.text(), ", ", set));
    const auto ref = *MakeRefBackend(1);
    const auto fused = Cpu(set, 2, true);
    const Result spread = TrainOn(drawn, *ref, Arranged(Arrangement::kSpread, seed));
    ASSERT_EQ(FirstDifference(spread.seen, TrainOn(drawn, *fused).seen), "");
    ASSERT_EQ(FirstDifference(spread.seen,
                              TrainOn(drawn, *fused, Arranged(Arrangement::kDrawn, seed)).seen),
              "");
  }
}

// Before the first update, so that nothing but rounding differs.
TEST(DrawnTraining, Fp32IsNearRef) {
  const TrainingDraw draw = {.recipes = {"fp32"}};
  for (const uint64_t seed : SeedsOf(24)) {
    const DrawnTraining drawn = DrawTraining(seed, draw);
    const std::string set = InstructionSetOf(seed);
    SCOPED_TRACE(absl::StrCat(drawn.text(), ", ", set));
    const auto ref = *MakeRefBackend(1);
    const auto fused = Cpu(set, 1, true);
    const Result wanted = TrainOn(drawn, *ref, Arranged(Arrangement::kSpread, seed));
    const Result got = TrainOn(drawn, *fused);
    ASSERT_EQ(wanted.seen.all().size(), got.seen.all().size());
    for (size_t i = 0; i < wanted.seen.all().size(); ++i) {
      const auto& [name, bytes] = wanted.seen.all()[i];
      if (name.find("micro-batch 0") == std::string::npos || name.find("loss") == 0) continue;
      EXPECT_LT(RelativeError(got.seen.all()[i].second, bytes), 1e-3) << name;
    }
  }
}

// ---- dead values

const cpu::KernelRow* FindKernel(OpCode code) {
  for (const auto rows :
       {fp32::KernelRows(), cpu::IntegerKernels(), cpu::CodeKernels(), cpu::GridKernels()}) {
    for (const cpu::KernelRow& row : rows) {
      if (row.code == code) return &row;
    }
  }
  return nullptr;
}

cpu::StepPlan StepsOf(const Program& program) {
  return cpu::FuseSteps(program, cpu::PlanLayout(program, FindKernel).value());
}

BoundaryFn Everywhere(const Program&) {
  return [](Part, size_t) { return true; };
}

// Between fused steps, but not where one of them takes along what the next one begins with.
BoundaryFn BetweenSteps(const Program& program) {
  if (IsHalf(program.values)) return Everywhere(program);
  std::array<std::vector<bool>, kPartCount> is_boundary;
  const cpu::StepPlan plan = StepsOf(program);
  for (size_t part = 0; part < kPartCount; ++part) {
    const std::vector<Instruction>& instructions = program.parts[part];
    is_boundary[part].resize(instructions.size() + 1);
    size_t taken = 0;  // instructions in front of this one belong to steps so far
    for (const cpu::Step& step : plan[part]) {
      const auto first =
          static_cast<size_t>(step.parts.front().planned.instruction - instructions.data());
      is_boundary[part][first] = first >= taken;
      for (const cpu::StepPart& p : step.parts) {
        const auto at = static_cast<size_t>(p.planned.instruction - instructions.data());
        taken = std::max(taken, at + 1);
      }
    }
    is_boundary[part][instructions.size()] = true;
  }
  return [is_boundary](Part part, size_t i) { return is_boundary[static_cast<size_t>(part)][i]; };
}

struct PoisonCase {
  std::string name;  // of the backend
  TrainingDraw draw;
  uint64_t count = 0;
};

void ExpectPoisonChangesNothing(const PoisonCase& c, Backend& backend,
                                const std::function<BoundaryFn(const Program&)>& boundaries) {
  std::vector<uint64_t> seeds = SeedsOf(c.count);
  seeds.push_back(119);  // a window that reads no pixel
  for (const uint64_t seed : seeds) {
    const DrawnTraining drawn = DrawTraining(seed, c.draw);
    SCOPED_TRACE(absl::StrCat(c.name, ", ", drawn.text()));
    const auto pure = RunTraining(drawn, backend);
    ASSERT_TRUE(pure.ok()) << pure.status();
    ASSERT_EQ(FirstDifference(*pure, TrainOn(drawn, backend, {.boundaries = boundaries}).seen), "");
    RearrangedOptions both = Arranged(Arrangement::kDrawn, seed);
    both.boundaries = boundaries;
    ASSERT_EQ(FirstDifference(*pure, TrainOn(drawn, backend, std::move(both)).seen), "")
        << "drawn plan";
  }
}

TEST(DeadValues, AreReadByNoInstructionOfHostBackends) {
  const TrainingDraw all = {.large = false};
  const auto ref = *MakeRefBackend(1);
  ExpectPoisonChangesNothing({"ref", all, 30}, *ref, Everywhere);
  const std::vector<std::string> sets = CpuInstructionSets();
  for (const std::string& set : {sets.front(), sets.back()}) {
    const auto cpu = Cpu(set, 1, false);
    ExpectPoisonChangesNothing({"cpu:" + set, all, 30}, *cpu, Everywhere);
  }
  const TrainingDraw floats = {
      .recipes = {"fp32", "fp32", "bf16", "fp16"}, .large = false, .plain = true};
  const auto small = *MakeBackend("small", 1);
  ExpectPoisonChangesNothing({"small", floats, 16}, *small, Everywhere);
}

TEST(DeadValues, AreReadByNoFusedStep) {
  const auto cpu = Cpu(CpuInstructionSets().front(), 2, true);
  ExpectPoisonChangesNothing({"cpu, fused", {}, 40}, *cpu, BetweenSteps);
}

// Processors beside the host's that this build has backends for: each must be there, an OpenCL driver
// (PoCL) and the DSP's emulator too.
std::vector<std::string> DevicesOfBuild() {
  std::vector<std::string> names;
#ifdef RUNNEL_BUILDS_DSP
  names.emplace_back("hexagon/1");
#endif
#ifdef RUNNEL_BUILDS_OPENCL
  names.emplace_back("opencl/1");
#endif
  return names;
}

TEST(DeadValues, AreReadByNoInstructionOfDevices) {
  const TrainingDraw integers = {.recipes = {"niti"}, .large = false, .plain = true};
  const std::vector<std::string> devices = DevicesOfBuild();
  if (devices.empty()) GTEST_SKIP() << "this build has neither the DSP nor OpenCL";
  for (const std::string& name : devices) {
    auto backend = MakeIntegerBackend(name);
    ASSERT_TRUE(backend.ok()) << name << " is built, so its device must be here: "
                              << backend.status();
    ExpectPoisonChangesNothing({name, integers, 8}, **backend, Everywhere);
  }
}

// Equal bytes say nothing where no step is fused, or where the copies over dead values part the steps.
TEST(DeadValues, AreDestroyedBetweenStepsThatStayWhole) {
  int64_t copies = 0, fused = 0;
  const auto count_fused = [](const Program& program) {
    int64_t count = 0;
    for (const auto& steps : StepsOf(program)) {
      for (const cpu::Step& step : steps) count += step.parts.size() > 1 ? 1 : 0;
    }
    return count;
  };
  RearrangedOptions options = {.rewrite = [&](const Program& program) -> absl::StatusOr<Program> {
    if (IsHalf(program.values)) return program;
    int64_t at = 0;
    const BoundaryFn boundaries = BetweenSteps(program);
    auto poisoned = PoisonDeadValues(program, boundaries, &at);
    if (!poisoned.ok()) return poisoned.status();
    copies += static_cast<int64_t>(poisoned->buffers.size() - program.buffers.size()) / 2;
    fused += count_fused(program);
    EXPECT_EQ(count_fused(*poisoned), count_fused(program));
    return program;
  }};
  const auto cpu = Cpu(CpuInstructionSets().front(), 1, true);
  RearrangedBackend backend(*cpu, options);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const DrawnTraining drawn = DrawTraining(seed);
    SCOPED_TRACE(drawn.text());
    EXPECT_TRUE(TrainingRun::Create(drawn, backend).ok());
  }
  EXPECT_GT(copies, 200);
  EXPECT_GT(fused, 100);
}

// ---- whether the draws can find what they are for

bool LiesOverAPart(const Buffer& a, const Buffer& b) {
  return a.storage == b.storage && a.offset_bytes < b.offset_bytes + b.bytes() &&
         b.offset_bytes < a.offset_bytes + a.bytes() && a.offset_bytes != b.offset_bytes;
}

// Pairs of a convolution's gradients whose input-gradient lies over a part of the input.
TEST(DrawnPlans, LayInputGradientsOverPartsOfInputs) {
  int64_t pairs = 0;
  RearrangedOptions options = {.rewrite = [&](const Program& program) -> absl::StatusOr<Program> {
    auto drawn = Rearrange(program, Arrangement::kDrawn, static_cast<uint64_t>(program.batch));
    if (!drawn.ok()) return drawn.status();
    for (const auto& part : drawn->parts) {
      for (size_t i = 0; i + 1 < part.size(); ++i) {
        if (part[i].code != OpCode::kConvWeightGradient ||
            part[i + 1].code != OpCode::kConvInputGradient)
          continue;
        const auto buffer = [&](BufferIndex b) { return drawn->buffers[static_cast<size_t>(b)]; };
        pairs += LiesOverAPart(buffer(part[i + 1].outputs[0]), buffer(part[i].inputs[1])) ? 1 : 0;
      }
    }
    return *std::move(drawn);
  }};
  const auto cpu = Cpu(CpuInstructionSets().front(), 1, true);
  RearrangedBackend backend(*cpu, options);
  const TrainingDraw draw = {.recipes = {"fp32"}};
  for (uint64_t seed = 1; seed <= 100; ++seed)
    EXPECT_TRUE(TrainingRun::Create(DrawTraining(seed, draw), backend).ok());
  std::cout << pairs << " pairs\n";
  EXPECT_GE(pairs, 10);
}

}  // namespace
}  // namespace runnel::drawn_training_test
