#pragma once

// AQ-SGD (Wang et al., "Fine-tuning Language Models over Slow Networks using Activation Quantization
// with Guarantees", NeurIPS 2022): what travels of a sample is how its activations differ from what
// the receiver has of it since the epoch before. The differences shrink as training settles, and
// their errors with them: an error of one epoch is part of the next one's difference.
//
//   m(s)   what both ends keep of sample s (sample_memory.h); nothing at first
//   d      = x(s) - m(s), coded as hadamard:bits does (tile/tile.h), all samples as one tensor
//   m(s)   := m(s) + decoded d, which the receiver gets, and both keep in bfloat16
//
// The paper sends the first epoch exactly; here it has the same bits as the others, so that frames
// have one size.
//
// Payload: for each sample (the shape's first dimension) the mark of its m (SampleMemory::MarkOf), 0
// where the sender has none; then hadamard's payload. The receiver begins anew where the mark is 0
// and refuses a mark that is not that of its own m.
//
// Both ends have state: Encoder's and Decoder's are the same bytes at a barrier. An encoder that is
// not told the samples (NameSamples) codes tensors by themselves and keeps nothing, and
// Codec::Decode reads such payloads only.

#include <memory>

#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"

namespace runnel {

// bits: 2 to 8.
std::unique_ptr<const Codec> MakeAqsgdCodec(int bits, const CodecKernels& kernels);

// As CodecRow::relative_error, where nothing is kept yet; the differences of later epochs lose the
// same share of themselves.
double AqsgdError(double bits);

}  // namespace runnel
