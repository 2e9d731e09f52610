#include "central/data/augmentation.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/random.h"
#include "proto/base/training/mixed_label.h"

namespace runnel {
namespace {

constexpr int kImageRank = 3;
constexpr int kSignalRank = 2;
constexpr int kEitherRank = 0;

struct TransformRow {
  absl::string_view name;
  Transform transform;
  int rank;  // rank of the samples that it suits
};

constexpr TransformRow kRows[] = {
    {"crop", Transform::kCrop, kImageRank},    {"flip", Transform::kFlip, kImageRank},
    {"shift", Transform::kShift, kSignalRank}, {"erase", Transform::kErase, kImageRank},
    {"mixup", Transform::kMixup, kEitherRank},
};

const TransformRow* FindRow(absl::string_view name) {
  for (const TransformRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::string_view SamplesOf(int rank) {
  return rank == kImageRank ? "images" : rank == kSignalRank ? "signals" : "images and signals";
}

std::string RowNames() {
  return absl::StrJoin(kRows, ", ", [](std::string* out, const TransformRow& row) {
    absl::StrAppend(out, row.name);
  });
}

// Uniform in -most..most.
int64_t Offset(uint32_t bits, int64_t most) {
  return static_cast<int64_t>((uint64_t{bits} * static_cast<uint64_t>(2 * most + 1)) >> 32) - most;
}

// Copies one row of an image: out[x] = in[x' + right], or `outside` where that is beyond the row.
void CopyRow(const SamplePlacement& placement, float outside, absl::Span<const float> in,
             absl::Span<float> out) {
  const auto width = static_cast<int64_t>(in.size());
  const int64_t right = placement.right;
  // Without mirroring, columns first..last - 1 lie inside.
  const int64_t first = std::clamp<int64_t>(-right, 0, width);
  const int64_t last = std::clamp<int64_t>(width - right, first, width);
  const auto begin = in.begin() + first + right;
  const auto end = begin + (last - first);
  const int64_t gap = placement.mirrored ? width - last : first;
  auto to = std::fill_n(out.begin(), gap, outside);
  to = placement.mirrored ? std::reverse_copy(begin, end, to) : std::copy(begin, end, to);
  std::fill(to, out.end(), outside);
}

}  // namespace

absl::StatusOr<Augmentation> Augmentation::Parse(absl::string_view text) {
  Augmentation augmentation;
  if (text == "off") return augmentation;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    const TransformRow* row = FindRow(name);
    if (row == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is not known; there are ", RowNames(), ", or off for none"));
    }
    augmentation.transforms_ |= Bit(row->transform);
  }
  return augmentation;
}

std::string Augmentation::text() const {
  if (empty()) return "off";
  std::vector<absl::string_view> names;
  for (const TransformRow& row : kRows) {
    if (Has(row.transform)) names.push_back(row.name);
  }
  return absl::StrJoin(names, ",");
}

absl::Status Augmentation::CheckFits(const Shape& sample) const {
  for (const TransformRow& row : kRows) {
    if (!Has(row.transform)) continue;
    const bool is_either = sample.rank() == kImageRank || sample.rank() == kSignalRank;
    if (row.rank == kEitherRank ? !is_either : sample.rank() != row.rank) {
      return absl::InvalidArgumentError(absl::StrCat(row.name, " is for ", SamplesOf(row.rank),
                                                     ", the samples are ", sample.ToString()));
    }
    if (row.transform == Transform::kShift && sample[1] <= kMaxShift) {
      return absl::InvalidArgumentError(absl::StrCat(row.name, " needs more than ", kMaxShift,
                                                     " points, the samples are ",
                                                     sample.ToString()));
    }
  }
  return absl::OkStatus();
}

SamplePlacement DrawPlacement(const Augmentation& augmentation, uint64_t run_seed, int64_t epoch,
                              int64_t sample) {
  const CounterRandom random(run_seed, RandomPurpose::kAugment, static_cast<uint64_t>(epoch),
                             static_cast<uint64_t>(sample));
  const auto bits = random.Block(0);
  SamplePlacement placement;
  if (augmentation.Has(Transform::kCrop)) {
    placement.down = Offset(bits[0], kCropMargin);
    placement.right = Offset(bits[1], kCropMargin);
  }
  if (augmentation.Has(Transform::kFlip)) placement.mirrored = (bits[2] >> 31) != 0;
  if (augmentation.Has(Transform::kShift)) placement.later = Offset(bits[3], kMaxShift);
  return placement;
}

Rectangle DrawErasure(const Shape& shape, uint64_t run_seed, int64_t epoch, int64_t sample) {
  const CounterRandom random(run_seed, RandomPurpose::kAugment, static_cast<uint64_t>(epoch),
                             static_cast<uint64_t>(sample));
  if (random.Bits(4) >> 31 == 0) return {};
  const auto side = [&](uint64_t element, int64_t whole) {
    const int64_t least = std::max<int64_t>(whole / 8, 1), most = std::max(whole / 2, least);
    return least + random.Below(element, static_cast<uint32_t>(most - least + 1));
  };
  const auto place = [&](uint64_t element, int64_t whole, int64_t length) {
    return static_cast<int64_t>(random.Below(element, static_cast<uint32_t>(whole - length + 1)));
  };
  Rectangle rectangle{.height = side(5, shape[1]), .width = side(6, shape[2])};
  rectangle.top = place(7, shape[1], rectangle.height);
  rectangle.left = place(8, shape[2], rectangle.width);
  return rectangle;
}

void Erase(const Shape& shape, const Rectangle& rectangle, absl::Span<const float> outside,
           absl::Span<float> image) {
  for (int64_t channel = 0; channel < shape[0]; ++channel) {
    for (int64_t y = rectangle.top; y < rectangle.top + rectangle.height; ++y) {
      const auto row = image.begin() + (channel * shape[1] + y) * shape[2];
      std::fill_n(row + rectangle.left, rectangle.width, outside[channel]);
    }
  }
}

Mix DrawMix(int64_t samples, uint64_t run_seed, int64_t epoch, int64_t sample) {
  const CounterRandom random(run_seed, RandomPurpose::kAugment, static_cast<uint64_t>(epoch),
                             static_cast<uint64_t>(sample));
  return {static_cast<int64_t>(random.Below(12, static_cast<uint32_t>(samples))),
          static_cast<int32_t>(1 + random.Below(13, kMixParts - 1))};
}

void MixInto(int32_t parts, absl::Span<const float> other, absl::Span<float> out) {
  const float share = static_cast<float>(parts) / kMixParts;
  for (size_t i = 0; i < out.size(); ++i) out[i] = share * out[i] + (1 - share) * other[i];
}

void CopyImage(const Shape& shape, const SamplePlacement& placement,
               absl::Span<const float> outside, absl::Span<const float> in, absl::Span<float> out) {
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  for (int64_t row = 0; row < shape[0] * height; ++row) {
    const int64_t channel = row / height;
    const int64_t from = row % height + placement.down;
    const absl::Span<float> to = out.subspan(row * width, width);
    if (from < 0 || from >= height) {
      std::fill(to.begin(), to.end(), outside[channel]);
    } else {
      CopyRow(placement, outside[channel], in.subspan((channel * height + from) * width, width),
              to);
    }
  }
}

void CopySignal(const Shape& shape, const SamplePlacement& placement, absl::Span<const float> in,
                absl::Span<float> out) {
  const int64_t length = shape[1];
  const int64_t before =
      std::max<int64_t>(-placement.later, 0);  // points that lie before the first
  const int64_t after = std::max<int64_t>(placement.later, 0);
  for (int64_t channel = 0; channel < shape[0]; ++channel) {
    const auto from = in.begin() + channel * length;
    auto to = out.begin() + channel * length;
    to = std::fill_n(to, before, *from);
    to = std::copy_n(from + after, length - before - after, to);
    std::fill_n(to, after, *(from + length - 1));
  }
}

}  // namespace runnel
