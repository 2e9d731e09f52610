#pragma once

// The codecs of a direction of a link by epoch: fixed before the run begins and keyed by sequence,
// so that a change needs no barrier (AccEPT 4.3: fewer bits while the model still moves fast, more
// later). Text is parsed once, where it enters (a flag, a configuration file, a journal, a
// message), and carried as this value from there on. Text form: a codec for the whole run, or a
// list with first epochs: "mbq:2", "0:mbq:2,60:mbq:3,160:mbq:4".

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/training/codecs/codec_id.h"

namespace runnel {

struct CodecStep {
  int64_t epoch = 0;  // the codec holds from the start of this epoch
  CodecId codec;

  friend bool operator==(const CodecStep&, const CodecStep&) = default;
};

class CodecSchedule {
 public:
  // The longest text: the limit of a name in a message.
  static constexpr size_t kMaxTextBytes = 256;

  // Identity in all epochs.
  CodecSchedule() : CodecSchedule(CodecId::Identity()) {}
  // A schedule with this codec in all epochs.
  explicit CodecSchedule(CodecId codec) : steps_{{0, std::move(codec)}} {}
  // `steps` begin at epoch 0 and ascend. A step with the codec of the one before is left out.
  explicit CodecSchedule(std::vector<CodecStep> steps);

  // InvalidArgument says what does not fit: a part that CodecId::Parse refuses, epochs that do not
  // begin at 0 and ascend, a text that is too long. Whether a codec exists is not looked at.
  static absl::StatusOr<CodecSchedule> Parse(absl::string_view text);
  // Parses the text's parts between its commas.
  static absl::StatusOr<CodecSchedule> Parse(absl::Span<const std::string> parts);

  // Read back as an equal schedule.
  std::string text() const;

  // At least one; neighbours differ.
  const std::vector<CodecStep>& steps() const { return steps_; }
  // The place in steps() of the one that holds in `epoch`.
  size_t StepIn(int64_t epoch) const;
  // Epochs of a run of `epochs` in which steps()[step] holds.
  int64_t EpochsOf(size_t step, int64_t epochs) const;
  // Identity in all epochs.
  bool is_identity() const { return steps_.size() == 1 && steps_[0].codec.is_identity(); }
  // This schedule with `to` in place of `from`.
  CodecSchedule Replaced(const CodecId& from, const CodecId& to) const;

  friend bool operator==(const CodecSchedule&, const CodecSchedule&) = default;

 private:
  std::vector<CodecStep> steps_;
};

}  // namespace runnel
