#include "kernels/backends/hexagon/memory_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace runnel::hexagon {
namespace {

constexpr int64_t kPageBytes = 64 << 10;
constexpr int64_t kLeastBytes = 8'000'000;
// Offsets have 32 bits.
constexpr int64_t kMostBytes = int64_t{3} << 30;

uint32_t Pages(int64_t bytes) { return static_cast<uint32_t>(bytes / kPageBytes * kPageBytes); }

absl::StatusOr<int64_t> Checked(int64_t budget_bytes) {
  if (budget_bytes >= kLeastBytes) return std::min(budget_bytes, kMostBytes);
  return absl::InvalidArgumentError(absl::StrCat("--device-memory-mb gives the DSP ", budget_bytes,
                                                 " bytes; its programs need ", kLeastBytes,
                                                 " at least"));
}

}  // namespace

absl::StatusOr<DspMemory> DivideEmulated(int64_t budget_bytes) {
  const absl::StatusOr<int64_t> bytes = Checked(budget_bytes);
  if (!bytes.ok()) return bytes.status();
  const uint32_t scratch = Pages(*bytes / 8);
  return DspMemory{Pages(*bytes - scratch), scratch, Pages(*bytes - scratch)};
}

absl::StatusOr<DspMemory> DivideDevice(int64_t budget_bytes) {
  const absl::StatusOr<int64_t> bytes = Checked(budget_bytes);
  if (!bytes.ok()) return bytes.status();
  return DspMemory{Pages(*bytes * 3 / 4), Pages(*bytes / 8), Pages(*bytes / 8)};
}

uint32_t PackedBytesLeft(const DspMemory& memory, int64_t taken_bytes) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(int64_t{memory.shared} - taken_bytes, 0, memory.packed));
}

}  // namespace runnel::hexagon
