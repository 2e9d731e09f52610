#pragma once

// An encoder's state that is a vector of floats: a tag of 4 bytes, the count as 64 bits, the floats,
// a tail; little-endian. Pure functions; any thread.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

// Empty for no values. `tag` and `tail` tell one encoder's states from another's.
std::string SaveFloats(absl::string_view tag, absl::Span<const float> values,
                       absl::string_view tail = "");

// What SaveFloats got. InvalidArgument with the name of the codec for other bytes, for another tag
// or tail, and for a value that is NaN or infinite.
absl::StatusOr<std::vector<float>> RestoreFloats(absl::string_view codec, absl::string_view tag,
                                                 absl::string_view state,
                                                 absl::string_view tail = "");

}  // namespace runnel
