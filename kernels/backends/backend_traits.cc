#include "kernels/backends/backend_traits.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

bool IsFloat(OpCode code) {
  const Numbers numbers = TraitsOf(code).numbers;
  return numbers == Numbers::kFloats || numbers == Numbers::kGridFloats;
}

}  // namespace

absl::StatusOr<CompileOptions> CompileOptionsFor(const BackendTraits& traits, const Recipe& recipe,
                                                 const StagePrograms& programs) {
  const bool is_integer = recipe.numbers.integer_parameters();
  if (IsHalf(recipe.numbers.activation) && !traits.computes_halves) {
    return absl::UnimplementedError(
        absl::StrCat("recipe ", recipe.name, ": backend ", traits.name, " does not compute in ",
                     Name(recipe.numbers.activation), "; take --backend cpu or ref"));
  }
  if (is_integer && programs.rescale.keeps() && !traits.rescales_in_products) {
    return absl::UnimplementedError(absl::StrCat(
        "--rescale ", programs.rescale.mode == RescaleMode::kStatic ? "static" : "adaptive",
        ": backend ", traits.name,
        " keeps no scales; take --rescale dynamic or speculate, or backend cpu, "
        "hexagon or ref"));
  }
  if (is_integer && programs.batch_split.mode == BatchSplitMode::kShifted &&
      !traits.shifts_slices) {
    return absl::UnimplementedError(
        absl::StrCat("--batch-split shifted:", programs.batch_split.samples, ": backend ",
                     traits.name, " shifts no slices; take --batch-split ",
                     programs.batch_split.samples, ", or backend cpu, hexagon or ref"));
  }
  return CompileOptions{.accumulates_gradients = programs.accumulates,
                        .max_batch = programs.max_batch,
                        .recomputes = traits.recomputes,
                        .one_in_flight = programs.one_in_flight,
                        .defers_weight_gradients = programs.defers_weight_gradients,
                        .steps_in_backward = programs.one_in_flight && !programs.accumulates &&
                                             !programs.keeps_gradients && traits.recomputes,
                        .rescale = programs.rescale,
                        .rescales_in_products = traits.rescales_in_products,
                        .stash = traits.stash,
                        .batch_split = programs.batch_split,
                        .integer_products = traits.multiplies_codes,
                        .masks_stash = traits.masks_stash,
                        .most_forward_bits = programs.most_forward_bits,
                        .optimizer = programs.optimizer,
                        .averages_weights = programs.averages_weights};
}

namespace {

// The narrow type, if that is what the copy is to or from; else FP32.
DType NarrowTypeOf(const Program& program, const Instruction& instruction) {
  if (instruction.code != OpCode::kCopy || IsHalf(program.values)) return DType::kFloat32;
  const DType from = program.buffers[instruction.inputs[0]].dtype;
  const DType to = program.buffers[instruction.outputs[0]].dtype;
  if (from == to || !runnel::IsFloat(from)) return DType::kFloat32;
  return from == DType::kFloat32 ? to : from;
}

}  // namespace

absl::Status CheckWindows(const BackendTraits& traits, const Program& program) {
  const auto missing = [&](const Instruction& instruction) -> absl::string_view {
    const OpSpec& op = instruction.attributes;
    if (TraitsOf(instruction.code).shapes.x == Operand::kNone) return "";
    const bool is_float = IsFloat(instruction.code);
    const bool is_mean = op.kind == OpKind::kAvgPool && op.is_padded();
    if (op.kind == OpKind::kConv && op.is_dilated() && !(traits.dilates && is_float))
      return "dilated convolutions";
    if (is_mean && !(traits.pads_means && is_float && !IsHalf(program.values)))
      return "means over padding";
    const bool has_window = op.kind == OpKind::kConv || op.kind == OpKind::kMaxPool || is_mean;
    return has_window && op.pads_by_side() && !traits.pads_by_side ? "padding that differs by side"
                                                                   : "";
  };
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      const DType narrow = NarrowTypeOf(program, instruction);
      if (narrow != DType::kFloat32 && narrow != traits.stash && !traits.narrows_stash) {
        return absl::UnimplementedError(absl::StrCat("backend ", traits.name, " keeps no stash of ",
                                                     Name(narrow),
                                                     "; take --backend cpu, or leave --stash out"));
      }
      const absl::string_view what = missing(instruction);
      if (what.empty()) continue;
      return absl::UnimplementedError(absl::StrCat(
          "backend ", traits.name, " has no ", what,
          IsFloat(instruction.code) ? "" : " of integers",
          IsHalf(program.values) ? " of halves" : "", " (", Name(instruction.code), ", layer ",
          instruction.layer, ", op ", instruction.op, "); take --backend cpu --recipe fp32"));
    }
  }
  return absl::OkStatus();
}

bool MeasuresSlices(const BackendTraits& traits, const Recipe& recipe, const BatchSplitRule& rule) {
  return rule.mode == BatchSplitMode::kAuto && recipe.numbers.integer_parameters() &&
         traits.takes_slices;
}

}  // namespace runnel
