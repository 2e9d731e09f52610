#pragma once

// The envelope of our binary files: 8 bytes magic, version u32, payload length u64 (both
// little-endian), 32 bytes SHA-256 of the payload, then the payload. Pure functions; any thread.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

struct SealedFormat {
  absl::string_view magic;  // 8 bytes
  uint32_t version = 1;
  absl::string_view what;  // "check-point": for errors
};

inline constexpr int64_t kSealBytes = 8 + 4 + 8 + 32;

// The header in front of `payload`.
std::string Seal(const SealedFormat& format, absl::string_view payload);

// The payload of a file's content, which it points into. Errors go on where "check-point PATH "
// ends: InvalidArgument "is no check-point (...)"; DataLoss: truncated or damaged; Unimplemented:
// another version.
absl::StatusOr<absl::string_view> OpenSealed(const SealedFormat& format, absl::string_view content);

}  // namespace runnel
