#include "kernels/backends/hexagon/dsp/product/packed_weights.h"

namespace runnel::hexagon {

uint8_t* PackedWeights(Machine& machine, const DspOp& op, PackedKind kind, uint32_t bytes,
                       bool& fresh) {
  const DspTensor& weights = op.in[1];
  uint8_t* packed = nullptr;
  if (weights.version != 0) {
    const uint32_t tensor = op.packed_key != 0 ? op.packed_key : weights.data;
    const RegionKey key = {tensor, static_cast<uint32_t>(kind), bytes};
    packed = op.kept_place != 0 ? machine.kept.Use(op.kept_place - 1, key, weights.version, fresh)
                                : machine.packed.Use(key, weights.version, fresh);
  }
  if (packed != nullptr) return packed;
  fresh = true;
  return machine.scratch.Take(bytes);
}

}  // namespace runnel::hexagon
