#include "compress/link_bits.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "compress/codec.h"
#include "proto/base/encoded_bytes.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kIdentityBits = 32;
constexpr int64_t kPhases = 1000;  // into which a run is divided to look up the floor

// Mean squared error of the best uniform quantizer with 2^bits levels for a normal value of
// variance 1 (J. Max, 1960, table II; 6 to 8 bits by its asymptote). Codecs differ by factors near
// 1, which change no order.
constexpr double kNormalError[9] = {1,        0.3634,   0.1188,   0.03744,  0.01154,
                                    0.003495, 0.001041, 0.000304, 0.0000877};

double TransferSeconds(const CodecChoice& choice, const LinkTime& link) {
  if (link.megabits_per_second <= 0) return 0;
  const auto bits = static_cast<double>((choice.payload_bytes.value() + kFrameHeaderBytes) * 8);
  return bits / (link.megabits_per_second * 1e6);
}

}  // namespace

absl::StatusOr<std::vector<CodecChoice>> CodecChoices(absl::string_view family,
                                                      const Shape& shape) {
  std::vector<CodecChoice> choices;
  for (int bits = 2; bits <= 8; ++bits) {
    const auto codec = MakeCodec(absl::StrCat(family, ":", bits));
    if (!codec.ok()) continue;
    choices.push_back({(*codec)->name(), static_cast<double>(bits), kNormalError[bits],
                       (*codec)->EncodedBytes(shape)});
  }
  if (choices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", family, ": is no family with bits to choose"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> identity, MakeCodec("identity"));
  choices.push_back({identity->name(), kIdentityBits, 0, identity->EncodedBytes(shape)});
  return choices;
}

size_t ChooseCodec(absl::Span<const CodecChoice> choices, const LinkTime& link, double min_bits) {
  const bool floor_holds =
      std::any_of(choices.begin(), choices.end(),
                  [min_bits](const CodecChoice& choice) { return choice.bits >= min_bits; });
  size_t best = choices.size(), smallest = choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    const CodecChoice& choice = choices[i];
    if (floor_holds && choice.bits < min_bits) continue;
    if (smallest == choices.size() || choice.payload_bytes < choices[smallest].payload_bytes) {
      smallest = i;
    }
    // The codec runs beside the transfer of the micro-batch before it: the slower of both counts.
    const double codec_seconds = choice.codec == "identity" ? 0 : link.codec_seconds;
    if (std::max(TransferSeconds(choice, link), codec_seconds) > link.available_seconds) continue;
    if (best == choices.size() || choice.relative_error < choices[best].relative_error) best = i;
  }
  return best < choices.size() ? best : smallest;
}

double MinBits(absl::string_view model, bool forward, double progress) {
  if (!forward) return 4;
  const auto epoch = static_cast<int64_t>(std::clamp(progress, 0.0, 1.0) * kPhases);
  double bits = 2;
  for (const BitStep& step : AcceptBits(model, kPhases).forward) {
    if (epoch >= step.epoch) bits = step.bits;
  }
  return bits;
}

}  // namespace runnel
