#include "tests/conformance/backend_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/arithmetic/float_grid.h"
#include "proto/base/training/mixed_label.h"
#include "tests/conformance/case_maker.h"

namespace runnel {
Shape Maker::DrawWindow(const Shape& x, OpKind kind) {
  OpSpec& op = case_.attributes;
  op.kind = kind;
  Shape y = x;
  std::vector<int64_t> dims(y.dims().begin(), y.dims().end());
  // Of three seeds one has sides that differ, and one taps that lie apart or means over padding.
  const bool is_pool = kind != OpKind::kConv;
  const uint64_t choice = seed_ % 3;
  const bool pads = kind != OpKind::kAvgPool || choice == 2;
  for (int axis = 0; axis < x.rank() - 2; ++axis) {
    op.padding[axis] = pads ? Pick(0, 2) : 0;
    if (pads && choice > 0) op.padding_end[axis] = Pick(0, 3);
    const int64_t padded = x[axis + 2] + op.padding[axis] + op.end_padding(axis);
    // A pool's padding is less than its kernel.
    const int64_t least =
        is_pool ? std::max(op.padding[axis], op.end_padding(axis)) + 1 : int64_t{1};
    op.kernel[axis] = Pick(least, std::min<int64_t>(5, padded));
    op.stride[axis] = Pick(1, 3);
    if (!is_pool && choice == 2 && op.kernel[axis] > 1)
      op.dilation[axis] = Pick(1, std::min<int64_t>(4, (padded - 1) / (op.kernel[axis] - 1)));
    dims[axis + 2] = (padded - op.extent(axis)) / op.stride[axis] + 1;
  }
  op.counts_padding = Pick(0, 1) == 1;
  return *Shape::Create(dims);
}

Shape Maker::DrawConv(Shape& x) {
  x = Image();
  const Shape window = DrawWindow(x, OpKind::kConv);
  OpSpec& op = case_.attributes;
  const int64_t channels = x[1];
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= channels; ++d) {
    if (channels % d == 0) divisors.push_back(d);
  }
  const int64_t choice = Pick(0, 2);
  op.groups = choice == 0   ? 1
              : choice == 1 ? channels
                            : divisors[Pick(0, static_cast<int64_t>(divisors.size()) - 1)];
  op.out_channels =
      op.groups * (choice == 1 ? Pick(1, 2) : Pick(1, std::max<int64_t>(1, 40 / op.groups)));
  std::vector<int64_t> dims(window.dims().begin(), window.dims().end());
  dims[1] = op.out_channels;
  return *Shape::Create(dims);
}

void Maker::Conv() {
  Shape x;
  const Shape y = is_named()
                      ? TakeNamedConv(kNamedConvs[seed_ - kFirstNamedSeed], case_.attributes, x)
                      : DrawConv(x);
  OpSpec& op = case_.attributes;
  op.bias = Pick(0, 1) == 1;
  std::vector<int64_t> weight_dims = {op.out_channels, x[1] / op.groups};
  int64_t taps = 1;
  for (int axis = 0; axis < x.rank() - 2; ++axis) {
    weight_dims.push_back(op.kernel[axis]);
    taps *= op.kernel[axis];
  }
  const Shape weight = *Shape::Create(weight_dims);
  if (case_.part() == Part::kForward) {
    In(Floats(Storage::kInput, x));
    In(Floats(Storage::kParameters, weight));
    if (op.bias) In(Floats(Storage::kParameters, {op.out_channels}));
    Out(Result(Storage::kOutput, y, Sum(static_cast<double>(taps * weight_dims[1] + 1))));
  } else if (case_.part() == Part::kInputGradient) {
    In(Floats(Storage::kOutputGradient, y));
    In(Floats(Storage::kParameters, weight));
    const double terms = static_cast<double>(taps * op.out_channels / op.groups);
    Out(Result(Storage::kInputGradient, x, Sum(terms)));
  } else {
    In(Floats(Storage::kOutputGradient, y));
    In(Floats(Storage::kInput, x));
    const double terms = static_cast<double>(y.elements() / y[1] + 1);
    Out(Result(Storage::kGradients, weight, Sum(terms)));
    if (op.bias) Out(Result(Storage::kGradients, {op.out_channels}, Sum(terms)));
  }
}

