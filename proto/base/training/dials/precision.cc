#include "proto/base/training/dials/precision.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Kind = PrecisionSetting::Kind;
using TextPair = std::pair<absl::string_view, absl::string_view>;

constexpr int kMostBits = 16;
constexpr absl::string_view kForms =
    "give recipe, fixed:FW/BW, pfq:FW,.../BW,...[@EPS,ALPHA,EVERY[,LATEST]], cpt:LEAST,MOST/BW or "
    "at:EPOCH:FW/BW,...";

absl::StatusOr<int> ParseBits(absl::string_view text) {
  int bits = 0;
  if (absl::SimpleAtoi(text, &bits) && bits >= 1 && bits <= kMostBits) return bits;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no number of bits from 1 to ", kMostBits));
}

absl::StatusOr<std::vector<int>> ParseBitsList(absl::string_view text) {
  std::vector<int> list;
  for (absl::string_view one : absl::StrSplit(text, ',')) {
    RUNNEL_ASSIGN_OR_RETURN(const int bits, ParseBits(one));
    if (!list.empty() && bits < list.back()) {
      return absl::InvalidArgumentError(
          absl::StrCat("bits fall from ", list.back(), " to ", bits, "; let them rise or stay"));
    }
    list.push_back(bits);
  }
  if (list.size() > kMostPrecisionLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat(list.size(), " levels, at most ", kMostPrecisionLevels));
  }
  return list;
}

// "3,4,6,8" and "6,6,8,8" of a text with one slash.
absl::StatusOr<std::pair<std::vector<int>, std::vector<int>>> ParseLists(absl::string_view text) {
  const std::vector<absl::string_view> sides = absl::StrSplit(text, '/');
  if (sides.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not FW/BW: bits of weights and activations / of gradients"));
  }
  std::pair<std::vector<int>, std::vector<int>> lists;
  RUNNEL_ASSIGN_OR_RETURN(lists.first, ParseBitsList(sides[0]));
  RUNNEL_ASSIGN_OR_RETURN(lists.second, ParseBitsList(sides[1]));
  return lists;
}

absl::Status ParseLevels(absl::string_view text, PrecisionSetting& setting) {
  RUNNEL_ASSIGN_OR_RETURN(const auto lists, ParseLists(text));
  const auto& [forward, backward] = lists;
  if (forward.size() != backward.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has ", forward.size(), " FW and ",
                                                   backward.size(), " BW; give as many of both"));
  }
  for (size_t i = 0; i < forward.size(); ++i) setting.levels.push_back({forward[i], backward[i]});
  return absl::OkStatus();
}

