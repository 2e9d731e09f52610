#pragma once

// An INT8 graph on a backend, for tests.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/models/graph_runner.h"

namespace runnel::inference {

inline absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

inline std::unique_ptr<GraphRunner> RunnerOf(const Int8Graph& graph,
                                             std::unique_ptr<Backend> backend) {
  auto runner = GraphRunner::Make(graph, std::move(backend));
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}
inline std::unique_ptr<GraphRunner> RunnerOn(const std::string& backend, const Int8Graph& graph) {
  return RunnerOf(graph, MakeBackend(backend, 1).value());
}

inline std::vector<float> LogitsOf(GraphRunner& runner, const Int8Graph& graph,
                                   absl::Span<const float> samples, int64_t batch) {
  std::vector<float> logits(static_cast<size_t>(batch * graph.classes()));
  const absl::Status status =
      runner.Run(BytesOf(samples), batch,
                 {reinterpret_cast<std::byte*>(logits.data()), logits.size() * sizeof(float)});
  EXPECT_TRUE(status.ok()) << status;
  return logits;
}

}  // namespace runnel::inference
