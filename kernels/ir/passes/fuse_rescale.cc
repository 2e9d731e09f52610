#include "kernels/ir/passes/fuse_rescale.h"

#include <optional>
#include <utility>
#include <vector>

namespace runnel {
namespace {

std::optional<OpCode> RescaledForm(OpCode code) {
  switch (code) {
    case OpCode::kInt8ConvForward:
      return OpCode::kInt8ConvForwardRescaled;
    case OpCode::kInt8LinearForward:
      return OpCode::kInt8LinearForwardRescaled;
    case OpCode::kInt8ConvInputGradient:
      return OpCode::kInt8ConvInputGradientRescaled;
    case OpCode::kInt8LinearInputGradient:
      return OpCode::kInt8LinearInputGradientRescaled;
    default:
      return std::nullopt;
  }
}

class Fuser {
 public:
  Fuser(const RescaleRule& rule, StageDraft& draft) : rule_(rule), draft_(draft) {}

  void Run() {
    for (Part part : {Part::kForward, Part::kForwardEval, Part::kInputGradient}) FusePart(part);
  }

 private:
  void FusePart(Part part) {
    std::vector<Instruction>& instructions = draft_.program.parts[static_cast<int>(part)];
    std::vector<Instruction> fused;
    for (Instruction& instruction : instructions) {
      if (fused.empty() || !Joins(fused.back(), instruction)) {
        fused.push_back(std::move(instruction));
        continue;
      }
      Instruction& product = fused.back();
      product.code = *RescaledForm(product.code);
      product.integer = instruction.integer;
      product.outputs = {instruction.outputs[0]};
      product.inputs.insert(product.inputs.end(), instruction.inputs.begin() + 1,
                            instruction.inputs.end());
      if (rule_.keeps() && part != Part::kForwardEval) Keep(part, product);
    }
    instructions = std::move(fused);
  }

  // The sums of a product are read by its kRescale alone, which comes right behind it.
  static bool Joins(const Instruction& product, const Instruction& rescale) {
    return rescale.code == OpCode::kRescale && RescaledForm(product.code).has_value() &&
           rescale.inputs[0] == product.outputs[0] &&
           rescale.integer.rounding != Rounding::kStochastic;
  }

  void Keep(Part part, Instruction& product) {
    for (const StateTensor& tensor : draft_.program.state.tensors) {
      const bool own = tensor.spec.role == TensorRole::kKeptScales &&
                       tensor.layer == product.layer && tensor.spec.op == product.op;
      if (!own) continue;
      const int64_t offset = part == Part::kForward ? 0 : sizeof(KeptScale);
      product.rescale = rule_;
      product.outputs.push_back(static_cast<BufferIndex>(draft_.program.buffers.size()));
      draft_.program.buffers.push_back(
          {Storage::kStatistics, DType::kInt32, {kKeptScaleWords}, tensor.offset_bytes + offset});
      draft_.placed.push_back(true);
    }
  }

  const RescaleRule rule_;
  StageDraft& draft_;
};

}  // namespace

void FuseRescale(const CompileOptions& options, StageDraft& draft) {
  const bool speculates =
      options.rescale.mode == RescaleMode::kSpeculate && options.rescales_in_products;
  if (options.rescale.keeps() || speculates) Fuser(options.rescale, draft).Run();
}

}  // namespace runnel
