// Instructions over codes (kernels/ir/arithmetic/code_rule.h) on random operands, with rules at their ends.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/ir/arithmetic/code_rule.h"
#include "proto/base/random.h"
#include "tests/conformance/integer_cases.h"

namespace runnel {
namespace {

class CodeMaker {
 public:
  CodeMaker(OpCode code, uint64_t seed)
      : random_(seed, RandomPurpose::kTest, static_cast<uint64_t>(code), 2) {
    case_.code = code;
    const int64_t n = Int(1, 3), c = Int(1, 9), h = Int(1, 12), w = Int(1, 14);
    shape_ = {n, c, h, w};
    rule_.zero = Int(-127, 127);
    rule_.lowest = Int(-127, rule_.zero);
    rule_.highest = Int(rule_.zero, 127);
    is_end_ = Int(0, 4) == 0;
  }

  std::optional<IntegerCase> Make() {
    switch (case_.code) {
      case OpCode::kEncodeCodes:
        Encode();
        break;
      case OpCode::kRequantizeCodes:
        Requantize();
        break;
      case OpCode::kAddCodes:
        Add();
        break;
      case OpCode::kPadCodes:
        Pad();
        break;
      case OpCode::kInt8ProductToCodes:
        Product();
        break;
      case OpCode::kRealProductToCodes:
        RealProduct();
        break;
      case OpCode::kCodesToChannelsFirst:
      case OpCode::kCodesToChannelsLast: {
        const bool is_first = case_.code == OpCode::kCodesToChannelsFirst;
        In(Codes(shape_, !is_first));
        Out(shape_, DType::kInt8, is_first);
        break;
      }
      default:
        return std::nullopt;
    }
    return std::move(case_);
  }

