#pragma once

// One kernel with its arguments, enqueued.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backends/opencl/device/handles.h"
#include "kernels/backends/opencl/device/session.h"

namespace runnel::opencl {

// An operand on the device: TENSOR of kernels/backends/opencl/cl/prelude.cl.
struct TensorRef {
  cl_mem area = nullptr;
  cl_ulong data = 0;  // offsets in bytes
  cl_ulong tail = 0;  // tail of scaled tensors; of floats unused
};

// Work-items of a group of the element-wise kernels (GROUP), and groups at most: each item does
// several elements of a large tensor.
inline constexpr int64_t kGroup = 64;
inline constexpr int64_t kMaxGroups = 256;
inline int64_t GroupsFor(int64_t items) {
  const int64_t groups = (items + kGroup - 1) / kGroup;
  return groups < 1 ? 1 : groups > kMaxGroups ? kMaxGroups : groups;
}

// Arguments in the kernel's order. The first error is kept and returned by what enqueues.
class Launch {
 public:
  // `name` outlives it.
  Launch(Session& session, const ProgramId& program, const char* name);

  Launch& Tensor(const TensorRef& tensor);
  Launch& Memory(cl_mem buffer) { return Argument(&buffer, sizeof buffer); }
  // A number or a struct that both sides lay out alike.
  template <typename T>
  Launch& Value(const T& value) {
    return Argument(&value, sizeof value);
  }

  // Work for so many items, in groups of kGroup.
  absl::Status Items(int64_t items);
  absl::Status Once();
  // Launches this many groups of kGroup, one channel each.
  absl::Status Groups(int64_t groups);
  // Launches work for each position of each channel of each image, in groups of kGroup positions.
  absl::Status Planes(int64_t positions, int64_t channels, int64_t images);
  // Launches groups of side_x x side_y for each of `points` points, in one dimension.
  absl::Status Points(const Tile& tile, int64_t points, int64_t rows, int64_t columns);
  // Launches groups of side_x x side_y: rows and columns of a group, and layers.
  absl::Status Tiles(const Tile& tile, int64_t rows, int64_t columns, int64_t layers);

 private:
  Launch& Argument(const void* value, size_t bytes);
  absl::Status Enqueue(cl_uint dimensions, const size_t* global, const size_t* local);

  Session& session_;
  const char* const name_;
  cl_kernel kernel_ = nullptr;
  cl_uint next_ = 0;
  absl::Status status_;
};

}  // namespace runnel::opencl
