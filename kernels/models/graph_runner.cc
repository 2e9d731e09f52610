#include "kernels/models/graph_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

using Clock = std::chrono::steady_clock;

// Median of so many calls, after one that does not count.
template <typename RunFn>
absl::StatusOr<double> MedianSeconds(int passes, const RunFn& run) {
  std::vector<double> seconds;
  for (int pass = 0; pass <= passes; ++pass) {
    const Clock::time_point start = Clock::now();
    RUNNEL_RETURN_IF_ERROR(run());
    if (pass > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

absl::Status CheckSpans(const Int8Graph& graph, size_t input, int64_t batch, size_t output) {
  if (batch < 1 || static_cast<int64_t>(input) != batch * InputBytes(graph) ||
      static_cast<int64_t>(output) != batch * OutputBytes(graph)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch, " with ", input, " bytes in and ", output, " out: the graph takes ",
        InputBytes(graph), " and gives ", OutputBytes(graph), " a sample"));
  }
  return absl::OkStatus();
}

bool ReadsSamples(const Int8Graph& graph, size_t node) {
  return node > 0 && graph.nodes[node].is_real() && graph.nodes[node].node.inputs[0] == 0 &&
         !graph.takes_codes;
}

}  // namespace

int64_t InputBytes(const Int8Graph& graph) { return ValueBytes(graph, 0, 1); }

int64_t OutputBytes(const Int8Graph& graph) {
  const auto element = static_cast<int64_t>(graph.gives_codes ? sizeof(int8_t) : sizeof(float));
  return graph.nodes.back().node.outputs() * element;
}

void Decode(const Coding& coding, const int8_t* codes, int64_t count, float* real) {
  for (int64_t i = 0; i < count; ++i) {
    real[i] = static_cast<float>((codes[i] - coding.zero) * coding.scale);
  }
}

GraphRunner::GraphRunner(const Int8Graph& graph, Backend& backend, std::unique_ptr<Backend> owned)
    : graph_(graph),
      owned_(std::move(owned)),
      backend_(backend),
      codes_in_products_(backend.traits().codes_in_products),
      last_(graph.nodes.size() - 1),
      values_(graph.nodes.size()) {}

absl::StatusOr<std::unique_ptr<GraphRunner>> GraphRunner::Make(const Int8Graph& graph,
                                                               std::unique_ptr<Backend> backend) {
  Backend& borrowed = *backend;
  std::unique_ptr<GraphRunner> runner(new GraphRunner(graph, borrowed, std::move(backend)));
  RUNNEL_RETURN_IF_ERROR(runner->MakePieces());
  return runner;
}

absl::StatusOr<std::unique_ptr<GraphRunner>> GraphRunner::Make(const Int8Graph& graph,
                                                               Backend& backend) {
  std::unique_ptr<GraphRunner> runner(new GraphRunner(graph, backend, nullptr));
  RUNNEL_RETURN_IF_ERROR(runner->MakePieces());
  return runner;
}

absl::StatusOr<Backend*> GraphRunner::BackendOf(size_t node) {
  if (!graph_.nodes[node].is_real() || codes_in_products_) return &backend_;
  if (host_ == nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(host_, MakeBackend("cpu", 1));
  }
  return host_.get();
}

// One, or before and after each node that another backend computes.
absl::Status GraphRunner::MakePieces() {
  std::vector<size_t> given = {0};
  const auto add = [&](size_t output) -> absl::Status {
    if (std::find(given.begin(), given.end(), output) != given.end()) return absl::OkStatus();
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendOf(output));
    std::vector<size_t> from = given;
    if (backend != &backend_) from = {static_cast<size_t>(graph_.nodes[output].node.inputs[0])};
    RUNNEL_ASSIGN_OR_RETURN(GraphPiece piece, GraphPiece::Make(graph_, *backend, from, output));
    pieces_.push_back(std::move(piece));
    given.push_back(output);
    return absl::OkStatus();
  };
  for (size_t i = 1; i <= last_; ++i) {
    RUNNEL_ASSIGN_OR_RETURN(const Backend* backend, BackendOf(i));
    if (backend == &backend_) continue;
    RUNNEL_RETURN_IF_ERROR(add(static_cast<size_t>(graph_.nodes[i].node.inputs[0])));
    RUNNEL_RETURN_IF_ERROR(add(i));
  }
  return add(last_);
}