void Maker::Linear() {
  int64_t n = Pick(1, 40), in = Pick(1, 130), out = Pick(1, 70);
  if (is_named()) {
    const NamedProduct& named = kNamedProducts[seed_ - kFirstNamedSeed];
    n = named.rows;
    in = named.depth;
    out = named.columns;
  }
  case_.attributes.out_channels = out;
  const bool bias = case_.attributes.bias = Pick(0, 1) == 1;
  if (case_.part() == Part::kForward) {
    In(Floats(Storage::kInput, {n, in}));
    In(Floats(Storage::kParameters, {out, in}));
    if (bias) In(Floats(Storage::kParameters, {out}));
    Out(Result(Storage::kOutput, {n, out}, Sum(static_cast<double>(in + 1))));
  } else if (case_.part() == Part::kInputGradient) {
    In(Floats(Storage::kOutputGradient, {n, out}));
    In(Floats(Storage::kParameters, {out, in}));
    Out(Result(Storage::kInputGradient, {n, in}, Sum(static_cast<double>(out))));
  } else {
    In(Floats(Storage::kOutputGradient, {n, out}));
    In(Floats(Storage::kInput, {n, in}));
    Out(Result(Storage::kGradients, {out, in}, Sum(static_cast<double>(n + 1))));
    if (bias) Out(Result(Storage::kGradients, {out}, Sum(static_cast<double>(n + 1))));
  }
}

// With r rows a channel, x = 0.5 + N(0, 1) (|x| < 6) and scales and shifts below 4: mean and
// variance are sums of r terms, so mean errs by r * eps * 6 and 1 / std relatively by r * eps * 36
// / var at worst. r is at least 8 here, which keeps the variance above 0.05 and 1 / std below 5.
// Blocked or pairwise sums, which every sane kernel uses, err by 64 roundings instead of r.
void Maker::BatchNorm() {
  const int64_t channels = Channels();
  const Shape x = Pick(0, 1) == 0 ? Shape{Pick(2, 9), channels, Pick(8, 60)}
                                  : Shape{Pick(2, 9), channels, Pick(4, 11), Pick(4, 11)};
  case_.attributes.kind = OpKind::kBatchNorm;
  const Bound bound = {BoundKind::kAbsolute, 64, 30};
  In(Floats(Storage::kInput, x, 1, 0.5));
  In(Floats(Storage::kParameters, {channels}, 0.5, 1));
  In(Floats(Storage::kParameters, {channels}, 0.5));
  if (case_.part() == Part::kForwardEval) {
    In(Floats(Storage::kStatistics, {channels}));
    In(Floats(Storage::kStatistics, {channels}, 0.02, 1));
    Out(Result(Storage::kOutput, x, bound));
    return;
  }
  if (case_.code == OpCode::kBatchNormAgain) {
    In(Floats(Storage::kStash, {2 * channels}, 0.1, 1));
    Out(Result(Storage::kOutput, x, bound));
    return;
  }
  Out(Result(Storage::kOutput, x, bound));
  Out(Result(Storage::kStash, {2 * channels}, bound));
  Out(Result(Storage::kStatistics, {channels}, bound));
  Out(Result(Storage::kStatistics, {channels}, bound));
}

void Maker::BatchNormGradient() {
  const int64_t channels = Channels();
  if (case_.code == OpCode::kBatchNormWeightGradient) {
    In(Floats(Storage::kScratch, {2 * channels}));
    Out(Result(Storage::kGradients, {channels}, {}));
    Out(Result(Storage::kGradients, {channels}, {}));
    return;
  }
  const Shape x = Pick(0, 1) == 0 ? Shape{Pick(1, 9), channels, Pick(8, 60)}
                                  : Shape{Pick(1, 9), channels, Pick(3, 11), Pick(3, 11)};
  // stats as given: mean near 0.5, 1 / std near 1. The sums have r terms of |dy| * |u| < 36 / 4.
  CaseOperand stats = Floats(Storage::kStash, {2 * channels}, 0.05, 1);
  float* mean = reinterpret_cast<float*>(stats.bytes.data());
  for (int64_t c = 0; c < channels; ++c) mean[c] -= 0.5f;
  In(Floats(Storage::kOutputGradient, x));
  In(Floats(Storage::kInput, x, 1, 0.5));
  In(Floats(Storage::kParameters, {channels}, 0.5, 1));
  In(std::move(stats));
  const double rows = static_cast<double>(x.elements() / channels);
  Out(Result(Storage::kInputGradient, x, {BoundKind::kAbsolute, 64, 30}));
  Out(Result(Storage::kScratch, {2 * channels}, {BoundKind::kAbsolute, 64, 2 * rows}));
}

