#pragma once

// One convolution of INT8 inference: weights packed once, sums over any batch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"
#include "kernels/backends/cpu/workspace.h"

namespace runnel::inference {

// What the products of one executor share; borrowed.
struct ProductMachine {
  const cpu::Int8Kernels* kernels = nullptr;
  cpu::ThreadPool* pool = nullptr;
  cpu::Workspace* workspace = nullptr;
};

// Kernels may read so many bytes behind their input (int8_conv.h).
inline constexpr int64_t kReadBehindBytes = 64;

class PackedProduct {
 public:
  // weights: OHWI codes. shape: of one sample. merges_taps: MergeTapsOfRows, of a dense one.
  PackedProduct(const ProductMachine& machine, const cpu::ConvShape& shape,
                absl::Span<const int8_t> weights, bool merges_taps = false);
  // Says which one runs after this one: its weights are fetched on the way. It outlives this one.
  void SetNext(const PackedProduct& next) { next_ = next.panels_.get(); }
  // x int8[batch][IH][IW][IC] with kReadBehindBytes behind it -> acc int32[batch][OH][OW][OC].
  void Run(int64_t batch, const int8_t* x, int32_t* acc) const;
  // The same sums, each given to the sink. Dense and depthwise ones only.
  void Run(int64_t batch, const int8_t* x, cpu::SumsSink& sink) const;
  // Codes as they leave the tiles. Dense ones, kernels with codes_tiles only.
  void Run(int64_t batch, const int8_t* x, const cpu::GatherCoding& coding) const;
  bool takes_coding() const { return panels_ != nullptr && machine_.kernels->codes_tiles; }
  bool takes_sink() const { return panels_ != nullptr || shape_.depthwise(); }

 private:
  cpu::GatherProblem ProblemOf(const cpu::ConvShape& shape) const;
  void RunDense(int64_t batch, cpu::GatherOperands operands) const;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  ProductMachine machine_;
  cpu::ConvShape shape_;
  bool merges_taps_;
  std::unique_ptr<std::byte, Free> panels_;  // of dense ones
  const std::byte* next_ = nullptr;
  std::vector<int8_t> weights_;  // of grouped ones
};

}  // namespace runnel::inference
