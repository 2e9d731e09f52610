#pragma once

// auto:k   of the codecs of k bits the one that errs least on this boundary's tensors, whatever they
//          are: after ReLU levels from 0 or over a tile's range, elsewhere a rotation.
//
// The sender measures: the first tensor of an epoch and every 100th one go through all
// candidates and back, and the one with the least squared error codes it and the next ones. The choice
// follows from the sender's own tensors, so that it is part of the encoder's state and needs no
// message; a run, its resume and its replay choose alike.
//
// Candidates: tile, hadamard and eden (tile/tile.h); of activations also mbq_c (mbq/mbq_c.h), which
// is not for gradients since it has a bias.
//
// Payload: the candidate as one byte, its payload, and zeros up to the largest candidate's size.
//
// Encoder state: the choice, the tensors since it was made, and the chosen encoder's state.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// bits: 2 to 8.
std::unique_ptr<const Codec> MakeAutoCodec(int bits, const CodecKernels& kernels);

// The name of the candidate that coded a payload, for tests and reports; empty: there is no such.
absl::string_view ChosenFamily(absl::Span<const std::byte> payload);

// As CodecRow::relative_error.
double AutoError(Direction direction, double bits);

}  // namespace runnel
