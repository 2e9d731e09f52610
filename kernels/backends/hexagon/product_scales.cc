#include "kernels/backends/hexagon/product_scales.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/lost_backend.h"
#include "proto/base/status_macros.h"

namespace runnel::hexagon {
namespace {

// A product that is run again costs more than sums that are written and read once more: where more
// of the guesses were wrong, there are none.
constexpr int32_t kMostMisses = 32;
constexpr int32_t kMissesDecay = 8;
// Largest shift of 32-bit sums.
constexpr int32_t kMostShift = 24;

}  // namespace

ProductScales::ProductScales(const Program& program, std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)) {
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (!TraitsOf(instruction.code).rescales) continue;
      Product& product = products_[&instruction];
      product.slot = static_cast<uint32_t>(products_.size()) - 1;
      product.elements = program.buffers[instruction.outputs[0]].shape.elements();
    }
  }
}

absl::Status ProductScales::Open() {
  if (products_.empty() || seen_ != nullptr) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(products_.size() * sizeof(DspSums));
  RUNNEL_ASSIGN_OR_RETURN(seen_, memory_->Allocate(bytes));
  return absl::OkStatus();
}

void ProductScales::Begin(const Instruction& instruction, KeptScale* scale, DspOp& op) {
  Product& product = products_.at(&instruction);
  op.out[1].data =
      memory_->OffsetOf(seen_->address()) + product.slot * static_cast<uint32_t>(sizeof(DspSums));
  if (scale == nullptr) {
    product.measured = product.misses > kMostMisses;
    op.shift = product.shift;
    if (!product.measured) op.flags |= kFlagGuessed;
    return;
  }
  BeginProduct(instruction.rescale, op.gradient_bits, *scale);
  product.measured = MeasuresScale(instruction.rescale, *scale);
  op.shift = scale->shift;
  if (!product.measured) op.flags |= kFlagKept;
}

absl::Status ProductScales::Finish(const Instruction& instruction, KeptScale* scale) {
  Product& product = products_.at(&instruction);
  const DspSums& seen = reinterpret_cast<const DspSums*>(seen_->address())[product.slot];
  if (seen.shift < 0 || seen.shift > kMostShift || seen.max_abs < 0) {
    return MarkLostBackend(absl::UnavailableError(absl::StrCat(
                               "backend hexagon: the DSP program answered nonsense: ",
                               Name(instruction.code), " (layer ", instruction.layer,
                               ") has shift ", seen.shift, " and maximum ", seen.max_abs)),
                           "hexagon");
  }
  if (scale == nullptr) {
    const int32_t miss = seen.shift != product.shift ? 256 : 0;
    product.misses += (miss - product.misses) / kMissesDecay;
    product.shift = seen.shift;
  } else if (product.measured) {
    RecordMeasured(instruction.rescale, seen.shift, *scale);
  } else {
    const KeptSums sums = {seen.max_abs, seen.saturated, product.elements};
    RecordKept(instruction.rescale, sums, *scale);
  }
  return absl::OkStatus();
}

}  // namespace runnel::hexagon
