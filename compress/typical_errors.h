#pragma once

// What a codec loses of a typical tensor, by direction: the mean squared error over the mean square
// of the tensor. The rows' CodecRow::relative_error. Measured over tensors of 131,072 values, the
// eighth one of an encoder, when adaptive codecs have settled (codec_conformance_test.cc measures
// them again). Under error feedback of the first one: what is lost then comes later. And of codecs whose
// payloads vary, what such a tensor takes of the most that it may. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/ids.h"

namespace runnel {

// Activations: max(0, normal), as behind ReLU. Gradients: 0.001 times the product of two normal
// values, which has the heavier tails that gradients have.
std::vector<float> TypicalTensor(Direction direction, uint64_t seed, int64_t sequence,
                                 size_t elements);

// bits: 2 to 8, where nothing else is said. Activations go to the nearest level, gradients of tile
// and hadamard at random to one of the two next ones, which at 2 bits loses most of a tensor.
double TileError(Direction direction, double bits);
double HadamardError(Direction direction, double bits);
double EdenError(Direction direction, double bits);
// Beyond 4 bits nearly all of mbq's error comes from values beyond the largest level.
double MbqError(Direction direction, double bits);
double MaskedMbqError(Direction direction, double bits);
// bits: 4 or 8. The largest value sets the step, so larger tensors have larger errors.
double StochasticError(Direction direction, double bits);
// bits: 1 to 16. Of activations and gradients alike the ends of the range set the step.
double GridError(Direction direction, double bits);
// bits: 4, 6 or 8.
double MxError(Direction direction, double bits);
// For gradients only.
double HadamardFeedbackError(double bits);
// For activations only; before anything was learned from the loss.
double AmsgradMbqError(double bits);
double UniformError(double bits);

// CodecRow::size_share. bits: 2 to 8.
double TileAnsShare(Direction direction, double bits);
double HadamardAnsShare(Direction direction, double bits);
double EdenAnsShare(Direction direction, double bits);

}  // namespace runnel
