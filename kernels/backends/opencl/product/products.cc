#include "kernels/backends/opencl/product/products.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/opencl/code_instructions.h"
#include "kernels/backends/opencl/product/code_pairs.h"
#include "kernels/ir/arithmetic/winograd.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

ProgramId KernelsOf(const ProductPlan& product) {
  if (product.is_depthwise)
    return {ProgramId::Source::kDepthwise, product.is_float, Tile(), product.gives_codes};
  if (product.is_winograd)
    return {ProgramId::Source::kWinograd, /*is_float=*/false, product.tile, product.gives_codes};
  return {ProgramId::Source::kProduct, product.is_float, product.tile, product.gives_codes};
}

// Of the forward, or of a product's slices.
absl::Status Start(Launch& launch, const ProductPlan& product) {
  const KernelGeometry& g = product.geometry;
  launch.Value(g).Value(product.plan);
  if (product.is_depthwise && product.mode == ProductMode::kWeightGradient)
    return launch.Groups(int64_t{g.oc} * product.plan.slices);
  if (product.is_depthwise) {
    const bool is_forward = product.mode == ProductMode::kForward;
    return launch.Planes(product.plan.positions.by, is_forward ? g.oc : g.c, g.n);
  }
  return launch.Tiles(product.tile, product.plan.rows, product.plan.columns,
                      int64_t{g.groups} * product.plan.slices);
}

// If the weight is no image after all, takes the tile without it.
ProgramId KernelsFor(const ProductPlan& product, const WeightOperand& weight) {
  ProgramId kernels = KernelsOf(product);
  kernels.tile.image = weight.image != nullptr;
  return kernels;
}

// Sums of slices are added up by kernels that read no weight.
ProgramId SliceKernelsOf(const ProductPlan& product) { return KernelsFor(product, {}); }

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(const Operands& operands,
                                                           std::shared_ptr<Session> session) {
  std::unique_ptr<Products> made(new Products(operands, std::move(session)));
  made->Plan();
  RUNNEL_RETURN_IF_ERROR(made->Prepare());
  return made;
}

absl::Status Products::Prepare() {
  if (plans_.empty()) return absl::OkStatus();
  int64_t slice_bytes = 0;
  for (auto& [instruction, plan] : plans_) {
    if (plan.is_winograd) RUNNEL_RETURN_IF_ERROR(BuildWinograd(*instruction, &plan));
    if (!plan.is_winograd) RUNNEL_RETURN_IF_ERROR(BuildKernels(&plan));
    slice_bytes = std::max(slice_bytes, plan.slice_bytes());
    RUNNEL_RETURN_IF_ERROR(AddHalves(*instruction));
  }
  RUNNEL_ASSIGN_OR_RETURN(targets_,
                          CreateBuffer(*session_, kMaxGroups * int64_t{sizeof(cl_ulong)}));
  RUNNEL_ASSIGN_OR_RETURN(slices_, CreateBuffer(*session_, slice_bytes));
  // Last: whatever has to be there comes before what only makes it faster.
  const absl::Status added = winograd_.Add(plans_);
  if (added.ok() || !absl::IsResourceExhausted(added)) return added;
  for (auto& [instruction, plan] : plans_) {
    if (!plan.is_winograd) continue;
    MakeDirect(*instruction, &plan);
    RUNNEL_RETURN_IF_ERROR(BuildKernels(&plan));
  }
  return absl::OkStatus();
}

absl::Status Products::BuildKernels(ProductPlan* product) {
  if (product->is_depthwise) return session_->Build(KernelsOf(*product));
  auto& too_large = session_->too_large_kernels();
  std::string why;  // of the last one
  const auto builds = [&](const ProgramId& kernels) -> absl::StatusOr<bool> {
    const Tile& tile = kernels.tile;
    const Session::KernelId id = {kernels, product->kernel};
    if (session_->hung_tiles().count(tile) > 0) {
      why = absl::StrCat("hung over the tile ", ToText(tile));
      return false;
    }
    if (const auto found = too_large.find(id); found != too_large.end()) {
      why = found->second;
      return false;
    }
    RUNNEL_RETURN_IF_ERROR(session_->Build(kernels));
    RUNNEL_ASSIGN_OR_RETURN(const Session::GroupSizes sizes,
                            session_->GroupSizesOf(kernels, product->kernel));
    if (sizes.most == 0 || sizes.most >= tile.items()) return true;
    why = absl::StrCat("runs ", product->kernel, " in groups of ", sizes.most, ", not of ",
                       tile.items());
    too_large[id] = why;
    return false;
  };
  for (const Tile& tile : TilesInPlaceOf(product->tile)) {
    product->tile = tile;
    RUNNEL_ASSIGN_OR_RETURN(bool is_built, builds(KernelsOf(*product)));
    if (is_built && tile.image) {
      RUNNEL_ASSIGN_OR_RETURN(is_built, builds(KernelsFor(*product, {})));
    }
    if (is_built) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("device ", session_->device().name, " ", why, "; there is no smaller tile"));
}

