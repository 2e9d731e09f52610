#pragma once

// oneDNN's matrix products and convolutions as peers. They run on the calling thread and as many
// more as OpenMP was told. Errors: Unimplemented where oneDNN has no such primitive.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::bench {

enum class MatmulType { kS8S8S32, kU8S8S32, kF32 };

// How the weights, operand b, come to the primitive.
enum class WeightsAre {
  kColumns,       // plain, as they are: b[n][k]
  kRows,          // plain, but transposed beforehand, for free: b[k][n]
  kPackedInside,  // reordered from b[n][k] to the primitive's favourite layout in every run
  kPrePacked,     // in the favourite layout, for free
};

class OneDnnMatmul {
 public:
  virtual ~OneDnnMatmul() = default;
  virtual void Run() = 0;
  // c[m][n], of the last run: int32, or float.
  virtual const void* output() const = 0;
};

// c[m][n] = a[m][k] * transposed b[n][k]. int8 (a as unsigned bytes for kU8S8S32) or float, which
// are copied.
absl::StatusOr<std::unique_ptr<OneDnnMatmul>> MakeOneDnnMatmul(MatmulType type, WeightsAre weights,
                                                               int64_t m, int64_t n, int64_t k,
                                                               const void* a, const void* b);

enum class OneDnnConvPass { kForward, kInputGradient, kWeightGradient };

// A convolution in the primitive's favourite layouts. Activations are put into them beforehand, for
// free (a network of oneDNN's leaves them there); weights change every step, so their reorder from
// OHWI, or of their gradient back, is part of every run. Operands are zero-mean noise.
class OneDnnConv {
 public:
  virtual ~OneDnnConv() = default;
  virtual void Run() = 0;
};

absl::StatusOr<std::unique_ptr<OneDnnConv>> MakeOneDnnConvF32(const ConvShape& shape,
                                                              OneDnnConvPass pass);

class OneDnnConvS8 : public OneDnnConv {
 public:
  // NHWC, of the last run.
  virtual std::vector<int32_t> Output() = 0;
};

// Forward, s8 x s8 -> s32; x NHWC and w OHWI are copied. One group.
absl::StatusOr<std::unique_ptr<OneDnnConvS8>> MakeOneDnnConvS8(const ConvShape& shape,
                                                               const int8_t* x, const int8_t* w);

}  // namespace runnel::bench
