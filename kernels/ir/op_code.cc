#include "kernels/ir/op_code.h"

#include <iterator>

namespace runnel {
namespace {

constexpr OperandShapes kNoShapes;
constexpr OperandShapes kForwardWindow = {Operand::kInput0, Operand::kOutput0};
constexpr OperandShapes kBackwardWindow = {Operand::kOutput0, Operand::kInput0};
constexpr OperandShapes kSameShapes = {Operand::kInput0, Operand::kInput0};
constexpr OperandShapes kForwardProduct = {Operand::kInput0, Operand::kOutput0, Operand::kInput1};
constexpr OperandShapes kInputProduct = {Operand::kOutput0, Operand::kInput0, Operand::kInput1};
constexpr OperandShapes kWeightProduct = {Operand::kInput1, Operand::kInput0, Operand::kOutput0};

enum Flag : unsigned {
  kInPlace = 1,
  kIsRelu = 2,
  kDrops = 4,
  kGivesSums = 8,
  kRescales = 16,
};

// "x, [&y]": counts names, those outside of brackets, and notes which have a "&".
constexpr void CountOperands(absl::string_view list, int* min, int* max, uint8_t* changed) {
  bool in_name = false, optional = false;
  for (const char c : list) {
    if (c == '[') optional = true;
    if (c == ']') optional = false;
    if (c == '&') *changed = static_cast<uint8_t>(*changed | 1u << *max);
    const bool is_letter = (c >= 'a' && c <= 'z') || c == '_';
    if (is_letter && !in_name) {
      ++*max;
      if (!optional) ++*min;
    }
    in_name = is_letter;
  }
}

constexpr OpTraits MakeTraits(absl::string_view name, Part part, Numbers numbers,
                              const OperandShapes& shapes, unsigned flags,
                              absl::string_view operands) {
  OpTraits traits;
  traits.name = name;
  traits.part = part;
  traits.numbers = numbers;
  traits.shapes = shapes;
  traits.in_place = (flags & kInPlace) != 0;
  traits.is_relu = (flags & kIsRelu) != 0;
  traits.drops = (flags & kDrops) != 0;
  traits.gives_sums = (flags & kGivesSums) != 0;
  traits.rescales = (flags & kRescales) != 0;
  traits.operands = operands;
  size_t arrow = 0;
  while (operands[arrow] != '>') ++arrow;
  CountOperands(operands.substr(0, arrow), &traits.min_inputs, &traits.max_inputs,
                &traits.changed_inputs);
  CountOperands(operands.substr(arrow), &traits.min_outputs, &traits.max_outputs,
                &traits.changed_outputs);
  return traits;
}

constexpr OpTraits kTraits[] = {
#define RUNNEL_OP(code, name, part, numbers, shapes, flags, operands) \
  MakeTraits(name, Part::part, Numbers::numbers, shapes, flags, operands),
#include "kernels/ir/op_traits.inc"
#undef RUNNEL_OP
};
constexpr OpTraits kUnknown;

}  // namespace

const OpTraits& TraitsOf(OpCode code) {
  const auto i = static_cast<size_t>(code);
  return i < std::size(kTraits) ? kTraits[i] : kUnknown;
}

int OpCodeCount() { return static_cast<int>(std::size(kTraits)); }

absl::string_view Name(OpCode code) {
  const OpTraits& traits = TraitsOf(code);
  return traits.name.empty() ? "?" : traits.name;
}

}  // namespace runnel