void Maker::Elementwise(int inputs) {
  const Shape shape = AnyShape();
  const bool backward = case_.part() != Part::kForward;
  // Around 3 so that ReLU6 cuts on both sides; some values lie exactly on its kinks.
  for (int i = 0; i < inputs; ++i) {
    const bool first_gradient = backward && i == 0;
    CaseOperand operand = Floats(first_gradient ? Storage::kOutputGradient : Storage::kInput, shape,
                                 3, first_gradient ? 0 : 2);
    float* values = reinterpret_cast<float*>(operand.bytes.data());
    for (int64_t e = 0; e < shape.elements(); e += 5) values[e] = Pick(0, 1) == 0 ? 0.0f : 6.0f;
    if (case_.code == OpCode::kReluForward || case_.code == OpCode::kRelu6Forward) {
      values[shape.elements() / 2] = std::nanf("");
    }
    In(std::move(operand));
  }
  // GELU's slope for x: errors of tanh, times at most x^3 / 10 where it is not flat.
  const bool is_curve = case_.code == OpCode::kGeluForward ||
                        case_.code == OpCode::kGeluInputGradient ||
                        case_.code == OpCode::kSigmoidForward;
  const Bound bound = is_curve ? Bound{BoundKind::kAbsolute, 16, backward ? 100.0 : 16.0} : Bound();
  Out(Result(backward ? Storage::kInputGradient : Storage::kOutput, shape, bound));
}

void Maker::DropoutCase() {
  constexpr double kRates[] = {0, 0.1, 0.5, 0.6, 0.99};
  case_.attributes.rate = kRates[Pick(0, 4)];
  Elementwise(1);
}

std::byte Maker::DrawTap(const Shape& x, const Shape& y, int64_t e) {
  const OpSpec& op = case_.attributes;
  int64_t tap = 0;
  for (int axis = 0, after = x.rank() - 3; axis < x.rank() - 2; ++axis, --after) {
    const int64_t o = (after > 0 ? e / y[axis + 3] : e) % y[axis + 2];
    const int64_t origin = o * op.stride[axis] - op.padding[axis];
    const int64_t first = std::max<int64_t>(0, -origin);
    const int64_t last = std::min(op.kernel[axis], x[axis + 2] - origin) - 1;
    tap = tap * op.kernel[axis] + Pick(first, last);
  }
  return static_cast<std::byte>(tap);
}

void Maker::Pool() {
  const bool max =
      case_.code == OpCode::kMaxPoolForward || case_.code == OpCode::kMaxPoolInputGradient;
  const Shape x = Image(), y = DrawWindow(x, max ? OpKind::kMaxPool : OpKind::kAvgPool);
  const OpSpec& op = case_.attributes;
  const int64_t area = op.kernel[0] * (x.rank() == 4 ? op.kernel[1] : 1);
  switch (case_.code) {
    case OpCode::kMaxPoolForward: {
      CaseOperand input = Floats(Storage::kInput, x);
      float* values = reinterpret_cast<float*>(input.bytes.data());
      for (int64_t e = 0; e < x.elements(); e += 2) values[e] = static_cast<float>(Pick(0, 1));
      values[x.elements() / 2] = std::nanf("");
      In(std::move(input));
      Out(Result(Storage::kOutput, y, {}));
      if (Pick(0, 3) == 0) return;
      CaseOperand indices = Integers(Storage::kOutput, DType::kUInt8, y);
      indices.written = true;
      return Out(std::move(indices));
    }
    case OpCode::kMaxPoolInputGradient: {
      In(Floats(Storage::kOutputGradient, y));
      CaseOperand indices = Integers(Storage::kStash, DType::kUInt8, y);
      for (int64_t e = 0; e < y.elements(); ++e) indices.bytes[e] = DrawTap(x, y, e);
      In(std::move(indices));
      const double terms = static_cast<double>(y.elements() / (y[0] * y[1]));
      return Out(Result(Storage::kInputGradient, x, Sum(terms)));
    }
    case OpCode::kAvgPoolForward:
      In(Floats(Storage::kInput, x));
      return Out(Result(Storage::kOutput, y, Sum(static_cast<double>(area))));
    default:
      In(Floats(Storage::kOutputGradient, y));
      return Out(Result(Storage::kInputGradient, x, Sum(static_cast<double>(area))));
  }
}

