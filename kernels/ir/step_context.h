#pragma once

// What an action depends on beside its buffers.

#include <array>
#include <cstdint>

#include "proto/base/ids.h"
#include "proto/base/training/grid_bits.h"
#include "proto/base/training/training.h"

namespace runnel {

class ChoiceTally;
class RangeTally;
class WorkTally;

// Random draws are keyed by run_seed, layer, op and sequence.
struct StepContext {
  uint64_t run_seed = 0;
  Sequence sequence;
  int64_t step = 0;         // optimizer steps of the run before this one
  int64_t step_labels = 1;  // of the whole mini-batch: the loss gradient is divided by it
  // The loss gradient is multiplied with it, and the optimizer's step divides by it: a power of
  // two. 1: FP32 and integers.
  double loss_scale = 1;
  double gradient_factor = 1;      // of the optimizer's step, beside loss_scale: clipping
  double label_smoothing = 0;      // of the training loss (float_loss.h)
  RangeTally* range = nullptr;     // counts what f16 cannot hold; null: nobody counts
  WorkTally* work = nullptr;       // counts what programs with gates compute; null: nobody counts
  ChoiceTally* choices = nullptr;  // is told what gates choose; null: nobody
  // Of the price of gates that learn (dials/cost_target.h): -1, 0 or 1.
  double price_sign = 1;
  bool accumulate =
      false;  // false: weight-gradients overwrite (first micro-batch of a step), true: they add
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  std::array<double, 4> optimizer_parameters = {};  // OptimizerChoice::parameters
  GradientBits gradient_bits;  // integer recipes, in place of the learning rate
  GridBits grid_bits;          // of the micro-batch's level: GridRule::BitsAt
  // A name of what kParameters and kStatistics hold, unique in the process: runs with the same one
  // read the same bytes there, so a backend may keep what it makes of them until a run has another
  // one. 0: the bytes may have changed.
  int64_t weights = 0;
};

}  // namespace runnel
