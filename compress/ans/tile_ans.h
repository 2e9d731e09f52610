#pragma once

// tile_ans:k, hadamard_ans:k, eden_ans:k: the tile codecs (tile/tile.h) with their codes coded by
// their entropy (rans.h). What is decoded is the same to the last bit; payloads have a size of their
// own (Codec::varies). It pays where levels are unequally full: tile's, of tensors after ReLU, take
// about 0.62 of their bits, rotated ones 0.9.
//
// Payload: the number of its bytes as 32 bits, the topmost bit for its form.
//   0   the tile codec's payload as it is: entropy saves nothing
//   1   rotated codecs' key; the tiles' headers, one behind the other; 2^k shares of codes, 16 bits
//       each; the stream of all tiles' codes
// A payload may be longer, up to Codec::EncodedBytes, by zeros.
//
// Encoder state: none.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/tile/tile.h"

namespace runnel {

// `options` without feedback.
std::unique_ptr<const Codec> MakeTileAnsCodec(const TileOptions& options,
                                              const CodecKernels& kernels);

}  // namespace runnel
