#include "kernels/hexagon/dsp/packed_weights.h"

namespace runnel::hexagon {
namespace {

struct Entry {
  uint32_t data;
  PackedKind kind;
  uint32_t bytes;
  uint64_t version;
  uint8_t* packed;
};
constexpr int kMaxEntries = 512;
Entry entries[kMaxEntries];
int entry_count = 0;

}  // namespace

uint8_t* PackedWeights(Machine& machine, const DspTensor& weights, PackedKind kind, uint32_t bytes,
                       bool& fresh) {
  fresh = true;
  if (weights.version == 0) return machine.scratch.Take(bytes);
  for (int i = 0; i < entry_count; ++i) {
    Entry& entry = entries[i];
    if (entry.data != weights.data || entry.kind != kind || entry.bytes != bytes) continue;
    fresh = entry.version != weights.version;
    entry.version = weights.version;
    return entry.packed;
  }
  uint8_t* packed = entry_count < kMaxEntries ? machine.packed.Take(bytes) : nullptr;
  if (packed == nullptr) {
    // All of them are made again as they are needed.
    machine.packed.Reset();
    entry_count = 0;
    packed = machine.packed.Take(bytes);
    if (packed == nullptr) return machine.scratch.Take(bytes);
  }
  entries[entry_count++] = {weights.data, kind, bytes, weights.version, packed};
  return packed;
}

}  // namespace runnel::hexagon
