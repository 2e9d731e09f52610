#pragma once

// Errors of a stage that came upon a value that is no finite number.

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/model/number_format.h"
#include "proto/transport/control/control.h"

namespace runnel {

// `status`, marked with where the value came from. Functions that pass a status on keep the mark.
absl::Status MarkNotFinite(absl::Status status, NotFinite from);
// kNothing: `status` says nothing of the kind.
NotFinite NotFiniteOf(const absl::Status& status);

// Whether the elements of a boundary tensor and the FP32 values beside it are finite. An empty
// tensor has none that isn't.
bool HasNumbers(const NumberFormat& numbers, Direction direction, const Shape& shape,
                absl::Span<const std::byte> tensor);

}  // namespace runnel
