#pragma once

// What --codec-forward, --codec-backward and --bits say together.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/run_settings.h"
#include "proto/base/number_format.h"

namespace runnel {

// After WithDefaults: makes both codecs schedules of known codecs (proto/base/codec_schedule.h) and
// `bits` the text that gives them again whatever --epochs is (compress/bit_schedule.h). With
// --bits, only the family of a codec that was given counts; without one it is mbq forward and
// stochastic backward. On links between integer stages identity is int8. InvalidArgument names the
// flag and what would be right.
absl::Status SettleCodecs(const NumberFormat& format, RunSettings& settings);

// Every codec that the settings name, each once. After SettleCodecs.
std::vector<std::string> CodecsOf(const RunSettings& settings);

}  // namespace runnel