void Maker::GlobalPool() {
  const Shape x = Image();
  const double positions = static_cast<double>(x.elements() / (x[0] * x[1]));
  if (case_.code == OpCode::kGlobalAvgPoolForward) {
    In(Floats(Storage::kInput, x));
    Out(Result(Storage::kOutput, {x[0], x[1]}, Sum(positions)));
  } else {
    In(Floats(Storage::kOutputGradient, {x[0], x[1]}));
    Out(Result(Storage::kInputGradient, x, Sum(1)));
  }
}

// Probabilities are at most 1 and logits below 30 in magnitude: exp and the difference to the
// largest logit err by 30 roundings, a sum over classes by one each.
void Maker::Loss() {
  const int64_t samples = Pick(1, 20), classes = Pick(2, 100);
  const double terms = static_cast<double>(classes) + 60;
  case_.context.label_smoothing = static_cast<double>(seed_ % 4) / 4;
  In(Floats(Storage::kOutput, {samples, classes}, 5));
  CaseOperand labels = Integers(Storage::kLabels, DType::kInt32, {samples});
  for (int64_t n = 0; n < samples; ++n) {
    const auto label = static_cast<int32_t>(Pick(0, classes - 1));
    // Of mixup every second one, in training.
    const bool is_mixed = case_.code == OpCode::kSoftmaxCrossEntropy && n % 2 == 1;
    reinterpret_cast<int32_t*>(labels.bytes.data())[n] =
        is_mixed ? PackLabel({label, static_cast<int32_t>((label + n) % classes),
                              static_cast<int32_t>(1 + (label * 37 + 11 * n) % (kMixParts - 1))})
                 : label;
  }
  In(std::move(labels));
  if (case_.code == OpCode::kSoftmaxCrossEntropy) {
    const double share = 1.0 / static_cast<double>(case_.context.step_labels);
    Out(Result(Storage::kScratch, {samples, classes}, {BoundKind::kAbsolute, terms, share}));
  }
  Out(Metrics({BoundKind::kAbsolute, terms, static_cast<double>(samples)}));
}

// The optimizers take turns. Some ten roundings, of values whose sum of magnitudes is below
// 4 * |w| + 2 * |g| + 2 * |v| < 60. Slots behind the first may be squares: they are positive.
void Maker::Update() {
  const Shape shape = {Pick(1, 2000)};
  const Bound bound = {BoundKind::kAbsolute, 10, 60};
  case_.optimizer = &OptimizerSteps()[seed_ % OptimizerSteps().size()];
  case_.context.step = Pick(0, 1000);
  size_t i = 0;
  for (const ChoiceParameter& parameter : case_.optimizer->optimizer->choice.parameters())
    case_.context.optimizer_parameters[i++] = parameter.fallback;
  In(Floats(Storage::kParameters, shape));
  In(Floats(Storage::kGradients, shape));
  for (size_t k = 0; k < case_.optimizer->optimizer->slots().size(); ++k) {
    CaseOperand slot = Floats(Storage::kSlots, shape);
    float* values = reinterpret_cast<float*>(slot.bytes.data());
    for (int64_t e = 0; k > 0 && e < shape.elements(); ++e) values[e] = 0.1F + std::abs(values[e]);
    slot.written = true;
    slot.bound = bound;
    In(std::move(slot));
  }
  Out(Result(Storage::kNewParameters, shape, bound));
}

