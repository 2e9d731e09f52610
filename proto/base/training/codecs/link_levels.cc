#include "proto/base/training/codecs/link_levels.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/precision/gate_options.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {
namespace {

constexpr int kUnrounded = 32;

int BitsOf(const std::string& parameter) {
  int bits = kUnrounded;
  return absl::SimpleAtoi(parameter, &bits) ? bits : kUnrounded;
}

// Bits of the recipe's activations and gradients, W,A,G being its parameters; 0/0: no grids.
GridBits NamedBits(absl::string_view recipe) {
  const absl::StatusOr<RecipeName> name = ParseRecipeName(recipe);
  if (!name.ok() || !name->family->grids.any() || name->parameters.size() != 3) return {};
  const GridBits bits = {BitsOf(name->parameters[1]), BitsOf(name->parameters[2])};
  const bool any = bits.forward < kUnrounded || bits.backward < kUnrounded;
  return any ? bits : GridBits();
}

// Samples of a gated block have up to so many bits. An option in full has the recipe's own.
void CoverOptions(const ModelSpec& model, GridBits& bits) {
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind != OpKind::kGate) continue;
      for (int option = 0; option < OptionCount(op); ++option) {
        const GridBits of_option = BitsOfOption(op, option);
        bits.forward = std::max(bits.forward, of_option.forward);
        bits.backward = std::max(bits.backward, of_option.backward);
      }
    }
  }
}

}  // namespace

CodecId RecipeCodec() { return {"recipe", std::nullopt}; }

CodecId LevelCodec(Direction direction, const GridBits& bits) {
  const int of_direction = direction == Direction::kForward ? bits.forward : bits.backward;
  if (of_direction == kUnrounded) return CodecId::Identity();
  return {"grid", of_direction};
}

CodecSchedule CodecsAtLevel(const CodecSchedule& codecs, Direction direction,
                            const GridBits& bits) {
  return codecs.Replaced(RecipeCodec(), LevelCodec(direction, bits));
}

absl::StatusOr<LinkLevels> LinkLevels::Of(absl::string_view recipe,
                                          const TrainingSettings& training,
                                          const ModelSpec& model) {
  LinkLevels levels;
  levels.named_ = NamedBits(recipe);
  if (!levels.any()) return levels;
  CoverOptions(model, levels.named_);
  RUNNEL_ASSIGN_OR_RETURN(levels.precision_, ParsePrecision(training.precision));
  levels.run_steps_ = training.run_steps;
  return levels;
}

GridBits LinkLevels::OfLevel(const GridBits& level) const {
  const auto at = [](int named, int of_level) {
    return named == kUnrounded || of_level == 0 ? named : of_level;
  };
  return {at(named_.forward, level.forward), at(named_.backward, level.backward)};
}

GridBits LinkLevels::At(const std::vector<TrainingChange>& changes, int64_t epoch,
                        int64_t step) const {
  return OfLevel(PrecisionAt(precision_, changes, run_steps_, epoch, step));
}

GridBits LinkLevels::Planned(const std::vector<TrainingChange>& changes, int64_t epoch,
                             int64_t step) const {
  return cycles() ? Largest() : At(changes, epoch, step);
}

GridBits LinkLevels::Largest() const {
  GridBits largest = OfLevel({});
  if (!precision_.levels.empty()) largest = OfLevel(precision_.levels.front());
  for (const GridBits& level : precision_.levels) {
    const GridBits bits = OfLevel(level);
    largest = {std::max(largest.forward, bits.forward), std::max(largest.backward, bits.backward)};
  }
  return largest;
}

std::vector<CodecId> LinkLevels::Codecs(Direction direction) const {
  if (!any()) return {};
  std::vector<GridBits> levels = precision_.levels;
  if (levels.empty()) levels.push_back({});
  // A cycle has all bits from its least to its largest.
  if (cycles()) {
    for (int bits = levels.front().forward; bits < precision_.levels.back().forward; ++bits)
      levels.push_back({bits, levels.front().backward});
  }
  std::set<int> all;
  for (const GridBits& level : levels) {
    const GridBits bits = OfLevel(level);
    all.insert(direction == Direction::kForward ? bits.forward : bits.backward);
  }
  std::vector<CodecId> codecs;
  for (const int bits : all) codecs.push_back(LevelCodec(direction, {bits, bits}));
  return codecs;
}

absl::Status CheckHasLevels(absl::string_view recipe) {
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName name, ParseRecipeName(recipe));
  if (name.family->format.integer_boundaries() || NamedBits(recipe) != GridBits())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("recipe ", recipe,
                   " has no grids whose bits a link could take; take --recipe "
                   "sbm:8,8,8, or another codec"));
}

}  // namespace runnel
