#pragma once

// How the memory that a DSP may take is divided (--device-memory-mb). Pure functions; any thread.

#include <cstdint>

#include "absl/status/statusor.h"

namespace runnel::hexagon {

// Bytes; all multiples of a page of any DSP, 64 KiB.
struct DspMemory {
  uint32_t shared = 0;   // programs: state, operands, lists of operations
  uint32_t scratch = 0;  // of one operation
  uint32_t packed = 0;   // packed weights at most
};

// Where the host gives memory to the DSP page by page: an eighth is scratch, programs take what
// they need of the rest, packed weights what is left of it (PackedBytesLeft).
// InvalidArgument: it is less than any program needs; one line with the flag.
absl::StatusOr<DspMemory> DivideEmulated(int64_t budget_bytes);
// Of an area that is taken all at once: three quarters for programs, an eighth each for scratch and
// packed weights. InvalidArgument likewise.
absl::StatusOr<DspMemory> DivideDevice(int64_t budget_bytes);

// What is left for packed weights when programs have taken `taken_bytes` of the shared memory.
uint32_t PackedBytesLeft(const DspMemory& memory, int64_t taken_bytes);

}  // namespace runnel::hexagon
