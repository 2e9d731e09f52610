#include "tests/conformance/integer_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "tests/conformance/named_shapes.h"

namespace runnel {
namespace {

class Maker {
 public:
  Maker(OpCode code, uint64_t seed)
      : random_(seed, RandomPurpose::kTest, static_cast<uint64_t>(code), 1), seed_(seed) {
    case_.code = code;
    case_.context.run_seed = seed + 17;
    case_.context.sequence = Sequence(Pick(0, 1000));
    case_.context.accumulate = Pick(0, 1) == 1;
    case_.context.gradient_bits = {static_cast<int32_t>(Pick(-2, 7)),
                                   static_cast<int32_t>(Pick(-2, 7))};
    constexpr Rounding kRoundings[] = {Rounding::kPseudoStochastic, Rounding::kHalfAway,
                                       Rounding::kStochastic};
    case_.rule.rounding = kRoundings[Pick(0, 2)];
    case_.rule.promote_one_to_two = Pick(0, 1) == 1;
    case_.rule.power_of_two_input = Pick(0, 1) == 1;
  }

  std::optional<IntegerCase> Make();

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return low + random_.Below(next_++, static_cast<uint32_t>(high - low + 1));
  }
  int64_t Channels() {
    constexpr int64_t kChoices[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 24, 33, 50, 64, 67, 90, 130};
    return kChoices[Pick(0, std::size(kChoices) - 1)];
  }
  Shape Image() {
    if (Pick(0, 2) == 0) return {Pick(1, 5), Channels(), Pick(1, 40)};
    return {Pick(1, 5), Channels(), Pick(1, 13), Pick(1, 13)};
  }
  // Small images, as deep layers have: several fill a vector of a processor.
  Shape SmallImages() {
    constexpr int64_t kChannels[] = {8, 32, 32}, kSides[] = {2, 2, 4, 4, 8, 16};
    const int64_t side = kSides[Pick(0, std::size(kSides) - 1)];
    const int64_t whole = std::max<int64_t>(1, 128 / (side * side));
    small_ = true;
    return {whole + Pick(0, 1), kChannels[Pick(0, std::size(kChannels) - 1)], side, side};
  }
  Shape AnyShape() { return Pick(0, 3) == 0 ? Shape{Pick(1, 9), Channels()} : Image(); }

