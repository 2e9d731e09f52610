// Who shares memory with whom: the plan of whole stages, and the packer alone.

#include "kernels/ir/memory_plan.h"

#include <array>
#include <iostream>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/stage/stage_builder.h"
#include "proto/base/random.h"
#include "tests/kernels/random_model.h"

namespace runnel::memory_plan_test {
namespace {

constexpr uint64_t kSeeds = 800;
constexpr int64_t kBatch = 3;

bool Planned(const Buffer& buffer) {
  return buffer.storage == Storage::kStash || buffer.storage == Storage::kScratch;
}

bool Overlap(const Buffer& a, const Buffer& b) {
  return a.storage == b.storage && a.offset_bytes < b.offset_bytes + b.bytes() &&
         b.offset_bytes < a.offset_bytes + a.bytes();
}

void CheckOutput(const Program& program, const Instruction& instruction, BufferIndex out) {
  const Buffer& written = program.buffers[out];
  ASSERT_EQ(written.offset_bytes % 64, 0);
  if (Planned(written)) {
    ASSERT_LE(written.offset_bytes + written.bytes(),
              written.storage == Storage::kStash ? program.stash_bytes : program.scratch_bytes);
  }
  for (BufferIndex in : instruction.inputs) {
    if (!Overlap(written, program.buffers[in])) continue;
    ASSERT_TRUE(TraitsOf(instruction.code).in_place) << Name(instruction.code);
    ASSERT_EQ(written.offset_bytes, program.buffers[in].offset_bytes);
  }
  for (BufferIndex other : instruction.outputs) {
    if (other == out) continue;
    ASSERT_FALSE(Overlap(written, program.buffers[other]));
  }
}

// Each read sees the very value that it saw before anything had a place: whoever wrote to those
// bytes last wrote this value. `draft` has the copies that the plan made views of.
void CheckLifetimes(const Program& draft, const Program& program) {
  std::vector<BufferIndex> value(draft.buffers.size());
  std::iota(value.begin(), value.end(), 0);
  constexpr Part kParts[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient};
  for (Part part : kParts) {
    for (const Instruction& instruction : draft.part(part)) {
      if (instruction.code != OpCode::kCopy) continue;
      value[instruction.outputs[0]] = value[instruction.inputs[0]];
    }
  }
  std::vector<BufferIndex> written;  // in order
  for (Part part : kParts) {
    for (const Instruction& instruction : program.part(part)) {
      for (BufferIndex in : instruction.inputs) {
        BufferIndex writer = -1;
        for (BufferIndex out : written) {
          if (Overlap(program.buffers[out], program.buffers[in])) writer = out;
        }
        if (writer < 0) {
          ASSERT_FALSE(Planned(program.buffers[in])) << "reads what nobody wrote";
          continue;
        }
        ASSERT_EQ(value[writer], value[in]) << Name(instruction.code) << "\n" << ToString(program);
      }
      for (BufferIndex out : instruction.outputs) {
        CheckOutput(program, instruction, out);
        written.push_back(out);
      }
    }
  }
}

TEST(MemoryPlan, MemoryPlanKeepsLiveValuesApart) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ModelSpec model = RandomModel(seed);
    const auto infos = InferShapes(model, kBatch);
    ASSERT_TRUE(infos.ok()) << infos.status();
    for (int first = 0; first < model.layer_count(); ++first) {
      for (int last = first; last < model.layer_count(); ++last) {
        auto draft = DraftStage(model, *infos, first, last, **FindRecipe("fp32"), {});
        auto program = CompileStage(model, first, last, kBatch, **FindRecipe("fp32"));
        ASSERT_TRUE(draft.ok() && program.ok()) << program.status();
        CheckLifetimes(draft->program, *program);
      }
    }
  }
}

// The packer alone, against a list of everything that it placed.
TEST(AreaPlan, NeverOverlapsAndReusesGaps) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const CounterRandom random(seed, RandomPurpose::kTest, 4, 0);
    struct Placed {
      int64_t begin, end;
      int first, last;
    };
    std::vector<Placed> all;
    AreaPlan area;
    int64_t sum = 0;
    for (int i = 0; i < 100; ++i) {
      const int64_t bytes = 1 + random.Below(3 * i, 1000);
      const int first = static_cast<int>(random.Below(3 * i + 1, 50));
      const int last = first + static_cast<int>(random.Below(3 * i + 2, 6));
      const int64_t begin = area.Place(bytes, first, last, int64_t{1} << 40);
      ASSERT_EQ(begin % 64, 0);
      for (const Placed& p : all) {
        ASSERT_FALSE(p.first <= last && first <= p.last && p.begin < begin + bytes && begin < p.end)
            << "seed " << seed;
      }
      all.push_back({begin, begin + bytes, first, last});
      sum += bytes;
    }
    EXPECT_LT(area.size_bytes(), sum / 3) << "seed " << seed;
    EXPECT_EQ(area.Place(area.size_bytes() + 1, 0, 100, area.size_bytes()), AreaPlan::kNoGap);
  }
}

TEST(MemoryPlan, MemoryIsReused) {
  std::vector<std::vector<int64_t>> scratch, stash;
  for (int depth : {2, 8, 32}) {
    std::vector<OpSpec> relus, linears;
    for (int i = 0; i < depth; ++i) {
      relus.push_back(OpOf(OpKind::kRelu, {i}));
      linears.push_back(LinearOp(256, {2 * i}));
      linears.push_back(OpOf(OpKind::kRelu, {2 * i + 1}));
    }
    const ModelSpec chain = ModelOf({256}, 10, {{LinearOp(256)}, relus, {LinearOp(10)}});
    const ModelSpec net = ModelOf({256}, 10, {{LinearOp(256)}, linears, {LinearOp(10)}});
    scratch.push_back({});
    stash.push_back({});
    for (const ModelSpec* model : {&chain, &net}) {
      auto program = CompileStage(*model, 1, 1, 64, **FindRecipe("fp32"));
      ASSERT_TRUE(program.ok());
      std::cout << (model == &chain ? "relu x " : "linear, relu x ") << depth << ": stash "
                << program->stash_bytes << " B, scratch " << program->scratch_bytes << " B\n";
      scratch.back().push_back(program->scratch_bytes);
      stash.back().push_back(program->stash_bytes);
    }
  }
  const int64_t tensor = 64 * 256 * 4;
  for (int i = 0; i < 3; ++i) {
    const int64_t depth = std::array{2, 8, 32}[i];
    EXPECT_LE(scratch[i][0], tensor);
    EXPECT_EQ(stash[i][0], (depth - 1) * tensor);  // the last output is the caller's
    EXPECT_EQ(stash[i][1], (depth - 1) * tensor);  // relu works over what linear wrote
    EXPECT_LE(scratch[i][1], (depth + 1) * tensor);
  }
}

}  // namespace
}  // namespace runnel::memory_plan_test
