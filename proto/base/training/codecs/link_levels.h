#pragma once

// Codec `recipe`: a link sends a tensor in the bits that the recipe's grids have for its
// micro-batch, by the level of --precision: activations in those of activations, gradients in those
// of gradients. Both ends take codec grid:BITS (compress/grid.h) in its place, or identity where the
// recipe leaves the values as they are. Behind gates, whose samples have bits of their own, a link
// has the largest bits of any option.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/grid_bits.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

// Codec `recipe`, which stands in plans, journals and messages.
CodecId RecipeCodec();

// Immutable; any thread.
class LinkLevels {
 public:
  // Of a run whose recipe has no grids.
  LinkLevels() = default;
  // Levels of a run; none where the recipe has no grids, or is none. InvalidArgument: the settings'
  // precision is none.
  static absl::StatusOr<LinkLevels> Of(absl::string_view recipe, const TrainingSettings& training,
                                       const ModelSpec& model);

  bool any() const { return named_.forward > 0; }
  // Whether bits go up and down by the step, and not by turns.
  bool cycles() const { return precision_.kind == PrecisionSetting::Kind::kCycle; }
  // The bits of links in a micro-batch of this epoch and step; 32: values stay as they are.
  GridBits At(const std::vector<TrainingChange>& changes, int64_t epoch, int64_t step) const;
  // The bits that plans count time by: those of the step, and of a cycle, whose bits come back
  // before a move pays, the largest.
  GridBits Planned(const std::vector<TrainingChange>& changes, int64_t epoch, int64_t step) const;
  // The largest of all levels, which memory is planned for.
  GridBits Largest() const;
  // The codecs of all levels, each once, fewest bits first; empty without grids.
  std::vector<CodecId> Codecs(Direction direction) const;

 private:
  // Bits of links at a level of the dial.
  GridBits OfLevel(const GridBits& level) const;

  GridBits named_;  // by the recipe's name, and the options of gates
  PrecisionSetting precision_;
  int64_t run_steps_ = 0;
};

// The codec that takes the place of `recipe` with these bits.
CodecId LevelCodec(Direction direction, const GridBits& bits);

// The codecs with that one in the place of `recipe`.
CodecSchedule CodecsAtLevel(const CodecSchedule& codecs, Direction direction, const GridBits& bits);

// InvalidArgument: the recipe of this name has no grids; nothing is said of recipes in integers, whose
// lossless codec sends their codes.
absl::Status CheckHasLevels(absl::string_view recipe);

}  // namespace runnel
