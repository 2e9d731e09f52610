#pragma once

// One convolution of INT8 inference: weights packed once, sums over any batch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cpu/int8/int8_conv.h"
#include "kernels/cpu/int8/sums_sink.h"
#include "kernels/cpu/workspace.h"

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
  // weights: OHWI codes. shape: of one sample.
  PackedProduct(const ProductMachine& machine, const cpu::ConvShape& shape,
                absl::Span<const int8_t> weights);
  // x int8[batch][IH][IW][IC] with kReadBehindBytes behind it -> acc int32[batch][OH][OW][OC].
  void Run(int64_t batch, const int8_t* x, int32_t* acc) const;
  // The same sums, each given to the sink. Dense and depthwise ones only.
  void Run(int64_t batch, const int8_t* x, cpu::SumsSink& sink) const;
  bool takes_sink() const { return panels_ != nullptr || shape_.depthwise(); }

 private:
  void RunDense(int64_t batch, const int8_t* x, int32_t* acc, cpu::SumsSink* sink) const;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  ProductMachine machine_;
  cpu::ConvShape shape_;
  std::unique_ptr<std::byte, Free> panels_;  // of dense ones
  std::vector<int8_t> weights_;              // of grouped ones
};

}  // namespace runnel::inference
