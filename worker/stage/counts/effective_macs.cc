#include "worker/stage/counts/effective_macs.h"

#include <map>
#include <utility>

namespace runnel {
namespace {

constexpr double kFullBits = 32;
constexpr int kHalfBits = 16;

// What lies at a place is on this grid. Walked in the order in which a micro-batch's parts run.
class GridsByPlace {
 public:
  explicit GridsByPlace(const Program& program) : program_(program) {}

  GridRule At(BufferIndex index) const {
    const auto found = grids_.find(PlaceOf(index));
    if (found != grids_.end() && found->second.bits < kFullBits) return found->second;
    GridRule whole;
    whole.bits = static_cast<int>(8 * SizeOf(program_.buffers[static_cast<size_t>(index)].dtype));
    whole.is_fixed = true;
    return whole;
  }

  // Products of halves round an operand that lies in FP32 as they read it.
  bool RoundsToHalves(const Instruction& product) const {
    return IsHalf(product.inputs[0]) || IsHalf(product.inputs[1]);
  }

  void Follow(const Instruction& instruction) {
    GridRule written;
    if (PutsOnGrid(instruction.code)) written = instruction.grid;
    // Each value of these outputs is one of the input.
    if (instruction.code == OpCode::kCopy || instruction.code == OpCode::kMaxPoolForward)
      written = At(instruction.inputs[0]);
    for (size_t i = 0; i < instruction.outputs.size(); ++i)
      grids_[PlaceOf(instruction.outputs[i])] = i == 0 ? written : GridRule();
  }

 private:
  static bool PutsOnGrid(OpCode code) {
    switch (code) {
      case OpCode::kFakeQuantizeWeight:
      case OpCode::kFakeQuantizeActivation:
      case OpCode::kFakeQuantizeError:
      case OpCode::kAffineWeight:
      case OpCode::kAffineActivation:
      case OpCode::kAffineActivationEval:
      case OpCode::kAffineError:
      case OpCode::kAffineWeightCodes:
      case OpCode::kAffineActivationCodes:
      case OpCode::kAffineActivationCodesEval:
      case OpCode::kAffineErrorCodes:
      case OpCode::kSymmetricWeight:
      case OpCode::kSymmetricActivation:
      case OpCode::kSymmetricActivationEval:
      case OpCode::kSymmetricError:
      case OpCode::kClippedError:
      case OpCode::kSymmetricWeightCodes:
      case OpCode::kSymmetricActivationCodes:
      case OpCode::kSymmetricActivationCodesEval:
      case OpCode::kSymmetricErrorCodes:
      case OpCode::kClippedErrorCodes:
      case OpCode::kMultiLevelWeight:
      case OpCode::kMultiLevelActivation:
      case OpCode::kMultiLevelError:
      case OpCode::kFixedPoint:
      case OpCode::kShiftError:
      case OpCode::kFlagError:
      case OpCode::kSmallFloat:
        return true;
      default:
        return false;
    }
  }
  bool IsHalf(BufferIndex index) const {
    const DType dtype = program_.buffers[static_cast<size_t>(index)].dtype;
    return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
  }
  std::pair<Storage, int64_t> PlaceOf(BufferIndex index) const {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
    return {buffer.storage, buffer.offset_bytes};
  }

  const Program& program_;
  std::map<std::pair<Storage, int64_t>, GridRule> grids_;
};

// Of a small float: a sign, its exponent and its mantissa.
double WidthOf(const GridRule& rule, const GridBits& level) {
  return rule.exponent_bits > 0 ? 1 + rule.exponent_bits + rule.bits : rule.BitsAt(level);
}

}  // namespace

ProgramMacs ProgramMacs::OfTraining(const Program& program) {
  ProgramMacs result;
  GridsByPlace grids(program);
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
    for (const Instruction& instruction : program.part(part)) {
      const int64_t macs = MultiplyAdds(program, instruction);
      if (macs > 0) {
        Product product = {&instruction, macs, grids.At(instruction.inputs[0]),
                           grids.At(instruction.inputs[1])};
        if (grids.RoundsToHalves(instruction)) product.first.bits = product.second.bits = kHalfBits;
        result.products_.push_back(product);
      }
      grids.Follow(instruction);
    }
  }
  return result;
}

double ProgramMacs::At(const GridBits& level) const {
  double sum = 0;
  for (const Product& product : products_) {
    sum += static_cast<double>(product.macs) * ShareOf(product, level);
  }
  return sum;
}

double ProgramMacs::done() const {
  double sum = 0;
  for (const Product& product : products_) sum += static_cast<double>(product.macs);
  return sum;
}

double ProgramMacs::ShareOf(const Product& product, const GridBits& level) {
  return (WidthOf(product.first, level) / kFullBits) * (WidthOf(product.second, level) / kFullBits);
}

double ProgramMacs::ShareOf(const Instruction& instruction, const GridBits& level) const {
  for (const Product& product : products_) {
    if (product.instruction == &instruction) return ShareOf(product, level);
  }
  return 1;
}

void StageWork::AddProduct(const Instruction& product, const GridBits& bits, int64_t macs) {
  const double share = macs_ == nullptr ? 1 : macs_->ShareOf(product, bits);
  done_ = done_ + static_cast<double>(macs);
  effective_ = effective_ + share * static_cast<double>(macs);
}

void StageWork::AddAll(const ProgramMacs& macs, const GridBits& bits) {
  done_ = done_ + macs.done();
  effective_ = effective_ + macs.At(bits);
}

}  // namespace runnel
