#include "kernels/ir/passes/integer_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/gate_options.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

constexpr int64_t kMostProducts = (int64_t{1} << 17) - 1;

std::optional<OpCode> CodesOfQuantizer(OpCode code) {
  switch (code) {
    case OpCode::kAffineWeight:
      return OpCode::kAffineWeightCodes;
    case OpCode::kAffineActivation:
      return OpCode::kAffineActivationCodes;
    case OpCode::kAffineActivationEval:
      return OpCode::kAffineActivationCodesEval;
    case OpCode::kAffineError:
      return OpCode::kAffineErrorCodes;
    case OpCode::kSymmetricWeight:
      return OpCode::kSymmetricWeightCodes;
    case OpCode::kSymmetricActivation:
      return OpCode::kSymmetricActivationCodes;
    case OpCode::kSymmetricActivationEval:
      return OpCode::kSymmetricActivationCodesEval;
    case OpCode::kSymmetricError:
      return OpCode::kSymmetricErrorCodes;
    case OpCode::kClippedError:
      return OpCode::kClippedErrorCodes;
    default:
      return std::nullopt;
  }
}

std::optional<OpCode> CodesOfProduct(OpCode code) {
  switch (code) {
    case OpCode::kConvForward:
    case OpCode::kLinearForward:
      return OpCode::kCodesForward;
    case OpCode::kConvInputGradient:
    case OpCode::kLinearInputGradient:
      return OpCode::kCodesInputGradient;
    case OpCode::kConvWeightGradient:
    case OpCode::kLinearWeightGradient:
      return OpCode::kCodesWeightGradient;
    default:
      return std::nullopt;
  }
}

class CodeMultiplier {
 public:
  CodeMultiplier(const Recipe& recipe, StageDraft& draft)
      : draft_(draft),
        program_(draft.program),
        gates_(GatesByChoice(program_)),
        may_be_wide_(recipe.family != nullptr && IsWide(recipe.family->grids.backward_most)) {}

  void Run() {
    for (std::vector<Instruction>& part : program_.parts)
      for (Instruction& instruction : part) Note(instruction);
    while (DropMakers() || DropProducts()) {
    }
    for (auto& [value, maker] : makers_) UseCodes(value, *maker);
    for (Instruction* product : products_) Multiply(*product);
  }

 private:
  void Note(Instruction& instruction) {
    if (CodesOfQuantizer(instruction.code)) {
      const BufferIndex value = instruction.outputs[0];
      const bool has_codes = !draft_.placed[value] && instruction.grid.bits <= 16 &&
                             (instruction.grid.is_gradient || instruction.grid.bits <= 8);
      if (has_codes) makers_[value] = &instruction;
    }
    if (CodesOfProduct(instruction.code) && IsSupported(instruction))
      products_.push_back(&instruction);
    for (size_t i = 0; i < instruction.inputs.size(); ++i)
      readers_[instruction.inputs[i]].push_back({&instruction, i});
  }

  bool IsSupported(const Instruction& product) const {
    const OpSpec& op = product.attributes;
    const OperandShapes& shapes = TraitsOf(product.code).shapes;
    const int64_t in = ShapeOf(program_, product, shapes.x)[1];
    const int64_t out = ShapeOf(program_, product, shapes.y)[1];
    if (op.kind == OpKind::kLinear) return std::max(in, out) <= kMostProducts;
    const int64_t taps = ShapeOf(program_, product, shapes.x).rank() == 3
                             ? op.kernel[0]
                             : op.kernel[0] * op.kernel[1];
    return taps * std::max(in, out) / op.groups <= kMostProducts;
  }

  bool IsCodes(BufferIndex value) const { return makers_.count(value) > 0; }

