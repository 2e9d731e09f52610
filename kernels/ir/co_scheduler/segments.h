#pragma once

// Cuts a program for several processors into small programs for one processor each. Values that
// leave a segment lie row-major in the host's memory, packed in the segment's kInput and kOutput.
// Values that only its own instructions use keep their place in kStash or kScratch, and so do
// values that a processor that keeps them reads again in a later segment. Pure functions; any
// thread.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/ir/co_scheduler/value_flow.h"
#include "kernels/ir/program.h"

namespace runnel {

// Number of the processor, by part and instruction. 0 is the host.
using Assignment = std::array<std::vector<int>, kPartCount>;
// Group number by part and instruction: instructions of one number go into one segment, if
// possible. Parts without numbers: neighbours of one processor.
using Grouping = std::array<std::vector<int>, kPartCount>;

// A tensor's bytes in two places: its elements, and the tail of a scaled one. What lies between
// them belongs to the memory's owner.
struct TensorCopy {
  Storage storage = Storage::kScratch;  // in the stage's own memory
  int64_t offset_bytes = 0;             // there
  int64_t packed_bytes = 0;             // offset in the segment's kInput or kOutput
  int64_t element_bytes = 0;            // all elements
  int64_t tail_bytes = 0;               // offset of the tail; 0: not scaled

  int64_t bytes() const { return element_bytes + (tail_bytes > 0 ? 64 : 0); }
};
TensorCopy CopyOf(const Buffer& buffer);
void CopyTensor(const TensorCopy& tensor, const std::byte* from, std::byte* to);

struct Segment {
  Part part = Part::kForward;
  std::vector<int> instructions;  // instructions of the part, ascending
  int processor = 0;
  // Numbers of earlier segments of other processors that must be done first, because they touch the
  // same bytes and one of the two writes. They are of the same part; for kWeightGradient also of
  // kInputGradient. Segments of one processor run one after the other in their order.
  std::vector<int> after;
  Program program;              // has `part` alone
  std::vector<TensorCopy> in;   // into kInput before it runs
  std::vector<TensorCopy> out;  // copied from kOutput afterwards
  int64_t in_bytes = 0;         // size of kInput
  int64_t out_bytes = 0;        // size of kOutput
  // State that it touches, in the storages of the stage. Updates may read what they overwrite.
  std::vector<TensorCopy> state_read;
  std::vector<TensorCopy> state_written;
  // Past the last byte that it uses of each storage that is not the host's.
  std::array<int64_t, kStorageCount> extents = {};
};

// State of a stage: parameters, gradients, momentum, statistics.
bool IsState(Storage storage);

// In the order in which they begin on one processor, part by part. keeps_values: by processor,
// whether programs of it find in kStash and kScratch what others of it left there
// (BackendTraits::keeps_values); the host's does not count.
std::vector<Segment> CutIntoSegments(const Program& program, const ProgramFlow& flow,
                                     const Assignment& assignment, const Grouping& grouping,
                                     const std::vector<bool>& keeps_values);

}  // namespace runnel
