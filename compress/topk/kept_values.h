#pragma once

// How the values that topk keeps travel: one row a form. Pure functions; any thread.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compress/topk/topk.h"

namespace runnel {

inline uint32_t MagnitudeOf(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu; }

// Tells one element after the other, in ascending order, whether it is kept.
class Keeper {
 public:
  explicit Keeper(const TopkCut& cut) : magnitude_(cut.magnitude), equal_(cut.equal) {}

  bool Keeps(float value) {
    const uint32_t magnitude = MagnitudeOf(value);
    if (magnitude != magnitude_) return magnitude > magnitude_;
    if (equal_ == 0) return false;
    --equal_;
    return true;
  }

 private:
  const uint32_t magnitude_;
  size_t equal_;
};

// k of n values.
struct KeptValues {
  absl::string_view family;
  char state_tag;  // tells the form's states from another's
  int64_t (*bytes)(size_t n, size_t k);
  // Writes bytes(n, k) bytes and takes what it wrote from y.
  void (*write)(const TopkCut& cut, size_t n, size_t k, float* y, std::byte* payload);
  // Fills `out`, zeros where nothing was kept. InvalidArgument says what is impossible about the
  // payload; `out` is then unspecified.
  absl::Status (*read)(const std::byte* payload, size_t n, size_t k, float* out);
};

extern const KeptValues kExactValues;
extern const KeptValues kCodedValues;

}  // namespace runnel