  // Mantissas in -limit..limit; now and then all zero or all +-127.
  Tensor Mantissas(Storage storage, const Shape& shape) {
    Tensor tensor = ScaledTensor(shape, DType::kInt8);
    tensor.storage = storage;
    constexpr int64_t kLimits[] = {0, 1, 30, 127, 127, 127, 127, 127};
    const int64_t limit = kLimits[Pick(0, 7)];
    const bool extreme = Pick(0, 7) == 0;
    for (int64_t i = 0; special_ && i < shape.elements(); ++i)
      tensor.data<int8_t>()[i] = kSpecialMantissas[Pick(0, std::size(kSpecialMantissas) - 1)];
    for (int64_t i = 0; !special_ && i < shape.elements(); ++i) {
      const int64_t value = extreme ? (Pick(0, 1) == 0 ? -127 : 127) : Pick(-limit, limit);
      tensor.data<int8_t>()[i] = static_cast<int8_t>(value);
    }
    TailOf(tensor.bytes.data(), DType::kInt8, shape).exponent = static_cast<int32_t>(Pick(-20, 6));
    return tensor;
  }
  template <typename T>
  Tensor Accumulators(Storage storage, const Shape& shape, DType dtype, int max_bits) {
    Tensor tensor = ScaledTensor(shape, dtype);
    tensor.storage = storage;
    const int64_t limit = int64_t{1} << Pick(0, max_bits);
    int64_t max_abs = 0;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      int64_t value = Pick(0, std::min<int64_t>(limit, (int64_t{1} << 30)));
      if (limit > (int64_t{1} << 31)) value *= Pick(0, limit >> 30);
      if (i % 7 == 0) value = limit;
      value = std::min<int64_t>(value, std::numeric_limits<T>::max());
      tensor.data<T>()[i] = static_cast<T>(Pick(0, 1) == 0 ? value : -value);
      max_abs = std::max(max_abs, value);
    }
    TailOf(tensor.bytes.data(), dtype, shape) = {.exponent = static_cast<int32_t>(Pick(-30, 6)),
                                                 .max_abs = max_abs};
    return tensor;
  }
  Tensor Result(Storage storage, const Shape& shape, DType dtype) {
    Tensor tensor = ScaledTensor(shape, dtype);
    tensor.storage = storage;
    std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0x5a});
    return tensor;
  }
  Tensor Bytes(Storage storage, const Shape& shape) {
    Tensor tensor = Zeros(shape, DType::kUInt8);
    tensor.storage = storage;
    return tensor;
  }

  bool IsOneOf(OpCode a, OpCode b) const { return case_.code == a || case_.code == b; }
  Shape DrawWindow(const Shape& x, OpKind kind);
  void QuantizeCase();
  void Conv();
  void Linear();
  void RescaleCase();
  void RescaleInProduct();
  void Elementwise();
  void MaxPool();
  void AvgPool();
  void GlobalPool();
  void Slices();
  void GradientSum();
  void Update();
  void Loss();

  void In(Tensor tensor) { case_.inputs.push_back(std::move(tensor)); }
  void Out(Tensor tensor) { case_.outputs.push_back(std::move(tensor)); }

  bool is_named() const { return seed_ >= kFirstNamedSeed; }
  // x and the window of a convolution; gives y's positions and channels.
  Shape DrawConv(Shape& x);

  CounterRandom random_;
  const uint64_t seed_;
  uint64_t next_ = 0;
  bool special_ = false;  // mantissas are special ones
  IntegerCase case_;
  bool small_ = false;
};

Shape Maker::DrawWindow(const Shape& x, OpKind kind) {
  OpSpec& op = case_.attributes;
  op.kind = kind;
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  // As many outputs as inputs: most convolutions of real models.
  const bool same = kind == OpKind::kConv && (small_ || Pick(0, 3) == 0);
  for (int axis = 0; same && axis < x.rank() - 2; ++axis) {
    op.padding[axis] = Pick(0, small_ ? 1 : 2);
    op.kernel[axis] = 2 * op.padding[axis] + 1;
    op.stride[axis] = 1;
  }
  if (same) return x;
  for (int axis = 0; axis < x.rank() - 2; ++axis) {
    const int64_t length = x[axis + 2];
    if (kind == OpKind::kConv) op.padding[axis] = Pick(0, 2);
    op.kernel[axis] = Pick(1, std::min<int64_t>(5, length + 2 * op.padding[axis]));
    if (kind == OpKind::kMaxPool) op.padding[axis] = Pick(0, op.kernel[axis] / 2);
    op.stride[axis] = kind == OpKind::kAvgPool ? op.kernel[axis] + Pick(0, 1) : Pick(1, 3);
    if (kind != OpKind::kAvgPool && Pick(0, 4) == 0) {
      const int64_t least = op.kernel[axis] - length - op.padding[axis];
      op.padding_end[axis] =
          Pick(std::max<int64_t>(0, least), kind == OpKind::kConv ? 4 : op.kernel[axis] - 1);
    }
    const int64_t padded = length + op.padding[axis] + op.end_padding(axis);
    dims[axis + 2] = (padded - op.kernel[axis]) / op.stride[axis] + 1;
  }
  return *Shape::Create(dims);
}

