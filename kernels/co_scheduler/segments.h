#pragma once

// A program whose instructions run on several processors, as one small program for each run of
// neighbouring instructions on one of them. Values that cross a border of a segment lie row-major
// in the host's memory, packed in the segment's kInput and kOutput; what only its own instructions
// see keeps its place in kStash or kScratch. Pure functions; any thread.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/co_scheduler/value_flow.h"
#include "kernels/program.h"

namespace runnel {

// By part and instruction: the number of a processor. 0 is the host.
using Assignment = std::array<std::vector<int>, kPartCount>;

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
// Copies elements and tail from one place to the other.
void CopyTensor(const TensorCopy& tensor, const std::byte* from, std::byte* to);

struct Segment {
  Part part = Part::kForward;
  int first = 0;  // instruction of the part
  int count = 0;
  int processor = 0;
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

// Instructions first..first + count - 1 of a part.
Segment MakeSegment(const Program& program, const ProgramFlow& flow, Part part, int first,
                    int count, int processor);

// In the order in which they run, part by part.
std::vector<Segment> CutIntoSegments(const Program& program, const ProgramFlow& flow,
                                     const Assignment& assignment);

}  // namespace runnel
