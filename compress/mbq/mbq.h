#pragma once

// Adaptive multi-bit quantization of activations (AccEPT 3.3, "Forward Quantizer" and "Forward
// Encoder", equations 1-6, and 3.4): x = sum of k terms
// +-alpha_i, alpha adapted from micro-batch to micro-batch by least squares and a moving average.
//
// Payload: k FP32 alphas, FP32 mean error m_q, then k bit planes (bit_pack.h):
// 4 (k + 1) + k ceil(n / 8) bytes. A decoded value is FP32(level - m_q).
//
// Encoder state: the canonical alphas and the number t of micro-batches since the restart. A fresh
// encoder's first Encode counts as a restart. A singular micro-batch (or one whose mixed alphas are
// not finite) is encoded from a greedy start of its own; t keeps counting.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// k: 2..8.
std::unique_ptr<const Codec> MakeMbqCodec(int k, const CodecKernels& kernels);

}  // namespace runnel
