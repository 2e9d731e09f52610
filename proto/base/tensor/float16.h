#pragma once

// IEEE 754 binary16, the row `f16` of the number types. Any thread.

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace runnel {

// Exact. The parameters and results are those of NumberType.
void Float16ToFloat(absl::Span<const std::byte> elements, int32_t exponent,
                    absl::Span<float> values);
// To nearest even; from 65520 on infinite; NaN stays NaN.
int32_t FloatToFloat16(absl::Span<const float> values, absl::Span<std::byte> elements);

}  // namespace runnel
