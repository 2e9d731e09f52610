#pragma once

// Small checks of fields from outside. Each error is InvalidArgument and names the field.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/worker_name.h"

namespace runnel {

// Longest name, address or token that a message may carry, in bytes.
inline constexpr size_t kMaxTextBytes = 256;
// Samples, epochs, counts: far above any real one, far below where sums of them overflow.
inline constexpr int64_t kMaxSequence = int64_t{1} << 62;
inline constexpr int64_t kMaxAmount = int64_t{1} << 40;
// Longest reason, for people.
inline constexpr size_t kMaxReasonBytes = 4096;

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high);
absl::Status CheckCount(absl::string_view field, int64_t count, int64_t low, int64_t high);
// A number within [low, high], which are finite.
absl::Status CheckReal(absl::string_view field, double value, double low, double high);
// Checks a text of at most kMaxTextBytes without control characters: it ends up in log lines and
// labels.
absl::Status CheckText(absl::string_view field, const std::string& value);
// Checks a text as CheckText does, and that it is not empty.
absl::Status CheckName(absl::string_view field, const std::string& value);

// The same status, an error with the field before it.
absl::Status CheckNamed(absl::string_view field, const absl::Status& status);

// The text with '?' for each byte that is not part of well-formed UTF-8: protobuf refuses to read
// a string that is not. At most `max_bytes` of it, whole characters.
std::string CleanUtf8(absl::string_view text, size_t max_bytes);

}  // namespace runnel
