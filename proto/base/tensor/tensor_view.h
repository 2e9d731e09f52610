#pragma once

// A tensor that somebody else owns: what kernels and codecs read and write.

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Order of the elements in memory. Everything is row-major (NCHW) so far.
enum class Layout : uint8_t { kRowMajor = 1 };

// Real value = element * 2^exponent; exponent is 0 for floating types.
// bytes.size() == shape.elements() * SizeOf(dtype). The owner keeps the bytes alive while the view
// is used.
struct TensorView {
  DType dtype = DType::kFloat32;
  Shape shape;
  Layout layout = Layout::kRowMajor;
  int32_t exponent = 0;
  absl::Span<const std::byte> bytes;

  const float* f32() const { return reinterpret_cast<const float*>(bytes.data()); }
};

struct MutableTensorView {
  DType dtype = DType::kFloat32;
  Shape shape;
  Layout layout = Layout::kRowMajor;
  int32_t exponent = 0;
  absl::Span<std::byte> bytes;

  float* f32() const { return reinterpret_cast<float*>(bytes.data()); }
  TensorView view() const { return {dtype, shape, layout, exponent, bytes}; }
};

// View of floats that a caller owns.
inline TensorView ViewOf(absl::Span<const float> values, const Shape& shape) {
  return {DType::kFloat32, shape, Layout::kRowMajor, 0,
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(float))};
}
inline MutableTensorView MutableViewOf(absl::Span<float> values, const Shape& shape) {
  return {
      DType::kFloat32, shape, Layout::kRowMajor, 0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float))};
}

}  // namespace runnel
