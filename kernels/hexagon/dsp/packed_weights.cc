#include "kernels/hexagon/dsp/packed_weights.h"

namespace runnel::hexagon {

uint8_t* PackedWeights(Machine& machine, const DspTensor& weights, PackedKind kind, uint32_t bytes,
                       bool& fresh) {
  uint8_t* packed = nullptr;
  if (weights.version != 0) {
    const RegionKey key = {weights.data, static_cast<uint32_t>(kind), bytes};
    packed = machine.packed.Use(key, weights.version, fresh);
  }
  if (packed != nullptr) return packed;
  fresh = true;
  return machine.scratch.Take(bytes);
}

}  // namespace runnel::hexagon