// Weights whose tanh lies at most 0.45 of a step from a code's middle, so that rounding it decides
// nothing; the first has the largest.
CaseOperand Maker::Weights(double* largest) {
  case_.grid.bits = static_cast<int>(Pick(1, 8));
  case_.grid.weights = Pick(0, 3) == 0 ? WeightGrid::kSignMean : WeightGrid::kTanhMax;
  const int steps = (1 << case_.grid.bits) - 1;
  *largest = 0.05 + 0.9 * random_.Uniform(next_++);
  CaseOperand w = Floats(Storage::kParameters, {Pick(1, 40), Pick(1, 15)});
  float* values = reinterpret_cast<float*>(w.bytes.data());
  for (int64_t i = 0; i < w.shape.elements(); ++i) {
    const double code =
        static_cast<double>(Pick(0, steps)) + 0.9 * (random_.Uniform(next_++) - 0.5);
    const double share = std::clamp(2 * code / steps - 1, -0.999, 0.999);
    values[i] = static_cast<float>(std::atanh(*largest * (i == 0 ? 1 : share)));
  }
  return w;
}

// A mean in another order is rounded to float once.
void Maker::GridWeight() {
  double largest = 0;
  CaseOperand w = Weights(&largest);
  const Shape flat = {w.shape.elements()};
  const bool mean = case_.grid.weights == WeightGrid::kSignMean;
  In(std::move(w));
  Out(Result(Storage::kScratch, flat, mean ? Bound{BoundKind::kAbsolute, 1, 2} : Bound{}));
}

// Products of dv and 1 / T, and of the largest weight's the sum of them all; tanh errs by an eps.
void Maker::GridWeightGradient() {
  double largest = 0;
  CaseOperand w = Weights(&largest);
  if (Pick(0, 4) == 0) case_.grid.bits = 32;
  const Shape shape = w.shape;
  CaseOperand dv = Floats(Storage::kScratch, {shape.elements()});
  const float* values = reinterpret_cast<const float*>(dv.bytes.data());
  double sum = 0;
  for (int64_t i = 0; i < shape.elements(); ++i) sum += std::abs(values[i]);
  In(std::move(dv));
  In(std::move(w));
  Out(Result(Storage::kGradients, shape, {BoundKind::kAbsolute, 8, 5 + (5 + sum) / largest}));
}

void Maker::GridElements(int inputs) {
  case_.grid.bits = static_cast<int>(Pick(1, 8));
  const Shape shape = AnyShape();
  for (int i = 0; i < inputs; ++i) In(Floats(Storage::kScratch, shape));
  Out(Result(Storage::kScratch, shape, {}));
}

// With a level of its own in half of the cases, and ranges that are kept, or not yet, or are not
// there.
void Maker::AffineGrids() {
  case_.grid.bits = static_cast<int>(Pick(2, 16));
  case_.grid.is_gradient = case_.code == OpCode::kAffineError;
  case_.grid.draws = static_cast<int>(Pick(0, 2));
  if (Pick(0, 1) == 0) {
    case_.context.grid_bits = {static_cast<int>(Pick(2, 8)), static_cast<int>(Pick(2, 16))};
  }
  const bool is_weight =
      case_.code == OpCode::kAffineWeight || case_.code == OpCode::kSymmetricWeight;
  const bool trains =
      case_.code == OpCode::kAffineActivation || case_.code == OpCode::kSymmetricActivation;
  const bool evaluates =
      case_.code == OpCode::kAffineActivationEval || case_.code == OpCode::kSymmetricActivationEval;
  const Shape shape = is_weight ? Shape({Pick(1, 40), Pick(1, 60)}) : AnyShape();
  In(Floats(is_weight ? Storage::kParameters : Storage::kScratch, shape));
  const bool keeps = (trains || evaluates) && Pick(0, 3) > 0;
  CaseOperand range = Floats(Storage::kStatistics, {2});
  float* kept = reinterpret_cast<float*>(range.bytes.data());
  kept[0] = -std::abs(kept[0]);
  kept[1] = std::abs(kept[1]);
  if (Pick(0, 2) == 0) kept[0] = kept[1] = 0;
  if (keeps && evaluates) In(range);
  Out(Result(Storage::kScratch, shape, {}));
  if (!keeps || !trains) return;
  range.written = true;
  Out(std::move(range));
}

