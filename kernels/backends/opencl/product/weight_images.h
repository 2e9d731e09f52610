#pragma once

// Buffers seen as images, for products that read their weights through the device's texture cache
// (Tile::image). An image is another view of a buffer's bytes, no copy.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backends/opencl/device/launch.h"
#include "kernels/backends/opencl/device/session.h"

namespace runnel::opencl {

enum class WeightKind : uint8_t { kInt8, kFloat, kHalf };

// A product's weight operand: an image and the number of the weight's first element in it, or,
// without an image, the tensor.
struct WeightOperand {
  TensorRef tensor;
  cl_mem image = nullptr;
  cl_int first = 0;

  void AddTo(Launch& launch) const;
};

// For one executable; one thread.
class WeightImages {
 public:
  explicit WeightImages(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  // The weight as an image, except if it lies in the last bytes of a buffer, which are no whole
  // texel. Unavailable: the driver gives no image.
  absl::StatusOr<WeightOperand> View(const TensorRef& weight, int64_t elements, WeightKind kind);
  // Before a part: the next one may bind other buffers. Kernels that wait in the queue keep theirs.
  void Forget() { images_.clear(); }

 private:
  struct Image {
    Handle<cl_mem> handle;
    int64_t elements = 0;
  };
  absl::StatusOr<const Image*> Of(cl_mem buffer, WeightKind kind);

  const std::shared_ptr<Session> session_;
  std::map<std::pair<cl_mem, WeightKind>, Image> images_;
};

// Whether an image of the device can reach a weight that ends at this byte of its buffer.
bool FitsImage(const DeviceInfo& device, int64_t end_bytes);

}  // namespace runnel::opencl
