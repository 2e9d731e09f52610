#include "kernels/models/node_profile.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

std::string NameOf(const Node& node) {
  const ConvShape& s = node.shape;
  if (node.kind != NodeKind::kConv) return std::string(Name(node.kind));
  if (s.in_h * s.in_w == 1 && s.taps() == 1) return "linear";
  const char* kind = s.depthwise() ? "depthwise " : "conv ";
  return absl::StrCat(kind, s.kernel_h, "x", s.kernel_w, s.stride_h > 1 ? " /" : "",
                      s.stride_h > 1 ? absl::StrCat(s.stride_h) : "");
}

// Sums of one node's comparison.
struct Comparison {
  double real = 0, coded = 0, both = 0, noise = 0;

  void Add(double x, double y) {
    real += x * x;
    coded += y * y;
    both += x * y;
    noise += (x - y) * (x - y);
  }
  NodeError Get() const {
    NodeError error;
    error.snr_db =
        noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(real / noise);
    if (real > 0 && coded > 0) error.cosine = both / std::sqrt(real * coded);
    return error;
  }
};

}  // namespace

std::vector<NodeFacts> DescribeNodes(const Int8Graph& graph,
                                     absl::FunctionRef<std::string(size_t node)> kernel) {
  std::vector<NodeFacts> facts;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& n = graph.nodes[i];
    const ConvShape& s = n.node.shape;
    NodeFacts& row = facts.emplace_back();
    row.name = NameOf(n.node);
    row.shape = absl::StrCat(s.in_c, "-", s.in_h, "-", s.out_c);
    row.kernel = kernel(i);
    if (n.node.kind == NodeKind::kConv) row.macs = s.macs();
    row.bytes = n.node.outputs() + NodeBytes(n);
    for (int k = 0; k < n.node.input_count(); ++k) row.bytes += graph.input(n, k).node.outputs();
  }
  return facts;
}

absl::StatusOr<std::vector<NodeError>> CompareNodes(const FoldedGraph& real, const Int8Graph& graph,
                                                    GraphRunner& runner,
                                                    absl::Span<const float> samples,
                                                    int64_t count) {
  const int64_t sample = graph.nodes.front().node.outputs();
  std::vector<Comparison> sums(graph.nodes.size());
  std::vector<std::vector<float>> decoded(graph.nodes.size());
  FoldedExecutor real_executor(real);
  const auto decode = [&](size_t node, const std::byte* value) {
    const Int8Node& n = graph.nodes[node];
    decoded[node].resize(static_cast<size_t>(n.node.outputs()));
    if (n.gives_logits()) {
      std::memcpy(decoded[node].data(), value, decoded[node].size() * sizeof(float));
    } else {
      Decode(n.coding, reinterpret_cast<const int8_t*>(value), n.node.outputs(),
             decoded[node].data());
    }
  };
  for (int64_t n = 0; n < count; ++n) {
    const absl::Span<const float> one = samples.subspan(n * sample, sample);
    RUNNEL_RETURN_IF_ERROR(runner.RunNodes(
        {reinterpret_cast<const std::byte*>(one.data()), one.size() * sizeof(float)}, 1, decode));
    real_executor.Run(one, 1, [&](size_t node, absl::Span<const float> values) {
      for (size_t i = 0; i < values.size(); ++i) sums[node].Add(values[i], decoded[node][i]);
    });
  }
  std::vector<NodeError> errors;
  for (const Comparison& node : sums) errors.push_back(node.Get());
  return errors;
}

}  // namespace runnel::inference
