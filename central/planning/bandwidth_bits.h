#pragma once

// --bits bandwidth: each direction of each link has as many bits as its bandwidth leaves time for,
// and no fewer than accuracy allows (compress/link_bits.h). The bits that accuracy allows rise
// during training, so a plan names codecs by epoch (proto/base/training/codecs/codec_schedule.h); journal,
// replay and check-points keep that schedule as it is. Pure functions.

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/link_bits.h"
#include "partition/plan_builder.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// Bits forward and backward that `runnel` chooses among, link by link, together with the cut.
// Gradients of 4 bits add less than activations of 6 at most places. Single directions are refitted
// afterwards.
inline constexpr std::pair<int, int> kBandwidthPairs[] = {{8, 8}, {6, 4}, {5, 4},
                                                          {4, 4}, {3, 4}, {2, 4}};

struct BandwidthBits {
  BitSwitches switches;  // switches of the model, which has floors of its own (MinBitsByEpoch)
  std::string family_forward = std::string(kBandwidthFamily);
  std::string family_backward = std::string(kBandwidthFamily);
  CodecId exact = CodecId::Identity();  // loses nothing (LosslessCodec)
  int64_t epochs = 1;
  // Most that a plan's codecs may add to the gradients' noise, as a share of it (AddedNoise).
  double noise_budget = std::numeric_limits<double>::infinity();
};

// A plan and its rating by the request's pipeline model.
struct FittedPlan {
  Plan plan;
  double period_seconds = 0;  // seconds of a micro-batch, mean over the run's epochs, by simulation
  double charged_seconds = 0;  // ChargedPeriod
};

// `plan` with the codecs with which it is charged least: never more than `plan` itself, if that
// keeps to the budget, nor than `plan` without compression. Where `plan` fits the devices' memory, so does the answer. `request`
// needs a cost model. Errors as MakePipelineModel and PlacementOf.
absl::StatusOr<FittedPlan> FitBits(const BandwidthBits& bits, const PlanRequest& request,
                                   const Plan& plan);

// MakePlan with bits that follow the links. A policy that chooses codecs link by link cuts the
// model once; any other one twice, without compression and with the fewest bits. FitBits refits
// each cut; the one that is charged less is returned, at a tie the first.
absl::StatusOr<FittedPlan> PlanWithBits(const BandwidthBits& bits, PlanRequest request);

// Codecs of a link with their mean sizes over a run, and what they add to the gradients' noise by the
// table of codecs. Errors as MeanEncodedBytes.
absl::StatusOr<CodecChoice> MakeCodecChoice(const LinkPlan& link, int64_t epochs,
                                            const NumberFormat& format);

// The codecs of a plan whose noise is above 0, for people: "4 bits forward and 5 to 6 back add
// about 2 % to the gradients' noise (by link 1.5, 0.5)".
std::string NoiseText(const Plan& plan, const std::vector<double>& noise_by_link);

// The first words of NoiseText; empty: nothing is lost.
std::string LossyCodecsText(const Plan& plan);

// `plan` with the codecs of this epoch alone.
Plan PlanInEpoch(Plan plan, int64_t epoch);

// What codecs add to the gradients' noise in this epoch by the table of codecs: of one direction of a
// link, and of a plan. They are known.
double NoiseByTable(const LinkPlan& link, Direction direction, int64_t epoch,
                    const NoiseWeights& weights);
double NoiseByTable(const Plan& plan, int64_t epoch, const NoisePlaces& places = {});

// Adds the codecs of `plan` to those that the request knows, so that PlacementOf finds them.
absl::Status AddCodecsOf(const Plan& plan, int64_t epochs, PlanRequest& request);

}  // namespace runnel
