#pragma once

// A model in integers on a backend by name. A device is checked before it is believed
// (worker/measure/backend_check.h); where it is lost, or has no memory, the processor goes on with
// the same bytes.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/models/graph_runner.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel {

class AdmittedExecutor {
 public:
  // name: a backend's, or "auto", which is the processor. graph: borrowed, checked.
  // InvalidArgument, one line: no such backend, it is not there, or computes wrong. Unimplemented:
  // it has no way to compute a node.
  static absl::StatusOr<std::unique_ptr<AdmittedExecutor>> Make(absl::string_view name,
                                                                const inference::Int8Graph& graph,
                                                                int threads,
                                                                const BackendVerdicts& verdicts);

  // What computes now.
  std::string backend() const { return std::string(runner_->backend().name()); }
  // Why that is not what was asked for, one line; or empty.
  const std::string& note() const { return note_; }

  std::string description() const { return runner_->backend().description(); }
  std::string kernel(size_t node) const { return runner_->kernel(node); }
  // As GraphRunner's. An error of a lost device is not passed on.
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch, absl::Span<std::byte> output);
  absl::StatusOr<std::vector<double>> TimeNodes(int64_t batch, int passes);

 private:
  AdmittedExecutor(const inference::Int8Graph& graph, int threads)
      : graph_(graph), threads_(threads) {}
  absl::Status Take(absl::string_view name, const BackendVerdicts* verdicts);
  absl::Status WithoutLost(const std::function<absl::Status()>& use);

  const inference::Int8Graph& graph_;
  const int threads_;
  std::string note_;
  std::unique_ptr<inference::GraphRunner> runner_;
};

}  // namespace runnel
