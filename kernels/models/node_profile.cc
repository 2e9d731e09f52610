#include "kernels/models/node_profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace runnel::inference {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string NameOf(const Node& node) {
  const cpu::ConvShape& s = node.shape;
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
    const cpu::ConvShape& s = n.node.shape;
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

std::vector<NodeError> CompareNodes(const FoldedGraph& real, const Int8Graph& graph,
                                    const cpu::Int8Kernels& kernels,
                                    absl::Span<const float> samples, int64_t count) {
  const int64_t sample = graph.nodes.front().node.outputs();
  std::vector<Comparison> sums(graph.nodes.size());
  FoldedExecutor real_executor(real);
  Int8Executor executor(graph, 1, kernels, ValuesKept::kAll);
  std::vector<float> logits(graph.classes()), decoded;
  for (int64_t n = 0; n < count; ++n) {
    const absl::Span<const float> one = samples.subspan(n * sample, sample);
    executor.Run(one, 1, absl::MakeSpan(logits));
    real_executor.Run(one, 1, [&](size_t node, absl::Span<const float> values) {
      decoded = logits;
      if (!graph.nodes[node].gives_logits()) {
        decoded.resize(values.size());
        Decode(graph.nodes[node].coding, executor.codes()[node].data(),
               static_cast<int64_t>(values.size()), decoded.data());
      }
      for (size_t i = 0; i < values.size(); ++i) sums[node].Add(values[i], decoded[i]);
    });
  }
  std::vector<NodeError> errors;
  for (const Comparison& node : sums) errors.push_back(node.Get());
  return errors;
}

std::vector<double> TimeNodes(const Int8Graph& graph, Int8Executor& executor,
                              absl::Span<const float> samples, int64_t batch, int passes) {
  std::vector<std::vector<double>> seconds(graph.nodes.size());
  std::vector<float> logits(batch * graph.classes());
  for (int pass = 0; pass <= passes; ++pass) {
    Clock::time_point start = Clock::now();
    executor.Run(samples, batch, absl::MakeSpan(logits), [&](size_t node) {
      if (pass > 0) seconds[node].push_back(SecondsSince(start));
      start = Clock::now();
    });
  }
  std::vector<double> medians;
  for (std::vector<double>& of_node : seconds) {
    std::nth_element(of_node.begin(), of_node.begin() + of_node.size() / 2, of_node.end());
    medians.push_back(of_node[of_node.size() / 2]);
  }
  return medians;
}

double MeasurePeak(const cpu::Int8Kernels& kernels) {
  constexpr int kTiles = 64, kRounds = 50;
  constexpr int64_t kValues = 256;  // of the reduction: a panel of 16 KiB
  const int64_t steps = kValues / kernels.k_group;
  alignas(64) static int8_t panel[kValues * cpu::kMaxPanelColumns];
  alignas(64) static uint8_t rows[cpu::kMaxTileRows][kValues];
  alignas(64) static int32_t sums[cpu::kMaxTileRows][cpu::kMaxPanelColumns];
  const uint8_t* a[cpu::kMaxTileRows];
  int32_t* c[cpu::kMaxTileRows];
  for (int r = 0; r < cpu::kMaxTileRows; ++r) {
    a[r] = rows[r];
    c[r] = sums[r];
  }
  const cpu::Int8Segment segment = {.steps = steps};
  const cpu::Int8Tile tile{.a = a,
                           .a_step = kernels.k_group,
                           .b = panel,
                           .segments = &segment,
                           .segment_count = 1,
                           .c = c,
                           .rows = kernels.tile_rows,
                           .columns = kernels.panel_columns};
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kTiles; ++i) kernels.tile(tile);
    best = std::min(best, SecondsSince(start));
  }
  return 2.0 * kTiles * kValues * kernels.tile_rows * kernels.panel_columns / best;
}

}  // namespace runnel::inference
