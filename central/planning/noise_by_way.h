#pragma once

// The table of what codecs add to the gradients' noise, by link, direction and codec: what dry runs
// measure of a plan's ways, and what plans make of it. Pure functions.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "central/records/journal.h"
#include "partition/noise_places.h"
#include "partition/noise_ratios.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/codecs/gradient_noise.h"

namespace runnel {

// The ways of the plan's links that lose something in this epoch, by the table of codecs. Codecs are
// known.
std::vector<WayNoise> LossyWays(const Plan& plan, int64_t epoch, const NoisePlaces& places = {});

// Whether both are of the same places and codecs.
bool AreSameWays(const std::vector<WayNoise>& a, const std::vector<WayNoise>& b);

// Whether a way of `now` has another codec than at the same place before, or loses something in a
// direction of a link that was exact. A cut that moved is no such change.
bool HaveOtherCodecs(const std::vector<WayNoise>& before, const std::vector<WayNoise>& now);

// All codecs together were measured to add noise.added: shares it among noise.ways as the ratios,
// which were known before, have it.
void ShareNoise(const NoiseRatios& before, NoiseMeasured& noise);

// The codecs of this way alone were measured to add `added`: it counts as measured, and the others
// that are not yet share what it leaves of noise.added.
void SetWayNoise(int way, double added, NoiseMeasured& noise);

// Position of the way to be measured next: the noisiest of those that were not, without `skipped`;
// none: there is no other.
std::optional<int> NextWay(const NoiseMeasured& noise, const std::set<int>& skipped = {});

// What a dry run of this way codes.
CodedWays CodedIn(const WayNoise& way);

// For plans. noise.by_table > 0, noise.added finite.
NoiseRatios NoiseRatiosOf(const NoiseMeasured& noise);

// "eden:4 from stage 0 to 1", "eden:4 between stages 0 and 1".
std::string ToString(const WayNoise& way);

}  // namespace runnel
