#pragma once

// Single instructions on random operands, one maker an OpCode: what every backend must compute as
// `ref` does.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel {

// How far a result may be from ref's.
enum class BoundKind : uint8_t {
  kExact,      // same value, NaN for NaN
  kMagnitude,  // factor * eps * what the operator gives for the absolute values of its operands
  kAbsolute,   // factor * eps * magnitude
};
struct Bound {
  BoundKind kind = BoundKind::kExact;
  double factor = 0;
  double magnitude = 0;
};

struct CaseOperand {
  Storage storage = Storage::kInput;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::byte> bytes;  // first contents; also of outputs
  bool written = false;          // outputs, and what is updated in place
  bool is_double = false;        // metrics: double[2] as 16 bytes
  Bound bound;
};

struct Case {
  OpCode code = OpCode::kCopy;
  OpSpec attributes;
  GridRule grid;
  const OptimizerStep* optimizer = nullptr;
  StepContext context;
  std::vector<CaseOperand> inputs;
  std::vector<CaseOperand> outputs;

  Part part() const { return TraitsOf(code).part; }
  std::string ToString() const;
};

// A pure function of code and seed. Nothing for a code without a maker.
std::optional<Case> MakeCase(OpCode code, uint64_t seed);

}  // namespace runnel
