#pragma once

// A program whose instructions run on several processors, as small programs of instructions of one
// of them. Values that cross a border of a segment lie row-major in the host's memory, packed in
// the segment's kInput and kOutput. What only its own instructions see keeps its place in kStash or
// kScratch, and so does what a processor reads again in a later segment, where it keeps values.
// Pure functions; any thread.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/ir/co_scheduler/value_flow.h"
#include "kernels/ir/program.h"

namespace runnel {

// By part and instruction: the number of a processor. 0 is the host.
using Assignment = std::array<std::vector<int>, kPartCount>;
// By part and instruction: instructions of one number go into one segment, if they may. Parts
// without numbers: neighbours of one processor.
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
  std::vector<int> instructions;  // of the part, ascending
  int processor = 0;
  // Segments before it, by number, of other processors, that are done before it begins: they write
  // what it reads, or read or write what it writes. Of the same part; of kWeightGradient also those
  // of kInputGradient. Segments of one processor run one after the other in their order.
  std::vector<int> after;
  Program program;              // has `part` alone
  std::vector<TensorCopy> in;   // into kInput before it runs
  std::vector<TensorCopy> out;  // from kOutput afterwards
  int64_t in_bytes = 0;         // of kInput
  int64_t out_bytes = 0;        // of kOutput
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
