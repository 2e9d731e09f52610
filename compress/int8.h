#pragma once

// Eight bits an element and one exponent for all of them: what an integer recipe has at a boundary
// anyway, sent as it is. A payload is the exponent, int32 little-endian,
// and the mantissas. An FP32 tensor is quantised first (QuantizeRule::kPowerOfTwo), so that runs in
// FP32 may use the codec too. Stateless.
//
// A decoder refuses a mantissa of -128, an exponent beyond +-kMaxExponent (number_format.h), and
// into FP32 one outside kMinFloatExponent..kMaxFloatExponent (quantize.h), which no FP32 tensor
// comes to.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

std::unique_ptr<const Codec> MakeInt8Codec(const CodecKernels& kernels);

}  // namespace runnel
