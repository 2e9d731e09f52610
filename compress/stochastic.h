#pragma once

// Stochastic uniform quantization of gradients (AccEPT 3.3, "Backward Quantizer", equation 7, and
// 3.4): g = q * s, s = max|g| / (2^(bits - 1) - 1), q = floor(g / s + u).
//
// Payload: FP32 scale, then n int8 (8 bits) or n nibbles q + 8 (4 bits, element 2i high, an odd
// tail leaves the low nibble 0). u of element e is CounterRandom(run_seed, purpose, boundary,
// sequence).Uniform(e); zeros use up theirs. g / s is the FP32 quotient (stochastic_rounding.h).
// The encoder is stateless. A scale that rounds to 0 (all g below 2^-149 * limit / 2) sends zeros;
// a scale is capped so that no q decodes to an infinity (max|g| within 1 % of the largest float for
// 8 bits, within 13 % for 4).

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// bits: 4 or 8.
std::unique_ptr<const Codec> MakeStochasticCodec(int bits, const CodecKernels& kernels);

}  // namespace runnel
