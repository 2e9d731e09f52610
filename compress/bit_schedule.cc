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

constexpr int kMaxBits = 32;

void AddScaled(int64_t paper_epoch, int bits, int64_t epochs, std::vector<BitStep>& steps) {
  const int64_t epoch = (paper_epoch * epochs + BitSwitches::kEpochs / 2) / BitSwitches::kEpochs;
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

BitSchedule AcceptBits(const BitSwitches& switches, int64_t epochs) {
  BitSchedule schedule = {{{0, 2}}, {{0, 8}}};
  AddScaled(switches.forward_3_bits, 3, epochs, schedule.forward);
  AddScaled(switches.forward_4_bits, 4, epochs, schedule.forward);
  AddScaled(switches.backward_4_bits, 4, epochs, schedule.backward);
  return schedule;
}

absl::string_view AcceptFamily(Direction direction) {
  return direction == Direction::kForward ? "mbq" : "stochastic";
}

absl::StatusOr<BitSchedule> ParseBitSchedule(absl::string_view text, const BitSwitches& switches,
                                             int64_t epochs) {
  if (text == "accept") return AcceptBits(switches, epochs);
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

absl::StatusOr<CodecSchedule> CodecsOfBits(absl::string_view family,
                                           const std::vector<BitStep>& steps) {
  std::vector<CodecStep> codecs;
  for (const BitStep& step : steps) {
    codecs.push_back({step.epoch, {std::string(family), step.bits}});
    RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codecs.back().codec));
    if (row->bits == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("codec ", family, ": its parameter is no number of bits"));
    }
  }
  return CodecSchedule(std::move(codecs));
}

absl::StatusOr<EncodedBytesFn> MeanEncodedBytes(const CodecSchedule& codecs, int64_t epochs,
                                                const NumberFormat& format, Direction direction) {
  struct Part {
    std::shared_ptr<const Codec> codec;
    int64_t epochs;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < codecs.steps().size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<const Codec> codec, MakeCodec(codecs.steps()[i].codec));
    parts.push_back({std::move(codec), codecs.EpochsOf(i, epochs)});
  }
  return EncodedBytesFn([parts = std::move(parts), epochs, format, direction](const Shape& shape) {
    // Bytes stay below 2^34 and epochs below 2^30: whole and rest apart keep within 64 bits.
    int64_t whole = 0, rest = 0;
    for (const Part& part : parts) {
      const int64_t bytes = PayloadBytes(*part.codec, format, direction, shape).value();
      whole += bytes / epochs * part.epochs;
      rest += bytes % epochs * part.epochs;
    }
    return Bytes(whole + (rest + epochs - 1) / epochs);
  });
}

absl::StatusOr<KeptBytesFn> MostKeptBytes(const CodecSchedule& codecs) {
  std::vector<std::shared_ptr<const Codec>> keeping;
  for (const CodecStep& step : codecs.steps()) {
    RUNNEL_ASSIGN_OR_RETURN(std::shared_ptr<const Codec> codec, MakeCodec(step.codec));
    if (codec->keeps_samples()) keeping.push_back(std::move(codec));
  }
  if (keeping.empty()) return nullptr;
  return KeptBytesFn([keeping = std::move(keeping)](const Shape& shape, int64_t samples) {
    int64_t most = 0;
    for (const auto& codec : keeping)
      most = std::max(most, codec->KeptBytes(shape, samples).value());
    return most;
  });
}

}  // namespace runnel
