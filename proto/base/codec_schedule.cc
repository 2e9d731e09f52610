#include "proto/base/codec_schedule.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// "60:mbq:3" or, without an epoch, "mbq:3": names of codecs begin with a letter.
absl::StatusOr<CodecStep> ParseStep(absl::string_view part, bool first) {
  CodecStep step;
  if (!part.empty() && !absl::ascii_isalpha(static_cast<unsigned char>(part[0]))) {
    const size_t colon = part.find(':');
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(part.substr(0, colon), &step.epoch)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is no codec; give CODEC, or EPOCH:CODEC,... e.g. 0:mbq:2,60:mbq:3"));
    }
    part.remove_prefix(colon + 1);
  } else if (!first) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part, "' needs its epoch in front, e.g. 60:", part));
  }
  if (part.empty()) return absl::InvalidArgumentError("a codec is missing");
  step.codec = std::string(part);
  return step;
}

}  // namespace

absl::StatusOr<std::vector<CodecStep>> ParseCodecSchedule(absl::string_view text) {
  if (text.size() > kMaxCodecScheduleBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a list of codecs of ", text.size(), " characters; at most ", kMaxCodecScheduleBytes));
  }
  std::vector<CodecStep> steps;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    RUNNEL_ASSIGN_OR_RETURN(CodecStep step, ParseStep(part, steps.empty()));
    if (steps.empty() ? step.epoch != 0 : step.epoch <= steps.back().epoch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", step.epoch, ": the first must be 0, and each above the one before"));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string CodecScheduleText(const std::vector<CodecStep>& steps) {
  std::string text;
  std::string last;
  bool alone = true;
  for (const CodecStep& step : steps) {
    if (step.codec == last) continue;
    alone = last.empty();
    last = step.codec;
    absl::StrAppend(&text, text.empty() ? "" : ",", step.epoch, ":", step.codec);
  }
  return alone ? last : text;
}

size_t StepInEpoch(const std::vector<CodecStep>& steps, int64_t epoch) {
  size_t found = 0;
  for (size_t i = 1; i < steps.size(); ++i) {
    if (epoch >= steps[i].epoch) found = i;
  }
  return found;
}

}  // namespace runnel
