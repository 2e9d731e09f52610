#pragma once

// Lists the instructions of a stage's program and the processor of each.

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"
#include "proto/base/plan/program_listing.h"
#include "worker/stage/stage_programs.h"

namespace runnel {

struct ListedStage {
  ModelSpec model;
  LayerRange layers;
  StageArithmetic arithmetic;  // as of the stage that trains; max_batch: samples of a micro-batch
  bool counts = false;         // nothing is measured: products that would be stay whole
};

// Compiles the stage and schedules it, which takes some seconds where costs are measured. Parts of
// training only: the evaluation's forward is left out. Errors as CompileStage and Backend::Prepare.
absl::StatusOr<ProgramListing> ListProgram(const ListedStage& stage, CoScheduler& processors);

}  // namespace runnel
