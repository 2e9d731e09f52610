#include "central/settings/codec_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "compress/codec.h"
#include "compress/link_bits.h"
#include "proto/base/codec_schedule.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status Flag(absl::string_view flag, const std::string& value, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " ", value, ": ", std::string(status.message())));
}

// The text of the codecs, every one of them known.
absl::StatusOr<std::string> Settled(const std::string& text, const NumberFormat& format,
                                    Direction direction) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<CodecStep> steps, ParseCodecSchedule(text));
  for (CodecStep& step : steps) {
    if (format.integer_boundaries() && step.codec == "identity") step.codec = "int8";
    RUNNEL_RETURN_IF_ERROR(MakeCodec(step.codec).status());
    if (LearnsFromLoss(step.codec) &&
        (format.integer_boundaries() || direction == Direction::kBackward)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", step.codec, " learns from the gradients of FP32 activations: it is ",
          "for --codec-forward of a floating-point recipe"));
    }
  }
  return CodecScheduleText(steps);
}

// What a direction may have whose bits follow its link.
absl::StatusOr<std::vector<BitsChoice>> ChoicesOf(const std::string& text,
                                                  const NumberFormat& format) {
  return BitsChoices(CodecFamilyOf(text, "hadamard"), Shape({1}), ExactCodec(format));
}

// The fewest bits that a link may have.
absl::Status ApplyBandwidth(const NumberFormat& format, RunSettings& settings) {
  const std::pair<const char*, std::string*> flags[] = {
      {"codec-forward", &settings.codec_forward}, {"codec-backward", &settings.codec_backward}};
  for (const auto& [flag, codec] : flags) {
    const Direction direction =
        codec == &settings.codec_forward ? Direction::kForward : Direction::kBackward;
    const auto choices = ChoicesOf(*codec, format);
    if (!choices.ok()) return Flag(flag, *codec, choices.status());
    *codec =
        CodecsWithBits(*choices, 0, MinBitsByEpoch(settings.model, direction, settings.epochs));
  }
  return absl::OkStatus();
}

absl::Status ApplyBits(const NumberFormat& format, RunSettings& settings) {
  if (BitsFollowLinks(settings)) return ApplyBandwidth(format, settings);
  auto schedule = ParseBitSchedule(settings.bits, settings.model, settings.epochs);
  if (!schedule.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--bits ", settings.bits, ": ",
                                                   schedule.status().message(), "; or bandwidth"));
  }
  const std::pair<std::string*, const std::vector<BitStep>*> directions[] = {
      {&settings.codec_forward, &schedule->forward},
      {&settings.codec_backward, &schedule->backward}};
  for (const auto& [codec, steps] : directions) {
    const bool forward = codec == &settings.codec_forward;
    auto text = CodecsOfBits(CodecFamilyOf(*codec, forward ? "mbq" : "stochastic"), *steps);
    if (!text.ok()) return Flag("bits", settings.bits, text.status());
    *codec = *std::move(text);
  }
  settings.bits = BitScheduleText(*schedule);
  return absl::OkStatus();
}

}  // namespace

bool BitsFollowLinks(const RunSettings& settings) { return settings.bits == kBandwidthBits; }

const char* ExactCodec(const NumberFormat& format) {
  return format.integer_boundaries() ? "int8" : "identity";
}

std::string CodecFamilyOf(const std::string& text, const std::string& fallback) {
  const auto steps = ParseCodecSchedule(text);
  if (!steps.ok()) return text;
  const std::string& codec = steps->front().codec;
  if (codec == "identity" || codec == "int8") return fallback;
  return codec.substr(0, codec.find(':'));
}

absl::Status SettleCodecs(const NumberFormat& format, RunSettings& settings) {
  if (!settings.bits.empty()) RUNNEL_RETURN_IF_ERROR(ApplyBits(format, settings));
  const std::pair<const char*, std::string*> flags[] = {
      {"codec-forward", &settings.codec_forward}, {"codec-backward", &settings.codec_backward}};
  for (const auto& [flag, codec] : flags) {
    auto text =
        Settled(*codec, format,
                codec == &settings.codec_forward ? Direction::kForward : Direction::kBackward);
    if (!text.ok()) return Flag(flag, *codec, text.status());
    *codec = *std::move(text);
  }
  return absl::OkStatus();
}

std::vector<std::string> CodecsOf(const RunSettings& settings) {
  std::vector<std::string> codecs;
  const auto add = [&codecs](const std::string& codec) {
    if (std::find(codecs.begin(), codecs.end(), codec) == codecs.end()) codecs.push_back(codec);
  };
  for (const std::string* text : {&settings.codec_forward, &settings.codec_backward}) {
    const auto steps = ParseCodecSchedule(*text);
    if (!steps.ok()) continue;
    for (const CodecStep& step : *steps) add(step.codec);
    if (!BitsFollowLinks(settings)) continue;
    const auto format = FormatOf(settings);
    const auto choices = ChoicesOf(*text, format.ok() ? *format : NumberFormat());
    if (!choices.ok()) continue;
    for (const BitsChoice& choice : *choices) add(choice.codec);
  }
  return codecs;
}

}  // namespace runnel