void Maker::QuantizeCase() {
  const Shape shape = AnyShape();
  Tensor x = Zeros(shape);
  x.storage = Storage::kInput;
  const double spread = std::ldexp(1.0, static_cast<int>(Pick(-30, 20)));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    x.data()[i] = static_cast<float>(spread * random_.Normal(next_++));
  }
  if (Pick(0, 7) == 0) std::fill(x.bytes.begin(), x.bytes.end(), std::byte{0});
  // Halves of steps, which are rounded away from zero, and what is no number.
  const int64_t odd = Pick(0, 5);
  for (int64_t i = 0; odd < 2 && i < shape.elements(); ++i) {
    x.data()[i] = std::ldexp(static_cast<float>(Pick(-254, 254)), -1);
  }
  if (odd < 2) x.data()[0] = 127;
  constexpr float kStrange[] = {
      std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
      -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()};
  if (odd == 2) x.data()[Pick(0, shape.elements() - 1)] = kStrange[Pick(0, 3)];
  In(std::move(x));
  Out(Result(Storage::kOutput, shape, DType::kInt8));
}

Shape Maker::DrawConv(Shape& x) {
  x = Pick(0, 2) == 0 ? SmallImages() : Image();
  const Shape window = DrawWindow(x, OpKind::kConv);
  OpSpec& op = case_.attributes;
  const int64_t choice = Pick(0, 3), channels = x[1];
  op.groups = choice == 1 && !small_ ? channels : choice == 2 && channels % 2 == 0 ? 2 : 1;
  op.out_channels = op.groups * (op.groups == channels && channels > 1 ? Pick(1, 2) : Pick(1, 70));
  std::vector<int64_t> dims(window.dims().begin(), window.dims().end());
  dims[1] = op.out_channels;
  return *Shape::Create(dims);
}

void Maker::Conv() {
  Shape x;
  const Shape y = is_named()
                      ? TakeNamedConv(kNamedConvs[seed_ - kFirstNamedSeed], case_.attributes, x)
                      : DrawConv(x);
  const OpSpec& op = case_.attributes;
  std::vector<int64_t> weight_dims = {op.out_channels, x[1] / op.groups};
  for (int axis = 0; axis < x.rank() - 2; ++axis) weight_dims.push_back(op.kernel[axis]);
  const Shape weight = *Shape::Create(weight_dims);
  if (IsOneOf(OpCode::kInt8ConvForward, OpCode::kInt8ConvForwardRescaled)) {
    In(Mantissas(Storage::kInput, x));
    In(Mantissas(Storage::kParameters, weight));
    Out(Result(Storage::kOutput, y, DType::kInt32));
  } else if (IsOneOf(OpCode::kInt8ConvInputGradient, OpCode::kInt8ConvInputGradientRescaled)) {
    In(Mantissas(Storage::kOutputGradient, y));
    In(Mantissas(Storage::kParameters, weight));
    Out(Result(Storage::kInputGradient, x, DType::kInt32));
  } else {
    In(Mantissas(Storage::kOutputGradient, y));
    In(Mantissas(Storage::kInput, x));
    const DType dtype = Pick(0, 2) == 0 ? DType::kInt64 : DType::kInt32;
    Out(Result(Storage::kGradients, weight, dtype));
  }
}

void Maker::Linear() {
  int64_t n = Pick(1, 40), in = Pick(1, 300), out = Pick(1, 140);
  if (is_named()) {
    const NamedProduct& named = kNamedProducts[seed_ - kFirstNamedSeed];
    n = named.rows;
    in = named.depth;
    out = named.columns;
    special_ = seed_ - kFirstNamedSeed + 1 == kNamedProductCount;
  }
  case_.attributes.kind = OpKind::kLinear;
  case_.attributes.out_channels = out;
  if (IsOneOf(OpCode::kInt8LinearForward, OpCode::kInt8LinearForwardRescaled)) {
    In(Mantissas(Storage::kInput, {n, in}));
    In(Mantissas(Storage::kParameters, {out, in}));
    Out(Result(Storage::kOutput, {n, out}, DType::kInt32));
  } else if (IsOneOf(OpCode::kInt8LinearInputGradient, OpCode::kInt8LinearInputGradientRescaled)) {
    In(Mantissas(Storage::kOutputGradient, {n, out}));
    In(Mantissas(Storage::kParameters, {out, in}));
    Out(Result(Storage::kInputGradient, {n, in}, DType::kInt32));
  } else {
    In(Mantissas(Storage::kOutputGradient, {n, out}));
    In(Mantissas(Storage::kInput, {n, in}));
    Out(Result(Storage::kGradients, {out, in}, Pick(0, 2) == 0 ? DType::kInt64 : DType::kInt32));
  }
}

