#pragma once

// One convolution of INT8 inference: weights packed once, sums over any batch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"

namespace runnel::cpu {

// Kernels may read so many bytes behind their input (int8_conv.h).
inline constexpr int64_t kReadBehindBytes = 64;

class PackedProduct {
 public:
  // weights: OHWI codes. shape: of one sample. merges_taps: MergeTapsOfRows, of a dense one.
  PackedProduct(const Int8Kernels& kernels, const ConvShape& shape,
                absl::Span<const int8_t> weights, bool merges_taps = false);
  // Says which one runs after this one: its weights are fetched on the way. It outlives this one.
  void SetNext(const PackedProduct& next) { next_ = next.panels_.get(); }
  // What Run needs beside its operands: 64-byte aligned, in bytes.
  int64_t WorkspaceBytes(int64_t batch, int threads, bool to_sink = false) const;
  // Each on `machine`, whose kernels are the constructor's.
  // x int8[batch][IH][IW][IC] with kReadBehindBytes behind it -> acc int32[batch][OH][OW][OC].
  void Run(const Machine& machine, std::byte* workspace, int64_t batch, const int8_t* x,
           int32_t* acc) const;
  // The same sums, each given to the sink. Dense and depthwise ones only.
  void Run(const Machine& machine, std::byte* workspace, int64_t batch, const int8_t* x,
           SumsSink& sink) const;
  // Codes as they leave the tiles. Dense ones, kernels with codes_tiles only.
  void Run(const Machine& machine, std::byte* workspace, int64_t batch, const int8_t* x,
           const GatherCoding& coding) const;
  bool takes_coding() const { return panels_ != nullptr && kernels_.codes_tiles; }
  // What it keeps of the weights.
  int64_t bytes() const { return panel_bytes_ + static_cast<int64_t>(weights_.size()); }
  bool takes_sink() const { return panels_ != nullptr || shape_.depthwise(); }

 private:
  ConvShape ShapeOf(int64_t batch) const;
  GatherProblem ProblemOf(const ConvShape& shape) const;
  void RunDense(const Machine& machine, std::byte* workspace, int64_t batch,
                GatherOperands operands) const;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  const Int8Kernels& kernels_;
  ConvShape shape_;
  bool merges_taps_;
  std::unique_ptr<std::byte, Free> panels_;  // of dense ones
  int64_t panel_bytes_ = 0;
  const std::byte* next_ = nullptr;
  std::vector<int8_t> weights_;  // of grouped ones
};

}  // namespace runnel::cpu
