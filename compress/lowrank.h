#pragma once

// A tensor as the product of two thin matrices (PowerSGD, Vogels et al., 2019), for what linear
// layers send: M, rows x columns, travels as P Q^T with R columns each.
//
//   M   the tensor, cut behind the dimension where rows + columns are fewest: (N, F) as it is, (N, T,
//       F) as N T rows, or T F columns
//   P = orthonormal columns of M Q0;  Q = M^T P;  Q0 the Q of the micro-batch before
//
// The first micro-batch, of a run or of an epoch, begins with random columns and takes three such
// steps; the others take one. Sums are in double and in a fixed order: the same bytes on all machines.
//
// R is held to the smaller of rows and columns, as in an epoch's last mini-batch. A tensor that is
// fewer bytes as it is goes so. Payload: P, then Q, in FP32 column by column; or the tensor.
//
// Encoder state: Q.

#include <cstddef>
#include <memory>

#include "compress/codec.h"

namespace runnel {

inline constexpr int kMaxRank = 64;

// 1 <= rank <= kMaxRank.
std::unique_ptr<const Codec> MakeLowrankCodec(int rank);

// The largest rank that a tensor of this shape has.
int64_t LargestRank(const Shape& shape);

// As CodecRow::relative_error, for a tensor of 2,048 x 64 whose columns are independent but for the
// mean of activations. Real tensors lose less as far as their columns depend on each other.
double LowrankError(Direction direction, double rank);

}  // namespace runnel
