#include "kernels/models/graph_executor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/models/int8_executor.h"
#include "kernels/models/node_profile.h"
#include "kernels/models/program_executor.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

template <typename T>
absl::Span<const T> As(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}
absl::Span<float> AsFloats(absl::Span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// An executor of the host (int8_executor.h).
template <typename Executor>
absl::Status RunOnHost(Executor& executor, const Int8Graph& graph,
                       absl::Span<const std::byte> input, int64_t batch,
                       absl::Span<std::byte> output) {
  RUNNEL_RETURN_IF_ERROR(CheckSpans(graph, input.size(), batch, output.size()));
  const absl::Span<float> logits = graph.gives_codes ? absl::Span<float>() : AsFloats(output);
  if (graph.takes_codes) {
    executor.RunCodes(As<int8_t>(input), batch, logits);
  } else {
    executor.Run(As<float>(input), batch, logits);
  }
  if (graph.gives_codes) std::memcpy(output.data(), executor.codes().back().data(), output.size());
  return absl::OkStatus();
}

class CpuGraphExecutor final : public GraphExecutor {
 public:
  CpuGraphExecutor(const Int8Graph& graph, int threads)
      : graph_(graph), kernels_(cpu::BestInt8Kernels()), executor_(graph, threads, kernels_) {}

  std::string description() const override { return kernels_.name; }
  std::string kernel(size_t node) const override { return executor_.kernel(node); }
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch,
                   absl::Span<std::byte> output) override {
    return RunOnHost(executor_, graph_, input, batch, output);
  }
  absl::StatusOr<std::vector<double>> TimeNodes(absl::Span<const std::byte> input, int64_t batch,
                                                int passes) override {
    if (graph_.takes_codes) return GraphExecutor::TimeNodes(input, batch, passes);
    return inference::TimeNodes(graph_, executor_, As<float>(input), batch, passes);
  }

 private:
  const Int8Graph& graph_;
  const cpu::Int8Kernels& kernels_;
  Int8Executor executor_;
};

class PlainGraphExecutor final : public GraphExecutor {
 public:
  explicit PlainGraphExecutor(const Int8Graph& graph) : graph_(graph), executor_(graph) {}

  std::string description() const override { return "plain loops"; }
  std::string kernel(size_t) const override { return "loop"; }
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch,
                   absl::Span<std::byte> output) override {
    return RunOnHost(executor_, graph_, input, batch, output);
  }

 private:
  const Int8Graph& graph_;
  ReferenceExecutor executor_;
};

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeCpu(const Int8Graph& graph, int threads) {
  return std::make_unique<CpuGraphExecutor>(graph, threads);
}

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakePlain(const Int8Graph& graph, int) {
  return std::make_unique<PlainGraphExecutor>(graph);
}

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeOn(absl::string_view name,
                                                      const Int8Graph& graph, int threads) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(name, threads));
  return MakeProgramExecutor(graph, std::move(backend));
}
absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeOpenCl(const Int8Graph& graph, int threads) {
  return MakeOn("opencl", graph, threads);
}
absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeHexagon(const Int8Graph& graph, int threads) {
  return MakeOn("hexagon", graph, threads);
}

constexpr ExecutorRow kRows[] = {
    {"cpu", "vector kernels of the processor", MakeCpu},
    {"opencl", "an OpenCL device", MakeOpenCl, /*is_device=*/true},
    {"hexagon", "a Hexagon DSP", MakeHexagon, /*is_device=*/true},
    {"ref", "plain loops, the specification", MakePlain},
};

}  // namespace

int64_t InputBytes(const Int8Graph& graph) {
  const auto element = static_cast<int64_t>(graph.takes_codes ? sizeof(int8_t) : sizeof(float));
  return graph.nodes.front().node.outputs() * element;
}

int64_t OutputBytes(const Int8Graph& graph) {
  const auto element = static_cast<int64_t>(graph.gives_codes ? sizeof(int8_t) : sizeof(float));
  return graph.nodes.back().node.outputs() * element;
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

absl::StatusOr<std::vector<double>> GraphExecutor::TimeNodes(absl::Span<const std::byte>, int64_t,
                                                             int) {
  return absl::UnimplementedError("this backend tells no times of single nodes; take cpu");
}

absl::Span<const ExecutorRow> GraphExecutors() { return kRows; }

absl::StatusOr<const ExecutorRow*> FindGraphExecutor(absl::string_view name) {
  if (name == "auto") return &kRows[0];
  std::vector<absl::string_view> names = {"auto"};
  for (const ExecutorRow& row : kRows) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend '", name, "': INT8 inference has ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeGraphExecutor(absl::string_view name,
                                                                 const Int8Graph& graph,
                                                                 int threads) {
  RUNNEL_ASSIGN_OR_RETURN(const ExecutorRow* row, FindGraphExecutor(name));
  return row->make(graph, threads);
}

}  // namespace runnel::inference
