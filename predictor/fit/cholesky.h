#pragma once

// Cholesky factor of a symmetric positive definite matrix, for the small dense systems of the
// predictor's fits. Immutable; any thread.

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

class Cholesky {
 public:
  // `matrix`: size x size, row-major; only the lower triangle is read. Empty if the matrix is not
  // positive definite.
  static std::optional<Cholesky> Factor(absl::Span<const double> matrix, size_t size);

  // The x with matrix * x = right. `right` has `size` entries.
  std::vector<double> Solve(absl::Span<const double> right) const;
  // log(det(matrix)).
  double LogDeterminant() const;
  // The matrix's inverse, row-major.
  std::vector<double> Inverse() const;

 private:
  size_t size_ = 0;
  std::vector<double> lower_;
};

}  // namespace runnel
