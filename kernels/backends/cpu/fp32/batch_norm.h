#pragma once

// Batch normalisation, channels-last: rows of C channels. Sums are taken in pieces of at most
// kPieceRows rows, single precision inside a piece and double across them, always in the same
// order.

#include <algorithm>
#include <cstdint>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/product.h"
#include "kernels/backends/cpu/fp32/row_source.h"

namespace runnel::fp32 {

// Two sums a channel for each piece of the rows of images. Where the pieces end is a function of
// the shape alone, so that the sums are the same whether they are taken from memory or while the
// rows are made.
class PieceSums {
 public:
  PieceSums(const Call& call, const cpu::Image& image);

  int64_t rows() const { return rows_; }
  int64_t channels() const { return channels_; }
  // Calls body(row, count, a, b) for the pieces of rows [row, row + count), which are a multiple of
  // SumUnitRows, or end with the last one.
  template <typename Body>
  void ForPieces(int64_t row, int64_t count, const Body& body) const {
    for (int64_t block = row / block_rows_; block * block_rows_ < row + count; ++block) {
      const int64_t end = std::min(rows_, (block + 1) * block_rows_);
      float* sums = sums_ + block * pieces_ * 2 * channels_;
      for (int64_t at = block * block_rows_; at < end; at += kPieceRows, sums += 2 * channels_) {
        body(at, std::min(kPieceRows, end - at), sums, sums + channels_);
      }
    }
  }

 private:
  int64_t rows_, channels_, block_rows_;
  int64_t pieces_;  // pieces of a block
  float* sums_;
};

// The moments of rows [row, row + count) of x.
void AddMoments(const Call& call, const float* x, int64_t row, int64_t count, PieceSums& sums);
// Statistics of a kBatchNormForward from its input's moments: its outputs but y.
void FinishStatistics(const Call& norm, const PieceSums& sums);

// Computes both statistics from the input in memory, unless call.sums_done. `also` gets the rows
// piece by piece while they are in the caches, no two at a time with the same worker.
using PieceFn = absl::FunctionRef<void(int worker, const float* x, int64_t rows)>;
void EnsureStatistics(const Call& norm);
void EnsureStatistics(const Call& norm, PieceFn also);

// Of a normalisation and the activation behind it, if that is calls[1].
Activation ActivationAfter(absl::Span<const Call> calls);
// Of the gradient of a normalisation and the activation's before it, if that is calls[0].
Activation ActivationBefore(absl::Span<const Call> calls);

// The normalisation that kBatchNormForward (its statistics are there), -Again, -Eval or
// kBatchNormInputGradient (inputs[4], if there is one, is the shift) means.
Normalisation NormalisationOf(const Call& norm, Activation activation);

// Sums of a kBatchNormInputGradient over rows [row, row + count).
void AddGradientSums(const Call& norm, const Normalisation& n, const float* dy, int64_t row,
                     int64_t count, PieceSums& sums);
// Its dscale_dshift.
void FinishGradientSums(const Call& norm, const PieceSums& sums);
// Computes both sums from dy in memory, unless norm.sums_done.
void EnsureGradientSums(const Call& norm, const Normalisation& n, const float* dy);
// Its dx, when its dscale_dshift is there.
RowSource GradientSource(const Call& norm, const Normalisation& n, const float* dy);

}  // namespace runnel::fp32
