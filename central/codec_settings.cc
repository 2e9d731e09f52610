#include "central/codec_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "compress/codec.h"
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
                                    bool forward) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<CodecStep> steps, ParseCodecSchedule(text));
  for (CodecStep& step : steps) {
    if (format.scaled() && step.codec == "identity") step.codec = "int8";
    RUNNEL_RETURN_IF_ERROR(MakeCodec(step.codec).status());
    if (LearnsFromLoss(step.codec) && (format.scaled() || !forward)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", step.codec, " learns from the gradients of FP32 activations: it is ",
          "for --codec-forward of a floating-point recipe"));
    }
  }
  return CodecScheduleText(steps);
}

// "mbq" of "mbq:4", "0:mbq:2,60:mbq:3" or "mbq"; `fallback` where no bits are counted.
std::string FamilyOf(const std::string& text, const std::string& fallback) {
  const auto steps = ParseCodecSchedule(text);
  if (!steps.ok()) return text;
  const std::string& codec = steps->front().codec;
  if (codec == "identity" || codec == "int8") return fallback;
  return codec.substr(0, codec.find(':'));
}

absl::Status ApplyBits(RunSettings& settings) {
  auto schedule = ParseBitSchedule(settings.bits, settings.model, settings.epochs);
  if (!schedule.ok()) return Flag("bits", settings.bits, schedule.status());
  const std::pair<std::string*, const std::vector<BitStep>*> directions[] = {
      {&settings.codec_forward, &schedule->forward},
      {&settings.codec_backward, &schedule->backward}};
  for (const auto& [codec, steps] : directions) {
    const bool forward = codec == &settings.codec_forward;
    auto text = CodecsOfBits(FamilyOf(*codec, forward ? "mbq" : "stochastic"), *steps);
    if (!text.ok()) return Flag("bits", settings.bits, text.status());
    *codec = *std::move(text);
  }
  settings.bits = BitScheduleText(*schedule);
  return absl::OkStatus();
}

}  // namespace

absl::Status SettleCodecs(const NumberFormat& format, RunSettings& settings) {
  if (!settings.bits.empty()) RUNNEL_RETURN_IF_ERROR(ApplyBits(settings));
  const std::pair<const char*, std::string*> flags[] = {
      {"codec-forward", &settings.codec_forward}, {"codec-backward", &settings.codec_backward}};
  for (const auto& [flag, codec] : flags) {
    auto text = Settled(*codec, format, codec == &settings.codec_forward);
    if (!text.ok()) return Flag(flag, *codec, text.status());
    *codec = *std::move(text);
  }
  return absl::OkStatus();
}

std::vector<std::string> CodecsOf(const RunSettings& settings) {
  std::vector<std::string> codecs;
  for (const std::string* text : {&settings.codec_forward, &settings.codec_backward}) {
    const auto steps = ParseCodecSchedule(*text);
    if (!steps.ok()) continue;
    for (const CodecStep& step : *steps) {
      if (std::find(codecs.begin(), codecs.end(), step.codec) == codecs.end())
        codecs.push_back(step.codec);
    }
  }
  return codecs;
}

}  // namespace runnel