  // Those with another reader than a product of codes.
  bool DropMakers() {
    return std::erase_if(makers_, [this](const auto& maker) {
             for (const auto& [reader, operand] : readers_[maker.first]) {
               const bool multiplies =
                   std::find(products_.begin(), products_.end(), reader) != products_.end();
               if (!multiplies || operand > 1) return true;
             }
             return false;
           }) > 0;
  }
  bool DropProducts() {
    return std::erase_if(products_, [this](const Instruction* product) {
             const BufferIndex left = product->inputs[0], right = product->inputs[1];
             if (!IsCodes(left) || !IsCodes(right)) return true;
             // Elsewhere a scale of an output channel would lie inside the sum.
             return TraitsOf(product->code).part == Part::kInputGradient &&
                    GridsOf(*makers_.at(right)) > 1;
           }) > 0;
  }

  int64_t GridsOf(const Instruction& maker) const {
    const bool by_channel = maker.code == OpCode::kAffineWeight && !maker.grid.of_tensor;
    return by_channel ? program_.buffers[maker.inputs[0]].shape[0] : 1;
  }

  BufferIndex Add(Buffer buffer) {
    program_.buffers.push_back(std::move(buffer));
    draft_.placed.push_back(false);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }

  void UseCodes(BufferIndex value, Instruction& maker) {
    const int64_t grids = GridsOf(maker);
    // Scaled: kernels may read what lies behind.
    Buffer& codes = program_.buffers[value];
    codes.dtype = DType::kInt8;
    codes.scaled = true;
    const Buffer like = codes;
    const bool is_error = maker.code == OpCode::kAffineError;
    maker.code = *CodesOfQuantizer(maker.code);
    Buffer grid = {.dtype = DType::kFloat32, .shape = {CodeGridFloats(grids)}};
    if (like.packed_by != kNoGate) {
      grid.shape = {like.shape[0], CodeGridFloats(grids)};
      grid.packed_by = like.packed_by;
    }
    grids_[value] = Add(std::move(grid));
    maker.outputs.insert(maker.outputs.begin() + 1, grids_[value]);
    if (is_error && (may_be_wide_ || IsWide(maker.grid.bits)))
      maker.outputs.push_back(lows_[value] = Add(like));
  }

  void Multiply(Instruction& product) {
    const BufferIndex left = product.inputs[0], right = product.inputs[1];
    product.code = *CodesOfProduct(product.code);
    product.inputs.insert(product.inputs.begin() + 2, {grids_.at(left), grids_.at(right)});
    if (const auto low = lows_.find(left); low != lows_.end())
      product.inputs.push_back(low->second);
    product.grid = makers_.at(left)->grid;
    if (product.gate != kNoGate)
      product.grid.bits = MostBits(*gates_[static_cast<size_t>(product.gate)], product.grid);
  }

  // Of the gate's options.
  static int MostBits(const OpSpec& gate, const GridRule& grid) {
    int most = 0;
    for (int option = 0; option < OptionCount(gate); ++option) {
      if (!Skips(gate, option)) most = std::max(most, grid.BitsAt(BitsOfOption(gate, option)));
    }
    return most;
  }

  StageDraft& draft_;
  Program& program_;
  const std::vector<const OpSpec*> gates_;  // GatesByChoice
  const bool may_be_wide_;  // levels of the dial may have gradients of more than 8 bits
  std::map<BufferIndex, Instruction*> makers_;  // quantizers, by their value
  std::vector<Instruction*> products_;
  std::map<BufferIndex, std::vector<std::pair<const Instruction*, size_t>>> readers_;
  std::map<BufferIndex, BufferIndex> grids_, lows_;  // by codes
};

}  // namespace

void UseIntegerProducts(const Recipe& recipe, StageDraft& draft) {
  const bool is_emulated = recipe.family != nullptr && recipe.family->is_emulated;
  if (!recipe.grids.empty() && !is_emulated) CodeMultiplier(recipe, draft).Run();
}

absl::string_view ProductNumbers(const Recipe& recipe, const Instruction& instruction) {
  switch (instruction.code) {
    case OpCode::kCodesForward:
    case OpCode::kCodesInputGradient:
    case OpCode::kCodesWeightGradient:
      return instruction.grid.is_gradient && IsWide(instruction.grid.bits) ? "int16" : "int8";
    default:
      break;
  }
  return recipe.family != nullptr && !recipe.grids.empty() &&
                 TraitsOf(instruction.code).is_product()
             ? "emulated"
             : "";
}

}  // namespace runnel
