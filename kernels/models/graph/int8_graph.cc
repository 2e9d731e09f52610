#include "kernels/models/graph/int8_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/arithmetic/winograd.h"
#include "proto/base/model/number_format.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

// Multipliers of an addition times a difference of codes, twice, stay far below 2^62.
constexpr int32_t kMaxAddMultiplier = 1 << 23;

absl::Status Wrong(const char* what) { return absl::InvalidArgumentError(what); }

absl::Status CheckCoding(const Coding& coding) {
  if (!std::isfinite(coding.scale) || coding.scale <= 0) return Wrong("a scale out of range");
  if (coding.max_code < 1 || coding.max_code > 127 || coding.zero < -coding.max_code ||
      coding.zero > coding.max_code) {
    return Wrong("a coding out of range");
  }
  return absl::OkStatus();
}

absl::Status CheckFactors(const Int8Node& n, size_t count) {
  if (n.factors.size() != count) return Wrong("another number of factors");
  for (const Factor& factor : n.factors) {
    if (factor.multiplier < 0 || factor.shift < 1 || factor.shift > 62) {
      return Wrong("a factor out of range");
    }
  }
  return absl::OkStatus();
}

bool Within(const std::vector<int8_t>& codes, int32_t most) {
  return std::all_of(codes.begin(), codes.end(),
                     [most](int8_t code) { return code >= -most && code <= most; });
}

absl::Status CheckWinograd(const Int8Node& n, const Int8Node& x) {
  if (!FitsWinograd(n.node) || n.node.shape.in_c > kWinogradChannels) {
    return Wrong("Winograd on another convolution than a dense 3x3 one of stride 1");
  }
  if (x.coding.zero != 0 || x.coding.max_code > kWinogradInputMax || !n.weight_zeros.empty() ||
      !Within(n.weights, kWinogradWeightMax)) {
    return Wrong("Winograd with inputs of over 6 bits or weights of over 4");
  }
  return absl::OkStatus();
}

