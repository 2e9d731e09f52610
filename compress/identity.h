#pragma once

// The codec that changes nothing: little-endian FP32 as it stands. It too refuses NaN and infinite
// values, on both ends, so that a diverged stage is noticed at its boundary. Stateless.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

std::unique_ptr<const Codec> MakeIdentityCodec(const CodecKernels& kernels);

}  // namespace runnel
