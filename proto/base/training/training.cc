#include "proto/base/training/training.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/raised_cap.h"
#include "proto/base/training/rates/rate.h"

namespace runnel {
namespace {

using Halves = std::pair<absl::string_view, absl::string_view>;

absl::StatusOr<int64_t> ParseNumber(absl::string_view text, absl::string_view what) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no ", what,
                   "; give BITS, CONV/LINEAR, or EPOCH:CONV/LINEAR,... e.g. 0:3/3,10:2/2"));
}

absl::Status CheckBits(int64_t bits) {
  if (bits >= kMinGradientBits && bits <= kMaxGradientBits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(bits, " bits: must be ", kMinGradientBits, "..", kMaxGradientBits));
}

// "3" or "3/2".
absl::StatusOr<GradientBits> ParseBits(absl::string_view text) {
  const Halves halves = absl::StrSplit(text, absl::MaxSplits('/', 1));
  const bool alike = text.find('/') == absl::string_view::npos;
  RUNNEL_ASSIGN_OR_RETURN(const int64_t conv, ParseNumber(halves.first, "number of bits"));
  RUNNEL_ASSIGN_OR_RETURN(const int64_t linear,
                          ParseNumber(alike ? halves.first : halves.second, "number of bits"));
  RUNNEL_RETURN_IF_ERROR(CheckBits(conv));
  RUNNEL_RETURN_IF_ERROR(CheckBits(linear));
  return GradientBits{static_cast<int32_t>(conv), static_cast<int32_t>(linear)};
}

std::string BitsText(const GradientBits& bits) {
  return bits.conv == bits.linear ? absl::StrCat(bits.conv)
                                  : absl::StrCat(bits.conv, "/", bits.linear);
}

}  // namespace

absl::StatusOr<std::vector<GradientBitsStep>> ParseGradientBits(absl::string_view text) {
  std::vector<GradientBitsStep> steps;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    GradientBitsStep& step = steps.emplace_back();
    if (part.find(':') != absl::string_view::npos) {
      const Halves halves = absl::StrSplit(part, absl::MaxSplits(':', 1));
      RUNNEL_ASSIGN_OR_RETURN(step.epoch, ParseNumber(halves.first, "epoch"));
      part = halves.second;
    }
    RUNNEL_ASSIGN_OR_RETURN(step.bits, ParseBits(part));
  }
  RUNNEL_RETURN_IF_ERROR(CheckGradientBits(steps));
  return steps;
}

std::string GradientBitsText(const std::vector<GradientBitsStep>& steps) {
  if (steps.size() == 1) return BitsText(steps.front().bits);
  std::string text;
  for (const GradientBitsStep& step : steps) {
    absl::StrAppend(&text, text.empty() ? "" : ",", step.epoch, ":", BitsText(step.bits));
  }
  return text;
}

std::vector<GradientBitsStep> DefaultGradientBits(int64_t epochs) {
  std::vector<GradientBitsStep> steps = {{0, {2, 2}}};
  const int64_t starts[] = {(epochs * 2 + 4) / 5, (epochs * 7 + 9) / 10};  // rounded up
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t bits = 1 - i;
    if (starts[i] > steps.back().epoch && starts[i] < epochs) {
      steps.push_back({starts[i], {bits, bits}});
    }
  }
  return steps;
}

absl::Status CheckGradientBits(const std::vector<GradientBitsStep>& steps) {
  if (steps.size() > kMaxGradientBitsSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat(steps.size(), " steps: at most ", kMaxGradientBitsSteps));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    RUNNEL_RETURN_IF_ERROR(CheckBits(steps[i].bits.conv));
    RUNNEL_RETURN_IF_ERROR(CheckBits(steps[i].bits.linear));
    if (i == 0 ? steps[i].epoch != 0 : steps[i].epoch <= steps[i - 1].epoch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", steps[i].epoch, ": the first must be 0, and each above the one before"));
    }
  }
  return absl::OkStatus();
}

int64_t MostStepsOld(const TrainingSettings& settings, int64_t cap) {
  return (cap - 1 + settings.micro_batches - 1) / settings.micro_batches;
}

int64_t UsualStepsOld(const TrainingSettings& settings, int64_t cap) {
  return (cap - 1 + settings.micro_batches / 2) / settings.micro_batches;
}

double StaleRateShare(const TrainingSettings& settings, int64_t cap, int64_t usual_cap,
                      int64_t step) {
  const int64_t staleness = MostStepsOld(settings, cap);
  if (!IsRaised(cap, usual_cap, staleness) || step >= settings.stale_rate_steps) return 1;
  const double first = 1.0 / static_cast<double>(staleness);
  return first +
         (1 - first) * static_cast<double>(step) / static_cast<double>(settings.stale_rate_steps);
}

double WarmUpShare(const TrainingSettings& settings, int64_t step) {
  if (step + 1 >= settings.warm_up_steps) return 1;
  return static_cast<double>(step + 1) / static_cast<double>(settings.warm_up_steps);
}

double StepRate(const TrainingSettings& settings, int64_t epoch, int64_t step, int64_t cap,
                int64_t usual_cap) {
  return RunRate(settings, epoch, step) * StaleRateShare(settings, cap, usual_cap, step) *
         WarmUpShare(settings, step);
}

double LookAheadShare(const TrainingSettings& settings, int64_t cap, int64_t usual_cap) {
  return IsRaised(cap, usual_cap, MostStepsOld(settings, cap)) ? settings.raised_look_ahead
                                                               : settings.look_ahead;
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

bool BarrierRule::IsBarrier(int64_t step) const {
  return step % every == 0 || (policy_point > 0 && step == policy_point) || IsEvaluation(step);
}

int64_t BarrierRule::Next(int64_t step) const {
  int64_t next = std::min((step / every + 1) * every, steps_per_epoch * epochs);
  if (eval_every_epochs > 0) {
    const int64_t period = steps_per_epoch * eval_every_epochs;
    next = std::min(next, (step / period + 1) * period);
  }
  if (step < policy_point) next = std::min(next, policy_point);
  return next;
}

}  // namespace runnel
