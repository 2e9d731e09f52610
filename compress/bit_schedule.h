#pragma once

// Bits by epoch (AccEPT 4.3, figures 10 and 11): how many bits an
// activation and a gradient element have on a link in which epoch, and the codecs that gives.
//
// Text: FORWARD/BACKWARD, each a number of bits or a list with switch epochs:
// "2,60:3,160:4/8,120:4" is 2 bits forward, 3 from epoch 60, 4 from epoch 160; 8 bits backward, 4
// from epoch 120. "accept" is the paper's schedule for a model.
//
// Pure functions; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/codec_schedule.h"
#include "proto/base/encoded_bytes.h"

namespace runnel {

struct BitStep {
  int64_t epoch = 0;  // from its start
  int bits = 8;

  friend bool operator==(const BitStep&, const BitStep&) = default;
};

struct BitSchedule {
  std::vector<BitStep> forward;
  std::vector<BitStep> backward;

  friend bool operator==(const BitSchedule&, const BitSchedule&) = default;
};

// The paper's schedule of 200 epochs, its switch epochs scaled to `epochs` and rounded to nearest:
// forward 2 -> 3 -> 4 at 130 and 175, backward 8 -> 4 at 160; of har_cnn forward at 60 and 160,
// backward at 120. A step that a later one would replace in the same epoch, or that lies behind the
// run, is left out. The paper tells of two models; any other has the first schedule.
BitSchedule AcceptBits(absl::string_view model, int64_t epochs);

// "accept" or a text as above. InvalidArgument says what does not fit.
absl::StatusOr<BitSchedule> ParseBitSchedule(absl::string_view text, absl::string_view model,
                                             int64_t epochs);
std::string BitScheduleText(const BitSchedule& schedule);

// The text of a codec schedule (proto/base/codec_schedule.h): `family`:k by epoch. InvalidArgument
// if the family has no such k.
absl::StatusOr<std::string> CodecsOfBits(absl::string_view family,
                                         const std::vector<BitStep>& steps);

// The mean payload bytes over a run of `epochs` epochs of a codec schedule, rounded up: what a plan
// for the whole run counts with. InvalidArgument for what ParseCodecSchedule or MakeCodec refuse.
absl::StatusOr<EncodedBytesFn> MeanEncodedBytes(absl::string_view codecs, int64_t epochs);

}  // namespace runnel