absl::Status CheckReal(const Int8Node& n, bool wants_logits) {
  const auto out_c = static_cast<size_t>(n.node.shape.out_c);
  if (n.winograd || !n.weights.empty() || !n.weight_zeros.empty() || !n.bias.empty() ||
      !n.factors.empty()) {
    return Wrong("weights in FP32 and in integers");
  }
  if (n.real_weights.size() != static_cast<size_t>(n.node.shape.weight_elements()) ||
      n.real_bias.size() != out_c || n.logit_scales.size() != (wants_logits ? out_c : 0)) {
    return Wrong("another number of FP32 weights, biases or logits than its shape has");
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(n.real_weights.begin(), n.real_weights.end(), is_finite) ||
      !std::all_of(n.real_bias.begin(), n.real_bias.end(), is_finite)) {
    return Wrong("weights that are not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckConv(const Int8Node& n, const Int8Node& x, bool is_last) {
  const ConvShape& s = n.node.shape;
  const auto out_c = static_cast<size_t>(s.out_c);
  const bool wants_logits = is_last && n.node.clamp == Clamp::kNone;
  if (n.is_real()) return CheckReal(n, wants_logits);
  if (n.weights.size() != static_cast<size_t>(s.weight_elements())) {
    return Wrong("another number of weights than its shape has");
  }
  if (n.bias.size() != out_c || (!n.weight_zeros.empty() && n.weight_zeros.size() != out_c)) {
    return Wrong("another number of biases or zeros than channels");
  }
  if (s.taps() * s.group_in() > kMaxInt32Products) return Wrong("sums of too many products");
  if (!Within(n.weights, 127)) return Wrong("a weight of -128");
  for (int32_t zero : n.weight_zeros) {
    if (zero < -127 || zero > 127) return Wrong("a weight's zero out of range");
  }
  for (double scale : n.logit_scales) {
    if (!std::isfinite(scale)) return Wrong("a logit's scale out of range");
  }
  if (n.logit_scales.size() != (wants_logits ? out_c : 0)) return Wrong("another number of logits");
  RUNNEL_RETURN_IF_ERROR(CheckFactors(n, wants_logits ? 0 : out_c));
  return n.winograd ? CheckWinograd(n, x) : absl::OkStatus();
}

absl::Status CheckNode(const Int8Graph& graph, size_t at) {
  const Int8Node& n = graph.nodes[at];
  RUNNEL_RETURN_IF_ERROR(CheckCoding(n.coding));
  if (n.node.clamp > Clamp::kRelu6) return Wrong("an unknown clamp");
  const NodeKind kind = n.node.kind;
  if (kind == NodeKind::kConv) {
    return CheckConv(n, graph.input(n), at + 1 == graph.nodes.size() && !graph.gives_codes);
  }
  if (n.winograd || !n.weights.empty() || !n.weight_zeros.empty() || !n.bias.empty() ||
      n.gives_logits() || n.is_real() || !n.real_bias.empty()) {
    return Wrong("weights where there is no convolution");
  }
  if (kind == NodeKind::kAdd) {
    RUNNEL_RETURN_IF_ERROR(CheckFactors(n, 2));
    if (n.factors[0].shift != n.factors[1].shift ||
        std::max(n.factors[0].multiplier, n.factors[1].multiplier) > kMaxAddMultiplier) {
      return Wrong("an addition whose factors do not fit each other");
    }
    return absl::OkStatus();
  }
  if (kind == NodeKind::kAvgPool || kind == NodeKind::kClamp) return CheckFactors(n, 1);
  if (kind != NodeKind::kInput && !(n.coding == graph.input(n).coding)) {
    return Wrong("passes values on with another coding");
  }
  if (n.node.clamp != Clamp::kNone) return Wrong("a clamp where there can be none");
  return CheckFactors(n, 0);
}

}  // namespace

int64_t NodeBytes(const Int8Node& n) {
  return static_cast<int64_t>(n.weights.size() + n.weight_zeros.size() * sizeof(int32_t) +
                              n.bias.size() * sizeof(int32_t) + n.factors.size() * sizeof(Factor) +
                              n.logit_scales.size() * sizeof(double) +
                              (n.real_weights.size() + n.real_bias.size()) * sizeof(float));
}

int64_t Int8Graph::weight_bytes() const {
  int64_t bytes = 0;
  for (const Int8Node& n : nodes) bytes += NodeBytes(n);
  return bytes;
}

CodeLimits LimitsOf(const Int8Node& node) {
  const Coding& coding = node.coding;
  CodeLimits limits{-coding.max_code, coding.max_code};
  if (node.node.clamp != Clamp::kNone) limits.lowest = coding.zero;
  if (node.node.clamp == Clamp::kRelu6) {
    const double six = std::min(6.0 / coding.scale, 1e6);
    limits.highest =
        static_cast<int32_t>(std::min<int64_t>(limits.highest, coding.zero + std::llround(six)));
  }
  return limits;
}

bool FitsWinograd(const Node& node) {
  const ConvShape& s = node.shape;
  return node.kind == NodeKind::kConv && s.groups == 1 && s.kernel_h == 3 && s.kernel_w == 3 &&
         s.stride_h == 1 && s.stride_w == 1 && s.pad_h <= 1 && s.pad_w <= 1;
}

absl::Status CheckAndInfer(Int8Graph& graph) {
  if (graph.nodes.size() < 2 || graph.nodes.size() > kMaxNodes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", graph.nodes.size(), " nodes"));
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    absl::Status status = InferNode(nodes, graph.nodes[i].node);
    if (status.ok()) status = CheckNode(graph, i);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("node ", i, ": ", status.message()));
    }
    nodes.push_back(graph.nodes[i].node);
  }
  return absl::OkStatus();
}

}  // namespace runnel::inference
