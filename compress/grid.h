#pragma once

// Codecs of one affine grid for a whole tensor, in as few bits as a level of --precision has:
//
//   grid:K   2^K levels from the tensor's least value to its largest, K = 1..16. Activations go to
//            the nearest level, gradients at random to one of the two next ones.
//   recipe   The grid with the bits of the micro-batch's level: each end of a link takes grid:K in
//            its place (proto/base/training/codecs/link_levels.h). On its own it is the grid of 8 bits.
//
// An activation whose values are all codes 0..2^K-1 times 1 / (2^K - 1), as those of recipe dorefa
// behind a ReLU, comes back as it was, to the bit (-0, which no grid gives, as 0). Any other one has its least and largest value
// exactly, so that an operator that puts it on a grid of its whole range with these bits (recipe
// sbm) gets the codes that it would get without the codec.
//
// Payload: int32 K | kind << 8 (kind 0: a range, 1: codes of 0..1), FP32 least and largest value (0
// and 1 for kind 1), then the codes: K mod 8 or K - 8 bit planes (bit_pack.h) of their upper bits
// and, from K = 8 on, a byte each of the lower ones. A range too wide for FP32 is computed in
// doubles on both ends, and so is one too narrow.
//
// Stateless; draws are keyed as EncoderKey says.

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

inline constexpr int kMostGridBits = 16;
inline constexpr int kRecipeBits = 8;  // of codec recipe on its own

// The K that a payload of grid:K says; of anything else it is any number.
int BitsInPayload(absl::Span<const std::byte> payload);

// bits: 1..kMostGridBits.
std::unique_ptr<const Codec> MakeGridCodec(int bits, const CodecKernels& kernels);
std::unique_ptr<const Codec> MakeRecipeCodec(const CodecKernels& kernels);

}  // namespace runnel
