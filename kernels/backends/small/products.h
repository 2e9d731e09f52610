#pragma once

// Convolutions and linear layers of a program by the primitives: tile by tile, each copied into the
// nearest memory (L1), computed there and copied out.
//
// || Sums of FP32: a forward's begin with the bias, terms ascend by (tap, channel); an
// input-gradient's by (descending tap, channel); a weight-gradient's by (sample, position), one sum
// over the batch. Tile, layout, kernel and L1's size change none of it.
// || Halves: as kernels/ir/arithmetic/half_products.h says. With HalfSums::kOwn: as sums of FP32, but
// each sum is F16, and a bias is rounded to it; a sum beyond its range stays at its largest value.
// A kernel is one of KernelsOf without lanes.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/host/call.h"
#include "kernels/backends/small/tiles.h"

namespace runnel::small {

// How a product is computed.
struct ProductChoice {
  Way way;
  std::string kernel = "2x4";
  TileSize tile;

  friend bool operator==(const ProductChoice&, const ProductChoice&) = default;
};
// "hwc mm 2x4 8x32x16", and back; nullopt: no such choice.
std::string ToString(const ProductChoice& choice);
std::optional<ProductChoice> ParseChoice(absl::string_view text);

// Whether an instruction is a product of floats.
bool IsProduct(OpCode code);
// Of an instruction that IsProduct. `sums` concerns programs of f16 alone.
ProductShape ShapeOf(const Program& program, const Instruction& instruction,
                     HalfSums sums = HalfSums::kFloat);
// A text for each kind: type, step, sizes.
std::string ClassOf(const ProductShape& shape);
bool IsDepthwise(const ProductShape& shape);

std::vector<std::string> KernelNames(bool is_half);
// Without tuning.
ProductChoice RuleFor(const ProductShape& shape, int64_t l1_bytes);
// The naive kernel, in the rule's tiles.
ProductChoice NaiveFor(const ProductShape& shape, int64_t l1_bytes);

// `l1`: 64-byte aligned memory of l1_bytes, of one thread.
struct NearMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};
// The choice's tile fits.
absl::Status RunProduct(const host::Call& call, const ProductShape& shape,
                        const ProductChoice& choice, NearMemory l1);

}  // namespace runnel::small