absl::Status GraphRunner::Run(absl::Span<const std::byte> input, int64_t batch,
                              absl::Span<std::byte> output) {
  RUNNEL_RETURN_IF_ERROR(CheckSpans(graph_, input.size(), batch, output.size()));
  const auto value = [&](size_t node) {
    return node == 0 ? input.data() : static_cast<const std::byte*>(values_[node].data());
  };
  const bool decodes = !graph_.gives_codes && !graph_.nodes[last_].gives_logits();
  for (GraphPiece& piece : pieces_) {
    std::byte* to = output.data();
    if (piece.output() != last_ || decodes) {
      RUNNEL_ASSIGN_OR_RETURN(
          to, values_[piece.output()].Of(ValueBytes(graph_, piece.output(), batch)));
    }
    RUNNEL_RETURN_IF_ERROR(piece.Run(batch, value, to));
  }
  if (decodes) {
    const Int8Node& last = graph_.nodes[last_];
    Decode(last.coding, reinterpret_cast<const int8_t*>(value(last_)), batch * last.node.outputs(),
           reinterpret_cast<float*>(output.data()));
  }
  return absl::OkStatus();
}

// Its inputs are codes, or the samples.
absl::StatusOr<GraphPiece> GraphRunner::PieceOf(size_t node) {
  const Node& shape = graph_.nodes[node].node;
  RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendOf(node));
  const bool takes_samples = node == 0 || ReadsSamples(graph_, node);
  std::vector<size_t> given = {0};
  if (!takes_samples)
    given.assign(shape.inputs.begin(), shape.inputs.begin() + shape.input_count());
  return GraphPiece::Make(takes_samples ? graph_ : codes_, *backend, std::move(given), node);
}

absl::Status GraphRunner::RunNodes(
    absl::Span<const std::byte> input, int64_t batch,
    absl::FunctionRef<void(size_t node, const std::byte* value)> use) {
  if (nodes_.empty()) {
    codes_ = graph_;
    codes_.takes_codes = true;
    for (size_t i = 0; i <= last_; ++i) {
      RUNNEL_ASSIGN_OR_RETURN(GraphPiece piece, PieceOf(i));
      nodes_.push_back(std::move(piece));
    }
  }
  for (size_t i = 0; i <= last_; ++i) {
    const bool takes_samples = (i == 0 && !graph_.takes_codes) || ReadsSamples(graph_, i);
    const auto value = [&](size_t node) {
      return node == 0 && (takes_samples || i == 0)
                 ? input.data()
                 : static_cast<const std::byte*>(values_[node].data());
    };
    const int64_t bytes =
        std::max(ValueBytes(graph_, i, batch), batch * graph_.nodes[i].node.outputs());
    RUNNEL_ASSIGN_OR_RETURN(std::byte * to, values_[i].Of(bytes));
    RUNNEL_RETURN_IF_ERROR(nodes_[i].Run(batch, value, to));
    use(i, to);
  }
  return absl::OkStatus();
}

int64_t GraphRunner::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto* pieces : {&pieces_, &nodes_}) {
    for (const GraphPiece& piece : *pieces) bytes += piece.memory_bytes();
  }
  return bytes;
}

std::string GraphRunner::kernel(size_t node) const {
  const Int8Node& n = graph_.nodes[node];
  const bool is_own = !n.is_real() || codes_in_products_;
  const ProcessorFacts facts = (is_own ? backend_ : *host_).processor();
  const std::string& where =
      codes_in_products_ && !facts.dot_product.empty() ? facts.dot_product : facts.backend;
  if (n.is_real()) return absl::StrCat("fp32 ", is_own ? where : facts.dot_product);
  const ConvShape& s = n.node.shape;
  // A backend that chooses has chosen when the node was prepared.
  const bool has_chosen = backend_.traits().delays_products;
  const bool is_winograd =
      n.winograd &&
      (has_chosen ? !nodes_.empty() && nodes_[node].has_winograd() : codes_in_products_);
  const absl::string_view way = n.node.kind != NodeKind::kConv ? Name(n.node.kind)
                                : is_winograd                  ? "winograd"
                                : s.depthwise()                ? "depthwise"
                                : s.groups > 1                 ? "grouped"
                                                               : "direct";
  return absl::StrCat(way, " ", where);
}

absl::StatusOr<std::vector<double>> GraphRunner::TimeNodes(int64_t batch, int passes) {
  if (!backend_.traits().rates.is_timed || graph_.takes_codes) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", backend_.name(), " tells no times of single nodes; take cpu"));
  }
  const std::vector<std::byte> zeros(static_cast<size_t>(batch * InputBytes(graph_)));
  RUNNEL_RETURN_IF_ERROR(RunNodes(zeros, batch, [](size_t, const std::byte*) {}));
  std::vector<double> seconds;
  for (size_t i = 0; i <= last_; ++i) {
    const bool takes_samples = i == 0 || ReadsSamples(graph_, i);
    const auto value = [&](size_t node) {
      return node == 0 && takes_samples ? zeros.data()
                                        : static_cast<const std::byte*>(values_[node].data());
    };
    RUNNEL_ASSIGN_OR_RETURN(seconds.emplace_back(), MedianSeconds(passes, [&] {
                              return nodes_[i].Run(batch, value, values_[i].data());
                            }));
  }
  return seconds;
}

}  // namespace runnel::inference
