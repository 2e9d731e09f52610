#pragma once

// The codecs bf16, fp16, e4m3 and e5m2: each element as the number type of that name (fp16: f16),
// rounded to nearest even. fp16 holds what is beyond 65504 at it. The types of 8 bits have few
// octaves: a tensor is divided by a power of two, an FP32 in front of the elements, with which its
// largest value is in the type's highest octaves. NaN and infinite values are refused on both ends.
// Stateless.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// `type` is a float of less than 32 bits.
std::unique_ptr<const Codec> MakeNumberTypeCodec(absl::string_view family, DType type,
                                                 const CodecKernels& kernels);

}  // namespace runnel