absl::Status ParseFixed(absl::string_view text, PrecisionSetting& setting) {
  setting.kind = Kind::kFixed;
  RUNNEL_RETURN_IF_ERROR(ParseLevels(text, setting));
  if (setting.levels.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' has several levels; give one"));
}

absl::Status ParseCycle(absl::string_view text, PrecisionSetting& setting) {
  setting.kind = Kind::kCycle;
  RUNNEL_ASSIGN_OR_RETURN(const auto lists, ParseLists(text));
  if (lists.first.size() != 2 || lists.second.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not LEAST,MOST/BW"));
  for (const int forward : lists.first) setting.levels.push_back({forward, lists.second[0]});
  return absl::OkStatus();
}

// Levels may fall: whoever gives epochs has decided.
absl::Status ParseEpochs(absl::string_view text, PrecisionSetting& setting) {
  setting.kind = Kind::kEpochs;
  for (absl::string_view one : absl::StrSplit(text, ',')) {
    const TextPair parts = absl::StrSplit(one, absl::MaxSplits(':', 1));
    int64_t epoch = 0;
    if (!absl::SimpleAtoi(parts.first, &epoch) || epoch < 0)
      return absl::InvalidArgumentError(absl::StrCat("'", one, "' is not EPOCH:FW/BW"));
    const bool ascends =
        setting.from_epochs.empty() ? epoch == 0 : epoch > setting.from_epochs.back();
    if (!ascends)
      return absl::InvalidArgumentError(absl::StrCat("epochs do not ascend from 0 at '", one, "'"));
    setting.from_epochs.push_back(epoch);
    PrecisionSetting level;
    RUNNEL_RETURN_IF_ERROR(ParseFixed(parts.second, level));
    setting.levels.push_back(level.levels.front());
  }
  if (setting.levels.size() <= kMostPrecisionLevels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(setting.levels.size(), " epochs, at most ", kMostPrecisionLevels));
}

// Whether there is such a rule is central's to say.
absl::Status ParseRule(absl::string_view name, absl::string_view text, PrecisionSetting& setting) {
  setting.kind = Kind::kRule;
  setting.rule = std::string(name);
  const TextPair parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  if (parts.second.empty() && absl::StrContains(text, '@'))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has nothing behind its @"));
  setting.rule_arguments = std::string(parts.second);
  return ParseLevels(parts.first, setting);
}

absl::Status CheckRange(absl::string_view side, int bits, int least, int most) {
  if (bits >= least && bits <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(side, " of ", bits, " bits; give ", least, " to ", most));
}

// Changes were checked when they were made, but not against these settings.
size_t LevelOf(const PrecisionSetting& setting, const TrainingChange& change) {
  const int64_t level = PrecisionLevelOfValue(change.value).value_or(0);
  return std::min(static_cast<size_t>(level), setting.levels.size() - 1);
}

// Where the cosine of the cycle is at this step, 0 to 1.
double CycleShare(int64_t run_steps, int64_t step) {
  const int64_t period = std::max<int64_t>(run_steps / kPrecisionCycles, 1);
  const double at = static_cast<double>(step % period) / static_cast<double>(period);
  return (1 - std::cos(std::numbers::pi * at)) / 2;
}

}  // namespace

absl::StatusOr<PrecisionSetting> ParsePrecision(absl::string_view text) {
  PrecisionSetting setting;
  if (text == "recipe") return setting;
  const TextPair parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool is_name =
      !parts.first.empty() && std::all_of(parts.first.begin(), parts.first.end(), [](char c) {
        return absl::ascii_islower(static_cast<unsigned char>(c));
      });
  if (!is_name || parts.second.empty())
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no precision; ", kForms));
  const auto& [kind, levels] = parts;
  const absl::Status status = kind == "fixed" ? ParseFixed(levels, setting)
                              : kind == "cpt" ? ParseCycle(levels, setting)
                              : kind == "at"  ? ParseEpochs(levels, setting)
                                              : ParseRule(kind, levels, setting);
  RUNNEL_RETURN_IF_ERROR(status);
  return setting;
}

absl::Status CheckPrecisionSetting(absl::string_view text) { return ParsePrecision(text).status(); }

absl::Status CheckPrecisionOf(const PrecisionSetting& setting, const RecipeName& recipe) {
  if (setting.kind == Kind::kRecipe) return absl::OkStatus();
  const GridLimits& grids = recipe.family->grids;
  const auto& parameters = recipe.parameters;
  const bool any = std::any_of(parameters.begin(), parameters.end(),
                               [](const std::string& bits) { return bits != "32"; });
  if (!grids.any() || !any) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recipe ", recipe.text,
        recipe.family->operands != nullptr && !grids.any() ? " has fixed bits" : " has no grids",
        "; take --recipe sbm:8,8,8"));
  }
  if (parameters[0] == "1") {
    return absl::InvalidArgumentError(absl::StrCat(
        "recipe ", recipe.text, " has weights of 1 bit, which have no levels; give it 2 to 8"));
  }
  for (const GridBits& level : setting.levels) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(absl::StrCat("recipe ", recipe.text, " has no FW"),
                                      level.forward, grids.forward_least, grids.forward_most));
    RUNNEL_RETURN_IF_ERROR(CheckRange(absl::StrCat("recipe ", recipe.text, " has no BW"),
                                      level.backward, grids.backward_least, grids.backward_most));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PrecisionLevelOfValue(absl::string_view value) {
  int64_t level = 0;
  if (absl::SimpleAtoi(value, &level) && level >= 0 &&
      level < static_cast<int64_t>(kMostPrecisionLevels))
    return level;
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is no level from 0 to ", kMostPrecisionLevels - 1));
}

