#pragma once

// What a kInt8ProductToCodes says (kernels/ir/arithmetic/code_rule.h), without its values.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

// Borrowed. CodeProduct copies what it needs beyond its constructor.
struct ProductSpec {
  ConvShape shape;                   // of one sample
  absl::Span<const int8_t> weights;  // OHWI
  const CodeRule* rule = nullptr;
  absl::Span<const CodeChannel> channels;  // by output channel
  const CodeRule* addition = nullptr;      // or null
  bool gives_sums = false;
  bool winograd = false;

  // The largest magnitude of the input's codes.
  int64_t most_input() const { return rule->factor_a > 0 ? rule->factor_a : 127; }
  bool has_weight_zeros() const {
    for (const CodeChannel& channel : channels) {
      if (channel.weight_zero != 0) return true;
    }
    return false;
  }
};

}  // namespace runnel::cpu
