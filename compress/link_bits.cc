#include "compress/link_bits.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "proto/base/encoded_bytes.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kBackwardFloor = 4;

// Mean squared error of the best uniform quantizer with 2^bits levels for a normal value of
// variance 1 (J. Max, 1960, table II; 6 to 8 bits by its asymptote). Codecs differ by factors near
// 1, which change no order.
constexpr int kMostBits = 8;
constexpr double kNormalError[kMostBits + 1] = {1,        0.3634,   0.1188,   0.03744,  0.01154,
                                                0.003495, 0.001041, 0.000304, 0.0000877};

// What the direction takes for a micro-batch: the codec runs beside the transfer of the micro-batch
// before, so the slower of both counts.
double SecondsOf(const BitsChoice& choice, const LinkTime& link) {
  const double codec = choice.codec == "identity" ? 0 : link.codec_seconds;
  if (link.megabits_per_second <= 0) return codec;
  const auto bits = static_cast<double>((choice.payload_bytes.value() + kFrameHeaderBytes) * 8);
  return std::max(bits / (link.megabits_per_second * 1e6), codec);
}

std::string ByPhase(absl::Span<const BitsChoice> choices, absl::Span<const BitStep> floors,
                    const std::function<size_t(double min_bits)>& choose) {
  std::vector<CodecStep> steps;
  for (const BitStep& floor : floors) {
    steps.push_back({floor.epoch, choices[choose(floor.bits)].codec});
  }
  return CodecScheduleText(steps);
}

double ErrorOf(absl::string_view codec) {
  const size_t colon = codec.find(':');
  int bits = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(codec.substr(colon + 1), &bits)) {
    return 0;
  }
  return bits < 0 || bits > kMostBits ? 0 : kNormalError[bits];
}

}  // namespace

absl::StatusOr<std::vector<BitsChoice>> BitsChoices(absl::string_view family, const Shape& shape,
                                                    absl::string_view exact) {
  if (exact != "identity" && exact != "int8") {
    return absl::InvalidArgumentError(absl::StrCat("codec ", exact, ": loses something"));
  }
  const double exact_bits = exact == "int8" ? 8 : 32;
  std::vector<BitsChoice> choices;
  for (int bits = 2; bits <= kMostBits && bits < exact_bits; ++bits) {
    const auto codec = MakeCodec(absl::StrCat(family, ":", bits));
    if (!codec.ok()) continue;
    choices.push_back({(*codec)->name(), static_cast<double>(bits), kNormalError[bits],
                       (*codec)->EncodedBytes(shape)});
  }
  if (choices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", family, ": is no family with bits to choose"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> lossless, MakeCodec(exact));
  choices.push_back({lossless->name(), exact_bits, 0, lossless->EncodedBytes(shape)});
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
    const double seconds = SecondsOf(choices[i], link);
    const double least = fastest == choices.size() ? seconds : SecondsOf(choices[fastest], link);
    if (fastest == choices.size() || seconds < least ||
        (seconds == least && errs_less(i, fastest))) {
      fastest = i;
    }
    if (seconds > link.available_seconds) continue;
    if (best == choices.size() || errs_less(i, best)) best = i;
  }
  return best < choices.size() ? best : fastest;
}

std::vector<BitStep> MinBitsByEpoch(absl::string_view model, Direction direction, int64_t epochs) {
  if (direction == Direction::kBackward) return {{0, kBackwardFloor}};
  return AcceptBits(model, epochs).forward;
}

std::string CodecsInTime(absl::Span<const BitsChoice> choices, const LinkTime& link,
                         absl::Span<const BitStep> floors) {
  return ByPhase(choices, floors,
                 [&](double min_bits) { return ChooseCodec(choices, link, min_bits); });
}

std::string CodecsWithBits(absl::Span<const BitsChoice> choices, double bits,
                           absl::Span<const BitStep> floors) {
  return ByPhase(choices, floors, [&](double min_bits) {
    const auto found = std::find_if(choices.begin(), choices.end(), [&](const BitsChoice& choice) {
      return choice.bits >= std::max(bits, min_bits);
    });
    return found == choices.end() ? choices.size() - 1
                                  : static_cast<size_t>(found - choices.begin());
  });
}

absl::StatusOr<double> MeanRelativeError(absl::string_view codecs, int64_t epochs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<CodecStep> steps, ParseCodecSchedule(codecs));
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t end = i + 1 < steps.size() ? std::min(steps[i + 1].epoch, epochs) : epochs;
    const int64_t held = std::max<int64_t>(0, end - steps[i].epoch);
    sum += ErrorOf(steps[i].codec) * static_cast<double>(held);
  }
  return sum / static_cast<double>(epochs);
}

}  // namespace runnel
