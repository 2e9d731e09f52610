#pragma once

// What everybody may know of a training recipe without its kernels: its name and parameters, its
// number types, and which models it cannot train. Pure functions; any thread.
//
// A recipe's name is its family's, or "family:parameters". What stands behind the colon is a list
// separated by commas. The family's pattern says what each element may be: alternatives separated
// by '|', each a word or a range of integers.
//
//   pattern                        names
//   ""                             fp32
//   "|niti2020|niti2021"           niti, niti:niti2020, niti:niti2021
//   "1..8|32,1..8|32,1..8|32"      dorefa:1,2,6, dorefa:4,4,8, dorefa:1,32,32, ...

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/grid_bits.h"
#include "proto/base/training/precision/operand_bits.h"
#include "proto/base/training/training.h"

namespace runnel {

// An operator that a family cannot train, and the reason for people.
struct OperatorLimit {
  OpKind op;
  bool (*applies)(const OpSpec& op);
  absl::string_view reason;
};

// Which bits the levels of --precision may have (dials/precision.h).
struct GridLimits {
  int forward_least = 0, forward_most = 0;
  int backward_least = 0, backward_most = 0;

  bool any() const { return forward_most > 0; }
};

// What is kept for the backward where products are those of codes.
enum class KeptCodes : uint8_t {
  kNone,            // floats: products are emulated, or the backward rounds its operands anew
  kAll,             // codes of the inputs of all operators with weights
  kInner,           // of all but the model's first and last one
  kAllBesideNorms,  // of all; what normalisations give is not made again, but kept, too
};

// What a stage's memory has because of the recipe, as plans count it.
struct RecipeMemory {
  KeptCodes kept_codes = KeptCodes::kNone;
  int code_bits = 8;  // of these, at most (MemoryOf in dials/precision.h)
  // Of the layer under way: bytes beside each weight, for its codes or its value on a grid and for a
  // gradient that is corrected; and whether values on grids lie beside those that they are made of.
  int weight_bytes = 0;
  bool copies_values = false;
  bool keeps_copies = false;  // likewise of what operators with weights read, for the backward
};

struct RecipeFamily {
  absl::string_view name;
  absl::string_view parameters;  // the pattern; empty: none
  absl::string_view summary;     // text for --help
  NumberFormat format;
  absl::Span<const OperatorLimit> limits;
  GridLimits grids;          // of families whose parameters are bits W,A,G
  bool is_emulated = false;  // products are those of rounded floats, not of the codes
  RecipeMemory memory;
  OperandBitsOf* operands = nullptr;  // null: FP32, or not known before a run
};

// recipe_families.inc; fp32 first.
absl::Span<const RecipeFamily> RecipeFamilies();

// A name taken apart.
struct RecipeName {
  const RecipeFamily* family = nullptr;
  std::string text;                     // the whole name
  std::vector<std::string> parameters;  // behind the colon; empty: none were given
};
// InvalidArgument names the recipe and the known families, or the allowed parameters of its family.
absl::StatusOr<RecipeName> ParseRecipeName(absl::string_view text);

// The family's numbers as these settings have them: with kept scales, if --rescale keeps any, and
// the slots of their optimizer.
NumberFormat FormatOf(const RecipeFamily& family, const TrainingSettings& training);
// And with what this model, as it is trained, has beside its boundaries.
NumberFormat FormatOf(const RecipeFamily& family, const TrainingSettings& training,
                      const ModelSpec& model);

// "family", or "family:pattern": a worker's offer of the family.
std::string OfferOf(const RecipeFamily& family);
// Whether the recipe of this name is among the offers. Any bytes are allowed in both.
bool IsOffered(absl::string_view recipe, absl::Span<const std::string> offers);
// "fp32 (single precision), niti[:niti2020|niti2021] (...)": for --help.
std::string RecipeHelp();

// InvalidArgument names the model's first layer and operator that the family cannot train, and why:
// a bias of integers, sums of products that an int32 does not hold, ... Also InferShapes' errors.
absl::Status CheckTrainable(const ModelSpec& model, const RecipeFamily& family);

}  // namespace runnel