// Values, one output; clips and deviations are kept or read as ranges are.
void Maker::SharedGrids() {
  const bool is_weight = case_.code == OpCode::kMultiLevelWeight;
  case_.grid.exponent_bits = static_cast<int>(Pick(1, 4));
  case_.grid.bits = static_cast<int>(Pick(1, 7));
  case_.grid.to_nearest = Pick(0, 3) == 0;
  case_.grid.is_gradient = case_.code == OpCode::kMultiLevelError;
  case_.grid.clip = static_cast<float>(Pick(1, 20)) / 20;
  if (case_.code == OpCode::kSmallFloat) case_.grid.exponent_bits += 2;
  Shape shape = AnyShape();
  if (is_weight) {
    case_.attributes.kind = Pick(0, 1) == 0 ? OpKind::kConv : OpKind::kLinear;
    case_.attributes.kernel = {Pick(1, 3), Pick(1, 3)};
    const int64_t kernel = case_.attributes.kernel[0] * case_.attributes.kernel[1];
    shape = {Pick(1, 20), kernel * Pick(1, 9)};
  }
  In(Floats(is_weight ? Storage::kParameters : Storage::kScratch, shape));
  if (case_.code != OpCode::kCounterDeviation) {
    Out(Result(Storage::kScratch, shape, {}));
    if (case_.code == OpCode::kClippedError) Out(Result(Storage::kScratch, {1}, {}));
    return;
  }
  CaseOperand deviation = Floats(Storage::kScratch, {1});
  float* value = reinterpret_cast<float*>(deviation.bytes.data());
  *value = std::abs(*value) / 20;
  In(std::move(deviation));
  Out(Result(Storage::kGradients, shape, {}));
}

// A product of small floats, whose sums are the same everywhere.
void Maker::ChunkedProduct(bool is_conv) {
  is_conv ? Conv() : Linear();
  const bool is_8_bits = Pick(0, 1) == 0;
  const FloatGrid format = is_8_bits ? FloatGrid(5, 2) : FloatGrid(6, 9);
  // Products below 2^-30 are multiples of the least step, sums above 2^32 saturate.
  constexpr float kScales[] = {1, 0x1p-18f, 0x1p17f};
  const float scale = kScales[Pick(0, 2)];
  for (CaseOperand& operand : case_.inputs) {
    float* values = reinterpret_cast<float*>(operand.bytes.data());
    for (int64_t i = 0; i < operand.shape.elements(); ++i)
      values[i] = format.Nearest(values[i] * scale);
  }
  for (CaseOperand& operand : case_.outputs) operand.bound = {};
  case_.grid = {.bits = 9, .exponent_bits = 6, .chunk = static_cast<int>(Pick(1, 100))};
}

// A step in another order of operations may lead to the neighbour on the grid.
void Maker::RoundedUpdate() {
  Update();
  case_.grid = {.bits = 9, .exponent_bits = 6, .draws = static_cast<int>(Pick(1, 9))};
  const Bound one_step = {BoundKind::kAbsolute, 0x1p17, 4};
  for (CaseOperand& operand : case_.inputs) operand.bound = one_step;
  case_.outputs[0].bound = one_step;
}

bool Maker::MakeOfGrids() {
  switch (case_.code) {
    case OpCode::kChunkedConvForward:
    case OpCode::kChunkedConvInputGradient:
    case OpCode::kChunkedConvWeightGradient:
      ChunkedProduct(true);
      return true;
    case OpCode::kChunkedLinearForward:
    case OpCode::kChunkedLinearInputGradient:
    case OpCode::kChunkedLinearWeightGradient:
      ChunkedProduct(false);
      return true;
    case OpCode::kRoundedUpdate:
      RoundedUpdate();
      return true;
    case OpCode::kRangeNormForward:
    case OpCode::kRangeNormEval:
    case OpCode::kRangeNormInputGradient:
      case_.grid.bits = static_cast<int>(Pick(2, 16));
      case_.part() == Part::kInputGradient ? BatchNormGradient() : BatchNorm();
      for (CaseOperand& operand : case_.outputs) operand.bound = {};
      return true;
    case OpCode::kFakeQuantizeWeight:
    case OpCode::kFakeQuantizeWeightGradient:
      case_.code == OpCode::kFakeQuantizeWeight ? GridWeight() : GridWeightGradient();
      return true;
    case OpCode::kFakeQuantizeActivation:
    case OpCode::kFakeQuantizeError:
    case OpCode::kFakeQuantizeActivationGradient:
      GridElements(case_.code == OpCode::kFakeQuantizeActivationGradient ? 2 : 1);
      return true;
    case OpCode::kAffineWeight:
    case OpCode::kAffineActivation:
    case OpCode::kAffineActivationEval:
    case OpCode::kAffineError:
    case OpCode::kSymmetricWeight:
    case OpCode::kSymmetricActivation:
    case OpCode::kSymmetricActivationEval:
      AffineGrids();
      return true;
    case OpCode::kClippedError:
    case OpCode::kSymmetricError:
    case OpCode::kSmallFloat:
    case OpCode::kCounterDeviation:
    case OpCode::kMultiLevelWeight:
    case OpCode::kMultiLevelActivation:
    case OpCode::kMultiLevelError:
      SharedGrids();
      return true;
    default:
      return false;
  }
}

