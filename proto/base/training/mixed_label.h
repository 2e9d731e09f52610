#pragma once

// The label of a sample that is two others mixed (mixup; Zhang et al., arXiv 1710.09412): two classes
// and a share, in the 32 bits that any label has, so that labels travel and lie as they do. A label
// of one class is its number; a mixed one is negative. cl/floats.cl unpacks it too.
//
// Pure functions; any thread.

#include <cstdint>

namespace runnel {

inline constexpr int64_t kMostMixedClasses = 2048;
inline constexpr int32_t kMixParts = 512;

struct MixedLabel {
  int32_t first = 0;  // in [0, kMostMixedClasses), likewise `second`
  int32_t second = 0;
  int32_t parts = kMixParts;  // of kMixParts, that `first` has; mixed: 1 up to below it

  double share() const { return static_cast<double>(parts) / kMixParts; }
  int32_t larger() const { return 2 * parts >= kMixParts ? first : second; }
};

constexpr int32_t PackLabel(const MixedLabel& label) {
  return ~(label.first | label.second << 11 | label.parts << 22);
}
constexpr MixedLabel UnpackLabel(int32_t label) {
  if (label >= 0) return {label, label, kMixParts};
  const int32_t bits = ~label;
  return {bits & 2047, bits >> 11 & 2047, bits >> 22};
}
// All classes that the label names are among the first `classes`.
constexpr bool IsLabelOf(int32_t label, int64_t classes) {
  const MixedLabel mixed = UnpackLabel(label);
  return mixed.first < classes && mixed.second < classes && mixed.parts > 0;
}

}  // namespace runnel
