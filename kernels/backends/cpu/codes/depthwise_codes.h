#pragma once

// A depthwise 3x3 convolution from codes to codes, where the instruction set has a loop for it.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backends/cpu/codes/requantizer.h"
#include "kernels/backends/cpu/thread_pool.h"

namespace runnel::cpu {

class DepthwiseCodes {
 public:
  // Nothing where the loops have none, the product is another one, its border is not code 0, or the
  // requantizer does not round as the loops do. requantizer: borrowed.
  static std::optional<DepthwiseCodes> Of(const ProductSpec& spec, const Requantizer& requantizer,
                                          const CodeLoops& loops);

  // x int8[batch][IH][IW][C] -> codes [batch][OH][OW][C].
  void Run(ThreadPool& pool, int64_t batch, const int8_t* x, int8_t* codes) const;
  int64_t bytes() const { return static_cast<int64_t>(weights_.size()); }

 private:
  DepthwiseCodes(const ConvShape& shape, const NineTapsLoop& loop) : shape_(shape), loop_(loop) {}
  void Pack(const CodeColumns& columns, absl::Span<const int8_t> weights);
  void RunRow(const int8_t* image, int64_t oh, int8_t* codes) const;

  ConvShape shape_;  // of one sample
  NineTapsLoop loop_;
  CodeColumns clamp_;  // without its arrays
  // Neighbouring pixels that fill a block together: their channels lie side by side.
  int64_t pixels_of_block_ = 1;
  // In the order of NineTaps, whole blocks.
  std::vector<int32_t> offsets_, multipliers_, shifts_, limits_;
  std::vector<float> scales_;
  std::vector<int8_t> weights_;
  std::vector<int8_t> outside_;  // a row of zeros
};

}  // namespace runnel::cpu
