#include "kernels/backends/opencl/product/weight_images.h"

#include <algorithm>
#include <limits>

#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

// Texels of formats that every device with images has (OpenCL 1.2, section 5.3.2.1): four channels,
// of which one of 32 bits has four int8.
struct Format {
  cl_channel_type channel;
  int64_t texel_bytes;
  int64_t texel_elements;
};
Format FormatOf(WeightKind kind) {
  switch (kind) {
    case WeightKind::kInt8:
      return {CL_UNSIGNED_INT32, 16, 16};
    case WeightKind::kFloat:
      return {CL_FLOAT, 16, 4};
    case WeightKind::kHalf:
      break;
  }
  return {CL_HALF_FLOAT, 8, 4};
}
constexpr int64_t kLeastTexelBytes = 8;

}  // namespace

void WeightOperand::AddTo(Launch& launch) const {
  if (image == nullptr) {
    launch.Tensor(tensor);
  } else {
    launch.Memory(image).Value(first);
  }
}

// Kernels count elements in 32 bits.
bool FitsImage(const DeviceInfo& device, int64_t end_bytes) {
  return end_bytes <= std::min<int64_t>(device.image_texels * kLeastTexelBytes,
                                        std::numeric_limits<int32_t>::max());
}

absl::StatusOr<const WeightImages::Image*> WeightImages::Of(cl_mem buffer, WeightKind kind) {
  Image& image = images_[{buffer, kind}];
  if (image.handle != nullptr) return &image;
  size_t bytes = 0;
  RUNNEL_RETURN_IF_ERROR(
      session_->Check(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr),
                      "clGetMemObjectInfo"));
  const Format format = FormatOf(kind);
  const int64_t texels =
      std::min(static_cast<int64_t>(bytes) / format.texel_bytes, session_->device().image_texels);
  const cl_image_format pixel = {CL_RGBA, format.channel};
  cl_image_desc shape = {};
  shape.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
  shape.image_width = static_cast<size_t>(texels);
  shape.buffer = buffer;
  cl_int code = CL_SUCCESS;
  image.handle.reset(
      clCreateImage(session_->context(), CL_MEM_READ_ONLY, &pixel, &shape, nullptr, &code));
  RUNNEL_RETURN_IF_ERROR(session_->Check(code, "clCreateImage"));
  image.elements = texels * format.texel_elements;
  return &image;
}

absl::StatusOr<WeightOperand> WeightImages::View(const TensorRef& weight, int64_t elements,
                                                 WeightKind kind) {
  const Format format = FormatOf(kind);
  const int64_t first =
      static_cast<int64_t>(weight.data) / (format.texel_bytes / format.texel_elements);
  RUNNEL_ASSIGN_OR_RETURN(const Image* image, Of(weight.area, kind));
  if (first + elements > image->elements) return WeightOperand{weight};
  return WeightOperand{weight, image->handle.get(), static_cast<cl_int>(first)};
}

}  // namespace runnel::opencl
