#pragma once

// When the sums of a product get a new scale (--rescale): in each micro-batch, as NITI does, or
// seldom (Mandheling, section 3.4). Dynamic rescaling takes the maximum of all sums before it
// rounds the first one, so the sums are written and read again. Sums that keep the scale of
// before leave a product as int8 at once.
//
//   dynamic                       the maximum of each micro-batch decides
//   speculate                     the same bytes: rounds with the last shift, finds the maximum on
//                                 the way, and runs the product again where it asks for another one
//   adaptive[:WARM_UP[,PERIOD]]   measures all of the first WARM_UP micro-batches, then one in P at
//                                 most PERIOD
//   static[:WARM_UP]              measures the first WARM_UP micro-batches, then never again
//
// P is half of the mean interval between changes; without one it doubles. One bit back and forth is
// none: the larger shift stays. A kept scale whose sums saturate is measured next, and P halves.
// Plain data and pure functions of them; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

enum class RescaleMode : uint8_t { kDynamic, kSpeculate, kAdaptive, kStatic };

struct RescaleRule {
  RescaleMode mode = RescaleMode::kDynamic;
  int32_t warm_up = 100;
  int32_t most_period = 64;

  // Whether products keep a scale from one micro-batch to the next, which then is a state of
  // theirs.
  bool keeps() const { return mode == RescaleMode::kAdaptive || mode == RescaleMode::kStatic; }
  friend bool operator==(const RescaleRule&, const RescaleRule&) = default;
};

inline constexpr int32_t kMaxWarmUp = 1 << 24;
inline constexpr int32_t kMaxRescalePeriod = 1 << 16;

// InvalidArgument names the allowed texts.
absl::StatusOr<RescaleRule> ParseRescale(absl::string_view text);

// The scale of one product and its history, as it lies in a stage's state: all zero at first. The
// policy is a function of these numbers and of the product's sums alone.
struct KeptScale {
  static constexpr int kRing = 12;
  struct Seen {
    int32_t step = 0;
    int32_t shift = 0;
  };

  int32_t step = 0;        // micro-batches so far, up to 2^30
  int32_t warm_until = 0;  // a step: all before are measured
  int32_t shift = 0;       // the kept shift
  int32_t period = 0;      // 0 counts as 1
  int32_t wait = 0;        // micro-batches until the next one that is measured
  int32_t bits_mark = 0;   // the operator's gradient bits + 100; 0: none yet
  int32_t measured = 0;    // micro-batches that were, up to 2^30
  int32_t forced = 0;      // number of these that saturation forced, up to 2^30
  Seen ring[kRing];        // the last ones that were measured, at measured % kRing

  friend bool operator==(const KeptScale&, const KeptScale&) = default;
};
inline constexpr int64_t kKeptScaleWords = sizeof(KeptScale) / sizeof(int32_t);
static_assert(sizeof(KeptScale) == 128);  // a multiple of 64: each lies aligned
inline bool operator==(const KeptScale::Seen& a, const KeptScale::Seen& b) {
  return a.step == b.step && a.shift == b.shift;
}
// An operator has two scales: of its forward's and of its input-gradient's result.
inline constexpr int64_t kScalesPerOperator = 2;

// Whether all numbers are such as training makes them. For states that come from outside.
bool IsValid(const KeptScale& scale);

// Statistics of sums that were rounded with a kept shift.
struct KeptSums {
  int64_t max_abs = 0;
  int64_t saturated = 0;  // |sum| > 2^(7 + shift)
  int64_t elements = 0;
};

// Call for each micro-batch: BeginProduct, MeasuresScale, then RecordMeasured or RecordKept.
// gradient_bits: of the step. A change of them is a change of the learning rate: 20 micro-batches
// are measured again.
void BeginProduct(const RescaleRule& rule, int32_t gradient_bits, KeptScale& scale);
bool MeasuresScale(const RescaleRule& rule, const KeptScale& scale);
// shift: 0..24, of the maximum.
void RecordMeasured(const RescaleRule& rule, int32_t shift, KeptScale& scale);
void RecordKept(const RescaleRule& rule, const KeptSums& sums, KeptScale& scale);

}  // namespace runnel
