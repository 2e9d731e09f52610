#pragma once

// The bytes of a boundary tensor in memory that no kernel answers for: values that came with it, and
// gaps up to the next multiple of 64 bytes. Without a codec a tensor travels as it lies, so both
// leave and enter the worker here. Pure functions; any thread.

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/number_format.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Before a stage writes a tensor that it gives on: zeros in its gaps, and what a row admits in place
// of the values beside it, which the stage need not write.
void PrepareBoundary(const NumberFormat& numbers, Direction direction, const Shape& shape,
                     absl::Span<std::byte> tensor);

// Checks a tensor before a stage reads it: elements of floats may have any value. InvalidArgument: it
// has fewer than its BoundaryBytes, a scaled tensor has an exponent that kScaleExponent does not admit or
// an int8 element of -128, or SideValue::Check has an error.
absl::Status CheckBoundary(const NumberFormat& numbers, Direction direction, const Shape& shape,
                           absl::Span<const std::byte> tensor);

}  // namespace runnel