std::optional<Case> Maker::Make() {
  switch (case_.code) {
    case OpCode::kConvForward:
    case OpCode::kConvInputGradient:
    case OpCode::kConvWeightGradient:
      Conv();
      break;
    case OpCode::kLinearForward:
    case OpCode::kLinearInputGradient:
    case OpCode::kLinearWeightGradient:
      Linear();
      break;
    case OpCode::kBatchNormForward:
    case OpCode::kBatchNormEval:
    case OpCode::kBatchNormAgain:
      BatchNorm();
      break;
    case OpCode::kBatchNormInputGradient:
    case OpCode::kBatchNormWeightGradient:
      BatchNormGradient();
      break;
    case OpCode::kGeluForward:
    case OpCode::kGeluInputGradient:
      case_.attributes.exact = Pick(0, 1) == 1;
      Elementwise(TraitsOf(case_.code).min_inputs);
      break;
    case OpCode::kReluForward:
    case OpCode::kRelu6Forward:
    case OpCode::kCopy:
    case OpCode::kAddForward:
    case OpCode::kAccumulate:
    case OpCode::kReluInputGradient:
    case OpCode::kRelu6InputGradient:
      Elementwise(TraitsOf(case_.code).min_inputs);
      break;
    case OpCode::kDropoutForward:
    case OpCode::kDropoutInputGradient:
      DropoutCase();
      break;
    case OpCode::kMaxPoolForward:
    case OpCode::kAvgPoolForward:
    case OpCode::kMaxPoolInputGradient:
    case OpCode::kAvgPoolInputGradient:
      Pool();
      break;
    case OpCode::kGlobalAvgPoolForward:
    case OpCode::kGlobalAvgPoolInputGradient:
      GlobalPool();
      break;
    case OpCode::kSoftmaxCrossEntropy:
    case OpCode::kSoftmaxCrossEntropyEval:
      Loss();
      break;
    case OpCode::kOptimizerUpdate:
      Update();
      break;
    default:
      if (!MakeOfFixedPoints() && !MakeOfGrids() && !MakeOfTokens() && !MakeOfBranches() &&
          !MakeOfCodeGrids())
        return std::nullopt;
  }
  return std::move(case_);
}

std::string Case::ToString() const {
  std::string text = absl::StrCat(Name(code));
  for (const auto* operands : {&inputs, &outputs}) {
    absl::StrAppend(&text, operands == &inputs ? " (" : " -> (");
    for (const CaseOperand& o : *operands) absl::StrAppend(&text, " ", o.shape.ToString());
    absl::StrAppend(&text, " )");
  }
  const OpSpec& a = attributes;
  absl::StrAppend(&text, " kernel ", a.kernel[0], "x", a.kernel[1], " stride ", a.stride[0], "x",
                  a.stride[1], " padding ", a.padding[0], "x", a.padding[1], " to ",
                  a.end_padding(0), "x", a.end_padding(1), " dilation ", a.dilation[0], "x",
                  a.dilation[1], " begin ", a.begin, " groups ", a.groups, " rate ", a.rate,
                  " bits ", grid.bits, context.accumulate ? " accumulate" : "");
  return text;
}

std::optional<Case> MakeCase(OpCode code, uint64_t seed) { return Maker(code, seed).Make(); }

}  // namespace runnel
