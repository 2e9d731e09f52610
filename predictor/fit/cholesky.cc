#include "predictor/fit/cholesky.h"

#include <cmath>

namespace runnel {

std::optional<Cholesky> Cholesky::Factor(absl::Span<const double> matrix, size_t size) {
  Cholesky result;
  result.size_ = size;
  result.lower_.assign(size * size, 0);
  std::vector<double>& l = result.lower_;
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * size + j];
      for (size_t k = 0; k < j; ++k) sum -= l[i * size + k] * l[j * size + k];
      if (i != j) {
        l[i * size + j] = sum / l[j * size + j];
      } else if (sum > 0) {
        l[i * size + i] = std::sqrt(sum);
      } else {
        return std::nullopt;
      }
    }
  }
  return result;
}

std::vector<double> Cholesky::Solve(absl::Span<const double> right) const {
  std::vector<double> x(right.begin(), right.end());
  for (size_t i = 0; i < size_; ++i) {
    for (size_t k = 0; k < i; ++k) x[i] -= lower_[i * size_ + k] * x[k];
    x[i] /= lower_[i * size_ + i];
  }
  for (size_t i = size_; i-- > 0;) {
    for (size_t k = i + 1; k < size_; ++k) x[i] -= lower_[k * size_ + i] * x[k];
    x[i] /= lower_[i * size_ + i];
  }
  return x;
}

double Cholesky::LogDeterminant() const {
  double sum = 0;
  for (size_t i = 0; i < size_; ++i) sum += 2 * std::log(lower_[i * size_ + i]);
  return sum;
}

std::vector<double> Cholesky::Inverse() const {
  std::vector<double> inverse(size_ * size_);
  std::vector<double> unit(size_);
  for (size_t column = 0; column < size_; ++column) {
    unit.assign(size_, 0);
    unit[column] = 1;
    const std::vector<double> x = Solve(unit);
    for (size_t row = 0; row < size_; ++row) inverse[row * size_ + column] = x[row];
  }
  return inverse;
}

}  // namespace runnel
