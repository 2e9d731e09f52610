#pragma once

// Random changes of training samples: the network sees another variant of a sample in each epoch.
// All but mixup keep the label. What happens to a sample is a function of (run seed, epoch, sample) alone,
// so that bytes are the same on any number of stages, after a resume and in a replay.
//
// Plain data and pure functions; any thread.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

enum class Transform : uint8_t {
  kCrop,   // images: a window at a random place of the image with kCropMargin pixels around it
  kFlip,   // images: left and right change places, in every second sample on average
  kShift,  // signals: up to kMaxShift points earlier or later; the end value fills the gap
  kErase,  // images: in every second sample a rectangle becomes black (random erasing; Zhong et al.,
           // arXiv 1708.04896), with sides of an eighth to a half of the image's
  kMixup,  // images and signals: each sample and its label are mixed with another one's, by a share
           // that is uniform (mixup; Zhang et al., arXiv 1710.09412, with alpha = 1)
};
inline constexpr int64_t kCropMargin = 4;
inline constexpr int64_t kMaxShift = 8;

// The transforms of a run; none by default.
class Augmentation {
 public:
  // "off", or names with commas between them: "crop,flip". InvalidArgument lists what there is.
  static absl::StatusOr<Augmentation> Parse(absl::string_view text);
  // A text for Parse: "off", or the names in the order of the enumeration.
  std::string text() const;

  bool empty() const { return transforms_ == 0; }
  bool Has(Transform transform) const { return (transforms_ & Bit(transform)) != 0; }
  // InvalidArgument: a transform that does not suit samples of this shape, without batch.
  absl::Status CheckFits(const Shape& sample) const;

  friend bool operator==(const Augmentation&, const Augmentation&) = default;

 private:
  static uint32_t Bit(Transform transform) { return 1u << static_cast<uint32_t>(transform); }
  uint32_t transforms_ = 0;
};

// Origin of an augmented sample's points. For the pixel at (y, x) of an image with W columns: row y
// + down, column x' + right, where x' = W - 1 - x if mirrored, else x. For point t of a signal:
// point t + later.
struct SamplePlacement {
  int64_t down = 0;   // -kCropMargin..kCropMargin
  int64_t right = 0;  // likewise
  bool mirrored = false;
  int64_t later = 0;  // -kMaxShift..kMaxShift

  friend bool operator==(const SamplePlacement&, const SamplePlacement&) = default;
};

// Draws from CounterRandom(run_seed, kAugment, epoch, sample): elements 0 and 1 for the crop, 2 for
// the flip, 3 for the shift, whichever of these are used. sample: its index in the data set.
SamplePlacement DrawPlacement(const Augmentation& augmentation, uint64_t run_seed, int64_t epoch,
                              int64_t sample);

// What kErase makes black; nothing if a side is 0.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;

  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};
// Draws of the same stream: elements 4 to 8. shape: (C,H,W).
Rectangle DrawErasure(const Shape& shape, uint64_t run_seed, int64_t epoch, int64_t sample);
void Erase(const Shape& shape, const Rectangle& rectangle, absl::Span<const float> outside,
           absl::Span<float> image);

// What a sample is mixed with: it keeps parts / kMixParts (proto/base/training/mixed_label.h).
struct Mix {
  int64_t other = 0;  // index in the data set of `samples`; with transforms of its own
  int32_t parts = 0;  // 1 up to below kMixParts

  friend bool operator==(const Mix&, const Mix&) = default;
};
// Draws of the same stream: elements 12 and 13.
Mix DrawMix(int64_t samples, uint64_t run_seed, int64_t epoch, int64_t sample);
// out = share of `parts` of out, and the rest of `other`.
void MixInto(int32_t parts, absl::Span<const float> other, absl::Span<float> out);

// Copies an image (C,H,W). outside: what lies around the image, a value a channel. in and out do
// not overlap.
void CopyImage(const Shape& shape, const SamplePlacement& placement,
               absl::Span<const float> outside, absl::Span<const float> in, absl::Span<float> out);
// Copies a signal (C,L), L > kMaxShift. in and out do not overlap.
void CopySignal(const Shape& shape, const SamplePlacement& placement, absl::Span<const float> in,
                absl::Span<float> out);

}  // namespace runnel
