#include "kernels/backends/hexagon/weight_places.h"

#include "kernels/backends/hexagon/encode.h"
#include "kernels/backends/hexagon/packed_sizes.h"

namespace runnel::hexagon {

WeightPlaces::WeightPlaces(const Program& program) {
  for (const Part part : {Part::kForward, Part::kInputGradient}) {
    for (const Instruction& instruction : program.part(part)) {
      if (!DspCodeOf(instruction.code)) continue;
      const DspOp op = Encode(
          program, instruction, StepContext(), [](BufferIndex) { return 0u; },
          [](BufferIndex) { return uint64_t{1}; });
      const uint32_t bytes = op.packed_key == 0 ? 0 : PackedBytesOf(op);
      if (bytes > 0 && numbers_.emplace(Key(op.packed_key, op.code), regions_.size()).second)
        regions_.push_back(bytes);
    }
  }
}

void WeightPlaces::PlanFor(uint32_t packed_bytes) {
  if (packed_bytes == planned_for_bytes_) return;
  planned_for_bytes_ = packed_bytes;
  plan_ = PlanEvictions(regions_, packed_bytes);
}

void WeightPlaces::Assign(DspOp& op) const {
  if (plan_.kept_bytes == 0) return;
  const auto number = numbers_.find(Key(op.packed_key, op.code));
  if (number == numbers_.end() || plan_.places[number->second] < 0) return;
  op.kept_place = 1 + static_cast<uint32_t>(plan_.places[number->second]);
}

}  // namespace runnel::hexagon
