#include "worker/replication/summed_state.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

uint32_t Extend(uint32_t sum, const std::string& bytes) {
  return Crc32(sum,
               absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

StateSums SumsOf(const ModelState& state) {
  StateSums sums;
  for (const LayerState& layer : state.layers) sums.layers.push_back(SumOf(layer));
  sums.encoders = SumOf(state.encoders);
  return sums;
}

}  // namespace

SummedState::SummedState(ModelState of) : state(std::move(of)), sums(SumsOf(state)) {}

uint32_t SumOf(const LayerState& layer) {
  uint32_t sum = 0;
  for (const TensorData& tensor : layer.tensors) sum = Extend(sum, tensor.bytes);
  for (const TensorData& slot : layer.slots) sum = Extend(sum, slot.bytes);
  return sum;
}

uint32_t SumOf(const std::vector<EncoderState>& encoders) {
  uint32_t sum = 0;
  for (const EncoderState& encoder : encoders) sum = Extend(sum, encoder.state);
  return sum;
}

}  // namespace runnel
