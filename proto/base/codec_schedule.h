#pragma once

// Which codec a direction of a link has in which epoch: fixed before the run begins and keyed by
// sequence, so that a change needs no barrier (AccEPT 4.3: fewer bits while the model still moves
// fast, more later). Text form: a codec's name for the whole run, or codecs from epochs on:
// "mbq:2", "0:mbq:2,60:mbq:3,160:mbq:4". It stands wherever a plan names a codec.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

struct CodecStep {
  int64_t epoch = 0;  // from its start
  std::string codec;

  friend bool operator==(const CodecStep&, const CodecStep&) = default;
};

// The longest text: what a message allows a name.
inline constexpr size_t kMaxCodecScheduleBytes = 256;

// InvalidArgument says what does not fit: a part without a codec, epochs that do not begin at 0 and
// ascend, a text that is too long. Whether a codec exists is not looked at.
absl::StatusOr<std::vector<CodecStep>> ParseCodecSchedule(absl::string_view text);
// The shortest text that is read back as steps that say the same; `steps` is not empty.
std::string CodecScheduleText(const std::vector<CodecStep>& steps);
// The place in `steps` of the one that holds in `epoch`.
size_t StepInEpoch(const std::vector<CodecStep>& steps, int64_t epoch);

}  // namespace runnel
