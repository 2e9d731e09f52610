#include "central/settings/codec_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "compress/codec.h"
#include "compress/link_bits.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel {
namespace {

// A direction of the links: its flag and its codecs.
struct CodecFlag {
  Direction direction;
  absl::string_view name;
  CodecSchedule RunSettings::*codecs;
};
constexpr CodecFlag kFlags[] = {
    {Direction::kForward, "codec-forward", &RunSettings::codec_forward},
    {Direction::kBackward, "codec-backward", &RunSettings::codec_backward},
};

absl::Status BadFlag(absl::string_view flag, absl::string_view value, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", value, ": ", status.message()));
}

absl::Status CheckCodecs(const CodecSchedule& codecs, const NumberFormat& format,
                         Direction direction) {
  for (const CodecStep& step : codecs.steps()) {
    RUNNEL_RETURN_IF_ERROR(CheckCodecFits(step.codec, format, direction));
  }
  return absl::OkStatus();
}

bool Has(const CodecSchedule& codecs, const CodecId& codec) {
  const auto& steps = codecs.steps();
  return std::any_of(steps.begin(), steps.end(),
                     [&codec](const CodecStep& step) { return step.codec == codec; });
}

// Choices of a direction whose bits follow its link; names do not depend on the shape.
absl::StatusOr<std::vector<BitsChoice>> ChoicesFor(const CodecSchedule& codecs,
                                                   const NumberFormat& format) {
  return BitsChoices(CodecFamilyOf(codecs, kBandwidthFamily), LosslessCodec(format));
}

// The fewest bits that a link may have.
absl::Status ApplyBandwidth(const NumberFormat& format, const BitSwitches& switches,
                            RunSettings& settings) {
  for (const CodecFlag& flag : kFlags) {
    CodecSchedule& codecs = settings.*flag.codecs;
    const auto choices = ChoicesFor(codecs, format);
    if (!choices.ok()) return BadFlag(flag.name, codecs.text(), choices.status());
    codecs = CodecsWithBits(*choices, 0, MinBitsByEpoch(switches, flag.direction, settings.epochs));
  }
  return absl::OkStatus();
}

absl::Status ApplyBits(const NumberFormat& format, const BitSwitches& switches,
                       RunSettings& settings) {
  if (BitsFollowLinks(settings)) return ApplyBandwidth(format, switches, settings);
  const auto schedule = ParseBitSchedule(settings.bits, switches, settings.epochs);
  if (!schedule.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--bits ", settings.bits, ": ",
                                                   schedule.status().message(), "; or bandwidth"));
  }
  for (const CodecFlag& flag : kFlags) {
    CodecSchedule& codecs = settings.*flag.codecs;
    const bool forward = flag.direction == Direction::kForward;
    auto of_bits = CodecsOfBits(CodecFamilyOf(codecs, AcceptFamily(flag.direction)),
                                forward ? schedule->forward : schedule->backward);
    if (!of_bits.ok()) return BadFlag("bits", settings.bits, of_bits.status());
    codecs = *std::move(of_bits);
  }
  settings.bits = BitScheduleText(*schedule);
  return absl::OkStatus();
}

}  // namespace

bool BitsFollowLinks(const RunSettings& settings) { return settings.bits == kBandwidthBits; }

std::string CodecFamilyOf(const CodecSchedule& codecs, absl::string_view fallback) {
  const std::string& family = codecs.steps().front().codec.family;
  const CodecRow* row = FindCodecFamily(family);
  const bool has_parameter = row == nullptr || row->parameter.kind != ParameterRange::Kind::kNone;
  return has_parameter ? family : std::string(fallback);
}

absl::Status ResolveCodecs(const NumberFormat& format, const BitSwitches& switches,
                           RunSettings& settings) {
  for (const CodecFlag& flag : kFlags) {
    const CodecSchedule& codecs = settings.*flag.codecs;
    if (settings.bits.empty() || !Has(codecs, RecipeCodec())) continue;
    return BadFlag(flag.name, codecs.text(),
                   absl::InvalidArgumentError(
                       absl::StrCat("the recipe's level gives the bits, and --bits ", settings.bits,
                                    " would give others; leave out --bits or codec recipe")));
  }
  if (!settings.bits.empty()) RUNNEL_RETURN_IF_ERROR(ApplyBits(format, switches, settings));
  for (const CodecFlag& flag : kFlags) {
    CodecSchedule& codecs = settings.*flag.codecs;
    if (Has(codecs, RecipeCodec())) {
      if (absl::Status status = CheckHasLevels(settings.recipe); !status.ok())
        return BadFlag(flag.name, codecs.text(), status);
      // The codes of integers are what their lossless codec sends.
      if (format.integer_boundaries())
        codecs = codecs.Replaced(RecipeCodec(), LosslessCodec(format));
    }
    codecs = codecs.Replaced(CodecId::Identity(), LosslessCodec(format));
    if (absl::Status status = CheckCodecs(codecs, format, flag.direction); !status.ok()) {
      return BadFlag(flag.name, codecs.text(), status);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCodecParameters(const ModelSpec& model, const RunSettings& settings) {
  const int64_t samples = std::max<int64_t>(
      1, settings.training.batch_size / std::max<int64_t>(1, settings.training.micro_batches));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(model, samples));
  for (const CodecFlag& flag : kFlags) {
    for (const CodecStep& step : (settings.*flag.codecs).steps()) {
      RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(step.codec));
      if (row->largest == nullptr) continue;
      int64_t most = 1;
      for (size_t i = 0; i + 1 < layers.size(); ++i) {
        most = std::max(most, row->largest(layers[i].output));
      }
      if (step.codec.parameter.value_or(0) <= static_cast<double>(most)) continue;
      return BadFlag(flag.name, (settings.*flag.codecs).text(),
                     absl::InvalidArgumentError(absl::StrCat(
                         "codec ", step.codec.text(), " is beyond every boundary of ", model.name,
                         " with ", samples, " samples; at most ", row->family, ":", most)));
    }
  }
  return absl::OkStatus();
}

std::vector<CodecId> CodecsInSettings(const RunSettings& settings) {
  std::vector<CodecId> codecs;
  const auto add = [&codecs](const CodecId& codec) {
    if (std::find(codecs.begin(), codecs.end(), codec) == codecs.end()) codecs.push_back(codec);
  };
  for (const CodecFlag& flag : kFlags) {
    const CodecSchedule& schedule = settings.*flag.codecs;
    for (const CodecStep& step : schedule.steps()) add(step.codec);
    if (!BitsFollowLinks(settings)) continue;
    const auto format = FormatOf(settings);
    const auto choices = ChoicesFor(schedule, format.ok() ? *format : NumberFormat());
    if (!choices.ok()) continue;
    for (const BitsChoice& choice : *choices) add(choice.codec);
  }
  return codecs;
}

}  // namespace runnel