absl::Status Products::BuildWinograd(const Instruction& instruction, ProductPlan* product) {
  const ProgramId kernels = KernelsOf(*product);
  auto& refused = session_->refused_winograd();
  if (refused.count(kernels) == 0) {
    const absl::Status built = session_->Build(kernels);
    if (!built.ok() && !absl::IsFailedPrecondition(built)) return built;
    if (!built.ok()) refused.emplace(kernels, std::string(built.message()));
  }
  if (refused.count(kernels) == 0) {
    RUNNEL_ASSIGN_OR_RETURN(const Session::GroupSizes sizes,
                            session_->GroupSizesOf(kernels, product->kernel));
    const int64_t items = int64_t{kWinogradPoints} * product->tile.items();
    if (sizes.most == 0 || sizes.most >= items) return absl::OkStatus();
  }
  MakeDirect(instruction, product);
  return absl::OkStatus();
}

void Products::MakeDirect(const Instruction& instruction, ProductPlan* product) const {
  Instruction direct = instruction;
  direct.winograd = false;
  const bool gives_codes = product->gives_codes;
  *product = PlanProduct(operands_.program(), direct, session_->device(), session_->chosen_tiles());
  product->gives_codes = gives_codes;
}

bool Products::IsWinograd(const Instruction& instruction) const {
  const auto found = plans_.find(&instruction);
  return found != plans_.end() && found->second.is_winograd;
}

void Products::Plan() {
  const Program& program = operands_.program();
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (!IsProduct(instruction.code)) continue;
      plans_.emplace(&instruction, PlanProduct(program, instruction, session_->device(),
                                               session_->chosen_tiles()));
    }
  }
  for (const CodePair& pair : FindCodePairs(program)) {
    ProductPlan& product = plans_.at(pair.product);
    if (product.is_sliced) continue;
    product.gives_codes = true;
    coded_.emplace(pair.requantize, pair.product);
  }
}

bool Products::Has(const Instruction& instruction) const {
  return IsProduct(instruction.code) || coded_.count(&instruction) > 0;
}

absl::Status Products::Enqueue(const Instruction& instruction, const StepContext& context) {
  if (!IsProduct(instruction.code)) return Codes(instruction);
  const ProductPlan& product = plans_.at(&instruction);
  if (product.gives_codes) return absl::OkStatus();  // when its sums are requantised
  if (!product.is_float) return Integers(instruction, product);
  const bool is_gradient = !ReadsFloatWeight(instruction.code);
  const bool adds = is_gradient && context.accumulate && !instruction.overwrites;
  RUNNEL_RETURN_IF_ERROR(Floats(instruction, product, adds));
  if (!is_gradient || instruction.outputs.size() < 2) return absl::OkStatus();
  return BiasGradient(instruction, adds);
}

absl::Status Products::Codes(const Instruction& requantize) {
  const Instruction& instruction = *coded_.at(&requantize);
  const ProductPlan& product = plans_.at(&instruction);
  const bool has_rows = requantize.inputs.size() > 2;
  const auto add_after = [&](Launch& launch) {
    launch.Tensor(operands_.In(requantize, 1))
        .Tensor(operands_.In(requantize, has_rows ? 2 : 1))
        .Tensor(operands_.Out(requantize, 0))
        .Value(CodeFlagsOf(operands_, requantize));
  };
  if (product.is_winograd)
    return winograd_.Enqueue(instruction, product, KernelsOf(product), add_after);
  RUNNEL_ASSIGN_OR_RETURN(const WeightOperand b, View(instruction, operands_.In(instruction, 1)));
  Launch launch(*session_, KernelsFor(product, b), product.kernel);
  b.AddTo(launch.Tensor(operands_.In(instruction, 0)));
  add_after(launch);
  return Start(launch, product);
}

absl::Status Products::Integers(const Instruction& instruction, const ProductPlan& product) {
  const KernelPlan& plan = product.plan;
  const TensorRef a = operands_.In(instruction, 0), b = operands_.In(instruction, 1);
  const TensorRef y = operands_.Out(instruction, 0);
  const cl_int added_exponent = 0;
  RUNNEL_RETURN_IF_ERROR(Launch(*session_, kIntegerElements, "begin_sum")
                             .Tensor(y)
                             .Tensor(a)
                             .Tensor(b)
                             .Value(Flag(true))
                             .Value(added_exponent)
                             .Once());
  if (product.is_winograd) {
    return winograd_.Enqueue(instruction, product, KernelsOf(product),
                             [&](Launch& launch) { launch.Tensor(y).Value(Flag(true)); });
  }
  RUNNEL_ASSIGN_OR_RETURN(const WeightOperand right, View(instruction, b));
  Launch launch(*session_, KernelsFor(product, right), product.kernel);
  right.AddTo(launch.Tensor(a));
  launch.Tensor(product.is_sliced ? TensorRef{slices_.get()} : y).Value(Flag(!product.is_sliced));
  RUNNEL_RETURN_IF_ERROR(Start(launch, product));
  if (!product.is_sliced) return absl::OkStatus();
  const bool is_wide = operands_.buffer(instruction.outputs[0]).dtype == DType::kInt64;
  RUNNEL_RETURN_IF_ERROR(Launch(*session_, SliceKernelsOf(product), "add_slices")
                             .Memory(slices_.get())
                             .Value(plan)
                             .Tensor(y)
                             .Value(Flag(is_wide))
                             .Memory(targets_.get())
                             .Items(plan.elements));
  return Launch(*session_, SliceKernelsOf(product), "finish_slices")
      .Tensor(y)
      .Memory(targets_.get())
      .Value(static_cast<cl_uint>(GroupsFor(plan.elements)))
      .Once();
}

