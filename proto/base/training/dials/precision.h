#pragma once

// The dial of recipes with grids (dorefa, sbm): the level of a micro-batch, an index into the list
// of bits that --precision gives. A value of the dial is that index. Programs are prepared once;
// StepContext::grid_bits says the level's bits.
//
//   recipe                              the bits of the recipe's name
//   fixed:8/8                           FW/BW: bits of weights and activations, bits of gradients
//   pfq:3,4,6,8/6,6,8,8[@ARGUMENTS]     a rule turns the dial from level to level
//                                       (central/planning/rules)
//   cpt:3,8/8                           FW goes up from 3 to 8 in 32 cycles of a cosine (CPT), BW
//                                       stays
//   at:0:3/6,10:8/8                     from epochs on

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/grid_bits.h"
#include "proto/base/training/recipe_family.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

inline constexpr absl::string_view kPrecisionDial = "precision";
inline constexpr size_t kMostPrecisionLevels = 64;
inline constexpr int64_t kPrecisionCycles = 32;  // of a run, with cpt

struct PrecisionSetting {
  enum class Kind { kRecipe, kFixed, kRule, kCycle, kEpochs };

  Kind kind = Kind::kRecipe;
  std::vector<GridBits> levels;      // kCycle: of the least and the largest bits
  std::vector<int64_t> from_epochs;  // kEpochs: by level, ascending from 0
  std::string rule;                  // kRule: its name, and what stands behind the @
  std::string rule_arguments;
};

// TrainingSettings::precision. InvalidArgument says what does not fit: lists of unequal length,
// bits that fall from level to level or are not in 1..16, epochs that do not ascend from 0.
absl::StatusOr<PrecisionSetting> ParsePrecision(absl::string_view text);
absl::Status CheckPrecisionSetting(absl::string_view text);
// InvalidArgument: the recipe has no grids, or not with these bits.
absl::Status CheckPrecisionOf(const PrecisionSetting& setting, const RecipeName& recipe);

// A value of the dial. InvalidArgument: it is no index from 0 to kMostPrecisionLevels - 1.
absl::StatusOr<int64_t> PrecisionLevelOfValue(absl::string_view value);
absl::Status CheckPrecisionValue(absl::string_view value);
// The change to this level from `step` on.
TrainingChange ChangeOfPrecision(int64_t step, int64_t level);

// The level of a step of an epoch, an index into levels; of kCycle 0. Without levels 0.
int64_t PrecisionLevelAt(const PrecisionSetting& setting,
                         const std::vector<TrainingChange>& changes, int64_t epoch, int64_t step);
// The bits of a micro-batch in this epoch and step of a run of `run_steps` steps.
GridBits PrecisionAt(const PrecisionSetting& setting, const std::vector<TrainingChange>& changes,
                     int64_t run_steps, int64_t epoch, int64_t step);
// The bits of an evaluation where no step is known: those of the last change or epoch, and the
// largest of a cycle.
GridBits LastPrecision(const PrecisionSetting& setting, const std::vector<TrainingChange>& changes);

// The recipe whose own bits are those of the level: "sbm:8,8,8" at 3/6 is "sbm:3,3,6". Operands in FP32
// and weights of 1 bit stay so; the same recipe at 0/0, and where it has no grids.
std::string RecipeAtLevel(const RecipeName& recipe, const GridBits& level);

// The largest bits that the levels give weights and activations; 0: those of the recipe's name.
int MostForwardBits(const PrecisionSetting& setting);
// The family's row, for a recipe of this name and levels.
RecipeMemory MemoryOf(const RecipeName& recipe, const PrecisionSetting& setting);

// "4/6".
std::string GridBitsText(const GridBits& bits);

}  // namespace runnel
