#pragma once

// Codecs past AccEPT: a centre and a step for every 256 elements instead of one set of alphas for
// the tensor, so that one outlier, or a non-negative tensor after ReLU, costs nothing elsewhere.
//
//   tile:k         the levels span each tile from its smallest to its largest value
//   hadamard:k     each tile is first multiplied with random signs and a Hadamard matrix: what is
//                  quantized is close to normal whatever the tensor was, an error spreads evenly
//   eden:k         hadamard with another step on the link, so that the mean over the random signs of
//                  what arrives is what was sent (Vargaftik et al., EDEN, 2022): the step that the
//                  levels were chosen with, times |y|^2 / <y, decoded>, y being x less its centre.
//                  hadamard's nearest level shrinks a tensor, by 12 % at 2 bits. Signs and one
//                  Hadamard matrix are not any rotation: an outlier of 9 deviations in 256 elements
//                  arrives 3 % too large
//   hadamard_ef:k  hadamard with error feedback: what a micro-batch lost is added to the next one,
//                  element by element (Seide et al., 2014; Karimireddy et al., 2019)
//
// Activations are rounded to the nearest level. Gradients (RandomPurpose::kCodecBackward) are
// rounded at random within the tile's range, so that the mean of what arrives is what was sent;
// those of eden and under error feedback too go to the nearest level, since the step and the
// feedback take the bias away.
//
// Payload: 8 bytes of key for the signs (rotated codecs only), then the tiles (tile_kernels.h):
// 4 + 32 k bytes for 256 elements, 0.125 bits an element over k.
//
// Magnitudes above 2^100 are sent as 2^100; a tile whose values differ by less than about 2^-100 is
// sent as its centre.
//
// Encoder state: none, or under error feedback the element count and the errors as FP32. A tensor
// of another size than the last one starts without errors.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

struct TileOptions {
  int bits = 4;  // 2..8
  bool rotate = false;
  bool feedback = false;  // only with rotate
  bool unbiased = false;  // only with rotate, without feedback
};

std::unique_ptr<const Codec> MakeTileCodec(const TileOptions& options, const CodecKernels& kernels);

}  // namespace runnel
