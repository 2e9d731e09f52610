#include "kernels/backends/opencl/product/product_plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/backends/opencl/product/weight_images.h"
#include "kernels/ir/arithmetic/winograd.h"

namespace runnel::opencl {
namespace {

using Mode = ProductMode;

struct Row {
  OpCode code;
  Mode mode;
  bool is_float = false;
};
constexpr Row kRows[] = {{OpCode::kInt8ConvForward, Mode::kForward},
                         {OpCode::kInt8LinearForward, Mode::kForward},
                         {OpCode::kInt8ConvInputGradient, Mode::kInputGradient},
                         {OpCode::kInt8LinearInputGradient, Mode::kInputGradient},
                         {OpCode::kInt8ConvWeightGradient, Mode::kWeightGradient},
                         {OpCode::kInt8LinearWeightGradient, Mode::kWeightGradient},
                         {OpCode::kConvForward, Mode::kForward, true},
                         {OpCode::kLinearForward, Mode::kForward, true},
                         {OpCode::kConvInputGradient, Mode::kInputGradient, true},
                         {OpCode::kLinearInputGradient, Mode::kInputGradient, true},
                         {OpCode::kConvWeightGradient, Mode::kWeightGradient, true},
                         {OpCode::kLinearWeightGradient, Mode::kWeightGradient, true}};

constexpr const char* kKernels[] = {"product_forward", "product_input_gradient",
                                    "product_weight_gradient"};
constexpr const char* kDepthwiseKernels[] = {"depthwise_forward", "depthwise_input_gradient",
                                             "depthwise_weight_gradient"};

// Slices are multiples of this depth.
constexpr int64_t kDepth = 32;
constexpr int64_t kMaxSliceDepth = kMaxInt32Products / kDepth * kDepth;

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

const Row* FindRow(OpCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

// Rows, columns and depth, and what positions, and what is innermost of (tap, channel).
KernelPlan SizesOf(const KernelGeometry& g, const Row& row) {
  KernelPlan plan = {};
  const cl_int ic = plan.ic = g.c / g.groups, oc = plan.oc = g.oc / g.groups, taps = g.kh * g.kw;
  const bool is_of_input = row.mode == Mode::kInputGradient;
  const cl_int height = is_of_input ? g.h : g.oh, width = is_of_input ? g.w : g.ow;
  switch (row.mode) {
    case Mode::kForward:
      plan.rows = g.n * height * width, plan.columns = oc, plan.depth = taps * ic;
      break;
    case Mode::kInputGradient:
      plan.rows = g.n * height * width, plan.columns = ic, plan.depth = taps * oc;
      break;
    case Mode::kWeightGradient:
      plan.rows = oc, plan.columns = taps * ic, plan.depth = g.n * height * width;
      break;
  }
  plan.is_point =
      taps == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0 && g.h == g.oh && g.w == g.ow;
  plan.inner = DivisorOf(row.is_float ? taps : is_of_input ? oc : ic);
  plan.positions = DivisorOf(int64_t{height} * width);
  plan.width = DivisorOf(width);
  plan.kw = DivisorOf(g.kw);
  plan.sh = DivisorOf(g.sh);
  plan.sw = DivisorOf(g.sw);
  plan.of_channels = DivisorOf(oc);
  return plan;
}

// Whether the instruction says that its values have the bits for it (Instruction::winograd), and the kernel the window.
bool FitsWinograd(const Instruction& instruction, const ProductPlan& product) {
  const KernelGeometry& g = product.geometry;
  return instruction.winograd && instruction.code == OpCode::kInt8ConvForward && g.groups == 1 &&
         g.kh == 3 && g.kw == 3 && g.sh == 1 && g.sw == 1 && product.plan.dh == 1 &&
         product.plan.dw == 1 && g.c <= kWinogradChannels && !product.is_sliced;
}

int64_t CeilLog2Of(int64_t value) { return std::bit_width(static_cast<uint64_t>(value - 1)); }

std::string ShapeClassOf(const ProductPlan& product) {
  const KernelGeometry& g = product.geometry;
  return absl::StrCat(
      product.is_float ? "fp32 " : "int8 ", product.kernel, g.kh * g.kw > 1 ? " window" : " point",
      g.sh * g.sw > 1 ? " strided" : "", g.groups > 1 ? " groups 2^" : "",
      g.groups > 1 ? absl::StrCat(CeilLog2Of(g.groups)) : "", " rows 2^",
      CeilLog2Of(product.plan.rows), " columns 2^", CeilLog2Of(product.plan.columns), " depth 2^",
      CeilLog2Of(product.plan.depth));
}

}  // namespace

KernelGeometry GeometryFor(const Program& program, const Instruction& instruction) {
  const host::Geometry g = host::GeometryOf(program, instruction);
  host::Window w = g.window;
  const OpKind kind = instruction.attributes.kind;
  const bool is_global = instruction.code == OpCode::kInt8GlobalAvgPoolForward ||
                         instruction.code == OpCode::kInt8GlobalAvgPoolInputGradient ||
                         instruction.code == OpCode::kGlobalAvgPoolForward ||
                         instruction.code == OpCode::kGlobalAvgPoolInputGradient;
  if (is_global) w = {g.x.h, g.x.w, g.x.h, g.x.w, 0, 0};
  if (kind == OpKind::kAvgPool) w.ph = w.pw = 0;
  const auto i = [](int64_t value) { return static_cast<cl_int>(value); };
  return {i(g.x.n), i(g.x.c), i(g.x.h), i(g.x.w), i(g.y.c), i(g.y.h), i(g.y.w),
          i(w.kh),  i(w.kw),  i(w.sh),  i(w.sw),  i(w.ph),  i(w.pw),  i(g.groups)};
}

KernelDivisor DivisorOf(int64_t by) {
  const int shift = std::bit_width(static_cast<uint64_t>(by - 1));  // by <= 2^shift
  // Rounded up by less than 2^shift parts of 2^(31 + shift): too little to reach the next quotient.
  const uint64_t multiplier = (uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(by) + 1;
  return {static_cast<cl_int>(by), static_cast<cl_uint>(multiplier), static_cast<cl_uint>(shift)};
}

bool IsProduct(OpCode code) { return FindRow(code) != nullptr; }

bool ReadsWeight(OpCode code) {
  const Row* row = FindRow(code);
  return row != nullptr && row->mode != Mode::kWeightGradient;
}

bool ReadsFloatWeight(OpCode code) { return ReadsWeight(code) && FindRow(code)->is_float; }

ProductPlan PlanProduct(const Program& program, const Instruction& instruction,
                        const DeviceInfo& device, const ChosenTiles& chosen) {
  ProductPlan product;
  const Row& row = *FindRow(instruction.code);
  product.mode = row.mode;
  product.kernel = kKernels[static_cast<int>(row.mode)];
  product.is_float = row.is_float;
  product.reads_weight = ReadsWeight(instruction.code);
  product.geometry = GeometryFor(program, instruction);
  KernelPlan& plan = product.plan;
  plan = SizesOf(product.geometry, row);
  const host::Window window = host::GeometryOf(program, instruction).window;
  plan.dh = static_cast<cl_int>(window.dh);
  plan.dw = static_cast<cl_int>(window.dw);
  const Buffer& out = program.buffers[instruction.outputs[0]];
  plan.elements = static_cast<cl_uint>(out.shape.elements());
  product.tile = TileByRule(plan.rows, plan.columns);
  // A slice's sums of integers stay in 32 bits.
  int64_t slices = row.is_float ? 1 : Ceil(plan.depth, kMaxSliceDepth);
  if (row.mode == Mode::kWeightGradient) {
    // Few weights and many samples: so many tiles at least keep the device busy.
    constexpr int64_t kTilesPerUnit = 4, kSliceTiles = 8;
    const int64_t tiles = Ceil(plan.rows, product.tile.group_rows()) *
                          Ceil(plan.columns, product.tile.group_columns()) *
                          product.geometry.groups;
    const int64_t wanted = Ceil(kTilesPerUnit * device.compute_units, tiles);
    const int64_t most = Ceil(plan.depth, kSliceTiles * kDepth);
    slices = std::max(slices, std::min(wanted, most));
  }
  plan.slice_depth = static_cast<cl_int>(Ceil(Ceil(plan.depth, slices), kDepth) * kDepth);
  plan.slices = static_cast<cl_int>(Ceil(plan.depth, plan.slice_depth));
  plan.of_slices = DivisorOf(plan.slices);
  product.is_sliced = plan.slices > 1 || out.dtype == DType::kInt64;
  if (plan.ic == 1 && product.geometry.groups > 1 &&
      (row.mode == Mode::kWeightGradient || !product.is_sliced)) {
    product.is_depthwise = true;
    product.kernel = kDepthwiseKernels[static_cast<int>(row.mode)];
  }
  product.shape_class = ShapeClassOf(product);
  auto found = chosen.find(kEveryClass);
  if (found == chosen.end()) found = chosen.find(product.shape_class);
  if (found != chosen.end() && !product.is_depthwise) product.tile = found->second;
  const Tile* tile = WinogradTileFor(device);
  if (tile != nullptr && FitsWinograd(instruction, product)) {
    product.is_winograd = true;
    product.kernel = "winograd_forward";
    product.tile = *tile;
  }
  if (product.tile.image) {
    const Buffer& weight = program.buffers[instruction.inputs[1]];
    product.tile.image =
        product.reads_weight && FitsImage(device, weight.offset_bytes + weight.bytes());
  }
  return product;
}

}  // namespace runnel::opencl
