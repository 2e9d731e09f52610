#include "kernels/models/fast_nodes.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/models/int8_executor.h"

namespace runnel::inference {
namespace {

// Values that wait for their places or their sums' ends on the stack.
constexpr int64_t kBlock = 256;
// Taps of a maximum that is taken at once.
constexpr int64_t kMaxTaps = 64;

void Encode(const CodeLoops& loops, const Int8Node& n, const float* sample, int8_t* y) {
  const cpu::ConvShape& s = n.node.shape;
  const Coding& coding = n.coding;
  const int64_t positions = s.out_h * s.out_w;
  const auto inverse = static_cast<float>(1 / coding.scale);
  int8_t codes[kBlock];
  for (int64_t first = 0; first < positions; first += kBlock) {
    const int64_t count = std::min(kBlock, positions - first);
    for (int64_t c = 0; c < s.out_c; ++c) {
      loops.encode(sample + c * positions + first, count, inverse, coding.zero, coding.max_code,
                   codes);
      for (int64_t p = 0; p < count; ++p) y[(first + p) * s.out_c + c] = codes[p];
    }
  }
}

void MaxPool(const cpu::IntegerLoops& loops, const cpu::ConvShape& s, const int8_t* x, int8_t* y) {
  const int8_t* taps[kMaxTaps];
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow, y += s.out_c) {
      int count = 0;
      for (int64_t tap = 0; tap < s.taps(); ++tap) {
        const int64_t ih = oh * s.stride_h - s.pad_h + tap / s.kernel_w;
        const int64_t iw = ow * s.stride_w - s.pad_w + tap % s.kernel_w;
        if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
        taps[count++] = x + (ih * s.in_w + iw) * s.in_c;
      }
      loops.max_of_taps(taps, count, s.out_c, y, /*tap_of_max=*/nullptr);
    }
  }
}

void AvgPool(const cpu::IntegerLoops& loops, const Int8Node& n, const Coding& in, const int8_t* x,
             int8_t* y) {
  const cpu::ConvShape& s = n.node.shape;
  const CodeLimits limits = LimitsOf(n);
  for (int64_t p = 0; p < s.out_h * s.out_w; ++p, y += s.in_c) {
    const int64_t top = p / s.out_w * s.stride_h, left = p % s.out_w * s.stride_w;
    for (int64_t c = 0; c < s.in_c; c += kBlock) {
      const int64_t channels = std::min(kBlock, s.in_c - c);
      int32_t sums[kBlock] = {};
      for (int64_t tap = 0; tap < s.taps(); ++tap) {
        const int64_t ih = top + tap / s.kernel_w, iw = left + tap % s.kernel_w;
        loops.add_to_sums(x + (ih * s.in_w + iw) * s.in_c + c, channels, sums);
      }
      for (int64_t i = 0; i < channels; ++i) {
        const int64_t sum = sums[i] - s.taps() * in.zero;
        y[c + i] =
            ClampCode(Multiply(sum, n.factors[0]) + n.coding.zero, limits.lowest, limits.highest);
      }
    }
  }
}

// Whether the sums of an addition fit what CodeAddition asks for.
bool FitsInt32(const CodeAddition& addition) {
  if (addition.shift > 30) return false;
  const int64_t most = (127 + int64_t{std::abs(addition.zero_a)}) * addition.factor_a +
                       (127 + int64_t{std::abs(addition.zero_b)}) * addition.factor_b;
  return most + (int64_t{1} << (addition.shift - 1)) <= INT32_MAX;
}

}  // namespace

std::optional<CodeAddition> AdditionOf(const Int8Graph& graph, const Int8Node& n) {
  const CodeLimits limits = LimitsOf(n);
  const CodeAddition addition = {.zero_a = graph.input(n, 0).coding.zero,
                                 .zero_b = graph.input(n, 1).coding.zero,
                                 .factor_a = n.factors[0].multiplier,
                                 .factor_b = n.factors[1].multiplier,
                                 .shift = n.factors[0].shift,
                                 .zero = n.coding.zero,
                                 .lowest = limits.lowest,
                                 .highest = limits.highest};
  if (!FitsInt32(addition)) return std::nullopt;
  return addition;
}

void RunFastNode(const Int8Graph& graph, const NodeLoops& loops, const Int8Node& node,
                 const float* sample, const int8_t* x, const int8_t* other, int8_t* y) {
  // Sums of int8 that an int32 surely holds.
  constexpr int64_t kMaxMeanTaps = INT32_MAX / 256;
  const cpu::ConvShape& s = node.node.shape;
  switch (node.node.kind) {
    case NodeKind::kInput:
      return Encode(*loops.codes, node, sample, y);
    case NodeKind::kMaxPool:
      if (s.taps() <= kMaxTaps) return MaxPool(*loops.integers, s, x, y);
      break;
    case NodeKind::kAvgPool:
      if (s.taps() <= kMaxMeanTaps) {
        return AvgPool(*loops.integers, node, graph.input(node).coding, x, y);
      }
      break;
    case NodeKind::kAdd: {
      const std::optional<CodeAddition> addition = AdditionOf(graph, node);
      if (!addition.has_value()) break;
      return loops.codes->add(*addition, x, other, node.node.outputs(), y);
    }
    default:
      break;
  }
  RunPlainNode(graph, node, sample, x, other, y);
}

}  // namespace runnel::inference
