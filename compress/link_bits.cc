#include "compress/link_bits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kBackwardFloor = 4;

}  // namespace

absl::StatusOr<std::vector<BitsChoice>> BitsChoices(absl::string_view family,
                                                    const CodecId& exact) {
  RUNNEL_ASSIGN_OR_RETURN(const CodecRow* lossless, FindCodec(exact));
  if (!lossless->lossless) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", exact.text(), ": loses something"));
  }
  const CodecRow* row = FindCodecFamily(family);
  if (row == nullptr || row->parameter.kind != ParameterRange::Kind::kInteger ||
      row->bits == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", family, ": is no family with bits to choose"));
  }
  std::vector<BitsChoice> choices;
  const auto add = [&choices](const CodecRow& from, const CodecId& codec) {
    choices.push_back({codec, from.BitsOf(codec)});
  };
  const ParameterRange& range = row->parameter;
  for (double bits = range.min; bits <= range.max; bits += range.step) {
    const CodecId codec{std::string(family), bits};
    if (row->BitsOf(codec) < lossless->BitsOf(exact)) add(*row, codec);
  }
  add(*lossless, exact);
  return choices;
}

std::vector<BitStep> MinBitsByEpoch(const BitSwitches& switches, Direction direction,
                                    int64_t epochs) {
  if (direction == Direction::kBackward) return {{0, kBackwardFloor}};
  return AcceptBits(switches, epochs).forward;
}

CodecSchedule CodecsWithBits(absl::Span<const BitsChoice> choices, double bits,
                             absl::Span<const BitStep> floors) {
  std::vector<CodecStep> steps;
  for (const BitStep& floor : floors) {
    const auto found = std::find_if(choices.begin(), choices.end(), [&](const BitsChoice& choice) {
      return choice.bits >= std::max(bits, static_cast<double>(floor.bits));
    });
    steps.push_back({floor.epoch, (found == choices.end() ? choices.back() : *found).codec});
  }
  return CodecSchedule(std::move(steps));
}

absl::StatusOr<TensorError> MeanTensorError(const CodecSchedule& codecs, Direction direction,
                                            int64_t epochs) {
  TensorError mean;
  for (size_t i = 0; i < codecs.steps().size(); ++i) {
    const CodecId& codec = codecs.steps()[i].codec;
    RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codec));
    const double share =
        static_cast<double>(codecs.EpochsOf(i, epochs)) / static_cast<double>(epochs);
    const double error = row->ErrorOf(codec, direction);
    (row->remembers ? mean.alike : mean.apart) += share * error;
    mean.root += share * std::sqrt(error);
  }
  return mean;
}

absl::StatusOr<double> MeanSizeShare(const CodecSchedule& codecs, Direction direction,
                                     int64_t epochs) {
  double all = 0, expected = 0;
  for (size_t i = 0; i < codecs.steps().size(); ++i) {
    const CodecId& codec = codecs.steps()[i].codec;
    RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codec));
    // Codecs whose bits depend on the shape have one size.
    const double bits = row->bits == nullptr ? 1 : row->BitsOf(codec);
    const double weight = bits * static_cast<double>(codecs.EpochsOf(i, epochs));
    all += weight;
    expected += weight * row->SizeShareOf(codec, direction);
  }
  return all > 0 ? expected / all : 1;
}

}  // namespace runnel
