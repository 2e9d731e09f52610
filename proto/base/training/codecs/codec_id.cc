#include "proto/base/training/codecs/codec_id.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel {
namespace {

constexpr absl::string_view kIdentity = "identity";
constexpr absl::string_view kInt8 = "int8";

bool IsFamilyName(absl::string_view name) {
  return !name.empty() && absl::ascii_islower(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

// "mbq:", or "mx:fp" of a family that has a word there.
std::string BeforeParameter(absl::string_view family) {
  return absl::StrCat(family, absl::StrContains(family, ':') ? "" : ":");
}

}  // namespace

CodecId CodecId::Identity() { return {std::string(kIdentity), std::nullopt}; }

absl::StatusOr<CodecId> CodecId::Parse(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view family = text.substr(0, colon);
  if (!IsFamilyName(family)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec \"", absl::CEscape(text), "\" should be FAMILY or FAMILY:PARAMETER, e.g. mbq:4"));
  }
  CodecId codec{std::string(family), std::nullopt};
  if (colon == absl::string_view::npos) return codec;
  absl::string_view parameter = text.substr(colon + 1);
  const auto* number = std::find_if_not(parameter.begin(), parameter.end(),
                                        [](unsigned char c) { return absl::ascii_islower(c); });
  if (number != parameter.begin() && number != parameter.end()) {  // "mx:fp8"
    const size_t word = static_cast<size_t>(number - parameter.begin());
    codec.family = std::string(text.substr(0, colon + 1 + word));
    parameter.remove_prefix(word);
  }
  double value = 0;
  if (!absl::SimpleAtod(parameter, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", family, ": parameter \"",
                                                   absl::CEscape(parameter), "\" is no number"));
  }
  if (absl::StrCat(value) != parameter) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", family, ": parameter \"",
                                                   absl::CEscape(parameter),
                                                   "\" should be written ", value));
  }
  codec.parameter = value;
  return codec;
}

std::string CodecId::text() const {
  return parameter.has_value() ? absl::StrCat(BeforeParameter(family), *parameter) : family;
}

CodecId LosslessCodec(const NumberFormat& format) {
  return format.integer_boundaries() ? CodecId{std::string(kInt8), std::nullopt}
                                     : CodecId::Identity();
}

bool ParameterRange::Contains(const std::optional<double>& parameter) const {
  if (kind == Kind::kNone || !parameter.has_value()) {
    return kind == Kind::kNone && !parameter.has_value();
  }
  if (!(*parameter >= min && *parameter <= max)) return false;
  return kind == Kind::kRatio || std::fmod(*parameter - min, step) == 0;
}

std::string ParameterRange::text() const {
  if (kind == Kind::kNone) return "";
  if (kind == Kind::kRatio || step == 1) return absl::StrCat(min, "..", max);
  std::string text = absl::StrCat(min);
  for (double value = min + step; value <= max; value += step) absl::StrAppend(&text, "|", value);
  return text;
}

std::string CodecFamily::text() const {
  if (parameter.kind == ParameterRange::Kind::kNone) return name;
  return absl::StrCat(BeforeParameter(name), parameter.text());
}

absl::Status CheckHasCodec(const std::vector<CodecFamily>& families, const CodecId& codec) {
  for (const CodecFamily& family : families) {
    if (family.name == codec.family && family.parameter.Contains(codec.parameter)) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", codec.text(), " is not among ",
                   absl::StrJoin(families, ", ", [](std::string* out, const CodecFamily& family) {
                     absl::StrAppend(out, family.text());
                   })));
}

}  // namespace runnel
