#pragma once

// Resolves --codec-forward, --codec-backward and --bits together.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/codecs/bit_switches.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

// --bits of a run whose bits follow its links (central/planning/bandwidth_bits.h).
inline constexpr char kBandwidthBits[] = "bandwidth";
bool BitsFollowLinks(const RunSettings& settings);

// The family of the schedule's first codec; `fallback` if that family has no parameter.
std::string CodecFamilyOf(const CodecSchedule& codecs, absl::string_view fallback);

// After WithDefaults: makes both codecs schedules of known codecs and `bits` the text that gives
// them again whatever --epochs is (compress/bit_schedule.h). With --bits, only the family of a
// codec that was given counts; without one it is AccEPT's (AcceptFamily). With --bits bandwidth
// plans name the codecs; the settings' are the fewest bits that accuracy allows, of the family that
// was given or of kBandwidthFamily. On links between integer stages identity and recipe become int8:
// here and nowhere else. `recipe` needs a recipe with grids, and no --bits.
// `switches`: the model's. InvalidArgument names the flag and what would be right.
absl::Status ResolveCodecs(const NumberFormat& format, const BitSwitches& switches,
                           RunSettings& settings);

// InvalidArgument names the flag and the largest parameter, for a codec whose parameter is beyond
// every boundary of the model (CodecRow::largest).
absl::Status CheckCodecParameters(const ModelSpec& model, const RunSettings& settings);

// Every codec that a plan of these settings may name, each once. After ResolveCodecs.
std::vector<CodecId> CodecsInSettings(const RunSettings& settings);

}  // namespace runnel
