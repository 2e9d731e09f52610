#pragma once

// Instructions and the facts about them, from the one table op_traits.inc. What needs a fact about
// an instruction asks TraitsOf; no other file keeps a list of codes for it. Pure; any thread.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace runnel {

// What an instruction computes: the rows of op_traits.inc.
enum class OpCode : uint8_t {
#define RUNNEL_OP(code, ...) code,
#include "kernels/ir/op_traits.inc"
#undef RUNNEL_OP
};

// Parts of a program, run as separate actions.
enum class Part : uint8_t {
  kForward,         // training mode; ends with the loss where the loss is
  kForwardEval,     // evaluation mode: running statistics, no dropout; writes nothing that lasts
  kInputGradient,   // everything that leads to the gradient for the previous stage
  kWeightGradient,  // after kInputGradient of the same micro-batch, with the same scratch,
                    // untouched in between
  kUpdate,          // the optimizer step
};
inline constexpr int kPartCount = 5;

// What an instruction computes with.
enum class Numbers : uint8_t {
  kFloats,      // FP32, or halves: another numerics class may give other bytes
  kGridFloats,  // floats on the grid of a fake-quantising recipe
  kIntegers,    // scaled integers of integer recipes: the same bytes on every backend
  kCodes,       // of INT8 inference, likewise
  kAnyNumbers,
};

// One operand of an instruction.
enum class Operand : uint8_t { kNone, kInput0, kInput1, kOutput0 };

// The operands whose shapes are those of the operator's input x, its output y, and the weight; a
// gradient has the shape of its value. kNone where nothing depends on the shape.
struct OperandShapes {
  Operand x = Operand::kNone;
  Operand y = Operand::kNone;
  Operand weight = Operand::kNone;  // of products: each element of y sums over a channel's weights
};

// A row of op_traits.inc.
struct OpTraits {
  absl::string_view name;      // "conv_forward"
  Part part = Part::kForward;  // where it stands first; kCopy and others stand in all
  Numbers numbers = Numbers::kAnyNumbers;
  OperandShapes shapes;
  // The first output may share memory with an input of its size. Outputs and inputs of all other
  // codes never overlap, except that kNewParameters may be kParameters.
  bool in_place = false;
  bool is_relu = false;        // the forward of a ReLU or ReLU6 of floats
  bool drops = false;          // draws dropout's mask
  bool gives_sums = false;     // the first output is an accumulator, for kRescale
  bool rescales = false;       // a product with the kRescale behind it
  absl::string_view operands;  // "x, weight, [bias] -> y"
  // How many operands there are at least and at most; bit i: operand i is both read and written.
  int min_inputs = 0, max_inputs = 0, min_outputs = 0, max_outputs = 0;
  uint8_t changed_inputs = 0, changed_outputs = 0;

  bool is_product() const { return shapes.weight != Operand::kNone; }
  // A product of integers has Instruction::split.
  bool is_integer_product() const { return is_product() && numbers == Numbers::kIntegers; }
  bool is_integer_weight_gradient() const {
    return is_integer_product() && part == Part::kWeightGradient;
  }
  // An input that is written, too: what an optimizer keeps of a tensor.
  bool WritesInput(size_t i) const { return (changed_inputs >> i & 1) != 0; }
  // An output whose old contents count: an accumulated gradient, running statistics.
  bool ReadsOutput(size_t i) const { return (changed_outputs >> i & 1) != 0; }
};

// Of a value that is no code, a row without a name.
const OpTraits& TraitsOf(OpCode code);
int OpCodeCount();

// Of kInt8ProductToCodes the input that is added, if there is one; the output may lie in its memory.
inline constexpr size_t kAddedOperand = 3;
// Of kScatterSamples likewise.
inline constexpr size_t kScatterBase = 2;

// "conv_forward"; "?" for a value that is no code.
absl::string_view Name(OpCode code);

}  // namespace runnel
