#include "kernels/opencl/product_plan.h"

#include <algorithm>

namespace runnel::opencl {
namespace {

enum class Mode : uint8_t { kForward, kInputGradient, kWeightGradient };

struct Row {
  OpCode code;
  Mode mode;
};
constexpr Row kRows[] = {{OpCode::kInt8ConvForward, Mode::kForward},
                         {OpCode::kInt8LinearForward, Mode::kForward},
                         {OpCode::kInt8ConvInputGradient, Mode::kInputGradient},
                         {OpCode::kInt8LinearInputGradient, Mode::kInputGradient},
                         {OpCode::kInt8ConvWeightGradient, Mode::kWeightGradient},
                         {OpCode::kInt8LinearWeightGradient, Mode::kWeightGradient}};

constexpr const char* kKernels[] = {"product_forward", "product_input_gradient",
                                    "product_weight_gradient"};

// Depth of a tile.
constexpr int64_t kDepth = 32;
// A slice's sums stay in 32 bits.
constexpr int64_t kMaxSliceDepth = kMaxInt32Products / kDepth * kDepth;
constexpr int64_t kSmallTile = 8;
constexpr int64_t kLargeTile = 32;

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

const Row* FindRow(OpCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

KernelPlan SizesOf(const KernelGeometry& g, Mode mode) {
  const cl_int ic = g.c / g.groups, oc = g.oc / g.groups, taps = g.kh * g.kw;
  switch (mode) {
    case Mode::kForward:
      return {g.n * g.oh * g.ow, oc, taps * ic};
    case Mode::kInputGradient:
      return {g.n * g.h * g.w, ic, taps * oc};
    case Mode::kWeightGradient:
      break;
  }
  return {oc, taps * ic, g.n * g.oh * g.ow};
}

}  // namespace

KernelGeometry GeometryFor(const Program& program, const Instruction& instruction) {
  const host::Geometry g = host::GeometryOf(program, instruction);
  host::Window w = g.window;
  const OpKind kind = instruction.attributes.kind;
  const bool is_global = instruction.code == OpCode::kInt8GlobalAvgPoolForward ||
                         instruction.code == OpCode::kInt8GlobalAvgPoolInputGradient;
  if (is_global) w = {g.x.h, g.x.w, g.x.h, g.x.w, 0, 0};
  if (kind == OpKind::kAvgPool) w.ph = w.pw = 0;
  const auto i = [](int64_t value) { return static_cast<cl_int>(value); };
  return {i(g.x.n), i(g.x.c), i(g.x.h), i(g.x.w), i(g.y.c), i(g.y.h), i(g.y.w),
          i(w.kh),  i(w.kw),  i(w.sh),  i(w.sw),  i(w.ph),  i(w.pw),  i(g.groups)};
}

bool IsProduct(OpCode code) { return FindRow(code) != nullptr; }

ProductPlan PlanProduct(const Program& program, const Instruction& instruction,
                        int64_t compute_units) {
  ProductPlan product;
  const Mode mode = FindRow(instruction.code)->mode;
  product.kernel = kKernels[static_cast<int>(mode)];
  product.geometry = GeometryFor(program, instruction);
  KernelPlan& plan = product.plan;
  plan = SizesOf(product.geometry, mode);
  const Buffer& out = program.buffers[instruction.outputs[0]];
  plan.elements = static_cast<cl_uint>(out.shape.elements());
  const auto tiles = [&](int64_t tile) {
    return Ceil(plan.rows, tile) * Ceil(plan.columns, tile) * product.geometry.groups;
  };
  // A large tile that is mostly empty, as of depthwise convolutions, computes zeros.
  const bool is_small = std::min(plan.rows, plan.columns) <= kSmallTile;
  product.program = is_small ? ProgramId::kProductSmall : ProgramId::kProductLarge;
  product.tile = is_small ? kSmallTile : kLargeTile;
  int64_t slices = Ceil(plan.depth, kMaxSliceDepth);
  if (mode == Mode::kWeightGradient) {
    // Few weights and many samples: without slices most of the device would have no work.
    constexpr int64_t kTilesPerUnit = 4, kSliceTiles = 8;
    const int64_t wanted = Ceil(kTilesPerUnit * compute_units, tiles(product.tile));
    const int64_t most = Ceil(plan.depth, kSliceTiles * kDepth);
    slices = std::max(slices, std::min(wanted, most));
  }
  plan.slice_depth = static_cast<cl_int>(Ceil(Ceil(plan.depth, slices), kDepth) * kDepth);
  plan.slices = static_cast<cl_int>(Ceil(plan.depth, plan.slice_depth));
  product.is_sliced = plan.slices > 1 || out.dtype == DType::kInt64;
  return product;
}

}  // namespace runnel::opencl