void Maker::RescaleCase() {
  const Shape shape = AnyShape();
  In(Accumulators<int32_t>(Storage::kInput, shape, DType::kInt32, 31));
  if (Pick(0, 1) == 0) {
    In(Mantissas(Storage::kInput, shape));
  } else {
    case_.rule.relu = Pick(0, 1) == 0;
  }
  Out(Result(Storage::kOutput, shape, DType::kInt8));
}

// Makes a product rescale its own sums: with any shift kept, with the shift measured, or without a
// kept scale.
void Maker::RescaleInProduct() {
  const Shape shape = case_.outputs[0].shape;
  case_.outputs[0] = Result(case_.outputs[0].storage, shape, DType::kInt8);
  if (case_.rule.rounding == Rounding::kStochastic) case_.rule.rounding = Rounding::kHalfAway;
  if (Pick(0, 1) == 0) {
    In(Mantissas(Storage::kStash, shape));
  } else {
    case_.rule.relu = Pick(0, 1) == 0;
  }
  if (Pick(0, 2) == 0) return;
  case_.rescale = {Pick(0, 1) == 0 ? RescaleMode::kAdaptive : RescaleMode::kStatic,
                   static_cast<int32_t>(Pick(0, 3)), static_cast<int32_t>(Pick(1, 20))};
  KeptScale scale;
  scale.step = static_cast<int32_t>(Pick(0, 6));
  scale.warm_until = static_cast<int32_t>(Pick(0, 6));
  scale.bits_mark = static_cast<int32_t>(Pick(0, 1) * 102);
  scale.shift = static_cast<int32_t>(Pick(0, 16));
  scale.period = static_cast<int32_t>(Pick(0, 9));
  scale.wait = static_cast<int32_t>(Pick(0, 2));
  scale.measured = static_cast<int32_t>(Pick(0, 40));
  for (KeptScale::Seen& seen : scale.ring) {
    seen = {static_cast<int32_t>(Pick(0, 6)), static_cast<int32_t>(Pick(5, 7))};
  }
  Tensor kept = Zeros({kKeptScaleWords}, DType::kInt32);
  kept.storage = Storage::kStatistics;
  std::memcpy(kept.bytes.data(), &scale, sizeof(scale));
  Out(std::move(kept));
}

// Of a product's batch: none, all sizes, more than there are samples; of a weight-gradient also
// shifted.
void Maker::Slices() {
  if (Pick(0, 1) == 0) return;
  case_.split.samples = Pick(1, case_.inputs[0].shape[0] + 1);
  if (!TraitsOf(case_.code).is_integer_weight_gradient() || Pick(0, 3) == 0) return;
  case_.split.shifted = true;
  if (case_.rule.rounding == Rounding::kStochastic) case_.rule.rounding = Rounding::kHalfAway;
}

void Maker::Elementwise() {
  const Shape shape = AnyShape();
  const bool dropout =
      case_.code == OpCode::kInt8DropoutForward || case_.code == OpCode::kInt8DropoutInputGradient;
  if (dropout) case_.attributes.rate = Pick(0, 1) * 0.5;
  In(Mantissas(Storage::kInput, shape));
  if (case_.code == OpCode::kInt8ReluInputGradient || case_.code == OpCode::kInt8Add) {
    In(Mantissas(Storage::kInput, shape));
  }
  if (case_.code == OpCode::kInt8Add && Pick(0, 2) > 0) {  // near exponents are the usual case
    TailOf(case_.inputs[1].bytes.data(), DType::kInt8, shape).exponent =
        TailOf(case_.inputs[0].bytes.data(), DType::kInt8, shape).exponent +
        static_cast<int32_t>(Pick(-3, 3));
  }
  Out(Result(Storage::kOutput, shape, DType::kInt8));
}

