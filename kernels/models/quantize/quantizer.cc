#include "kernels/models/quantize/quantizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/arithmetic/winograd.h"
#include "proto/base/model/number_format.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

constexpr int32_t kMaxCode = 127;
// A bias is at most so many units of its sum's scale.
constexpr double kMaxBias = 1 << 30;
// Multipliers of an addition have so many bits: with their sign they are words, which instructions
// multiply in pairs.
constexpr int kAddBits = 15;

bool PassesOn(const Node& node) {
  return node.kind == NodeKind::kMaxPool || node.kind == NodeKind::kFlatten;
}

absl::Status NoneOf(absl::string_view flag, absl::string_view text, absl::string_view there_are) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " '", text, "' is none of ", there_are));
}

// How the weights of one channel, or of all, are coded.
struct WeightCoding {
  double scale = 1;
  int32_t zero = 0;
};

// `bias`: the largest |bias| among them, as a multiple of the input's scale.
WeightCoding CodeWeights(absl::Span<const float> weights, double bias, Scheme scheme,
                         int32_t max_code) {
  Range range;
  for (float w : weights) {
    range.low = std::min(range.low, double{w});
    range.high = std::max(range.high, double{w});
  }
  WeightCoding coding;
  // Weights of zero leave the bias alone to say how fine sums must be.
  const double least = bias > 0 ? bias / kMaxBias : 0;
  if (scheme == Scheme::kSymmetric) {
    coding.scale = std::max(range.absmax() / max_code, least);
    if (coding.scale == 0) coding.scale = 1;
    return coding;
  }
  coding.scale = std::max((range.high - range.low) / (2 * max_code), least);
  if (coding.scale == 0) coding.scale = 1;
  const int64_t zero = -max_code - std::llround(range.low / coding.scale);
  coding.zero = ClampCode(zero, -max_code, max_code);
  return coding;
}

}  // namespace

absl::StatusOr<Scheme> ParseScheme(absl::string_view text) {
  if (text == "symmetric") return Scheme::kSymmetric;
  if (text == "asymmetric") return Scheme::kAsymmetric;
  return NoneOf("scheme", text, "symmetric, asymmetric");
}

absl::StatusOr<Granularity> ParseGranularity(absl::string_view text) {
  if (text == "layer") return Granularity::kLayer;
  if (text == "channel") return Granularity::kChannel;
  return NoneOf("granularity", text, "layer, channel");
}

absl::StatusOr<WinogradUse> ParseWinograd(absl::string_view text) {
  if (text == "off") return WinogradUse::kOff;
  if (text == "int4_int6") return WinogradUse::kInt4Int6;
  if (text == "auto") return WinogradUse::kAuto;
  return NoneOf("winograd", text, "off, int4_int6, auto");
}

absl::StatusOr<bool> ParseLayer(absl::string_view flag, absl::string_view text) {
  if (text == "int8") return false;
  if (text == "fp32") return true;
  return NoneOf(flag, text, "int8, fp32");
}

absl::Status CheckOptions(const QuantizeOptions& options) {
  if (options.winograd != WinogradUse::kOff && options.scheme != Scheme::kSymmetric) {
    return absl::InvalidArgumentError(
        "winograd needs codes around 0: take scheme symmetric with it");
  }
  return absl::OkStatus();
}

Quantizer::Quantizer(const FoldedGraph& graph, const QuantizeOptions& options)
    : graph_(graph), options_(options), executor_(graph), observers_(graph.nodes.size()) {
  std::vector<bool> winograd(graph.nodes.size(), false);
  if (options.winograd == WinogradUse::kInt4Int6) {
    for (size_t node : WinogradCandidates()) winograd[node] = true;
  }
  UseWinograd(std::move(winograd));
}

bool Quantizer::StaysReal(size_t node) const {
  if (graph_.nodes[node].kind != NodeKind::kConv) return false;
  if (options_.first_in_fp32 && graph_.nodes[node].inputs[0] == 0) return true;
  const auto is_conv = [](const Node& n) { return n.kind == NodeKind::kConv; };
  return options_.last_in_fp32 &&
         std::none_of(graph_.nodes.begin() + node + 1, graph_.nodes.end(), is_conv);
}

std::vector<size_t> Quantizer::WinogradCandidates() const {
  std::vector<size_t> candidates;
  for (size_t i = 1; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (FitsWinograd(node) && node.shape.in_c <= kWinogradChannels && node.inputs[0] != 0 &&
        !StaysReal(i)) {
      candidates.push_back(i);
    }
  }
  return candidates;
}

// Values that Winograd reads have 6 bits, and so have those that are passed on to them.
void Quantizer::UseWinograd(std::vector<bool> nodes) {
  winograd_ = std::move(nodes);
  max_codes_.assign(graph_.nodes.size(), kMaxCode);
  for (size_t i = graph_.nodes.size(); i-- > 1;) {
    const Node& node = graph_.nodes[i];
    if (winograd_[i]) max_codes_[node.inputs[0]] = kWinogradInputMax;
    if (PassesOn(node)) {
      max_codes_[node.inputs[0]] = std::min(max_codes_[node.inputs[0]], max_codes_[i]);
    }
  }
  // A value that is passed on to others keeps its coding.
  for (size_t i = 1; i < graph_.nodes.size(); ++i) {
    if (PassesOn(graph_.nodes[i])) max_codes_[i] = max_codes_[graph_.nodes[i].inputs[0]];
  }
}

