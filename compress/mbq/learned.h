#pragma once

// The baselines of AccEPT's table 4, whose parameters follow the training loss (4.3.2):
//
//   uniform:k      q = round(x / s) within -2^(k-1) .. 2^(k-1) - 1, x = q s. s is 0.25 at first and
//                  goes down its gradient, scaled by 1 / sqrt(n 2^(k-1)) as in LSQ (Esser et al.,
//                  2020), at a rate of 0.01. The paper says neither rate nor scaling.
//   amsgrad_mbq:k  the levels of mbq:k without mean error; alphas start greedy and follow the loss
//                  by AMSGrad (Reddi et al., 2018; rate 0.001, 0.9, 0.999) instead of least
//                  squares. ALQ (Qu et al., 2020) also drops alphas; here k stays what the name
//                  says, since a payload's size is known beforehand.
//
// Payload of uniform: FP32 s, then k bit planes (bit_pack.h) of q + 2^(k-1). Of amsgrad_mbq: that
// of mbq (mbq.h), mean error 0.
//
// Encoder state: 'L', version, k, which; the number of micro-batches; parameters (FP32), what
// AMSGrad keeps of each (three doubles), and gradients that have arrived and do not count yet.
// All of it outlives a restart.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// k: 2..8.
std::unique_ptr<const Codec> MakeUniformCodec(int k);
std::unique_ptr<const Codec> MakeAmsgradMbqCodec(int k, const CodecKernels& kernels);

}  // namespace runnel
