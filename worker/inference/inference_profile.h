#pragma once

// What layers of a model take on this device in integers (proto/base/training/int8_inference.h).

#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "worker/inference/inference_stage.h"
#include "worker/measure/profiler.h"

namespace runnel {

// A model in integers with weights that mean nothing: kernels take as long as with any others.
// Errors as FoldModel.
absl::StatusOr<inference::Int8Graph> GraphForTiming(const ModelSpec& model);

// [range]: the forward of one micro-batch. All layers run as one stage a few times; a range has the
// sum of its nodes' shortest times, or where the runner cannot time nodes its share of the
// multiply-accumulates. Of the options `samples` and `ranges` count. Errors as ProfileRanges.
absl::StatusOr<std::vector<RangeTime>> ProfileInference(const ModelSpec& model,
                                                        const ProfileOptions& options,
                                                        const MakeGraphRunnerFn& make_runner);

}  // namespace runnel
