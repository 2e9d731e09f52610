#pragma once

// What changed of bytes that are mostly as they were: of what an encoder keeps of all samples a few rows
// between two barriers. In blocks that begin at multiples of kChangedBlockBytes; the last may be shorter.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

inline constexpr size_t kChangedBlockBytes = 4096;

// Blocks of `bytes` that `base` has not at the same place, each as its number (32 bits,
// little-endian) and its bytes, in ascending order.
std::string ChangedBlocks(absl::string_view base, absl::string_view bytes);

// The `size` bytes of which `changes` are ChangedBlocks(base, bytes). InvalidArgument: they are
// changes of no such bytes.
absl::StatusOr<std::string> WithChangedBlocks(absl::string_view base, size_t size,
                                              absl::string_view changes);

}  // namespace runnel
