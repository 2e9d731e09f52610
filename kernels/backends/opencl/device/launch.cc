#include "kernels/backends/opencl/device/launch.h"

#include "absl/strings/str_cat.h"

namespace runnel::opencl {

Launch::Launch(Session& session, const ProgramId& program, const char* name)
    : session_(session), name_(name) {
  absl::StatusOr<cl_kernel> kernel = session_.KernelOf(program, name);
  status_ = kernel.status();
  if (kernel.ok()) kernel_ = *kernel;
}

Launch& Launch::Argument(const void* value, size_t bytes) {
  if (!status_.ok()) return *this;
  const cl_int code = clSetKernelArg(kernel_, next_, bytes, value);
  if (code != CL_SUCCESS)
    status_ = session_.Check(code, absl::StrCat("argument ", next_, " of ", name_));
  ++next_;
  return *this;
}

Launch& Launch::Tensor(const TensorRef& tensor) {
  const cl_ulong2 at = {{tensor.data, tensor.tail}};
  return Memory(tensor.area).Value(at);
}

absl::Status Launch::Enqueue(cl_uint dimensions, const size_t* global, const size_t* local) {
  if (!status_.ok()) return status_;
  const cl_int code = clEnqueueNDRangeKernel(session_.queue(), kernel_, dimensions, nullptr, global,
                                             local, 0, nullptr, nullptr);
  return code == CL_SUCCESS ? session_.lost()
                            : session_.Check(code, absl::StrCat("kernel ", name_));
}

absl::Status Launch::Items(int64_t items) {
  const size_t local = kGroup, global = static_cast<size_t>(GroupsFor(items)) * local;
  return Enqueue(1, &global, &local);
}

absl::Status Launch::Once() {
  const size_t one = 1;
  return Enqueue(1, &one, &one);
}

absl::Status Launch::Groups(int64_t groups) {
  const size_t local = kGroup, global = static_cast<size_t>(groups) * local;
  return Enqueue(1, &global, &local);
}

absl::Status Launch::Planes(int64_t positions, int64_t channels, int64_t images) {
  const size_t local[] = {kGroup, 1, 1};
  const size_t global[] = {static_cast<size_t>((positions + kGroup - 1) / kGroup * kGroup),
                           static_cast<size_t>(channels), static_cast<size_t>(images)};
  return Enqueue(3, global, local);
}

namespace {

size_t GroupsOf(int64_t size, int64_t of_group) {
  return static_cast<size_t>((size + of_group - 1) / of_group);
}

}  // namespace

absl::Status Launch::Points(const Tile& tile, int64_t points, int64_t rows, int64_t columns) {
  const size_t local[] = {static_cast<size_t>(points * tile.items()), 1};
  const size_t global[] = {local[0] * GroupsOf(rows, tile.group_rows()),
                           GroupsOf(columns, tile.group_columns())};
  return Enqueue(2, global, local);
}

absl::Status Launch::Tiles(const Tile& tile, int64_t rows, int64_t columns, int64_t layers) {
  const auto x = static_cast<size_t>(tile.side_x), y = static_cast<size_t>(tile.side_y);
  const size_t local[] = {x, y, 1};
  const size_t global[] = {x * GroupsOf(rows, tile.group_rows()),
                           y * GroupsOf(columns, tile.group_columns()),
                           static_cast<size_t>(layers)};
  return Enqueue(3, global, local);
}

}  // namespace runnel::opencl
