#pragma once

// Mean squared error over the mean square of a normal tensor that goes down, by family and bits:
// what CodecRow::relative_error says of families whose parameter is the number of bits. Measured
// over a tensor of 131,072 values (tests/conformance/codec_conformance_test.cc measures them
// again). Later tensors of the same distribution have the same error. 2 <= bits <= 8. Pure; any
// thread.

namespace runnel {

// hadamard and hadamard_ef: close to the best uniform quantizer (J. Max, "Quantizing for minimum
// distortion", 1960, table II), whatever is sent, since the rotation makes it normal.
double HadamardNormalError(double bits);
// Error of eden: without bias it is e / (1 - e), e being hadamard's.
double EdenNormalError(double bits);
// Error of mbq, mbq_c and amsgrad_mbq. Beyond 4 bits nearly all of it comes from values beyond the
// largest level.
double MbqNormalError(double bits);
// bits: 4 or 8. The largest value sets the step, so larger tensors have larger errors.
double StochasticNormalError(double bits);
double TileNormalError(double bits);
// Error of uniform's first tensors, before its range has learned from the loss.
double UniformNormalError(double bits);

}  // namespace runnel