absl::Status Products::Floats(const Instruction& instruction, const ProductPlan& product,
                              bool adds) {
  const KernelPlan& plan = product.plan;
  const TensorRef y = operands_.Out(instruction, 0);
  const bool has_bias = instruction.inputs.size() > 2;
  RUNNEL_ASSIGN_OR_RETURN(const TensorRef weight, Weight(instruction));
  RUNNEL_ASSIGN_OR_RETURN(const WeightOperand b, View(instruction, weight));
  Launch launch(*session_, KernelsFor(product, b), product.kernel);
  b.AddTo(launch.Tensor(operands_.In(instruction, 0)));
  launch.Tensor(product.is_sliced ? TensorRef{slices_.get()} : y)
      .Tensor(operands_.In(instruction, has_bias ? 2 : 1))
      .Value(Flag(has_bias))
      .Value(Flag(adds && !product.is_sliced));
  RUNNEL_RETURN_IF_ERROR(Start(launch, product));
  if (!product.is_sliced) return absl::OkStatus();
  return Launch(*session_, SliceKernelsOf(product), "add_slices")
      .Memory(slices_.get())
      .Value(plan)
      .Tensor(y)
      .Value(Flag(adds))
      .Items(plan.elements);
}

absl::Status Products::AddHalves(const Instruction& instruction) {
  if (!session_->has_half_weights() || !ReadsFloatWeight(instruction.code)) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(session_->Build(kFloatElements));
  Halves& halves = halves_[instruction.inputs[1]];
  if (halves.buffer.get() != nullptr) return absl::OkStatus();
  const int64_t count = operands_.buffer(instruction.inputs[1]).shape.elements();
  RUNNEL_ASSIGN_OR_RETURN(halves.buffer, CreateBuffer(*session_, count * int64_t{sizeof(cl_half)}));
  return absl::OkStatus();
}

absl::StatusOr<WeightOperand> Products::View(const Instruction& instruction,
                                             const TensorRef& weight) {
  const ProductPlan& product = plans_.at(&instruction);
  if (!product.tile.image) return WeightOperand{weight};
  const WeightKind kind = !product.is_float              ? WeightKind::kInt8
                          : session_->has_half_weights() ? WeightKind::kHalf
                                                         : WeightKind::kFloat;
  return images_.View(weight, operands_.buffer(instruction.inputs[1]).shape.elements(), kind);
}

void Products::ForgetWeights() {
  images_.Forget();
  for (auto& [index, halves] : halves_) halves.are_made = false;
}

void Products::ForgetWritten(const Instruction& instruction) {
  for (auto& [index, halves] : halves_) {
    for (const BufferIndex output : instruction.outputs) {
      if (Overlap(operands_.buffer(output), operands_.buffer(index))) halves.are_made = false;
    }
  }
}

int64_t Products::memory_bytes() const {
  int64_t bytes = targets_.bytes() + slices_.bytes() + winograd_.memory_bytes();
  for (const auto& [index, halves] : halves_) bytes += halves.buffer.bytes();
  return bytes;
}

absl::StatusOr<TensorRef> Products::Weight(const Instruction& instruction) {
  const TensorRef weight = operands_.In(instruction, 1);
  if (!session_->has_half_weights() || !ReadsFloatWeight(instruction.code)) return weight;
  Halves& halves = halves_.at(instruction.inputs[1]);
  if (!halves.are_made) {
    const int64_t count = operands_.buffer(instruction.inputs[1]).shape.elements();
    RUNNEL_RETURN_IF_ERROR(Launch(*session_, kFloatElements, "to_halves")
                               .Tensor(weight)
                               .Memory(halves.buffer.get())
                               .Value(static_cast<cl_uint>(count))
                               .Items(count));
    halves.are_made = true;
  }
  return TensorRef{halves.buffer.get()};
}

absl::Status Products::BiasGradient(const Instruction& instruction, bool adds) {
  const Shape& dy = operands_.buffer(instruction.inputs[0]).shape;
  return Launch(*session_, kFloatElements, "bias_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 1))
      .Value(ChannelsOf(dy))
      .Value(Flag(adds))
      .Groups(dy[1]);
}

}  // namespace runnel::opencl
