#include "kernels/backends/small/products.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/small/group_product.h"

namespace runnel::small {
namespace {

constexpr OpCode kForwards[] = {OpCode::kConvForward, OpCode::kLinearForward};
constexpr OpCode kInputGradients[] = {OpCode::kConvInputGradient, OpCode::kLinearInputGradient};
constexpr OpCode kWeightGradients[] = {OpCode::kConvWeightGradient, OpCode::kLinearWeightGradient};

bool Has(const OpCode (&codes)[2], OpCode code) { return code == codes[0] || code == codes[1]; }

template <class Rule>
std::vector<std::string> Names() {
  std::vector<std::string> names;
  const MatrixKernels<Rule> kernels = KernelsOf<Rule>();
  for (int i = 0; i < kernels.count; ++i) {
    if (kernels.rows[i].lanes == 1) names.emplace_back(kernels.rows[i].name);
  }
  return names;
}

Plane PlaneOf(const host::Image& image) {
  return {static_cast<int32_t>(image.c), static_cast<int32_t>(image.h),
          static_cast<int32_t>(image.w)};
}

const char* Name(Step step) {
  return step == Step::kForward         ? "forward"
         : step == Step::kInputGradient ? "input_gradient"
                                        : "weight_gradient";
}

}  // namespace

bool IsProduct(OpCode code) {
  return Has(kForwards, code) || Has(kInputGradients, code) || Has(kWeightGradients, code);
}

ProductShape ShapeOf(const Program& program, const Instruction& instruction, HalfSums sums) {
  const auto shape_of = [&](BufferIndex index) -> const Shape& {
    return program.buffers[static_cast<size_t>(index)].shape;
  };
  ProductShape product;
  product.is_half = IsHalf(program.values);
  product.has_own_sums = sums == HalfSums::kOwn && program.values == DType::kFloat16;
  const Shape* x = &shape_of(instruction.inputs[0]);
  const Shape* y = &shape_of(instruction.outputs[0]);
  if (Has(kInputGradients, instruction.code)) {
    product.step = Step::kInputGradient;
    std::swap(x, y);
  } else if (Has(kWeightGradients, instruction.code)) {
    product.step = Step::kWeightGradient;
    y = x;
    x = &shape_of(instruction.inputs[1]);
  }
  const host::Image in = host::ImageOf(*x), out = host::ImageOf(*y);
  Conv& conv = product.conv;
  conv.in = PlaneOf(in);
  conv.out = PlaneOf(out);
  conv.keeps_taps = product.in_pairs();
  if (instruction.attributes.kind != OpKind::kConv) {
    // Rows are positions of one sample.
    product.is_linear = true;
    conv.in.w = conv.out.w = static_cast<int32_t>(in.n);
    return product;
  }
  product.batch = static_cast<int32_t>(in.n);
  product.groups = static_cast<int32_t>(instruction.attributes.groups);
  conv.in.c /= product.groups;
  conv.out.c /= product.groups;
  const host::Window window = host::WindowOf(instruction.attributes, *x);
  conv.kh = static_cast<int32_t>(window.kh);
  conv.kw = static_cast<int32_t>(window.kw);
  conv.stride_h = static_cast<int32_t>(window.sh);
  conv.stride_w = static_cast<int32_t>(window.sw);
  conv.pad_h = static_cast<int32_t>(window.ph);
  conv.pad_w = static_cast<int32_t>(window.pw);
  return product;
}

std::string ClassOf(const ProductShape& shape) {
  const Conv& c = shape.conv;
  const char* type = shape.has_own_sums ? "fp16 sums " : shape.is_half ? "half " : "fp32 ";
  return absl::StrCat(type, "product_", Name(shape.step), " ", c.in.c, "x", c.in.h, "x", c.in.w,
                      " to ", c.out.c, " window ", c.kh, "x", c.kw, " stride ", c.stride_h, "x",
                      c.stride_w, " pad ", c.pad_h, "x", c.pad_w, " groups ", shape.groups);
}

bool IsDepthwise(const ProductShape& shape) {
  return shape.groups > 1 && shape.conv.in.c == 1 && shape.conv.out.c == 1;
}

std::vector<std::string> KernelNames(bool is_half) {
  return is_half ? Names<WideRule<F16>>() : Names<Float32Rule>();
}

std::string ToString(const ProductChoice& choice) {
  return absl::StrCat(choice.way.layout == Layout::kHwc ? "hwc" : "chw",
                      choice.way.transposed ? " mm_t " : " mm ", choice.kernel, " ",
                      ToString(choice.tile));
}

std::optional<ProductChoice> ParseChoice(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  if (words.size() != 4 && words.size() != 6) return std::nullopt;
  ProductChoice choice;
  if ((words[0] != "hwc" && words[0] != "chw") || (words[1] != "mm" && words[1] != "mm_t"))
    return std::nullopt;
  choice.way = {words[0] == "hwc" ? Layout::kHwc : Layout::kChw, words[1] == "mm_t"};
  choice.kernel = std::string(words[2]);
  const std::vector<absl::string_view> sizes = absl::StrSplit(words[3], 'x');
  TileSize& tile = choice.tile;
  if (sizes.size() != 3 || !absl::SimpleAtoi(sizes[0], &tile.rows) ||
      !absl::SimpleAtoi(sizes[1], &tile.columns) || !absl::SimpleAtoi(sizes[2], &tile.outs))
    return std::nullopt;
  if (words.size() == 6 && (words[4] != "by" || !absl::SimpleAtoi(words[5], &tile.chunk)))
    return std::nullopt;
  if (tile.rows < 1 || tile.columns < 1 || tile.outs < 1 || tile.chunk < 0) return std::nullopt;
  return choice;
}

ProductChoice RuleFor(const ProductShape& shape, int64_t l1_bytes) {
  ProductChoice choice;
  choice.way = {Layout::kHwc, false};
  choice.tile = TileWithin(shape, choice.way, l1_bytes);
  return choice;
}

ProductChoice NaiveFor(const ProductShape& shape, int64_t l1_bytes) {
  ProductChoice choice = RuleFor(shape, l1_bytes);
  choice.kernel = "naive";
  return choice;
}

absl::Status RunProduct(const host::Call& call, const ProductShape& shape,
                        const ProductChoice& choice, NearMemory l1) {
  if (shape.has_own_sums) return RunGroups<NarrowRule<F16>>(call, shape, choice, l1);
  if (!shape.is_half) return RunGroups<Float32Rule>(call, shape, choice, l1);
  const DType values = shape.step == Step::kWeightGradient ? call.in_dtype(1) : call.in_dtype(0);
  if (values == DType::kFloat16) return RunGroups<WideRule<F16>>(call, shape, choice, l1);
  return RunGroups<WideRule<Bf16>>(call, shape, choice, l1);
}

}  // namespace runnel::small
