#include "kernels/backends/cpu/planned_part.h"

#include <algorithm>

namespace runnel::cpu {

bool PlannedPart::Overlap(BufferIndex a, BufferIndex b) const {
  const Buffer &x = program_.buffers[a], &y = program_.buffers[b];
  return x.storage == y.storage && x.offset_bytes < y.offset_bytes + y.bytes() &&
         y.offset_bytes < x.offset_bytes + x.bytes();
}

bool PlannedPart::Covers(BufferIndex outer, BufferIndex inner) const {
  const Buffer &x = program_.buffers[outer], &y = program_.buffers[inner];
  return x.storage == y.storage && x.offset_bytes <= y.offset_bytes &&
         y.offset_bytes + y.bytes() <= x.offset_bytes + x.bytes();
}

bool PlannedPart::MeetAtElements(BufferIndex a, BufferIndex b) const {
  return !Overlap(a, b) ||
         (program_.buffers[a].offset_bytes == program_.buffers[b].offset_bytes && Covers(a, b));
}

bool PlannedPart::Overwrites(size_t i, BufferIndex late) const {
  const std::vector<BufferIndex>& outputs = At(i).outputs;
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](BufferIndex output) { return Overlap(output, late); });
}

bool PlannedPart::WantedAfter(BufferIndex value, size_t since, size_t last) const {
  for (size_t i = since; i <= last; ++i) {
    if (Covers(Out(i), value) && Out(i) != value) return false;
  }
  const Storage storage = program_.buffers[value].storage;
  if (storage != Storage::kScratch && storage != Storage::kStash) return true;
  for (size_t i = last + 1; i < size(); ++i) {
    const Instruction& reader = At(i);
    for (size_t k = 0; k < reader.inputs.size(); ++k) {
      if (Overlap(reader.inputs[k], value) && !(k == 1 && ignores_y_[i])) return true;
    }
    // No part of a value that somebody still reads is overwritten.
    for (BufferIndex output : reader.outputs) {
      if (part_ == Part::kForwardEval ? Overlap(output, value) : Covers(output, value))
        return false;
    }
  }
  return part_ != Part::kForwardEval && WantedInLaterParts(value);
}

bool PlannedPart::WantedInLaterParts(BufferIndex value) const {
  for (int part = static_cast<int>(part_) + 1; part < kPartCount; ++part) {
    if (static_cast<Part>(part) == Part::kForwardEval) continue;
    for (const Instruction& instruction : program_.parts[part]) {
      for (BufferIndex input : instruction.inputs) {
        if (Overlap(input, value)) return true;
      }
      for (BufferIndex output : instruction.outputs) {
        if (Covers(output, value)) return false;
      }
    }
  }
  return false;
}

}  // namespace runnel::cpu
