#pragma once

// Settings that a run's arithmetic depends on besides model and data, known to central and every
// worker from the start.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/batching.h"

namespace runnel {

// NITI's mu: the bits that a weight-gradient G keeps. With b = ceil(log2(max |G|)) the step is G
// shifted right by b - mu, rounded. Below 1 only the largest gradients survive.
struct GradientBits {
  int32_t conv = 2;
  int32_t linear = 2;

  friend bool operator==(const GradientBits&, const GradientBits&) = default;
};
inline constexpr int32_t kMinGradientBits = -8;
inline constexpr int32_t kMaxGradientBits = 7;

struct GradientBitsStep {
  int64_t epoch = 0;  // the bits hold from the start of this epoch
  GradientBits bits;

  friend bool operator==(const GradientBitsStep&, const GradientBitsStep&) = default;
};

inline constexpr size_t kMaxGradientBitsSteps = 4096;

// "2" or "3/2" (conv/linear) for the whole run, or "0:3/3,10:2" from epochs on. InvalidArgument
// says what does not fit: no number, bits outside kMinGradientBits..kMaxGradientBits, epochs that
// do not begin at 0 and ascend, too many steps.
absl::StatusOr<std::vector<GradientBitsStep>> ParseGradientBits(absl::string_view text);
// The shortest text that is read back as these steps.
std::string GradientBitsText(const std::vector<GradientBitsStep>& steps);
// Default bits of a run of `epochs` epochs: 2 bits, 1 after two fifths of the epochs, 0 after seven
// tenths, since a step of constant bits never shrinks near an optimum. `epochs` >= 1.
std::vector<GradientBitsStep> DefaultGradientBits(int64_t epochs);
// The checks of ParseGradientBits; an empty list is fine.
absl::Status CheckGradientBits(const std::vector<GradientBitsStep>& steps);

struct TrainingSettings {
  uint64_t seed = 1;
  int64_t dataset_samples = 0;
  int64_t batch_size = 64;    // samples of one optimizer step
  int64_t micro_batches = 1;  // M
  int64_t min_samples = 1;    // 2 with batch norm
  int64_t eval_batch_size = 0;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;
  double label_smoothing = 0;       // recipes of floats (kernels/ir/arithmetic/float_loss.h)
  double clip_norm = 0;             // recipes of floats (worker/stage/gradient_norm.h); 0: off
  double ema = 0;                   // a weight_average.h; 0: off
  std::string swa = "off";          // likewise
  std::string optimizer = "sgd";    // recipes of floats; ParseOptimizer
  std::string rate = "milestones";  // ParseRate
  // Of the whole run, all epochs; 0 where the rate does not look at them (Rate::needs_run_steps).
  int64_t run_steps = 0;
  std::vector<int64_t>
      milestones;  // epochs at whose start the rate is multiplied by milestone_factor
  double milestone_factor = 0.1;
  // Against staleness, FP32 and asynchronous schedules only (worker/stage/state/staleness.h).
  // look_ahead = a: the forward uses w - a * (steps until its own update) * rate * v, v the
  // momentum. raised_look_ahead is for stages with raised caps (raised_cap.h), look_ahead for
  // others.
  double look_ahead = 0;
  double raised_look_ahead = 0;
  // Optimizer steps between two means of a stage's newest weight versions; 0: never.
  int64_t aggregate_every = 0;
  // The rate rises over so many optimizer steps; 0: whole from the start.
  int64_t warm_up_steps = 0;
  // A stage with a raised cap, whose gradients are s steps old, begins with 1 / s of the rate and
  // has all of it after so many steps; 0: from the start.
  int64_t stale_rate_steps = 0;
  // Random changes of training samples by central (central/data/augmentation.h).
  std::string augment = "off";
  std::vector<GradientBitsStep> gradient_bits;  // integer recipes; ascending epochs, the first is 0
  std::string rescale = "dynamic";              // integer recipes; ParseRescale
  std::string batch_split = "off";              // integer recipes; ParseBatchSplit
  std::string loss_scale = "auto";              // gradients of f16; CheckLossScaleSetting
  std::string precision = "recipe";             // recipes with grids; ParsePrecision
  std::string cost_target = "off";              // models with gates; ParseCostTarget

  friend bool operator==(const TrainingSettings&, const TrainingSettings&) = default;
};

// Optimizer steps that a gradient's weights are old where a stage has `cap` micro-batches in flight
// on an asynchronous schedule: (cap - 1) / micro_batches, rounded up for the oldest, to the nearest
// for what is usual. With as many micro-batches a step as are in flight or more no gradient is more
// than one step old: PipeDream-2BW's two versions (Narayanan et al., "Memory-efficient
// pipeline-parallel DNN training", 2021).
int64_t MostStepsOld(const TrainingSettings& settings, int64_t cap);
int64_t UsualStepsOld(const TrainingSettings& settings, int64_t cap);

// Of the rate of a stage with `cap` micro-batches in flight where `usual_cap` (N - i) would do, at
// a step, after PipeMare: 1 / MostStepsOld at first, then linearly up to 1 at stale_rate_steps. 1
// where the cap is not raised (raised_cap.h). Sums and quotients only, so that all hosts round alike.
double StaleRateShare(const TrainingSettings& settings, int64_t cap, int64_t usual_cap,
                      int64_t step);

// The share of the rate that step `step` of the run has: (step + 1) / warm_up_steps, at most 1.
double WarmUpShare(const TrainingSettings& settings, int64_t step);

// The rate of a stage's optimizer step, which is the run's `step`-th and lies in `epoch`:
// RunRate (rates/rate.h) times StaleRateShare times WarmUpShare.
double StepRate(const TrainingSettings& settings, int64_t epoch, int64_t step, int64_t cap,
                int64_t usual_cap);

// The look-ahead of a stage with `cap` micro-batches in flight where `usual_cap` (N - i) would do.
double LookAheadShare(const TrainingSettings& settings, int64_t cap, int64_t usual_cap);

// The bits of an epoch; GradientBits' own defaults without a schedule.
GradientBits GradientBitsOf(const TrainingSettings& settings, int64_t epoch);

absl::StatusOr<Batching> MakeBatching(const TrainingSettings& settings);

// Micro-batch sizes that programs are compiled and shapes agreed for: training sizes, then those of
// the evaluation of `eval_samples` samples.
std::vector<int64_t> ShapeSizes(const Batching& batching, int64_t eval_batch_size,
                                int64_t eval_samples);

// Barriers are the multiples of `every` steps counted over the run and the evaluation points
// are: every `eval_every_epochs` epochs (0: none) and the end of the last epoch.
struct BarrierRule {
  int64_t every = 100;
  int64_t eval_every_epochs = 1;
  int64_t steps_per_epoch = 1;
  int64_t epochs = 1;
  // One more barrier, early, for a policy that plans anew as soon as it has measured; 0: none.
  int64_t policy_point = 0;

  bool IsEvaluation(int64_t step) const;
  bool IsBarrier(int64_t step) const;
  // The first barrier after `step`; the end of the run is one.
  int64_t Next(int64_t step) const;
};

}  // namespace runnel
