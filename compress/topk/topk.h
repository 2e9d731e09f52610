#pragma once

// Sparsification by magnitude with error feedback: of n elements the k = ceil(RATIO * n) largest
// magnitudes are sent, the rest counts as zero and is added to the next tensor.
//
//   y = x + r                    r: the residual, one value an element, 0 at first
//   kept: the k largest |y|; of equal magnitudes those with the smaller index
//   r = y less what was sent     y is held within the finite floats
//
//   topk:RATIO   kept values as they are (exact_values.cc): a bitmap of n bits or k indices of 32
//                bits, whichever is less, then k values in FP32
//   topk8:RATIO  kept values in 8 bits, their places by an arithmetic coder (coded_values.cc)
//
// The size depends on n alone.
//
// An encoder's state is r. The first micro-batch of an epoch and a tensor of another size begin
// with r = 0: what the micro-batch before kept back is then lost.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// 0 < ratio <= 1.
std::unique_ptr<const Codec> MakeTopkCodec(double ratio, const CodecKernels& kernels);
std::unique_ptr<const Codec> MakeTopk8Codec(double ratio, const CodecKernels& kernels);

// Bits an element of a large tensor; of topk8 what 8 bits a value and the choice of places need.
double TopkBits(double ratio);
double Topk8Bits(double ratio);
// As CodecRow::relative_error, within 6 % of what is left of a product of two normal values without
// its largest ones (ratio <= 0.7). Of gradients only: error feedback is not for activations.
double TopkError(double ratio);

// Where the k largest magnitudes end: all that are larger than `magnitude` are among them, and of
// those that equal it the first `equal` ones.
struct TopkCut {
  uint32_t magnitude = 0;  // bits of an absolute value
  size_t equal = 0;
};
// O(n), without memory. x: finite; 1 <= k <= n.
TopkCut FindTopkCut(const float* x, size_t n, size_t k);

}  // namespace runnel
