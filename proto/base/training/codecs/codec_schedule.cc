#include "proto/base/training/codecs/codec_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
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
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CEscape(part),
                       "' is no codec; give CODEC, or EPOCH:CODEC,... e.g. 0:mbq:2,60:mbq:3"));
    }
    part.remove_prefix(colon + 1);
  } else if (!first) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CEscape(part), "' needs its epoch in front, e.g. 60:mbq:3"));
  }
  if (part.empty()) return absl::InvalidArgumentError("a codec is missing");
  RUNNEL_ASSIGN_OR_RETURN(step.codec, CodecId::Parse(part));
  return step;
}

}  // namespace

CodecSchedule::CodecSchedule(std::vector<CodecStep> steps) {
  for (CodecStep& step : steps) {
    if (steps_.empty() || steps_.back().codec != step.codec) steps_.push_back(std::move(step));
  }
}

absl::StatusOr<CodecSchedule> CodecSchedule::Parse(absl::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a list of codecs of ", text.size(), " characters; at most ", kMaxTextBytes));
  }
  return Parse(std::vector<std::string>(absl::StrSplit(text, ',')));
}

absl::StatusOr<CodecSchedule> CodecSchedule::Parse(absl::Span<const std::string> parts) {
  std::vector<CodecStep> steps;
  for (const std::string& part : parts) {
    RUNNEL_ASSIGN_OR_RETURN(CodecStep step, ParseStep(part, steps.empty()));
    if (steps.empty() ? step.epoch != 0 : step.epoch <= steps.back().epoch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", step.epoch, ": the first must be 0, and each above the one before"));
    }
    steps.push_back(std::move(step));
  }
  if (steps.empty()) return absl::InvalidArgumentError("a codec is missing");
  CodecSchedule schedule(std::move(steps));
  if (const std::string text = schedule.text(); text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a list of codecs of ", text.size(), " characters; at most ", kMaxTextBytes));
  }
  return schedule;
}

std::string CodecSchedule::text() const {
  if (steps_.size() == 1) return steps_[0].codec.text();
  std::string text;
  for (const CodecStep& step : steps_) {
    absl::StrAppend(&text, text.empty() ? "" : ",", step.epoch, ":", step.codec.text());
  }
  return text;
}

size_t CodecSchedule::StepIn(int64_t epoch) const {
  size_t found = 0;
  for (size_t i = 1; i < steps_.size(); ++i) {
    if (epoch >= steps_[i].epoch) found = i;
  }
  return found;
}

int64_t CodecSchedule::EpochsOf(size_t step, int64_t epochs) const {
  const int64_t end = step + 1 < steps_.size() ? std::min(steps_[step + 1].epoch, epochs) : epochs;
  return std::max<int64_t>(0, end - steps_[step].epoch);
}

CodecSchedule CodecSchedule::Replaced(const CodecId& from, const CodecId& to) const {
  std::vector<CodecStep> steps = steps_;
  for (CodecStep& step : steps) {
    if (step.codec == from) step.codec = to;
  }
  return CodecSchedule(std::move(steps));
}

}  // namespace runnel
