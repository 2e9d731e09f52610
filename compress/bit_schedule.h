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
#include "proto/base/ids.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "proto/base/training/codecs/bit_switches.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

struct BitStep {
  int64_t epoch = 0;  // the bits hold from the start of this epoch
  int bits = 8;

  friend bool operator==(const BitStep&, const BitStep&) = default;
};

struct BitSchedule {
  std::vector<BitStep> forward;
  std::vector<BitStep> backward;

  friend bool operator==(const BitSchedule&, const BitSchedule&) = default;
};

// AccEPT's schedule, its switch epochs scaled to `epochs` and rounded to nearest. A step that a
// later one would replace in the same epoch, or that lies behind the run, is left out.
BitSchedule AcceptBits(const BitSwitches& switches, int64_t epochs);
// The family of codecs that AccEPT's bits are of: mbq forward, stochastic backward.
absl::string_view AcceptFamily(Direction direction);

// "accept" or a text as above. InvalidArgument says what does not fit.
absl::StatusOr<BitSchedule> ParseBitSchedule(absl::string_view text, const BitSwitches& switches,
                                             int64_t epochs);
std::string BitScheduleText(const BitSchedule& schedule);

// `family`:k by epoch. InvalidArgument if the family has no such k.
absl::StatusOr<CodecSchedule> CodecsOfBits(absl::string_view family,
                                           const std::vector<BitStep>& steps);

// Mean PayloadBytes of a boundary tensor over a run of `epochs` epochs, rounded up: the size that a
// plan for the whole run uses. InvalidArgument as MakeCodec.
absl::StatusOr<EncodedBytesFn> MeanEncodedBytes(const CodecSchedule& codecs, int64_t epochs,
                                                const NumberFormat& format = {},
                                                Direction direction = Direction::kForward);

// The most that Codec::KeptBytes of one of the codecs is; null where none keeps anything.
// InvalidArgument as MakeCodec.
absl::StatusOr<KeptBytesFn> MostKeptBytes(const CodecSchedule& codecs);

}  // namespace runnel
