#include "compress/link_bits.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/encoded_bytes.h"

namespace runnel {
namespace {

constexpr int kBackwardFloor = 4;

// Seconds of a micro-batch in this direction: the codec runs beside the transfer of the micro-batch
// before, so the slower of both counts.
double TransferSeconds(const BitsChoice& choice, const LinkTime& link) {
  const double codec = choice.codec.is_identity() ? 0 : link.codec_seconds;
  const auto bytes = static_cast<double>(choice.payload_bytes.value() + kFrameHeaderBytes);
  return std::max(link.rate.Seconds(bytes), codec);
}

CodecSchedule ByPhase(absl::Span<const BitsChoice> choices, absl::Span<const BitStep> floors,
                      const std::function<size_t(double min_bits)>& choose) {
  std::vector<CodecStep> steps;
  for (const BitStep& floor : floors) {
    steps.push_back({floor.epoch, choices[choose(floor.bits)].codec});
  }
  return CodecSchedule(std::move(steps));
}

}  // namespace

absl::StatusOr<std::vector<BitsChoice>> BitsChoices(absl::string_view family, const Shape& shape,
                                                    const CodecId& exact) {
  RUNNEL_ASSIGN_OR_RETURN(const CodecRow* lossless, FindCodec(exact));
  if (!lossless->lossless) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", exact.text(), ": loses something"));
  }
  const CodecRow* row = FindCodecFamily(family);
  if (row == nullptr || row->parameter.kind != ParameterRange::Kind::kInteger) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", family, ": is no family with bits to choose"));
  }
  std::vector<BitsChoice> choices;
  const auto add = [&choices, &shape](const CodecRow& from, const CodecId& codec) -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> made, MakeCodec(codec));
    choices.push_back({codec, from.BitsOf(codec), from.ErrorOf(codec), made->EncodedBytes(shape)});
    return absl::OkStatus();
  };
  const ParameterRange& range = row->parameter;
  for (double bits = range.min; bits <= range.max; bits += range.step) {
    const CodecId codec{std::string(family), bits};
    if (row->BitsOf(codec) < lossless->BitsOf(exact)) RUNNEL_RETURN_IF_ERROR(add(*row, codec));
  }
  RUNNEL_RETURN_IF_ERROR(add(*lossless, exact));
  return choices;
}

size_t ChooseCodec(absl::Span<const BitsChoice> choices, const LinkTime& link, double min_bits) {
  const bool floor_holds =
      std::any_of(choices.begin(), choices.end(),
                  [min_bits](const BitsChoice& choice) { return choice.bits >= min_bits; });
  size_t best = choices.size(), fastest = choices.size();
  const auto errs_less = [&](size_t i, size_t than) {
    return choices[i].relative_error < choices[than].relative_error;
  };
  for (size_t i = 0; i < choices.size(); ++i) {
    if (floor_holds && choices[i].bits < min_bits) continue;
    const double seconds = TransferSeconds(choices[i], link);
    const double least =
        fastest == choices.size() ? seconds : TransferSeconds(choices[fastest], link);
    if (fastest == choices.size() || seconds < least ||
        (seconds == least && errs_less(i, fastest))) {
      fastest = i;
    }
    if (seconds > link.available_seconds) continue;
    if (best == choices.size() || errs_less(i, best)) best = i;
  }
  return best < choices.size() ? best : fastest;
}

std::vector<BitStep> MinBitsByEpoch(const BitSwitches& switches, Direction direction,
                                    int64_t epochs) {
  if (direction == Direction::kBackward) return {{0, kBackwardFloor}};
  return AcceptBits(switches, epochs).forward;
}

CodecSchedule CodecsInTime(absl::Span<const BitsChoice> choices, const LinkTime& link,
                           absl::Span<const BitStep> floors) {
  return ByPhase(choices, floors,
                 [&](double min_bits) { return ChooseCodec(choices, link, min_bits); });
}

CodecSchedule CodecsWithBits(absl::Span<const BitsChoice> choices, double bits,
                             absl::Span<const BitStep> floors) {
  return ByPhase(choices, floors, [&](double min_bits) {
    const auto found = std::find_if(choices.begin(), choices.end(), [&](const BitsChoice& choice) {
      return choice.bits >= std::max(bits, min_bits);
    });
    return found == choices.end() ? choices.size() - 1
                                  : static_cast<size_t>(found - choices.begin());
  });
}

absl::StatusOr<double> MeanRelativeError(const CodecSchedule& codecs, int64_t epochs) {
  double sum = 0;
  for (size_t i = 0; i < codecs.steps().size(); ++i) {
    const CodecId& codec = codecs.steps()[i].codec;
    RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codec));
    sum += row->ErrorOf(codec) * static_cast<double>(codecs.EpochsOf(i, epochs));
  }
  return sum / static_cast<double>(epochs);
}

}  // namespace runnel
