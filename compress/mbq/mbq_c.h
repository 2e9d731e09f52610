#pragma once

// Multi-bit quantization as in mbq.h, mended where it makes training diverge:
//
//   from 0    If an epoch's first tensor has no negative value (a tensor after ReLU), the levels
//             begin at 0: x = sum of 2 alpha_i b_i, b_i 0 or 1. No level is wasted below, and zeros
//             stay zeros, whatever the batch is. The start spans 0 to the largest value, and a few
//             rounds of encoding and least squares draw the levels together. Other tensors start
//             as in mbq.
//   gradient  An activation beyond the outermost level by more than half a gap of levels was
//             clipped. Its gradient is 0 where it would push the activation further out
//             (Encoder::MaskGradient; Courbariaux et al., 2016). The mask does not cross the link:
//             the encoder keeps two bits an element of each micro-batch in flight.
//   ridge     Alphas that the planes do not determine go to 0 in the least squares, so that no
//             tensor is singular.
//
// Payload: that of mbq. From 0 its mean error is -(alpha_1 + .. + alpha_k).
//
// Encoder state: the canonical alphas, whether they begin at 0, and the number t of micro-batches
// since the restart. The clipped elements are no part of it: at a barrier nothing is in flight.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// k: 2..8.
std::unique_ptr<const Codec> MakeMaskedMbqCodec(int k, const CodecKernels& kernels);

}  // namespace runnel
