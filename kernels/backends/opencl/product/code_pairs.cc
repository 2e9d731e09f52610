#include "kernels/backends/opencl/product/code_pairs.h"

#include <algorithm>

namespace runnel::opencl {
namespace {

bool Covers(const Buffer& a, const Buffer& b) {
  return a.storage == b.storage && a.offset_bytes <= b.offset_bytes &&
         a.offset_bytes + a.bytes() >= b.offset_bytes + b.bytes();
}

class PairFinder {
 public:
  explicit PairFinder(const Program& program)
      : program_(program), part_(program.part(Part::kForwardEval)) {}

  std::vector<CodePair> Find() const {
    std::vector<CodePair> pairs;
    for (size_t at = 0; at < part_.size(); ++at) {
      const OpCode code = part_[at].code;
      if (code != OpCode::kInt8ConvForward && code != OpCode::kInt8LinearForward) continue;
      const size_t reader = FirstReader(at);
      if (reader < part_.size() && Fits(at, reader)) pairs.push_back({&part_[at], &part_[reader]});
    }
    return pairs;
  }

 private:
  const Buffer& buffer(BufferIndex index) const {
    return program_.buffers[static_cast<size_t>(index)];
  }
  bool Touches(const std::vector<BufferIndex>& operands, const Buffer& place) const {
    return std::any_of(operands.begin(), operands.end(),
                       [&](BufferIndex index) { return Overlap(buffer(index), place); });
  }

  // The first reader of the product's sums; none: the part's size.
  size_t FirstReader(size_t product) const {
    const Buffer& sums = buffer(part_[product].outputs[0]);
    size_t at = product + 1;
    while (at < part_.size() && !Touches(part_[at].inputs, sums)) ++at;
    return at;
  }

  bool Fits(size_t product_at, size_t reader_at) const {
    const Instruction &product = part_[product_at], &reader = part_[reader_at];
    const Buffer& sums = buffer(product.outputs[0]);
    if (reader.code != OpCode::kRequantizeCodes || reader.inputs[0] != product.outputs[0] ||
        sums.storage != Storage::kScratch || IsReadBehind(reader_at, sums)) {
      return false;
    }
    for (size_t i = 1; i < reader.inputs.size(); ++i) {
      if (Overlap(buffer(reader.inputs[i]), sums)) return false;
    }
    for (size_t at = product_at + 1; at <= reader_at; ++at) {
      for (const BufferIndex input : product.inputs) {
        if (Touches(part_[at].outputs, buffer(input))) return false;
      }
    }
    return HasShapesOf(product, reader);
  }

  // Whether somebody reads bytes of the sums that nobody wrote anew: also by another buffer, a
  // view.
  bool IsReadBehind(size_t reader, const Buffer& sums) const {
    for (size_t at = reader + 1; at < part_.size(); ++at) {
      for (const BufferIndex input : part_[at].inputs) {
        const Buffer& read = buffer(input);
        if (Overlap(read, sums) && !IsWritten(reader, at, read)) return true;
      }
    }
    return false;
  }
  bool IsWritten(size_t begin, size_t end, const Buffer& place) const {
    for (size_t at = begin; at < end; ++at) {
      for (const BufferIndex output : part_[at].outputs) {
        if (Covers(buffer(output), place)) return true;
      }
    }
    return false;
  }

  // Codes and sums of rows are found by the product's own image, channel and position.
  bool HasShapesOf(const Instruction& product, const Instruction& requantize) const {
    const Shape& sums = buffer(product.outputs[0]).shape;
    const Shape& codes = buffer(requantize.outputs[0]).shape;
    if (codes[0] != sums[0] || codes[1] != sums[1] || codes.elements() != sums.elements()) {
      return false;
    }
    if (requantize.inputs.size() < 3) return true;
    const Shape& rows = buffer(requantize.inputs[2]).shape;
    const bool is_linear = product.code == OpCode::kInt8LinearForward;
    const int64_t groups = is_linear ? 1 : product.attributes.groups;
    return rows[0] == sums[0] && rows[1] == groups &&
           rows.elements() * sums[1] == sums.elements() * groups;
  }

  const Program& program_;
  const std::vector<Instruction>& part_;
};

}  // namespace

bool Overlap(const Buffer& a, const Buffer& b) {
  return a.storage == b.storage && a.offset_bytes < b.offset_bytes + b.bytes() &&
         b.offset_bytes < a.offset_bytes + a.bytes();
}

std::vector<CodePair> FindCodePairs(const Program& program) { return PairFinder(program).Find(); }

}  // namespace runnel::opencl
