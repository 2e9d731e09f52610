#pragma once

// --bits bandwidth: plans whose links have as many bits as they have time for, and no fewer than
// accuracy allows, each direction apart (compress/link_bits.h). What accuracy allows depends on how
// far the training is, so a plan names codecs by epoch (proto/base/codec_schedule.h), which the
// journal, replay and check-points keep. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/link_bits.h"
#include "partition/plan_builder.h"
#include "proto/base/plan.h"

namespace runnel {

struct BandwidthBits {
  BitSwitches switches;  // of the model: floors are its own (MinBitsByEpoch)
  std::string family_forward = std::string(kBandwidthFamily);
  std::string family_backward = std::string(kBandwidthFamily);
  CodecId exact = CodecId::Identity();  // loses nothing (LosslessCodec)
  int64_t epochs = 1;
};

// A plan and what it is worth by the request's pipeline model.
struct FittedPlan {
  Plan plan;
  double period_seconds = 0;   // of a micro-batch, mean over the run's epochs, by simulation
  double charged_seconds = 0;  // with what staleness costs (ChargedPeriod)
  double coding_error = 0;     // CodingError
};

// `plan` with other codecs: of those by which the pipeline is as fast as it gets (to 0.5 %), the
// ones that lose least. Never slower than `plan`, nor than `plan` with codecs that lose nothing.
// `request` needs the times of computation. Errors as MakePipelineModel and PlacementOf.
absl::StatusOr<FittedPlan> FitBits(const BandwidthBits& bits, const PlanRequest& request,
                                   const Plan& plan);

// MakePlan with bits that follow the links. The policy cuts the model twice: as if nothing were
// compressed, and with the fewest bits (`runnel` then chooses among all of them with the cut). Both
// cuts get the bits that they have time for, and the faster one is taken; of about the same, the
// first.
absl::StatusOr<FittedPlan> PlanWithBits(const BandwidthBits& bits, PlanRequest request);

// The mean over links, directions and epochs of the relative error of a plan's codecs
// (MeanRelativeError); 0 without links.
absl::StatusOr<double> CodingError(const Plan& plan, int64_t epochs);

// Lets `request` know what the codecs of `plan` cost, so that PlacementOf finds them.
absl::Status AddCodecsOf(const Plan& plan, int64_t epochs, PlanRequest& request);

}  // namespace runnel
