#pragma once

// A stage of a model in integers (proto/base/training/int8_inference.h): Evaluate runs its slice of
// the graph.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/int8_inference.h"
#include "worker/inference/tally.h"
#include "worker/stage/stage_engine.h"

namespace runnel {

// Makes what runs a graph, which outlives it.
using MakeGraphRunnerFn = std::function<absl::StatusOr<std::unique_ptr<inference::GraphRunner>>(
    const inference::Int8Graph& graph)>;

struct InferenceStageOptions {
  ModelSpec model;
  int first_layer = 0;
  int last_layer = 0;
  int64_t eval_batch_size = 1;  // for memory_bytes
};

// As StageEngine says of threads.
class InferenceStage final : public StageEngine {
 public:
  // `pool` and what make_runner uses outlive the stage. InvalidArgument: no such layers.
  static absl::StatusOr<std::unique_ptr<InferenceStage>> Create(InferenceStageOptions options,
                                                                MakeGraphRunnerFn make_runner,
                                                                BufferPool* pool);

  // InvalidArgument: tensors of other sizes, codes that the graph does not have, a label that is no
  // class. Else as GraphRunner::Run.
  absl::StatusOr<Output> Evaluate(int64_t samples, Payload input, Payload labels) override;

  // Errors as GraphOfLayers and make_runner. Once.
  absl::Status ImportState(const ModelState& state) override;

  std::string numerics_class() const override {
    return runner_ == nullptr ? "" : runner_->backend().numerics_class();
  }
  bool trains() const override { return false; }
  const NumberFormat& numbers() const override { return kInt8InferenceNumbers; }
  // Weights, the codes of all values of a batch, and what the backend takes beside them.
  int64_t memory_bytes() const override { return memory_bytes_; }
  Shape input_shape(int64_t samples) const override { return input_sample_.Prepend(samples); }
  Shape output_shape(int64_t samples) const override { return output_sample_.Prepend(samples); }

 private:
  InferenceStage(InferenceStageOptions options, MakeGraphRunnerFn make_runner, BufferPool* pool)
      : options_(std::move(options)), make_runner_(std::move(make_runner)), pool_(pool) {}
  absl::Status CheckCodes(absl::Span<const std::byte> codes) const;
  absl::Status RunGraph(absl::Span<const std::byte> input, int64_t samples,
                        absl::Span<std::byte> output);
  absl::StatusOr<Output> TallyOf(int64_t samples, absl::Span<const std::byte> input,
                                 const Payload& labels);

  const InferenceStageOptions options_;
  const MakeGraphRunnerFn make_runner_;
  BufferPool* const pool_;
  Shape input_sample_;
  Shape output_sample_;
  inference::Int8Graph graph_;
  std::unique_ptr<inference::GraphRunner> runner_;  // of graph_
  int64_t graph_bytes_ = 0;
  std::atomic<int64_t> memory_bytes_ = 0;  // with the runner's, as of the last batch
  std::vector<float> logits_;
};

}  // namespace runnel
