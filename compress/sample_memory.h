#pragma once

// What both ends of a boundary keep of each sample of the data set: its tensor as the receiver has
// it, in bfloat16. Sender and receiver put the same values in, so that their bytes are the same at
// every barrier and either end's state serves both. One thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

class SampleMemory {
 public:
  // The mark of a sample of which nothing is kept.
  static constexpr uint32_t kNothing = 0;

  // A checksum of what is kept of the sample; kNothing if that is nothing, or not `elements` values.
  uint32_t MarkOf(int64_t sample, size_t elements) const;
  // values -= what is kept. MarkOf(sample, values.size()) is not kNothing.
  void Subtract(int64_t sample, absl::Span<float> values) const;
  // values += what is kept, within +-kMaxTileMagnitude, and the sum is kept instead. Where MarkOf is
  // kNothing, values are kept as they are.
  void AddTo(int64_t sample, absl::Span<float> values);
  void Forget(int64_t sample);

  // Little-endian: a tag of 4 bytes, then for each sample, in the order in which they came first, its
  // index and its count of values, 32 bits each, and the values. Empty if nothing is kept. A row stays
  // where it is, so that two states differ only where rows have changed, and by rows behind.
  std::string Save() const;
  // What Save gave. InvalidArgument with the name of the codec for other bytes; nothing changes then.
  absl::Status Restore(absl::string_view codec, absl::string_view state);

  // More than a device has, and little enough for callers to add up many of them.
  static constexpr int64_t kMostBytes = int64_t{1} << 50;
  // Upper limit of what `samples` samples of `elements` values take, or kMostBytes.
  static int64_t Bytes(int64_t samples, int64_t elements);

 private:
  struct Row {
    int64_t sample = 0;
    uint32_t mark = kNothing;
    std::vector<uint16_t> values;  // bfloat16; none: forgotten
  };

  std::vector<Row> rows_;
  std::unordered_map<int64_t, size_t> places_;  // of samples in rows_
};

}  // namespace runnel
