// Tensors on the levels of MLS (kernels/ir/arithmetic/multi_level.h), as host::PutOnLevels has it.

#include "kernels/ir/arithmetic/multi_level.h"

#include <algorithm>
#include <cmath>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/host/grid_kernels.h"

namespace runnel::cpu {
namespace {

class LevelGroups {
 public:
  explicit LevelGroups(const Call& call)
      : call_(call),
        size_(host::GroupSizeOf(*call.instruction, call.in_shape(0))),
        largest_(LargestOf(WholeRange(call))) {
    const GridRule& grid = call.instruction->grid;
    const MultiLevelFormat format = {grid.exponent_bits, grid.bits};
    bounds_ = {format.least_exponent(), format.mantissa_bits, format.largest()};
  }

  float largest() const { return largest_; }
  // draws: of each element, or null for the nearest. Whole groups.
  void Put(int64_t begin, int64_t count, const uint32_t* draws) const {
    const GridLoops& loops = *call_.machine.grids;
    LevelBounds bounds = bounds_;
    for (int64_t i = 0; i < count; i += size_) {
      const float* x = call_.in(0) + begin + i;
      bounds.scale = GroupScale(LargestOf(loops.range(x, size_)) / largest_) * largest_;
      loops.levels(x, draws == nullptr ? nullptr : draws + i, size_, bounds,
                   call_.out(0) + begin + i);
    }
  }

 private:
  const Call& call_;
  int64_t size_;
  float largest_;
  LevelBounds bounds_;
};

}  // namespace

absl::Status PutOnLevels(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const Instruction& instruction = *call.instruction;
  const LevelGroups groups(call);
  const int64_t count = call.in_shape(0).elements(), samples = call.in_shape(0)[0];
  if (groups.largest() == 0 || !std::isfinite(groups.largest())) {
    if (call.in(0) != call.out(0)) std::copy_n(call.in(0), count, call.out(0));
    return absl::OkStatus();
  }
  if (instruction.grid.to_nearest) {
    ParallelFor(call.machine, samples, [&](int, int64_t begin, int64_t end) {
      const int64_t row = count / samples;
      groups.Put(begin * row, (end - begin) * row, nullptr);
    });
    return absl::OkStatus();
  }
  const auto put = [&](int, int64_t at, int64_t size, const uint32_t* draws) {
    groups.Put(at, size, draws);
  };
  if (instruction.grid.is_gradient)
    fp32::OverSampleDraws(call, put);
  else
    fp32::OverRoundingDraws(call, instruction.code == OpCode::kMultiLevelWeight ? 1 : 0, put);
  return absl::OkStatus();
}

}  // namespace runnel::cpu
