#pragma once

// `runnel-central check`: what a model's training takes, before anything starts. Pure functions, any
// thread.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

struct CheckedTraining {
  std::string recipe = "fp32";
  std::string stash;  // --stash, --recompute of a training; empty: off
  std::string recompute;
  std::string schedule;  // empty: that of a training without flags
  int64_t devices = 4;   // at most
  int64_t batch_size = 64;
};

// The model as such a training has it. InvalidArgument begins with the flag.
absl::StatusOr<ModelSpec> KeptAs(ModelSpec model, const CheckedTraining& training);

// Lines for people: the model's layers, parameters and multiply-adds; for 1 to so many devices, cut so
// that their multiply-adds are as even as layers allow, each stage's layers and peak bytes, and the
// bytes of a step on each link, both ways, without codecs; which recipes can train it, and of the
// others the first operator that they cannot. InvalidArgument: unknown names, a recipe that cannot
// train it.
absl::StatusOr<std::string> TrainingReport(const ModelSpec& model, const CheckedTraining& training);

}  // namespace runnel
