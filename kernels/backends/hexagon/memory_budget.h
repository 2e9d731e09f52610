#pragma once

// Divides the memory that a DSP may take (--device-memory-mb). Pure functions; any thread.

#include <cstdint>

#include "absl/status/statusor.h"

namespace runnel::hexagon {

// Bytes; all multiples of a page of any DSP, 64 KiB.
struct DspMemory {
  uint32_t shared = 0;   // programs: state, operands, lists of operations
  uint32_t scratch = 0;  // scratch of one operation
  uint32_t packed = 0;   // packed weights at most
};

// For a DSP that gets host memory page by page: an eighth is scratch, programs take their need of
// the rest, packed weights the remainder (PackedBytesLeft). InvalidArgument: it is less than any
// program needs; one line with the flag.
absl::StatusOr<DspMemory> DivideEmulated(int64_t budget_bytes);
// For an area that is taken all at once: three quarters for programs, an eighth each for scratch
// and packed weights. InvalidArgument likewise.
absl::StatusOr<DspMemory> DivideDevice(int64_t budget_bytes);

// Memory left for packed weights when programs have taken `taken_bytes` of the shared memory.
uint32_t PackedBytesLeft(const DspMemory& memory, int64_t taken_bytes);

}  // namespace runnel::hexagon
