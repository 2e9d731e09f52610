#pragma once

// Codec schedules that a test writes down.

#include "absl/strings/string_view.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

inline CodecSchedule Codecs(absl::string_view text) { return CodecSchedule::Parse(text).value(); }
inline CodecId OneCodec(absl::string_view text) { return CodecId::Parse(text).value(); }

}  // namespace runnel
