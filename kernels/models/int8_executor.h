#pragma once

// Runs an INT8 graph (int8_graph.h says what it computes). Two of them, equal bit for bit:
// Reference in plain loops, Int8Executor over the INT8 kernels of backend cpu.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/models/fast_nodes.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/graph/value_places.h"
#include "kernels/models/product/packed_product.h"

namespace runnel::inference {

// The codes of all values of a batch, by node; NHWC.
using Codes = std::vector<std::vector<int8_t>>;

// samples: NCHW, normalised; logits: batch * classes. Both executors. Of a slice (int8_graph.h)
// that takes codes RunCodes with NHWC codes of node 0 in place of samples; of one that gives codes
// logits are not touched, and codes() has them.
class ReferenceExecutor {
 public:
  explicit ReferenceExecutor(const Int8Graph& graph) : graph_(graph) {}  // borrowed
  void Run(absl::Span<const float> samples, int64_t batch, absl::Span<float> logits) {
    RunNodes(samples.data(), nullptr, batch, logits);
  }
  void RunCodes(absl::Span<const int8_t> given, int64_t batch, absl::Span<float> logits) {
    RunNodes(nullptr, given.data(), batch, logits);
  }
  const Codes& codes() const { return codes_; }

 private:
  void RunNodes(const float* samples, const int8_t* given, int64_t batch, absl::Span<float> logits);

  const Int8Graph& graph_;
  Codes codes_;
};

// Which values codes() has after a run. With kLast values share memory, and additions are computed
// with the convolution before them where the kernels can.
enum class ValuesKept { kLast, kAll };

class Int8Executor {
 public:
  // graph: borrowed, checked (CheckAndInfer). kernels: of int8_conv.h's supported ones.
  Int8Executor(const Int8Graph& graph, int threads, const cpu::Int8Kernels& kernels,
               ValuesKept kept = ValuesKept::kLast);
  ~Int8Executor();
  // after: called when a node is done, in order.
  void Run(
      absl::Span<const float> samples, int64_t batch, absl::Span<float> logits,
      absl::FunctionRef<void(size_t node)> after = [](size_t) {}) {
    RunNodes(samples.data(), nullptr, batch, logits, after);
  }
  void RunCodes(absl::Span<const int8_t> given, int64_t batch, absl::Span<float> logits) {
    RunNodes(nullptr, given.data(), batch, logits, [](size_t) {});
  }
  // What computes a node, for people: "direct avx512_vnni", "in 14".
  std::string kernel(size_t node) const;
  // Of the last run; each with kReadBehindBytes behind it. ValuesKept says which.
  const Codes& codes() const { return codes_; }

 private:
  struct Product;  // what a convolution keeps between runs
  void SetNextProducts();
  void FuseAdditions();
  int8_t* Value(size_t node) { return codes_[places_.of[node]].data(); }
  void RunNodes(const float* samples, const int8_t* given, int64_t batch, absl::Span<float> logits,
                absl::FunctionRef<void(size_t node)> after);
  void Convolve(size_t at, const float* samples, int64_t batch, absl::Span<float> logits);
  const int8_t* Padded(size_t at, int64_t batch, const int8_t* x);
  void Direct(size_t at, int64_t batch, absl::Span<float> logits);
  void Winograd(size_t at, int64_t batch, absl::Span<float> logits);
  void TransformTiles(size_t at, int64_t first, int64_t count, int64_t tiles);
  void FinishTiles(size_t at, int64_t first, int64_t count, int64_t tiles);
  void Finish(size_t at, int64_t batch, absl::Span<float> logits);

  const Int8Graph& graph_;
  cpu::ThreadPool pool_;
  cpu::Workspace workspace_;
  const cpu::Int8Kernels& kernels_;
  NodeLoops loops_;
  std::vector<std::unique_ptr<Product>> products_;  // by node
  std::vector<int32_t> computed_in_;  // by node: of an addition the convolution that has it, or -1
  ValuePlaces places_;
  Codes codes_;                    // by place
  std::vector<int32_t> sums_;      // of the convolution that is under way, where they are stored
  std::vector<int32_t> row_sums_;  // of its inputs, where weights have zeros
  std::vector<int8_t> padded_;     // its input, where padding is not code 0
  std::vector<int8_t> factors_;    // Winograd: transformed inputs of a block of tiles
  std::vector<int32_t> products_of_factors_;
  std::vector<int32_t> tile_sums_;  // Winograd: of a tile's outputs, by thread
  std::vector<int8_t> outside_;     // Winograd: a pixel of zeros
};

// The nodes that are no convolutions, one sample: what both executors share. x, other: codes of the
// inputs (null where the node has none); sample: kInput's, NCHW.
void RunPlainNode(const Int8Graph& graph, const Int8Node& node, const float* sample,
                  const int8_t* x, const int8_t* other, int8_t* y);
// The codes of a value as real numbers; `count` of them.
void Decode(const Coding& coding, const int8_t* codes, int64_t count, float* real);

}  // namespace runnel::inference
