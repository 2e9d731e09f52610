#pragma once

// The block formats of the OCP Microscaling Formats (MX) Specification 1.0: 32 elements in memory
// order share one scale, a power of two in 8 bits (E8M0).
//
//   mx:fp4  E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
//   mx:fp6  E3M2: up to 28
//   mx:fp8  E4M3: up to 448
//
//   scale = 2^(floor(log2(largest magnitude of the block)) - emax), emax 2, 4, 8: the exponent of
//           the format's largest number; not below 2^-127. Of a block of zeros it is 2^-127
//   element = value / scale to the nearest number of the format, ties to the even one; beyond its
//           largest number, that one
//
// Both directions of a link alike, without state. Payload: block after block, a byte of scale (its
// exponent + 127), then the elements as a little-endian string of bits, sign above exponent above
// mantissa; the last block has the elements that are left, and zeros up to a whole byte.
//
// NaN and infinity are the encoder's error, as of every codec. So a decoder refuses a scale of NaN
// (255), an element of NaN (E4M3's 0x7F and 0xFF; the others have none), and a scale with which the
// largest number is no FP32.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// bits: 4, 6 or 8.
std::unique_ptr<const Codec> MakeMxCodec(int bits, const CodecKernels& kernels);

}  // namespace runnel