absl::Status CheckPrecisionValue(absl::string_view value) {
  return PrecisionLevelOfValue(value).status();
}

TrainingChange ChangeOfPrecision(int64_t step, int64_t level) {
  return {step, std::string(kPrecisionDial), absl::StrCat(level)};
}

int64_t PrecisionLevelAt(const PrecisionSetting& setting,
                         const std::vector<TrainingChange>& changes, int64_t epoch, int64_t step) {
  if (setting.kind == Kind::kEpochs) {
    const auto behind =
        std::upper_bound(setting.from_epochs.begin(), setting.from_epochs.end(), epoch);
    return behind - setting.from_epochs.begin() - 1;
  }
  const TrainingChange* change = ChangeAt(changes, kPrecisionDial, step);
  if (setting.kind != Kind::kRule || change == nullptr) return 0;
  return static_cast<int64_t>(LevelOf(setting, *change));
}

GridBits PrecisionAt(const PrecisionSetting& setting, const std::vector<TrainingChange>& changes,
                     int64_t run_steps, int64_t epoch, int64_t step) {
  if (setting.levels.empty()) return {};
  if (setting.kind == Kind::kCycle) {
    const int least = setting.levels.front().forward, most = setting.levels.back().forward;
    const double rise = (most - least) * CycleShare(run_steps, step);
    // To the nearest, halves down: the last digits of a cosine, which hosts round differently, must
    // not decide.
    constexpr double kSlack = 1e-9;
    const double rounded = std::floor(rise + 0.5 - kSlack);
    return {least + static_cast<int>(rounded), setting.levels.front().backward};
  }
  return setting.levels[static_cast<size_t>(PrecisionLevelAt(setting, changes, epoch, step))];
}

GridBits LastPrecision(const PrecisionSetting& setting,
                       const std::vector<TrainingChange>& changes) {
  if (setting.levels.empty()) return {};
  const TrainingChange* last = LastChange(changes, kPrecisionDial);
  if (last != nullptr) return setting.levels[LevelOf(setting, *last)];
  return setting.kind == Kind::kRule ? setting.levels.front() : setting.levels.back();
}

std::string RecipeAtLevel(const RecipeName& recipe, const GridBits& level) {
  if (!recipe.family->grids.any() || level.forward == 0) return recipe.text;
  std::vector<std::string> bits = recipe.parameters;
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] == "32" || bits[i] == "1") continue;
    bits[i] = absl::StrCat(i + 1 == bits.size() ? level.backward : level.forward);
  }
  return absl::StrCat(recipe.family->name, ":", absl::StrJoin(bits, ","));
}

int MostForwardBits(const PrecisionSetting& setting) {
  int most = 0;
  for (const GridBits& level : setting.levels) most = std::max(most, level.forward);
  return most;
}

RecipeMemory MemoryOf(const RecipeName& recipe, const PrecisionSetting& setting) {
  RecipeMemory memory = recipe.family->memory;
  if (memory.kept_codes == KeptCodes::kNone || recipe.family->operands == nullptr) return memory;
  const auto bits_at = [&](int forward) {
    const GridBits level = {.forward = forward};
    return static_cast<int>(recipe.family->operands(recipe.parameters, {}, level).activation);
  };
  memory.code_bits = std::max(bits_at(0), bits_at(MostForwardBits(setting)));
  return memory;
}

std::string GridBitsText(const GridBits& bits) {
  return absl::StrCat(bits.forward, "/", bits.backward);
}

}  // namespace runnel
