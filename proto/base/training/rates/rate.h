#pragma once

// The table of rates: how the learning rate goes over a run. Fixed beforehand and keyed by the step,
// so a change needs no barrier. One file a rate; a new one has a row in rates.inc too.
//
// Plain data and pure functions of sums, products and quotients, so that all hosts round alike; any
// thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/training/choice.h"
#include "proto/base/training/training.h"

namespace runnel {

struct Rate {
  ChoiceRow choice;
  // The rate of the run's step `step`, which lies in `epoch`, without warm-up; `values` are those of
  // the choice's parameters.
  double (*at)(const TrainingSettings& settings, absl::Span<const double> values, int64_t epoch,
               int64_t step);
  bool needs_run_steps = false;  // looks at TrainingSettings::run_steps
};

#define RUNNEL_RATE(Id) Rate Id##Rate();
#include "proto/base/training/rates/rates.inc"
#undef RUNNEL_RATE

// rates.inc; milestones first.
absl::Span<const Rate> Rates();

struct RateChoice {
  const Rate* rate = nullptr;
  std::vector<double> values;
};
// "milestones", "cosine:0.01". Errors as ParseChoice's.
absl::StatusOr<RateChoice> ParseRate(absl::string_view text);

std::string RateHelp();

// The rate of a step by settings.rate, which ParseRate reads: without warm-up, whatever the stage.
double RunRate(const TrainingSettings& settings, int64_t epoch, int64_t step);

}  // namespace runnel