void Maker::MaxPool() {
  const Shape x = Image(), y = DrawWindow(x, OpKind::kMaxPool);
  const OpSpec& op = case_.attributes;
  if (case_.code == OpCode::kInt8MaxPoolForward) {
    In(Mantissas(Storage::kInput, x));
    Out(Result(Storage::kOutput, y, DType::kInt8));
    if (Pick(0, 3) > 0) Out(Bytes(Storage::kOutput, y));
    return;
  }
  In(Mantissas(Storage::kInput, y));
  Tensor taps = Bytes(Storage::kInput, y);
  const int columns = x.rank() - 3;  // the axis of columns
  const int64_t kernel_w = op.kernel[columns], plane = y.elements() / y[0] / y[1];
  for (int64_t i = 0; i < y.elements(); ++i) {
    // A tap that lies inside the input.
    const int64_t at = i % plane, out_w = y[y.rank() - 1];
    const auto tap = [&](int axis, int64_t o) {
      const int64_t first = o * op.stride[axis] - op.padding[axis];
      const int64_t low = std::max<int64_t>(0, -first);
      return Pick(low, std::min(op.kernel[axis] - 1, x[axis + 2] - 1 - first));
    };
    const int64_t row = x.rank() == 4 ? tap(0, at / out_w) : 0;
    const int64_t column = tap(columns, at % out_w);
    taps.data<uint8_t>()[i] = static_cast<uint8_t>(row * kernel_w + column);
  }
  In(std::move(taps));
  Out(Result(Storage::kOutput, x, DType::kInt8));
}

void Maker::AvgPool() {
  const Shape x = Image(), y = DrawWindow(x, OpKind::kAvgPool);
  const bool forward = case_.code == OpCode::kInt8AvgPoolForward;
  In(Mantissas(Storage::kInput, forward ? x : y));
  Out(Result(Storage::kOutput, forward ? y : x, forward ? DType::kInt32 : DType::kInt8));
}

void Maker::GlobalPool() {
  const Shape x = Image(), y = {x[0], x[1]};
  const bool forward = case_.code == OpCode::kInt8GlobalAvgPoolForward;
  In(Mantissas(Storage::kInput, forward ? x : y));
  Out(Result(Storage::kOutput, forward ? y : x, forward ? DType::kInt32 : DType::kInt8));
}

void Maker::GradientSum() {
  const Shape shape = {Pick(1, 40), Pick(1, 20), Pick(1, 3), Pick(1, 3)};
  if (Pick(0, 1) == 0) {
    In(Accumulators<int32_t>(Storage::kScratch, shape, DType::kInt32, 31));
  } else {
    In(Accumulators<int64_t>(Storage::kScratch, shape, DType::kInt64, 40));
  }
  Out(Accumulators<int64_t>(Storage::kGradients, shape, DType::kInt64, 40));
}

void Maker::Update() {
  const Shape shape = {Pick(1, 40), Pick(1, 20), Pick(1, 3), Pick(1, 3)};
  case_.attributes.kind = Pick(0, 1) == 0 ? OpKind::kConv : OpKind::kLinear;
  if (case_.rule.rounding == Rounding::kStochastic) case_.rule.rounding = Rounding::kHalfAway;
  In(Mantissas(Storage::kParameters, shape));
  if (Pick(0, 1) == 0) {
    In(Accumulators<int32_t>(Storage::kGradients, shape, DType::kInt32, 31));
  } else {
    In(Accumulators<int64_t>(Storage::kGradients, shape, DType::kInt64, 45));
  }
  Out(Result(Storage::kNewParameters, shape, DType::kInt8));
}

