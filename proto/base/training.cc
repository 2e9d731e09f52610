#include "proto/base/training.h"

#include <algorithm>
#include <functional>

namespace runnel {

double LearningRate(const TrainingSettings& settings, int64_t epoch) {
  std::vector<int64_t> milestones = settings.milestones;
  std::sort(milestones.begin(), milestones.end());
  double rate = settings.learning_rate;
  for (int64_t milestone : milestones) {
    if (epoch >= milestone) rate *= settings.milestone_factor;
  }
  return rate;
}

GradientBits GradientBitsOf(const TrainingSettings& settings, int64_t epoch) {
  GradientBits bits;
  for (const GradientBitsStep& step : settings.gradient_bits) {
    if (epoch >= step.epoch) bits = step.bits;
  }
  return bits;
}

absl::StatusOr<Batching> MakeBatching(const TrainingSettings& settings) {
  return Batching::Create(settings.dataset_samples, settings.batch_size, settings.micro_batches,
                          settings.min_samples);
}

std::vector<int64_t> ShapeSizes(const Batching& batching, int64_t eval_batch_size,
                                int64_t eval_samples) {
  std::vector<int64_t> sizes = batching.MicroBatchSizes();
  if (eval_batch_size > 0 && eval_samples > 0) {
    sizes.push_back(std::min(eval_batch_size, eval_samples));
    if (eval_samples % eval_batch_size != 0) sizes.push_back(eval_samples % eval_batch_size);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

bool BarrierRule::IsEvaluation(int64_t step) const {
  if (step == steps_per_epoch * epochs) return true;
  return eval_every_epochs > 0 && step > 0 && step % (steps_per_epoch * eval_every_epochs) == 0;
}

bool BarrierRule::IsBarrier(int64_t step) const { return step % every == 0 || IsEvaluation(step); }

int64_t BarrierRule::Next(int64_t step) const {
  int64_t next = std::min((step / every + 1) * every, steps_per_epoch * epochs);
  if (eval_every_epochs > 0) {
    const int64_t period = steps_per_epoch * eval_every_epochs;
    next = std::min(next, (step / period + 1) * period);
  }
  return next;
}

}  // namespace runnel
