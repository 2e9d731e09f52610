#include "kernels/backends/opencl/product/winograd.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "kernels/ir/arithmetic/winograd.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

// Factors of inputs take four times the inputs' bytes: of many images they are computed in turns.
constexpr int64_t kMostInputBytes = 32 << 20;

// Winograd of kernels/backends/opencl/cl/winograd.cl.
struct KernelWinograd {
  cl_int cells, first;
  KernelDivisor tiles, of_image, across, outs;
};

int64_t Half(int64_t size) { return (size + 1) / 2; }
int64_t CellsOf(const KernelGeometry& g) { return (int64_t{g.c} + 3) / 4; }
int64_t TilesOfImage(const KernelGeometry& g) { return Half(g.oh) * Half(g.ow); }

int64_t InputBytesOfImage(const KernelGeometry& g) {
  return kWinogradPoints * CellsOf(g) * TilesOfImage(g) * int64_t{sizeof(cl_uint)};
}

int64_t ImagesAtOnce(const KernelGeometry& g) {
  return std::clamp<int64_t>(kMostInputBytes / InputBytesOfImage(g), 1, g.n);
}

KernelWinograd SizesOf(const KernelGeometry& g, int64_t first, int64_t images) {
  return {static_cast<cl_int>(CellsOf(g)),
          static_cast<cl_int>(first),
          DivisorOf(images * TilesOfImage(g)),
          DivisorOf(TilesOfImage(g)),
          DivisorOf(Half(g.ow)),
          DivisorOf(g.oc)};
}

// Of all memory that the program is bound to, each storage at its full size with room for alignment.
int64_t BytesOf(const Program& program) {
  std::array<int64_t, kStorageCount> ends = {};
  for (const Buffer& buffer : program.buffers) {
    int64_t& end = ends[static_cast<size_t>(buffer.storage)];
    end = std::max(end, buffer.offset_bytes + buffer.bytes());
  }
  constexpr int64_t kAlignmentBytes = 64;
  return std::accumulate(ends.begin(), ends.end(), kStorageCount * kAlignmentBytes);
}

}  // namespace

absl::Status WinogradProducts::Add(
    const std::unordered_map<const Instruction*, ProductPlan>& plans) {
  const absl::Status added = AddAll(plans);
  if (added.ok()) return added;
  weights_.clear();
  inputs_ = DeviceBuffer();
  return added;
}

absl::Status WinogradProducts::AddAll(
    const std::unordered_map<const Instruction*, ProductPlan>& plans) {
  int64_t input_bytes = 0;
  for (const auto& [instruction, product] : plans) {
    if (!product.is_winograd) continue;
    const KernelGeometry& g = product.geometry;
    input_bytes = std::max(input_bytes, ImagesAtOnce(g) * InputBytesOfImage(g));
    RUNNEL_ASSIGN_OR_RETURN(
        weights_[instruction].buffer,
        CreateBuffer(*session_, kWinogradPoints * CellsOf(g) * g.oc * int64_t{sizeof(cl_uint)}));
  }
  if (input_bytes == 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(inputs_, CreateBuffer(*session_, input_bytes));
  const DeviceBudget& budget = *session_->budget();
  const int64_t left = budget.limit_bytes() - budget.taken_bytes();
  const int64_t wanted = BytesOf(operands_.program());
  if (left >= wanted) return absl::OkStatus();
  return NoRoom(session_->device().name, wanted, "Winograd's factors leave less");
}

absl::Status WinogradProducts::MakeWeights(const Instruction& instruction,
                                           const ProductPlan& product, const ProgramId& kernels,
                                           Factors* factors) {
  if (factors->are_made) return absl::OkStatus();
  const KernelGeometry& g = product.geometry;
  RUNNEL_RETURN_IF_ERROR(Launch(*session_, kernels, "winograd_weights")
                             .Tensor(operands_.In(instruction, 1))
                             .Memory(factors->buffer.get())
                             .Value(g)
                             .Value(SizesOf(g, 0, g.n))
                             .Items(CellsOf(g) * g.oc));
  factors->are_made = operands_.program().constants != nullptr &&
                      operands_.buffer(instruction.inputs[1]).storage == Storage::kParameters;
  return absl::OkStatus();
}

absl::Status WinogradProducts::Enqueue(const Instruction& instruction, const ProductPlan& product,
                                       const ProgramId& kernels,
                                       absl::FunctionRef<void(Launch&)> add_after) {
  const KernelGeometry& g = product.geometry;
  Factors& weights = weights_.at(&instruction);
  RUNNEL_RETURN_IF_ERROR(MakeWeights(instruction, product, kernels, &weights));
  const int64_t at_once = ImagesAtOnce(g);
  for (int64_t first = 0; first < g.n; first += at_once) {
    const KernelWinograd sizes = SizesOf(g, first, std::min(at_once, g.n - first));
    RUNNEL_RETURN_IF_ERROR(Launch(*session_, kernels, "winograd_inputs")
                               .Tensor(operands_.In(instruction, 0))
                               .Memory(inputs_.get())
                               .Value(g)
                               .Value(sizes)
                               .Items(int64_t{sizes.tiles.by} * sizes.cells));
    Launch launch(*session_, kernels, product.kernel);
    add_after(launch.Memory(inputs_.get()).Memory(weights.buffer.get()));
    RUNNEL_RETURN_IF_ERROR(launch.Value(g)
                               .Value(product.plan)
                               .Value(sizes)
                               .Points(product.tile, kWinogradPoints, sizes.tiles.by, g.oc));
  }
  return absl::OkStatus();
}

int64_t WinogradProducts::memory_bytes() const {
  int64_t bytes = inputs_.bytes();
  for (const auto& [instruction, factors] : weights_) bytes += factors.buffer.bytes();
  return bytes;
}

}  // namespace runnel::opencl
