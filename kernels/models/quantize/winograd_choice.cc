#include <algorithm>

#include "kernels/models/graph_runner.h"
#include "kernels/models/node_profile.h"
#include "kernels/models/quantize/quantizer.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

constexpr double kLeastGain = 1.05;
constexpr double kMostDisagreement = 0.01;
// Samples that errors of single nodes are taken over.
constexpr int64_t kErrorSamples = 8;

int64_t Largest(absl::Span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// By sample, which class the FP32 graph gives.
std::vector<int64_t> ClassesOf(const FoldedGraph& real, absl::Span<const float> samples,
                               int64_t count) {
  const int64_t sample = real.nodes.front().outputs();
  std::vector<int64_t> classes;
  FoldedExecutor executor(real);
  for (int64_t n = 0; n < count; ++n) {
    executor.Run(samples.subspan(n * sample, sample), 1,
                 [&](size_t node, absl::Span<const float> values) {
                   if (node + 1 == real.nodes.size()) classes.push_back(Largest(values));
                 });
  }
  return classes;
}

absl::StatusOr<double> Agreement(const Int8Graph& graph, Backend& backend,
                                 absl::Span<const float> samples,
                                 const std::vector<int64_t>& classes) {
  const int64_t sample = graph.nodes.front().node.outputs();
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<GraphRunner> runner,
                          GraphRunner::Make(graph, backend));
  std::vector<float> logits(graph.classes());
  int64_t equal = 0;
  for (size_t n = 0; n < classes.size(); ++n) {
    const absl::Span<const float> one = samples.subspan(n * sample, sample);
    RUNNEL_RETURN_IF_ERROR(
        runner->Run({reinterpret_cast<const std::byte*>(one.data()), one.size() * sizeof(float)}, 1,
                    {reinterpret_cast<std::byte*>(logits.data()), logits.size() * sizeof(float)}));
    equal += Largest(logits) == classes[n] ? 1 : 0;
  }
  return static_cast<double>(equal) / static_cast<double>(classes.size());
}

absl::StatusOr<Int8Graph> WithWinograd(Quantizer& quantizer, const FoldedGraph& real,
                                       absl::Span<const size_t> nodes) {
  std::vector<bool> winograd(real.nodes.size(), false);
  for (size_t node : nodes) winograd[node] = true;
  quantizer.UseWinograd(std::move(winograd));
  return quantizer.Finish();
}

// Of the additions of its value: a direct convolution has them in its own time.
double AdditionSeconds(const Int8Graph& graph, const std::vector<double>& seconds, size_t node) {
  double sum = 0;
  for (size_t i = node + 1; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i].node;
    const bool follows = static_cast<size_t>(std::max(n.inputs[0], n.inputs[1])) == node;
    if (n.kind == NodeKind::kAdd && follows) sum += seconds[i];
  }
  return sum;
}

}  // namespace

absl::StatusOr<Int8Graph> QuantizeWithChosenWinograd(Quantizer& quantizer, const FoldedGraph& real,
                                                     absl::Span<const float> samples, int64_t count,
                                                     Backend& backend, TimeGraph time) {
  RUNNEL_ASSIGN_OR_RETURN(const Int8Graph none, WithWinograd(quantizer, real, {}));
  const std::vector<size_t> candidates = quantizer.WinogradCandidates();
  if (candidates.empty()) return none;
  RUNNEL_ASSIGN_OR_RETURN(const Int8Graph all, WithWinograd(quantizer, real, candidates));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> direct, time(none));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> winograd, time(all));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<GraphRunner> runner,
                          GraphRunner::Make(all, backend));
  RUNNEL_ASSIGN_OR_RETURN(
      const std::vector<NodeError> errors,
      CompareNodes(real, all, *runner, samples, std::min(count, kErrorSamples)));
  std::vector<size_t> faster;
  for (size_t node : candidates) {
    const double by_winograd = winograd[node] + AdditionSeconds(all, winograd, node);
    if (direct[node] > kLeastGain * by_winograd) faster.push_back(node);
  }
  std::stable_sort(faster.begin(), faster.end(),
                   [&](size_t a, size_t b) { return errors[a].snr_db > errors[b].snr_db; });
  const std::vector<int64_t> classes = ClassesOf(real, samples, count);
  RUNNEL_ASSIGN_OR_RETURN(const double by_direct, Agreement(none, backend, samples, classes));
  const double least = by_direct - kMostDisagreement;
  // As many of them as agree, by halves: `taken` do, `refused` do not.
  size_t taken = 0, refused = faster.size() + 1;
  while (taken + 1 < refused) {
    // All of them first: they are often good enough.
    const size_t tried = refused > faster.size() ? faster.size() : (taken + refused) / 2;
    RUNNEL_ASSIGN_OR_RETURN(
        const Int8Graph graph,
        WithWinograd(quantizer, real, absl::MakeConstSpan(faster).subspan(0, tried)));
    RUNNEL_ASSIGN_OR_RETURN(const double agreement, Agreement(graph, backend, samples, classes));
    if (agreement >= least) {
      taken = tried;
    } else {
      refused = tried;
    }
  }
  // The choice, for whoever asks the quantizer again.
  return WithWinograd(quantizer, real, absl::MakeConstSpan(faster).subspan(0, taken));
}

}  // namespace runnel::inference
