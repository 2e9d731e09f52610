#include "compress/float_state.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"

namespace runnel {
namespace {

constexpr size_t kCountBytes = 8;

}  // namespace

std::string SaveFloats(absl::string_view tag, absl::Span<const float> values,
                       absl::string_view tail) {
  if (values.empty()) return "";
  std::string state(tag);
  const uint64_t n = values.size();
  for (size_t i = 0; i < kCountBytes; ++i) state.push_back(static_cast<char>(n >> (8 * i)));
  const size_t header = state.size();
  state.resize(header + sizeof(float) * n);
  auto* bytes = reinterpret_cast<std::byte*>(state.data() + header);
  for (size_t e = 0; e < n; ++e) StoreFloat(values[e], bytes + sizeof(float) * e);
  state.append(tail.data(), tail.size());
  return state;
}

absl::StatusOr<std::vector<float>> RestoreFloats(absl::string_view codec, absl::string_view tag,
                                                 absl::string_view state, absl::string_view tail) {
  std::vector<float> values;
  if (state.empty()) return values;
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat(codec, ": not a state of this encoder (", state.size(), " bytes)"));
  const size_t header = tag.size() + kCountBytes;
  if (state.size() <= header + tail.size() || !absl::StartsWith(state, tag) ||
      !absl::EndsWith(state, tail)) {
    return refused;
  }
  uint64_t n = 0;
  for (size_t i = 0; i < kCountBytes; ++i) {
    n |= uint64_t{static_cast<uint8_t>(state[tag.size() + i])} << (8 * i);
  }
  const size_t value_bytes = state.size() - header - tail.size();
  if (value_bytes % sizeof(float) != 0 || n != value_bytes / sizeof(float)) return refused;
  values.resize(n);
  const auto* bytes = reinterpret_cast<const std::byte*>(state.data() + header);
  for (size_t e = 0; e < n; ++e) {
    values[e] = LoadFloat(bytes + sizeof(float) * e);
    if (!std::isfinite(values[e])) return refused;
  }
  return values;
}

}  // namespace runnel
