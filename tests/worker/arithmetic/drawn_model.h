#pragma once

// Models for drawn trainings: nets of images whose planes are large enough that fused steps take a batch
// in several blocks, and small decoders of text. Pure functions of the draws.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "proto/base/model/model_spec.h"
#include "proto/base/random.h"

namespace runnel {

// A stream of draws.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : random_(seed, RandomPurpose::kTest, 21, stream) {}

  int64_t Below(int64_t bound) { return random_.Below(next_++, static_cast<uint32_t>(bound)); }
  int64_t Between(int64_t least, int64_t most) { return least + Below(most - least + 1); }
  bool Chance(int64_t percent) { return Below(100) < percent; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int64_t>(values.size()))];
  }

 private:
  const CounterRandom random_;
  uint64_t next_ = 0;
};

// What a recipe's models may have.
struct ModelLimits {
  bool norms = true;
  bool biases = true;
  bool odd_windows = true;  // dilation, padding of one side, means over padding
};

// Chains with residual blocks, depthwise, strided and dilated convolutions, pools, batch norm, ReLU
// and ReLU6, parts of channels, linear layers; odd numbers of channels too.
ModelSpec DrawImageModel(Draws& draws, const ModelLimits& limits);
// An embedding, pre-norm blocks of attention and GELU, a head.
ModelSpec DrawTokenModel(Draws& draws);

}  // namespace runnel
