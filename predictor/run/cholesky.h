#pragma once

// A symmetric positive definite matrix, factored: small dense systems of the predictor's fits.

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

class Cholesky {
 public:
  // `matrix`: size x size, row-major; the lower triangle is read. Empty if it is not positive
  // definite.
  static std::optional<Cholesky> Factor(absl::Span<const double> matrix, size_t size);

  // x with matrix x = right. `right` has `size` entries.
  std::vector<double> Solve(absl::Span<const double> right) const;
  // Of the matrix.
  double LogDeterminant() const;
  // Row-major.
  std::vector<double> Inverse() const;

 private:
  size_t size_ = 0;
  std::vector<double> lower_;
};

}  // namespace runnel
