#include "worker/inference/inference_profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/models/quantize/quantizer.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using inference::Clamp;
using inference::Int8Graph;
using inference::Int8Node;
using inference::NodeKind;

// Passes over the batch: others on the same processor hold some up, so the shortest one counts, by
// node. At least so many, then until they have taken so long together.
constexpr int kLeastPasses = 3;
constexpr int kMostPasses = 15;
constexpr double kEnoughSeconds = 1;
constexpr uint64_t kSeed = 1;
// Sums of two values, each halved.
constexpr inference::Factor kHalf = {1 << 14, 15};

// Weights from a linear congruence, and a factor that keeps sums of them in the range of codes.
void SetWeights(const inference::Node& node, bool gives_logits, Int8Node& out) {
  const ConvShape& s = node.shape;
  const int64_t products = s.taps() * s.group_in();
  uint32_t state = kSeed;
  out.weights.resize(static_cast<size_t>(s.weight_elements()));
  for (int8_t& weight : out.weights) {
    state = state * 1664525u + 1013904223u;
    weight = static_cast<int8_t>(static_cast<int32_t>(state >> 24) % 255 - 127);
  }
  out.bias.assign(static_cast<size_t>(s.out_c), 0);
  const double usual = 73.0 * std::sqrt(static_cast<double>(products));
  if (gives_logits) {
    out.logit_scales.assign(static_cast<size_t>(s.out_c), 1 / usual);
  } else {
    out.factors.assign(static_cast<size_t>(s.out_c), inference::FloatFactorOf(1 / usual));
  }
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The runner cannot time nodes: of one batch in `seconds`, by their multiply-accumulates.
std::vector<double> SharesOf(const Int8Graph& graph, double seconds) {
  std::vector<double> shares;
  for (const Int8Node& n : graph.nodes) {
    const ConvShape& s = n.node.shape;
    const bool is_conv = n.node.kind == NodeKind::kConv;
    shares.push_back(static_cast<double>(n.node.outputs()) *
                     static_cast<double>(is_conv ? s.taps() * s.group_in() : 1));
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share *= seconds / all;
  return shares;
}

// Of one batch, by node of `graph`.
absl::StatusOr<std::vector<double>> SecondsByNode(const Int8Graph& graph,
                                                  inference::GraphRunner& runner, int64_t samples) {
  const std::vector<float> values(static_cast<size_t>(samples * graph.nodes.front().node.outputs()),
                                  0.5f);
  const auto input = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                         values.size() * sizeof(float));
  std::vector<std::byte> output(static_cast<size_t>(samples * inference::OutputBytes(graph)));
  const auto pass = [&]() -> absl::StatusOr<std::vector<double>> {
    absl::StatusOr<std::vector<double>> seconds = runner.TimeNodes(samples, 1);
    if (!absl::IsUnimplemented(seconds.status())) return seconds;
    const auto begin = std::chrono::steady_clock::now();
    RUNNEL_RETURN_IF_ERROR(runner.Run(input, samples, absl::MakeSpan(output)));
    return SharesOf(graph, SecondsSince(begin));
  };
  // Kernels are built and memory is touched in a pass that does not count.
  RUNNEL_RETURN_IF_ERROR(runner.Run(input, samples, absl::MakeSpan(output)));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<double> least, pass());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i < kMostPasses; ++i) {
    if (i >= kLeastPasses && SecondsSince(begin) > kEnoughSeconds) break;
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> seconds, pass());
    for (size_t node = 0; node < least.size(); ++node)
      least[node] = std::min(least[node], seconds[node]);
  }
  return least;
}

}  // namespace

absl::StatusOr<Int8Graph> GraphForTiming(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, InitialState(model, kSeed));
  RUNNEL_ASSIGN_OR_RETURN(const inference::FoldedGraph folded,
                          inference::FoldModel(model, state, /*fold_batch_norm=*/true));
  Int8Graph graph;
  for (size_t i = 0; i < folded.nodes.size(); ++i) {
    const inference::Node& node = folded.nodes[i];
    Int8Node& out = graph.nodes.emplace_back();
    out.node = node;
    if (node.kind == NodeKind::kConv) {
      SetWeights(node, i + 1 == folded.nodes.size() && node.clamp == Clamp::kNone, out);
    } else if (node.kind == NodeKind::kAvgPool) {
      out.factors = {inference::FactorOf(1.0 / static_cast<double>(node.shape.taps()))};
    } else if (node.kind == NodeKind::kClamp) {
      out.factors = {inference::FactorOf(1)};
    } else if (node.kind == NodeKind::kAdd) {
      out.factors = {kHalf, kHalf};
    }
  }
  RUNNEL_RETURN_IF_ERROR(inference::CheckAndInfer(graph));
  return graph;
}

absl::StatusOr<std::vector<RangeTime>> ProfileInference(const ModelSpec& model,
                                                        const ProfileOptions& options,
                                                        const MakeGraphRunnerFn& make_runner) {
  const std::vector<LayerRange> ranges =
      options.ranges.empty() ? EachLayer(model.layer_count()) : options.ranges;
  for (const LayerRange& range : ranges) {
    if (options.samples >= 1 && range.first_layer >= 0 && range.first_layer <= range.last_layer &&
        range.last_layer < model.layer_count())
      continue;
    return absl::InvalidArgumentError(absl::StrCat("profile of layers ", range.first_layer, " to ",
                                                   range.last_layer, " of ", model.layer_count(),
                                                   " with ", options.samples, " samples"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Int8Graph graph, GraphForTiming(model));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> runner, make_runner(graph));
  const auto begin = std::chrono::steady_clock::now();
  const int64_t processor_begin_ns = ThreadProcessorNs();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> by_node,
                          SecondsByNode(graph, *runner, options.samples));
  const double processor_seconds =
      static_cast<double>(ThreadProcessorNs() - processor_begin_ns) * 1e-9;
  const double share = std::clamp(processor_seconds / SecondsSince(begin), 1e-3, 1.0);
  std::vector<double> by_layer(static_cast<size_t>(model.layer_count()));
  for (size_t i = 0; i < by_node.size(); ++i)
    by_layer[static_cast<size_t>(graph.nodes[i].node.layer)] += by_node[i];
  std::vector<RangeTime> times;
  for (const LayerRange& range : ranges) {
    RangeTime& time = times.emplace_back();
    time.seconds = std::accumulate(by_layer.begin() + range.first_layer,
                                   by_layer.begin() + range.last_layer + 1, 0.0);
    // Nothing held it up: the processor's share stands in the sums alone.
    time.processor_seconds = time.all_processor_seconds = time.seconds;
    time.all_wall_seconds = time.seconds / share;
    time.forward_share = 1;
  }
  return times;
}

}  // namespace runnel
