#pragma once

// A model in integers on a backend by name. A device is checked before it is believed
// (worker/measure/backend_check.h); where it is lost, or has no memory, the processor goes on with
// the same bytes.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/models/graph_executor.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel {

class AdmittedExecutor final : public inference::GraphExecutor {
 public:
  // name: of GraphExecutors(), or "auto". graph: borrowed, checked. InvalidArgument, one line: no
  // such backend, it is not there, or computes wrong. Unimplemented: it has no way to compute a
  // node.
  static absl::StatusOr<std::unique_ptr<AdmittedExecutor>> Make(absl::string_view name,
                                                                const inference::Int8Graph& graph,
                                                                int threads,
                                                                const BackendVerdicts& verdicts);

  // What computes now.
  const std::string& backend() const { return backend_; }
  // Why that is not what was asked for, one line; or empty.
  const std::string& note() const { return note_; }

  std::string description() const override { return executor_->description(); }
  std::string kernel(size_t node) const override { return executor_->kernel(node); }
  // An error of a lost device is not passed on.
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch,
                   absl::Span<std::byte> output) override;
  absl::StatusOr<std::vector<double>> TimeNodes(absl::Span<const std::byte> input, int64_t batch,
                                                int passes) override;

 private:
  AdmittedExecutor(const inference::Int8Graph& graph, int threads)
      : graph_(graph), threads_(threads) {}
  absl::Status TakeDevice(absl::string_view name, const BackendVerdicts& verdicts);
  absl::Status TakeProcessor(absl::string_view name);
  absl::Status GoOnWithout(const absl::Status& lost);

  const inference::Int8Graph& graph_;
  const int threads_;
  std::string backend_;
  std::string note_;
  std::unique_ptr<inference::GraphExecutor> executor_;
};

}  // namespace runnel
