// Products of the codes of grids: all four sums of each element, then its value.

#include <vector>

#include "kernels/backends/ref/product_geometry.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/code_grid.h"

namespace runnel::ref {
namespace {

// An operand: codes with their grids, and the lower parts of wide ones.
struct CodeOperand {
  const int8_t* codes = nullptr;
  CodeGrids grids;
  const int8_t* low = nullptr;

  int64_t At(int64_t i) const {
    return grids.is_wide() ? int64_t{256} * codes[i] + low[i] : codes[i];
  }
};

CodeOperand OperandAt(const Call& call, size_t i) {
  // Of samples by choice the first row.
  const Shape& grids = call.in_shape(i + 2);
  return {call.in<int8_t>(i), CodeGrids(call.in(i + 2), grids[grids.rank() - 1])};
}
// The gradient of the output.
CodeOperand ErrorOf(const Call& call) {
  CodeOperand error = OperandAt(call, 0);
  if (call.has_input(4)) error.low = call.in<int8_t>(4);
  return error;
}

void AddTerm(int64_t left, int64_t right, TermSums& sums) {
  sums.products += left * right;
  sums.left += left;
  sums.right += right;
  ++sums.terms;
}

std::vector<TermSums> SumsOf(const Call& call) {
  return std::vector<TermSums>(static_cast<size_t>(call.out_shape(0).elements()));
}

}  // namespace

absl::Status CodesForward(const Call& call) {
  const ProductGeometry g =
      ProductGeometryOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  const CodeOperand x = OperandAt(call, 0), weight = OperandAt(call, 1);
  std::vector<TermSums> sums = SumsOf(call);
  ForEachProduct(
      g, [&](int64_t in, int64_t out, int64_t w) { AddTerm(x.At(in), weight.At(w), sums[out]); });
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t channel = static_cast<int64_t>(i) / g.window.out_plane() % g.out_channels;
    const double bias = call.has_input(4) ? call.in(4)[channel] : 0;
    call.out(0)[i] = ValueOfSums(x.grids.At(0), weight.grids.At(channel), sums[i], bias);
  }
  return absl::OkStatus();
}

absl::Status CodesInputGradient(const Call& call) {
  const ProductGeometry g =
      ProductGeometryOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const CodeOperand dy = ErrorOf(call), weight = OperandAt(call, 1);
  std::vector<TermSums> sums = SumsOf(call);
  ForEachProduct(
      g, [&](int64_t in, int64_t out, int64_t w) { AddTerm(dy.At(out), weight.At(w), sums[in]); });
  for (size_t i = 0; i < sums.size(); ++i)
    call.out(0)[i] = ValueOfSums(dy.grids.At(0), weight.grids.At(0), sums[i], 0);
  return absl::OkStatus();
}

namespace {

void StoreBiasGradient(const Call& call, const ProductGeometry& g, const CodeOperand& dy) {
  const CodeGrid grid = dy.grids.At(0);
  const int64_t plane = g.window.out_plane();
  for (int64_t c = 0; c < g.out_channels; ++c) {
    int64_t sum = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      for (int64_t p = 0; p < plane; ++p) sum += dy.At((n * g.out_channels + c) * plane + p);
    }
    StoreGradient(call, SumOfCodes(grid, sum, g.batch * plane), call.out(1) + c);
  }
}

}  // namespace

absl::Status CodesWeightGradient(const Call& call) {
  const ProductGeometry g =
      ProductGeometryOf(call.attributes(), call.in_shape(1), call.in_shape(0));
  const CodeOperand dy = ErrorOf(call), x = OperandAt(call, 1);
  std::vector<TermSums> sums = SumsOf(call);
  ForEachProduct(
      g, [&](int64_t in, int64_t out, int64_t w) { AddTerm(dy.At(out), x.At(in), sums[w]); });
  // Sums lie (out, kernel..., in), gradients (out, in, kernel...).
  const int64_t taps = g.window.taps(), size = taps * g.group_in;
  for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i) {
    const int64_t tap = i % size / g.group_in, in = i % g.group_in;
    StoreGradient(call, ValueOfSums(dy.grids.At(0), x.grids.At(0), sums[i], 0),
                  call.out(0) + i / size * size + in * taps + tap);
  }
  if (call.has_output(1)) StoreBiasGradient(call, g, dy);
  return absl::OkStatus();
}

}  // namespace runnel::ref
