#pragma once

// The layers of VGG-11 for images of 32x32 as operations of the DSP, for what is counted of them.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/hexagon/shared_memory.h"
#include "proto/base/model/number_format.h"

namespace runnel::hexagon {

enum class Pass : uint8_t { kForward, kInputGradient, kWeightGradient };
inline constexpr const char* kPassNames[] = {"forward", "input_gradient", "weight_gradient"};

struct Layer {
  const char* name;
  int in, out;  // channels
  int side;     // of an image; 0: a linear layer
};
inline constexpr Layer kC1 = {"c1_3_64_32x32", 3, 64, 32};
inline constexpr Layer kC2 = {"c2_64_128_16x16", 64, 128, 16};
inline constexpr Layer kC3 = {"c3_128_256_8x8", 128, 256, 8};
inline constexpr Layer kC4 = {"c4_256_256_8x8", 256, 256, 8};
inline constexpr Layer kC5 = {"c5_256_512_4x4", 256, 512, 4};
inline constexpr Layer kC6 = {"c6_512_512_4x4", 512, 512, 4};
inline constexpr Layer kC7 = {"c7_512_512_2x2", 512, 512, 2};  // and c8
inline constexpr Layer kFc = {"fc_512_10", 512, 10, 0};
// Of no VGG-11 for small images: a linear layer as wide as its last convolutions.
inline constexpr Layer kLinear = {"linear_512_512", 512, 512, 0};

inline DspCode CodeOf(const Layer& layer, Pass pass) {
  constexpr DspCode kCodes[2][3] = {
      {DspCode::kConvForward, DspCode::kConvInputGradient, DspCode::kConvWeightGradient},
      {DspCode::kLinearForward, DspCode::kLinearInputGradient, DspCode::kLinearWeightGradient}};
  return kCodes[layer.side == 0 ? 1 : 0][static_cast<int>(pass)];
}

// Tensors and operations of a layer, in the memory of a session.
class LayerBench {
 public:
  explicit LayerBench(SharedMemory& memory) : memory_(memory) {}

  DspTensor MakeTensor(uint32_t elements, uint32_t bytes, uint64_t version) {
    const uint32_t tail = (elements * bytes + 63) / 64 * 64;
    areas_.push_back(*memory_.Allocate(tail + kTailBytes));
    for (uint32_t i = 0; i < elements * bytes; ++i) {
      areas_.back()->address()[i] = static_cast<std::byte>(i * 2654435761u >> 25);
    }
    const uint32_t at = memory_.OffsetOf(areas_.back()->address());
    return DspTensor{at, at + tail, elements, bytes, version};
  }

  DspTensor MakeScaled(uint32_t elements, uint32_t bytes, int32_t exponent) {
    const DspTensor tensor = MakeTensor(elements, bytes, 0);
    const ScaleTail tail = {.exponent = exponent, .max_abs = 1 << 20};
    std::memcpy(areas_.back()->address() + (tensor.tail - tensor.data), &tail, sizeof(tail));
    return tensor;
  }

  DspOp MakeOp(const Layer& layer, Pass pass, int batch) {
    const int side = layer.side == 0 ? 1 : layer.side;
    const int kernel = layer.side == 0 ? 1 : 3;
    DspOp op;
    op.code = CodeOf(layer, pass);
    op.x = {batch, layer.in, side, side};
    op.y = {batch, layer.out, side, side};
    op.window = {kernel, kernel, 1, 1, kernel / 2, kernel / 2};
    const uint32_t pixels = batch * side * side;
    const uint32_t weights = uint32_t(layer.in) * layer.out * kernel * kernel;
    if (weights_.elements == 0) weights_ = MakeTensor(weights, 1, 1);
    const uint32_t x = pixels * layer.in, y = pixels * layer.out;
    op.in[0] = MakeTensor(pass == Pass::kForward ? x : y, 1, 0);
    op.in[1] = pass == Pass::kWeightGradient ? MakeTensor(x, 1, 0) : weights_;
    const uint32_t results[] = {y, x, weights};
    op.out[0] = MakeTensor(results[static_cast<int>(pass)], 4, 0);
    return op;
  }

 private:
  SharedMemory& memory_;
  std::vector<std::unique_ptr<Memory>> areas_;
  DspTensor weights_;
};

}  // namespace runnel::hexagon
