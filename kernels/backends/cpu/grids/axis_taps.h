#pragma once

// Which sources an output of a convolution reads along one axis, and by which taps. Outputs with the
// same taps are a class.

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/backends/cpu/int8/axis.h"

namespace runnel::cpu {

struct AxisTaps {
  struct Tap {
    int64_t source = 0;
    int64_t tap = 0;
  };

  std::vector<std::vector<Tap>> of;     // by output; none of the padding
  std::vector<int64_t> class_of;        // by output
  std::vector<int64_t> first_of_class;  // by class: its first output

  int64_t classes() const { return static_cast<int64_t>(first_of_class.size()); }
  const std::vector<Tap>& OfClass(int64_t c) const { return of[first_of_class[c]]; }
};

// Of the outputs of the forward, or, in the input-gradient, of its inputs. dilation: from a tap to the
// next.
AxisTaps TapsOfAxis(const AxisShape& shape, int64_t dilation, bool input_gradient);

}  // namespace runnel::cpu
