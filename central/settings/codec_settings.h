#pragma once

// What --codec-forward, --codec-backward and --bits say together.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/settings/run_settings.h"
#include "proto/base/number_format.h"

namespace runnel {

// --bits of a run whose bits follow its links (central/planning/bandwidth_bits.h).
inline constexpr char kBandwidthBits[] = "bandwidth";
bool BitsFollowLinks(const RunSettings& settings);

// What crosses a link and loses nothing: identity, or int8 between integer stages.
const char* ExactCodec(const NumberFormat& format);

// "hadamard" of "hadamard:4" or "0:hadamard:2,60:hadamard:3"; `fallback` of a text that counts no
// bits.
std::string CodecFamilyOf(const std::string& text, const std::string& fallback);

// After WithDefaults: makes both codecs schedules of known codecs (proto/base/codec_schedule.h) and
// `bits` the text that gives them again whatever --epochs is (compress/bit_schedule.h). With
// --bits, only the family of a codec that was given counts; without one it is mbq forward and
// stochastic backward. With --bits bandwidth plans name the codecs; the settings' are the fewest
// bits that accuracy allows, of the family that was given or hadamard. On links between integer
// stages identity is int8. InvalidArgument names the flag and what would be right.
absl::Status SettleCodecs(const NumberFormat& format, RunSettings& settings);

// Every codec that a plan of these settings may name, each once. After SettleCodecs.
std::vector<std::string> CodecsOf(const RunSettings& settings);

}  // namespace runnel
