#include "compress/bit_schedule.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compress/codec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kPaperEpochs = 200;
constexpr int kMaxBits = 32;

struct PaperRow {
  absl::string_view model;
  int64_t forward[2];  // switch epochs of 2 -> 3 -> 4
  int64_t backward;    // of 8 -> 4
};
constexpr PaperRow kPaper[] = {
    {"mobilenet_v2", {130, 175}, 160},
    {"har_cnn", {60, 160}, 120},
};

void AddScaled(int64_t paper_epoch, int bits, int64_t epochs, std::vector<BitStep>& steps) {
  const int64_t epoch = (paper_epoch * epochs + kPaperEpochs / 2) / kPaperEpochs;
  if (epoch >= epochs) return;
  if (epoch == steps.back().epoch) steps.pop_back();
  steps.push_back({epoch, bits});
}

absl::Status BadPart(absl::string_view part) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", part, "' is no number of bits; give accept, or FORWARD/BACKWARD with a number of bits ",
      "or epochs, e.g. 2,60:3,160:4/8,120:4"));
}

absl::StatusOr<std::vector<BitStep>> ParseSteps(absl::string_view text) {
  std::vector<BitStep> steps;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    BitStep step;
    const size_t colon = part.find(':');
    const bool timed = colon != absl::string_view::npos;
    if (!timed && !steps.empty()) return BadPart(part);
    if (timed && !absl::SimpleAtoi(part.substr(0, colon), &step.epoch)) return BadPart(part);
    if (!absl::SimpleAtoi(timed ? part.substr(colon + 1) : part, &step.bits) || step.bits < 1 ||
        step.bits > kMaxBits) {
      return BadPart(part);
    }
    if (steps.empty() ? step.epoch != 0 : step.epoch <= steps.back().epoch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", step.epoch, ": the first must be 0, and each above the one before"));
    }
    steps.push_back(step);
  }
  return steps;
}

std::string StepsText(const std::vector<BitStep>& steps) {
  std::string text;
  for (const BitStep& step : steps) {
    if (step.epoch > 0) absl::StrAppend(&text, ",", step.epoch, ":");
    absl::StrAppend(&text, step.bits);
  }
  return text;
}

}  // namespace

BitSchedule AcceptBits(absl::string_view model, int64_t epochs) {
  const PaperRow* row = &kPaper[0];
  for (const PaperRow& each : kPaper) {
    if (each.model == model) row = &each;
  }
  BitSchedule schedule = {{{0, 2}}, {{0, 8}}};
  AddScaled(row->forward[0], 3, epochs, schedule.forward);
  AddScaled(row->forward[1], 4, epochs, schedule.forward);
  AddScaled(row->backward, 4, epochs, schedule.backward);
  return schedule;
}

absl::StatusOr<BitSchedule> ParseBitSchedule(absl::string_view text, absl::string_view model,
                                             int64_t epochs) {
  if (text == "accept") return AcceptBits(model, epochs);
  const std::vector<absl::string_view> halves = absl::StrSplit(text, '/');
  if (halves.size() != 2) return BadPart(text);
  BitSchedule schedule;
  RUNNEL_ASSIGN_OR_RETURN(schedule.forward, ParseSteps(halves[0]));
  RUNNEL_ASSIGN_OR_RETURN(schedule.backward, ParseSteps(halves[1]));
  return schedule;
}

std::string BitScheduleText(const BitSchedule& schedule) {
  return absl::StrCat(StepsText(schedule.forward), "/", StepsText(schedule.backward));
}

absl::StatusOr<std::string> CodecsOfBits(absl::string_view family,
                                         const std::vector<BitStep>& steps) {
  std::vector<CodecStep> codecs;
  for (const BitStep& step : steps) {
    codecs.push_back({step.epoch, absl::StrCat(family, ":", step.bits)});
    RUNNEL_RETURN_IF_ERROR(MakeCodec(codecs.back().codec).status());
  }
  return CodecScheduleText(codecs);
}

absl::StatusOr<EncodedBytesFn> MeanEncodedBytes(absl::string_view codecs, int64_t epochs) {
  struct Part {
    std::shared_ptr<const Codec> codec;
    int64_t epochs;
  };
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<CodecStep> steps, ParseCodecSchedule(codecs));
  std::vector<Part> parts;
  for (size_t i = 0; i < steps.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<const Codec> codec, MakeCodec(steps[i].codec));
    const int64_t end = i + 1 < steps.size() ? std::min(steps[i + 1].epoch, epochs) : epochs;
    parts.push_back({std::move(codec), std::max<int64_t>(0, end - steps[i].epoch)});
  }
  return EncodedBytesFn([parts = std::move(parts), epochs](const Shape& shape) {
    // Bytes stay below 2^34 and epochs below 2^30: whole and rest apart keep within 64 bits.
    int64_t whole = 0, rest = 0;
    for (const Part& part : parts) {
      const int64_t bytes = part.codec->EncodedBytes(shape).value();
      whole += bytes / epochs * part.epochs;
      rest += bytes % epochs * part.epochs;
    }
    return Bytes(whole + (rest + epochs - 1) / epochs);
  });
}

}  // namespace runnel