 private:
  int64_t Int(int64_t least, int64_t most) {
    return least +
           static_cast<int64_t>(random_.Uniform(next_++) * static_cast<double>(most - least + 1));
  }
  // Also of 31 bits, or an end.
  int64_t Sum() {
    if (is_end_ && Int(0, 3) == 0) return Int(0, 1) == 0 ? -INT32_MAX : INT32_MAX;
    const int64_t most = (int64_t{1} << Int(1, 31)) - 1;
    return Int(-most, most);
  }
  Tensor Codes(const Shape& shape, bool scaled = true) {
    Tensor tensor = scaled ? ScaledTensor(shape, DType::kInt8) : Zeros(shape, DType::kInt8);
    tensor.storage = Storage::kInput;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      tensor.data<int8_t>()[i] =
          static_cast<int8_t>(is_end_ ? 127 * (2 * Int(0, 1) - 1) : Int(-127, 127));
    }
    return tensor;
  }
  Tensor Sums(const Shape& shape, int64_t most) {
    Tensor tensor = ScaledTensor(shape, DType::kInt32);
    tensor.storage = Storage::kInput;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      tensor.data<int32_t>()[i] =
          static_cast<int32_t>(most == INT32_MAX ? Sum() : Int(-most, most));
    }
    return tensor;
  }
  void In(Tensor tensor) { case_.inputs.push_back(std::move(tensor)); }
  void InRule(const std::vector<CodeChannel>& channels = {}) {
    const auto words = kCodeRuleWords + static_cast<int64_t>(channels.size()) * kCodeChannelWords;
    Tensor tensor = Zeros({words}, DType::kInt64);
    tensor.storage = Storage::kParameters;
    std::memcpy(tensor.bytes.data(), &rule_, sizeof rule_);
    if (!channels.empty()) {
      std::memcpy(tensor.bytes.data() + sizeof rule_, channels.data(),
                  channels.size() * sizeof(CodeChannel));
    }
    In(std::move(tensor));
  }
  void Out(const Shape& shape, DType dtype, bool scaled) {
    Tensor tensor = scaled ? ScaledTensor(shape, dtype) : Zeros(shape, dtype);
    tensor.storage = Storage::kOutput;
    std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0x5a});
    case_.outputs.push_back(std::move(tensor));
  }

  // Any two floats; products near halves; what is no number.
  void Encode() {
    Tensor x = Zeros(shape_);
    x.storage = Storage::kInput;
    const float scale = std::ldexp(0.5f + static_cast<float>(Int(0, 1 << 20)) * 0x1p-21f,
                                   static_cast<int>(is_end_ ? Int(-148, 127) : Int(-10, 10)));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float factor = is_end_ && Int(0, 9) == 0 ? (Int(0, 1) == 0 ? 0.0f : kInfinity) : scale;
    rule_.factor_a = std::bit_cast<uint32_t>(factor);
    for (int64_t i = 0; i < shape_.elements(); ++i) {
      float& value = x.data()[i];
      value = (static_cast<float>(Int(-200, 200)) + 0.5f * static_cast<float>(Int(0, 1))) / scale;
      if (Int(0, 3) == 0) value = std::bit_cast<float>(static_cast<uint32_t>(Int(0, UINT32_MAX)));
    }
    In(std::move(x));
    InRule();
    Out(shape_, DType::kInt8, true);
  }

  void Requantize() {
    const bool gives_sums = Int(0, 3) == 0, has_codes = Int(0, 3) == 0;
    const int64_t groups = Int(0, 1) == 0 ? 1 : shape_[1];
    const bool has_rows = !has_codes && Int(0, 1) == 0;
    std::vector<CodeChannel> channels(Int(0, 3) == 0 ? 1 : shape_[1]);
    for (CodeChannel& channel : channels) {
      channel.offset = Int(0, 2) == 0 ? 3 * Sum() : Int(-1000, 1000);
      channel.shift = Int(1, 62);
      // Mostly what gives codes.
      if (Int(0, 2) > 0) channel.shift = has_codes ? Int(30, 33) : Int(36, 56);
      channel.multiplier = is_end_ && Int(0, 3) == 0 ? INT32_MAX : Int(0, INT32_MAX);
      if (has_rows) channel.weight_zero = Int(-127, 127);
    }
    In(has_codes ? Codes(shape_) : Sums(shape_, INT32_MAX));
    InRule(channels);
    if (has_rows) In(Sums({shape_[0], groups, shape_[2], shape_[3]}, 127 * 133144));
    Out(shape_, gives_sums ? DType::kInt32 : DType::kInt8, !gives_sums);
  }

  void Add() {
    rule_.zero_a = Int(-127, 127);
    rule_.zero_b = Int(-127, 127);
    rule_.shift = is_end_ ? Int(1, 62) : Int(18, 24);
    const int64_t most =
        is_end_ ? 1 << 23
                : std::min<int64_t>(1 << 23, int64_t{2} << std::min<int64_t>(rule_.shift, 40));
    rule_.factor_a = Int(0, most);
    rule_.factor_b = Int(0, most);
    In(Codes(shape_));
    In(Codes(shape_));
    InRule();
    Out(shape_, DType::kInt8, true);
  }

  // A convolution of shape_ in any groups, or a linear layer. Returns the shape of its output and
  // sets that of its weights.
  Shape AnyProduct(Shape* weights) {
    OpSpec& op = case_.attributes;
    const bool is_linear = Int(0, 4) == 0;
    op.kind = is_linear ? OpKind::kLinear : OpKind::kConv;
    op.out_channels = Int(1, 9);
    if (is_linear) {
      shape_ = {shape_[0], shape_[1]};
      *weights = {op.out_channels, shape_[1]};
      return {shape_[0], op.out_channels};
    }
    op.groups = Int(0, 2) == 0 ? shape_[1] : 1;
    if (op.groups > 1) op.out_channels = op.groups * Int(1, 2);
    op.kernel = {Int(1, std::min<int64_t>(3, shape_[2])), Int(1, std::min<int64_t>(3, shape_[3]))};
    op.stride = {Int(1, 2), Int(1, 3)};
    op.padding = {Int(0, op.kernel[0] - 1), Int(0, op.kernel[1] - 1)};
    *weights = {op.out_channels, shape_[1] / op.groups, op.kernel[0], op.kernel[1]};
    const auto positions = [&](int axis) {
      return (shape_[2 + axis] + 2 * op.padding[axis] - op.kernel[axis]) / op.stride[axis] + 1;
    };
    return {shape_[0], op.out_channels, positions(0), positions(1)};
  }

  void Product() {
    Shape weights;
    const Shape y = AnyProduct(&weights);
    const bool gives_sums = Int(0, 3) == 0, has_zeros = Int(0, 2) == 0;
    std::vector<CodeChannel> channels(y[1]);
    for (CodeChannel& channel : channels) {
      channel.offset = is_end_ ? Sum() : Int(-9000, 9000);
      channel.shift = is_end_ ? Int(1, 62) : Int(38, 46);
      // Mostly one that a float has.
      channel.multiplier = Int(1 << 23, (1 << 24) - 1) << 7;
      if (Int(0, 5) == 0) channel.multiplier = Int(0, INT32_MAX);
      if (has_zeros) channel.weight_zero = Int(-127, 127);
    }
    rule_.zero_a = Int(0, 1) * Int(-127, 127);
    In(Codes(shape_));
    In(Codes(weights));
    case_.inputs.back().storage = Storage::kParameters;
    InRule(channels);
    if (!gives_sums && Int(0, 1) == 0) {
      rule_.zero_a = Int(-127, 127);
      rule_.zero_b = Int(-127, 127);
      rule_.shift = is_end_ ? Int(1, 62) : Int(10, 24);
      const int64_t most = std::min<int64_t>(is_end_ ? 1 << 23 : 1 << 15,
                                             int64_t{2} << std::min<int64_t>(rule_.shift, 40));
      rule_.factor_a = Int(0, most);
      rule_.factor_b = Int(0, most);
      In(Codes(y));
      InRule();
    }
    Out(y, gives_sums ? DType::kInt32 : DType::kInt8, !gives_sums);
  }

  Tensor Reals(const Shape& shape, Storage storage) {
    Tensor tensor = Zeros(shape);
    tensor.storage = storage;
    for (int64_t i = 0; i < shape.elements(); ++i)
      tensor.data()[i] = static_cast<float>(Int(-1000, 1000)) * 0.0017f;
    return tensor;
  }
  void RealProduct() {
    Shape weights;
    const Shape y = AnyProduct(&weights);
    const bool takes_codes = Int(0, 1) == 0, gives_reals = Int(0, 2) == 0;
    rule_.zero_a = Int(-127, 127);
    rule_.factor_a = std::bit_cast<uint32_t>(static_cast<float>(Int(1, 90)));
    rule_.factor_b = std::bit_cast<int64_t>(0.013 * static_cast<double>(Int(1, 9)));
    In(takes_codes ? Codes(shape_) : Reals(shape_, Storage::kInput));
    In(Reals(weights, Storage::kParameters));
    In(Reals({y[1]}, Storage::kParameters));
    InRule();
    Out(y, gives_reals ? DType::kFloat32 : DType::kInt8, !gives_reals);
  }

  void Pad() {
    rule_.zero_a = Int(-127, 127);
    In(Codes(shape_));
    InRule();
    Out({shape_[0], shape_[1], shape_[2] + 2 * Int(0, 3), shape_[3] + 2 * Int(0, 3)}, DType::kInt8,
        true);
  }

  CounterRandom random_;
  uint64_t next_ = 0;
  Shape shape_;
  CodeRule rule_;
  bool is_end_ = false;
  IntegerCase case_;
};

}  // namespace

std::optional<IntegerCase> MakeCodeCase(OpCode code, uint64_t seed) {
  return CodeMaker(code, seed).Make();
}

}  // namespace runnel