void Maker::Loss() {
  const int64_t samples = Pick(1, 20), classes = Pick(2, 100);
  In(Mantissas(Storage::kInput, {samples, classes}));
  TailOf(case_.inputs[0].bytes.data(), DType::kInt8, case_.inputs[0].shape).exponent =
      static_cast<int32_t>(Pick(-30, 26));
  Tensor labels = Zeros({samples}, DType::kInt32);
  labels.storage = Storage::kLabels;
  for (int64_t n = 0; n < samples; ++n) {
    labels.data<int32_t>()[n] = static_cast<int32_t>(Pick(0, classes - 1));
  }
  In(std::move(labels));
  if (case_.code == OpCode::kIntegerSoftmaxCrossEntropy) {
    Out(Result(Storage::kOutput, {samples, classes}, DType::kInt8));
  }
  Out(Bytes(Storage::kMetrics, {16}));
}

std::optional<IntegerCase> Maker::Make() {
  switch (case_.code) {
    case OpCode::kQuantize:
      QuantizeCase();
      break;
    case OpCode::kInt8ConvForward:
    case OpCode::kInt8ConvInputGradient:
    case OpCode::kInt8ConvWeightGradient:
      Conv();
      Slices();
      break;
    case OpCode::kInt8LinearForward:
    case OpCode::kInt8LinearInputGradient:
    case OpCode::kInt8LinearWeightGradient:
      Linear();
      Slices();
      break;
    case OpCode::kInt8ConvForwardRescaled:
    case OpCode::kInt8ConvInputGradientRescaled:
      Conv();
      RescaleInProduct();
      Slices();
      break;
    case OpCode::kInt8LinearForwardRescaled:
    case OpCode::kInt8LinearInputGradientRescaled:
      Linear();
      RescaleInProduct();
      Slices();
      break;
    case OpCode::kRescale:
      RescaleCase();
      break;
    case OpCode::kInt8ReluForward:
    case OpCode::kInt8ReluInputGradient:
    case OpCode::kInt8DropoutForward:
    case OpCode::kInt8DropoutInputGradient:
    case OpCode::kInt8Add:
      Elementwise();
      break;
    case OpCode::kInt8MaxPoolForward:
    case OpCode::kInt8MaxPoolInputGradient:
      MaxPool();
      break;
    case OpCode::kInt8AvgPoolForward:
    case OpCode::kInt8AvgPoolInputGradient:
      AvgPool();
      break;
    case OpCode::kInt8GlobalAvgPoolForward:
    case OpCode::kInt8GlobalAvgPoolInputGradient:
      GlobalPool();
      break;
    case OpCode::kAddScaledGradient:
      GradientSum();
      break;
    case OpCode::kNitiUpdate:
      Update();
      break;
    case OpCode::kIntegerSoftmaxCrossEntropy:
    case OpCode::kIntegerSoftmaxCrossEntropyEval:
      Loss();
      break;
    default:
      return std::nullopt;
  }
  return std::move(case_);
}

}  // namespace

std::string IntegerCase::ToString() const {
  std::string text = absl::StrCat(Name(code));
  for (const auto* operands : {&inputs, &outputs}) {
    absl::StrAppend(&text, operands == &inputs ? " (" : " -> (");
    for (const Tensor& t : *operands) {
      absl::StrAppend(&text, " ", Name(t.dtype), ":", t.shape.ToString());
    }
    absl::StrAppend(&text, " )");
  }
  const OpSpec& a = attributes;
  absl::StrAppend(&text, " kernel ", a.kernel[0], "x", a.kernel[1], " stride ", a.stride[0], "x",
                  a.stride[1], " padding ", a.padding[0], "x", a.padding[1], " groups ", a.groups,
                  " rounding ", static_cast<int>(rule.rounding), rule.relu ? " relu" : "",
                  context.accumulate ? " accumulate" : "");
  if (split.samples > 0)
    absl::StrAppend(&text, split.shifted ? " shifted" : "", " slices of ", split.samples);
  return text;
}

std::optional<IntegerCase> MakeIntegerCase(OpCode code, uint64_t seed) {
  return Maker(code, seed).Make();
}

}  // namespace runnel
