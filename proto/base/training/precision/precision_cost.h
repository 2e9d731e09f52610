#pragma once

// Effective multiply-adds of a run whose products have few bits (FracTrain): a product of a bits by b
// bits counts a/32 * b/32. All layers count: those that the recipe leaves in FP32 as a whole, attention
// too. With gates a sample counts what its options compute; what held gates drew is drawn again. What
// gates that learn have chosen is not known here (`gates_learn`). An activation of dorefa that no ReLU
// bounds counts as if it were on the grid.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/recipe_family.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

// By pass.
struct PassMacs {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double sum() const { return forward + input_gradient + weight_gradient; }
};

// By where the products stand, each site once.
struct SiteMacs {
  ProductSite site;
  PassMacs macs;
};
double SumOf(absl::Span<const SiteMacs> sites);

// Multiply-adds of training one sample.
struct SampleMacs {
  std::vector<SiteMacs> all;
  // Of those the products behind gates, a row a gate, in the model's order.
  struct Gated {
    int layer = 0;
    OpSpec gate;
    std::vector<SiteMacs> macs;
  };
  std::vector<Gated> gated;
};
// Errors as InferShapes. A frozen layer has no weight-gradient, and nothing before the first weights
// that train has an input-gradient.
absl::StatusOr<SampleMacs> SampleMacsOf(const ModelSpec& model);

// Effective ones, with these bits of a level; 0: the recipe's own.
PassMacs EffectiveMacs(absl::Span<const SiteMacs> macs, const RecipeName& recipe,
                       const GridBits& level);

struct PrecisionCost {
  struct Level {
    GridBits bits;  // 0/0: the recipe's own
    int64_t steps = 0;
    double effective_share = 0;  // mean of its steps: of the multiply-adds in FP32
  };

  // Only kernels know what was done: all but macs_in_full and the levels' steps is of no sample that
  // skips.
  bool gates_learn = false;
  double samples = 0;                // that were trained
  double macs_done = 0;              // multiply-adds of the run, of whatever bits
  double macs_in_full = 0;           // had no sample skipped anything
  PassMacs effective;                // of the run
  double macs_of_8_8 = 0;            // effective, had all operands with fewer bits than FP32 8
  std::vector<Level> levels;         // those that the run had, in the order in which they came
  int64_t turns = 0;                 // changes of the dial
  std::vector<double> effective_at;  // effective ones of the steps before each of the marks

  double effective_share() const { return macs_in_full > 0 ? effective.sum() / macs_in_full : 0; }
  double share_of_8_8() const { return macs_of_8_8 > 0 ? effective.sum() / macs_of_8_8 : 0; }
};

// Of the steps 0 to `steps` - 1 of a run; the changes are those that hold there. `marks` are steps, in
// ascending order, of which none is behind `steps`. InvalidArgument: how many bits the recipe's
// products have is not known before the run, or they are FP32's and the model has no gates; or settings
// and model do not fit.
absl::StatusOr<PrecisionCost> CostOfPrecision(const ModelSpec& model, const RecipeName& recipe,
                                              const TrainingSettings& training,
                                              const std::vector<TrainingChange>& changes,
                                              int64_t steps, absl::Span<const int64_t> marks = {});

}  // namespace runnel