void Quantizer::Observe(int pass, absl::Span<const float> samples, int64_t batch) {
  executor_.Run(samples, batch, [&](size_t node, absl::Span<const float> values) {
    if (PassesOn(graph_.nodes[node])) return;
    if (pass == 0) {
      observers_[node].AddRange(values);
    } else {
      observers_[node].AddHistogram(values);
    }
  });
}

Coding Quantizer::CodingOf(size_t node) const {
  const int32_t max_code = MaxCode(node);
  // Samples are never clipped: their range is the data's own, and the one value of a background is
  // a spike that would make a histogram choose it.
  const Range range = node == 0 ? observers_[node].seen()
                                : observers_[node].Choose(options_.calibration, max_code + 1);
  Coding coding{1, 0, max_code};
  if (options_.scheme == Scheme::kSymmetric) {
    if (range.absmax() > 0) coding.scale = range.absmax() / max_code;
    return coding;
  }
  if (range.high > range.low) coding.scale = (range.high - range.low) / (2 * max_code);
  coding.zero = ClampCode(-max_code - std::llround(range.low / coding.scale), -max_code, max_code);
  return coding;
}

absl::Status Quantizer::QuantizeConv(const Int8Graph& graph, Int8Node& out) const {
  const size_t at = graph.nodes.size();
  const ConvShape& s = out.node.shape;
  const ConvWeights& real = graph_.weights[at];
  const Coding& x = graph.input(out).coding;
  const bool gives_logits = at + 1 == graph_.nodes.size() && out.node.clamp == Clamp::kNone;
  if (StaysReal(at)) {
    out.real_weights = real.weights;
    out.real_bias = real.bias;
    if (gives_logits) out.logit_scales.assign(s.out_c, 1.0);
    return absl::OkStatus();
  }
  if (s.taps() * s.group_in() > kMaxInt32Products) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", out.node.layer, ", op ", out.node.op,
                                                   ": sums of over ", kMaxInt32Products,
                                                   " products do not fit int32"));
  }
  out.winograd = winograd_[at];
  const int32_t max_code = out.winograd ? kWinogradWeightMax : kMaxCode;
  const auto row = static_cast<size_t>(s.taps() * s.group_in());
  std::vector<double> biases;
  for (float b : real.bias) biases.push_back(std::fabs(double{b}) / x.scale);
  WeightCoding shared;
  if (options_.granularity == Granularity::kLayer) {
    shared = CodeWeights(real.weights, *std::max_element(biases.begin(), biases.end()),
                         options_.scheme, max_code);
  }
  out.weights.reserve(real.weights.size());
  for (size_t o = 0; o < biases.size(); ++o) {
    const absl::Span<const float> channel = absl::MakeConstSpan(real.weights).subspan(o * row, row);
    const WeightCoding coding = options_.granularity == Granularity::kLayer
                                    ? shared
                                    : CodeWeights(channel, biases[o], options_.scheme, max_code);
    for (float w : channel) {
      out.weights.push_back(
          ClampCode(std::llround(w / coding.scale) + coding.zero, -max_code, max_code));
    }
    if (options_.scheme == Scheme::kAsymmetric) out.weight_zeros.push_back(coding.zero);
    const double scale = x.scale * coding.scale;
    out.bias.push_back(SaturateSum(std::llround(real.bias[o] / scale)));
    if (gives_logits) {
      out.logit_scales.push_back(scale);
    } else {
      out.factors.push_back(FloatFactorOf(scale / out.coding.scale));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Int8Graph> Quantizer::Finish() const {
  Int8Graph graph;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    Int8Node out;
    out.node = graph_.nodes[i];
    const Range& seen = observers_[i].seen();
    if (!std::isfinite(seen.low) || !std::isfinite(seen.high)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", out.node.layer, ", op ", out.node.op,
                       ": gives values that are not finite for the calibration samples"));
    }
    out.coding = PassesOn(out.node) ? graph.input(out).coding : CodingOf(i);
    switch (out.node.kind) {
      case NodeKind::kConv:
        RUNNEL_RETURN_IF_ERROR(QuantizeConv(graph, out));
        break;
      case NodeKind::kAvgPool:
        out.factors = {FactorOf(graph.input(out).coding.scale /
                                (static_cast<double>(out.node.shape.taps()) * out.coding.scale))};
        break;
      case NodeKind::kClamp:
        out.factors = {FactorOf(graph.input(out).coding.scale / out.coding.scale)};
        break;
      case NodeKind::kAdd: {
        // The larger factor gets kAddBits bits, the other one the same shift.
        const double a = graph.input(out, 0).coding.scale / out.coding.scale;
        const double b = graph.input(out, 1).coding.scale / out.coding.scale;
        int exponent = 0;
        std::frexp(std::max(a, b), &exponent);
        const int shift = std::clamp(kAddBits - exponent, 1, 62);
        for (double factor : {a, b}) {
          const double most = static_cast<double>((1 << kAddBits) - 1);
          out.factors.push_back(
              {static_cast<int32_t>(std::min(std::round(std::ldexp(factor, shift)), most)), shift});
        }
        break;
      }
      default:
        break;
    }
    graph.nodes.push_back(std::move(out));
  }
  RUNNEL_RETURN_IF_ERROR(CheckAndInfer(graph));
  return graph;
}

}  // namespace runnel::inference
