#pragma once

// A model in integers: what `quantize` makes, a file holds and executors run.
//
// A value is an int8 tensor of codes; real = scale * (code - zero), codes in -max_code..max_code
// (so -128 never), real 0 is a code. Of a convolution with weights w (codes, zero z_w, scale s_w,
// all by output channel):
//
//   sum  = sum over taps and inputs of (x - z_x)(w - z_w) + bias    saturated to +-(2^31 - 1)
//   code = sum * (s_x s_w / s_y) rounded half away from zero, + z_y, clamped
//
// Samples become codes x * (float)(1 / scale), likewise rounded.
//
// bias has scale s_x s_w. The factor is a multiplier and a shift (factor.h). Average pools are
// the same with a sum of (x - z_x) and factor s_x / (taps s_y). An addition has one shift for both
// factors and rounds once. The last node, if it is a convolution without clamp, gives logits
// sum * logit_scale (output channel) instead of codes; any other last node's codes are decoded. Of
// a slice whose codes go on to the next one, neither.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/models/graph/factor.h"
#include "kernels/models/graph/node.h"

namespace runnel::inference {

struct Coding {
  double scale = 1;  // finite, above 0
  int32_t zero = 0;  // within +-max_code
  int32_t max_code = 127;
  friend bool operator==(const Coding&, const Coding&) = default;
};

struct Int8Node {
  Node node;
  Coding coding;  // of its output; max pools and flattens have their input's
  // kConv:
  std::vector<int8_t> weights;        // OHWI, in -127..127
  std::vector<int32_t> weight_zeros;  // out_c, or empty: all 0
  std::vector<int32_t> bias;          // out_c
  // out_c of kConv (none where it gives logits), 1 of kAvgPool and kClamp, 2 of kAdd with equal
  // shifts; multipliers of kAdd are below 2^23.
  std::vector<Factor> factors;
  std::vector<double> logit_scales;  // out_c where it gives logits, else empty
  bool winograd = false;             // weights in +-7, its input's codes in +-31
  // Or in place of weights, bias and factors, where it stays in FP32: reads the
  // samples themselves where its input is node 0 and that is the samples, else real values. Its
  // logit_scales are 1.
  std::vector<float> real_weights;  // OHWI
  std::vector<float> real_bias;     // out_c

  bool is_real() const { return !real_weights.empty(); }
  bool gives_logits() const { return !logit_scales.empty(); }
  friend bool operator==(const Int8Node&, const Int8Node&) = default;
};

// Codes, biases and factors, as they lie in a file.
int64_t NodeBytes(const Int8Node& node);

// A model, or a slice of one: consecutive nodes of a larger graph between two values that alone
// cross. A slice's node 0 (NodeKind::kInput) stands for the value that the slice before computed,
// with that value's shape and coding.
struct Int8Graph {
  std::vector<Int8Node> nodes;
  // Node 0 is codes, as the slice before gives them; else the samples, which become codes.
  bool takes_codes = false;
  // The last node gives codes (its factors, no logit_scales) for the slice after; else logits.
  bool gives_codes = false;

  int64_t classes() const { return nodes.back().node.outputs(); }
  const Int8Node& input(const Int8Node& of, int i = 0) const { return nodes[of.node.inputs[i]]; }
  int64_t weight_bytes() const;  // NodeBytes of all
  friend bool operator==(const Int8Graph&, const Int8Graph&) = default;
};

// The lowest and highest code that the node gives: its clamp, by its coding.
struct CodeLimits {
  int32_t lowest = -127;
  int32_t highest = 127;
};
CodeLimits LimitsOf(const Int8Node& node);

// Whether F(2x2, 3x3) computes it: dense, 3x3, stride 1, padded by at most 1.
bool FitsWinograd(const Node& node);

// Of a graph from outside: sizes of all vectors, codes and factors in range, sums that fit, codings
// that agree where values are passed on. The nodes' shapes are inferred anew (InferNode).
// InvalidArgument names the node and what is wrong.
absl::Status CheckAndInfer(Int8Graph& graph);

}  // namespace runnel::inference
