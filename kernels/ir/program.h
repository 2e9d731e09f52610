#pragma once

// The compiled stage: instructions over typed buffers. Recipes and the compiler write programs,
// backends run them; the two meet only here.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/number_format.h"
#include "proto/base/tensor/shape.h"
#include "proto/base/training/rescale.h"

namespace runnel {

// What an instruction computes; kernels/backends/ref is the specification of each. Operands stand beside the
// code in their order in Instruction::inputs -> Instruction::outputs; [x] is absent where the model
// has none (inputs.size() or outputs.size() tells). Sizes come from the buffers' shapes, (N,C,L) or
// (N,C,H,W) as in the model; attributes hold kernel, stride, padding, groups, rate, epsilon and so
// on. Every output is overwritten whole unless "in place" or "adds" stands there. "stats" are
// float[2C]: all means, then all 1 / sqrt(var + epsilon). "dscale_dshift" is float[2C] likewise.
enum class OpCode : uint8_t {
  // Forward.
  kConvForward,       // x, weight, [bias] -> y
  kLinearForward,     // x, weight, [bias] -> y
  kBatchNormForward,  // x, scale, shift -> y, stats, running_mean (in place), running_var (in
                      // place). Normalises by the biased variance; running_var gets the unbiased
                      // one (the biased where a channel has one element)
  kBatchNormEval,     // x, scale, shift, running_mean, running_var -> y
  kBatchNormAgain,    // x, scale, shift, stats -> y: the y that kBatchNormForward gave with them,
                      // to the bit
  kReluForward,       // x -> y; NaN stays NaN
  kRelu6Forward,      // x -> y; NaN stays NaN
  kDropoutForward,    // x -> y = kept ? x * float(1 / (1 - rate)) : 0, where kept =
                      // double(CounterRandom(run_seed, kDropout, layer * 256 + op, sequence)
                      // .Uniform(element)) >= rate; so the mask need not be stored
  kMaxPoolForward,    // x -> y, [indices] (u8: position in the window, row-major, of the first
                      // maximum; a NaN wins over every number, padding over none). Evaluation has
                      // no indices
  kAvgPoolForward,    // x -> y
  kGlobalAvgPoolForward,  // x -> y
  kAddForward,            // a, b -> y; a and b may be the same buffer
  kCopy,                  // x -> y, same element count and dtype; shapes may differ
  kSoftmaxCrossEntropy,   // logits, labels (int32) -> logits_gradient, metrics (double[2]: sum of
                          // losses, correct; overwritten)
                          // logits_gradient = (softmax - onehot) / step_samples. InvalidArgument
                          // from Executable::Run for a label outside [0, classes)
  kSoftmaxCrossEntropyEval,  // logits, labels -> metrics; likewise
  // Input-gradient: dy -> dx.
  kConvInputGradient,           // dy, weight -> dx
  kLinearInputGradient,         // dy, weight -> dx
  kBatchNormInputGradient,      // dy, x, scale, stats -> dx, dscale_dshift (this micro-batch only)
  kReluInputGradient,           // dy, y -> dx: dy, but 0 where y <= 0
  kRelu6InputGradient,          // dy, y -> dx: dy, but 0 where y <= 0 or y >= 6
  kDropoutInputGradient,        // dy -> dx, the mask and scale of kDropoutForward
  kMaxPoolInputGradient,        // dy, indices -> dx
  kAvgPoolInputGradient,        // dy -> dx
  kGlobalAvgPoolInputGradient,  // dy -> dx
  kAccumulate,                  // a, b -> a + b: a value that several operators read gets the sum
  // Weight-gradient: overwrites the gradient storage, or adds to it (StepContext::accumulate). What
  // is added is the finished gradient of this micro-batch, rounded first.
  kConvWeightGradient,       // dy, x -> dweight, [dbias]
  kLinearWeightGradient,     // dy, x -> dweight, [dbias]
  kBatchNormWeightGradient,  // dscale_dshift -> dscale, dshift
  // Fake quantisation: FP32 values on a grid of at most 2^bits equidistant points; N = 2^bits - 1, the
  // rule is Instruction::grid. Weights and their gradients are row-major whatever the shape of their
  // buffer. The arithmetic of single values: kernels/ir/arithmetic/fake_quantize.h.
  kFakeQuantizeWeight,          // weight w -> v, by GridRule::weights:
                                // kTanhMax: v = 2 * c / N - 1, c = nearest integer, halves to even,
                                // of N * (tanh(w) / (2 * T) + 1/2), T = max|tanh w|
                                // kSignMean: v = mean|w|, or -mean|w| where w < 0
  kFakeQuantizeWeightGradient,  // dv, w -> dw: a weight-gradient, adds if the context says so. The
                                // rounding passes gradients on (straight through). kTanhMax: the
                                // derivative of tanh(w) / T, T's own included: the first w whose
                                // |w| is largest gets it. kSignMean, and bits 32: dw = dv
  kFakeQuantizeActivation,  // x -> y = c / N, c = nearest integer, halves to even, of N * x clipped
                            // to 0..N; NaN stays NaN
  kFakeQuantizeActivationGradient,  // dy, x -> dx: dy, but 0 where x < 0 or x > 1
  kFakeQuantizeError,  // dy -> dy': for each sample with m = max|dy|, m * (2 * c / N - 1), c =
                       // floor(N * (dy / (2 * m) + 1/2) + u), u of kErrorRounding: the mean is dy.
                       // A sample of zeros, or with a value that is not finite, stays as it is
  // Update, over the whole parameter storage at once, or of one tensor
  // (CompileOptions::steps_in_backward).
  kSgdUpdate,  // parameters, gradients, momentum (in place) -> new_parameters, all float[n]
               // g += weight_decay * w; v = momentum * v + g; w' = w - learning_rate * v

  // Integer recipes (NITI; Mandheling 2.2). Values are scaled (Buffer::scaled): i8
  // with mantissas in -127..127, or i32 / i64 accumulators with max_abs in their tail. "rescale
  // rule": Instruction::integer. Weights and their gradients lie (out, kernel..., in) in memory,
  // whatever their shape says; sums are exact.
  kQuantize,            // x f32 -> y i8: M = max|x|, e = ceil(log2 M) - 7 (M = 0: zeros, e = 0),
                        // m = round half away (127 * x / M), or x * 2^-e, in double
  kInt8ConvForward,     // x, weight -> acc i32, exponent e_x + e_w
  kInt8LinearForward,   // x, weight -> acc i32
  kRescale,             // acc, [mask i8] -> y i8: b = bits(max_abs), s = b - 7 (and 2 for 1 if the
                        // rule says so); s > 0: round(acc, s), e = e_acc + s; else saturate. Then
                        // max(0, y) with IntegerRule::relu, and 0 where mask <= 0
  kInt8ReluForward,     // x -> y
  kInt8DropoutForward,  // x -> y: kept unchanged or 0 (the draw of kDropoutForward); e + 1 for rate
                        // 0.5; the only other one is 0
  kInt8MaxPoolForward,  // x -> y, [indices u8: position in the window, row-major, of the first
                        // maximum]
  kInt8AvgPoolForward,  // x -> acc i32: the sum, exponent e_x - ceil(log2 taps)
  kInt8GlobalAvgPoolForward,  // x -> acc i32, likewise
  kInt8Add,  // a, b -> y: d = e_a - e_b. |d| = 1 doubles the one with the larger exponent; |d| > 1
             // rounds the other one by |d| bits (by 31 at most). Leaves the sum i8, all of it is
             // rounded by 2 bits and e + 2. Of all-zero operands the other one is taken as it is
  kInt8ConvInputGradient,           // dy, weight -> acc i32, exponent e_dy + e_w
  kInt8LinearInputGradient,         // dy, weight -> acc i32
  kInt8ReluInputGradient,           // dy, y -> dx: dy, but 0 where y <= 0
  kInt8DropoutInputGradient,        // dy -> dx: the mask; the exponent stays
  kInt8MaxPoolInputGradient,        // dy, indices -> dx; sums of overlapping windows saturate
  kInt8AvgPoolInputGradient,        // dy -> dx: dy of its window, exponent e_dy - ceil(log2 taps);
                                    // windows do not overlap
  kInt8GlobalAvgPoolInputGradient,  // dy -> dx, likewise
  kInt8ConvWeightGradient,          // dy, x -> g i32 or i64, exponent e_dy + e_x
  kInt8LinearWeightGradient,        // dy, x -> g
  kAddScaledGradient,  // g i32 or i64 -> total i64 (adds if StepContext::accumulate, else
                       // overwrites): the one with the smaller exponent is divided by 2^difference
                       // towards zero first
  kNitiUpdate,  // weight i8, g i32 or i64 -> new_weight i8: b = bits(max_abs of g), s = b - mu, mu =
                // StepContext::gradient_bits of the operator's kind. b = 0: w' = w; s < 1: w' =
                // saturate(w - saturate(g)); else w' = saturate(w - round(g, s)). Not stochastic.
                // The exponent stays
  kIntegerSoftmaxCrossEntropy,      // logits i8, labels -> logits_gradient i8 (exponent 0), metrics
                                    // (integer_loss.h; the loss that is reported is the real one of
                                    // m * 2^e). Errors as kSoftmaxCrossEntropy
  kIntegerSoftmaxCrossEntropyEval,  // logits i8, labels -> metrics
  // A product fused with its kRescale: the sums are never in memory. First as kInt8ConvForward and
  // the like, then as kRescale; not stochastic. With kept_scale (int32[32], a KeptScale, in place)
  // s is kept as Instruction::rescale says: BeginProduct with the bits of the operator's kind; where
  // MeasuresScale is false, s is the kept one, and sums beyond +-127 * 2^s saturate
  kInt8ConvForwardRescaled,          // x, weight, [mask i8] -> y i8, [kept_scale]
  kInt8LinearForwardRescaled,        // x, weight, [mask] -> y, [kept_scale]
  kInt8ConvInputGradientRescaled,    // dy, weight, [mask] -> dx, [kept_scale]
  kInt8LinearInputGradientRescaled,  // dy, weight, [mask] -> dx, [kept_scale]
  // INT8 inference of trained models (kernels/models): values are codes, i8 in -127..127, real =
  // scale * (code - zero); scales are folded into rules. Products, max and average pools are those
  // of integer recipes; their exponents mean nothing. "rule" is a tensor of i64: a CodeRule, then
  // its channels (code_rule.h defines what each instruction computes).
  kEncodeCodes,      // x f32, rule -> y i8
  kRequantizeCodes,  // sums i32 or codes i8, rule, [row sums i32 (n, groups, ...)] -> y i8, or i32:
                     // the sums as they are multiplied
  kAddCodes,         // a, b, rule -> y
  kPadCodes,         // x, rule -> y: larger by a border, on all sides alike
  kCodesToChannelsFirst,  // x, whose bytes lie (n, spatial..., c) -> y, as its shape says
  kCodesToChannelsLast,   // the reverse
};

// True for the elementwise codes whose first output may share memory with one of their inputs
// (relu, relu6, dropout and their gradients, add, accumulate). Outputs and inputs of all other codes
// never overlap, except that kNewParameters may be kParameters.
bool AllowsInPlace(OpCode code);

// "conv_forward", ...
absl::string_view Name(OpCode code);

// Whose memory a buffer lies in. Each is one contiguous, 64-byte aligned area that the caller binds
// (backend.h). kGradients and kMomentum are zeroed by their owner when they are made.
enum class Storage : uint8_t {
  kInput,   // the boundary tensor that enters (raw FP32 samples at the first layer, else the
            // recipe's activation, scaled if that is i8); stays bound until kWeightGradient is done
  kOutput,  // the boundary tensor that leaves, and the logits where the loss is; stays bound
            // until kWeightGradient is done if Program::backward_reads_output
  kOutputGradient,  // enters from the next stage, stays bound until kWeightGradient is done; unused
                    // where the loss is
  kInputGradient,   // leaves to the previous stage: written by kInputGradient, not touched by
                    // kWeightGradient; unused for the first layer
  kLabels,          // int32 per sample; where the loss is
  kMetrics,         // double[2], as a buffer of 16 x u8; where the loss is
  kParameters,      // one weight version
  kNewParameters,   // the version that the update writes; may be the same memory as kParameters
  kGradients,       // layout of kParameters; integer recipes: wider integers, in the same order
  kMomentum,        // layout of kParameters; none with integer recipes
  kStatistics,      // running statistics
  kStash,           // kept from a micro-batch's forward to its backward, which may overwrite it
  kScratch,         // free between a forward and the next action, and after a backward; needed by
                    // each part, and kept from kInputGradient to kWeightGradient, with
                    // CompileOptions::one_in_flight from kForward on
};
inline constexpr int kStorageCount = 13;

// "input", "output_gradient", ...
absl::string_view Name(Storage storage);

// A typed region. Several buffers may name the same bytes: views with other shapes (flatten), or
// values whose lives do not overlap.
struct Buffer {
  Storage storage = Storage::kScratch;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t offset_bytes = 0;  // multiple of 64
  bool scaled = false;  // has a ScaleTail behind its elements (proto/base/tensor/number_format.h)
  // FP32 that gets the values of FP16: what writes it rounds as it would into a kFloat16
  // (CompileOptions::stores_halves).
  bool rounded = false;

  int64_t bytes() const {
    return scaled ? ScaledBytes(dtype, shape)
                  : shape.elements() * static_cast<int64_t>(SizeOf(dtype));
  }
};

// How integers are rounded to fewer bits. Dropping the low bits of |x| leaves a rest r.
enum class Rounding : uint8_t {
  kPseudoStochastic,  // away from zero if r's high half exceeds its low half (NITI's PSR)
  kHalfAway,          // to the nearest; halves away from zero
  kStochastic,        // away from zero with probability r / 2^shift; the draw is keyed by run_seed,
                      // layer, op, sequence and element
};

// What an integer recipe says of an instruction.
struct IntegerRule {
  Rounding rounding = Rounding::kPseudoStochastic;
  bool promote_one_to_two = false;  // a shift of 1 becomes 2
  bool relu = false;                // kRescale: with the ReLU that follows
  bool power_of_two_input = false;  // kQuantize: x * 2^-e in place of 127 * x / M

  friend bool operator==(const IntegerRule&, const IntegerRule&) = default;
};

// What quantised weights are: kFakeQuantizeWeight.
enum class WeightGrid : uint8_t { kTanhMax, kSignMean };

// What a fake-quantising recipe says of an instruction.
struct GridRule {
  int bits = 32;  // 1..8; 32: as they are
  WeightGrid weights = WeightGrid::kTanhMax;

  friend bool operator==(const GridRule&, const GridRule&) = default;
};

// The slices of its batch that a product of integers takes one after the other, each of `samples`,
// the last of what is left (Mandheling, section 3.5). Sums of slices are added, so the bytes are
// those of the whole, and a backend need not split. But a weight-gradient that is `shifted` gives
// other bytes: the sums of each slice become mantissas m_i with a shift s_i by kRescale's rule
// (IntegerRule); S = max s_i; g = saturate(sum of m_i / 2^(S - s_i)), each quotient towards zero,
// of exponent e_dy + e_x + S.
struct BatchSplit {
  int64_t samples = 0;  // 0, or the whole batch and more: not split, nor shifted
  bool shifted = false;

  int64_t SliceOf(int64_t batch) const { return samples > 0 && samples < batch ? samples : batch; }
  bool ShiftsSlicesOf(int64_t batch) const { return shifted && SliceOf(batch) < batch; }
  friend bool operator==(const BatchSplit&, const BatchSplit&) = default;
};

using BufferIndex = int32_t;

struct Instruction {
  OpCode code = OpCode::kCopy;
  std::vector<BufferIndex> inputs;
  std::vector<BufferIndex> outputs;
  int layer = 0;  // in the model, not in the stage: random draws and messages use it
  int op = 0;     // in the layer
  OpSpec attributes;
  IntegerRule integer;
  // Values that stay in place until this instruction is done although it does not read them: what
  // was made of them may so be made as late as here.
  std::vector<BufferIndex> keeps;
  GridRule grid;
  RescaleRule rescale;  // of products with a kept scale
  BatchSplit split;     // of convolutions and linear layers, and their gradients
  // A weight-gradient whose outputs are values of this micro-batch: it overwrites, whatever
  // StepContext::accumulate says.
  bool overwrites = false;
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

// One parameter or statistic tensor of the stage.
struct StateTensor {
  int layer = 0;  // in the model
  StateTensorSpec spec;
  Storage storage = Storage::kParameters;  // or kStatistics
  int64_t offset_bytes = 0;
  int64_t gradient_offset_bytes = 0;  // in kGradients, of trainable tensors
  DType gradient_dtype = DType::kFloat32;
  // The bytes of (out, in, kernel...) lie as (out, kernel..., in).
  bool channels_last = false;
};

// Where a stage's state lies; the same for every batch size.
struct StateLayout {
  std::vector<StateTensor> tensors;  // by layer, then in the order of LayerInfo::state
  int64_t parameter_bytes = 0;       // padding between tensors is zero for ever
  int64_t gradient_bytes = 0;
  int64_t momentum_bytes = 0;  // parameter_bytes, or 0 for a recipe without
  int64_t statistic_bytes = 0;
};

// A stage compiled for one micro-batch size.
struct Program {
  int first_layer = 0;
  int last_layer = 0;
  int64_t batch = 0;
  bool has_loss = false;              // the stage ends with the model's last layer
  bool needs_input_gradient = false;  // first_layer > 0
  bool backward_reads_output = false;
  // kInputGradient does weight-gradients too and so writes kGradients, or takes the step
  // (CompileOptions::recomputes, steps_in_backward).
  bool early_weight_gradients = false;
  Shape input;
  Shape output;
  int64_t input_bytes = 0;   // of kInput and kInputGradient, with the tail if they are scaled
  int64_t output_bytes = 0;  // of kOutput and kOutputGradient, likewise
  std::vector<Buffer> buffers;
  std::array<std::vector<Instruction>, kPartCount> parts;
  StateLayout state;
  int64_t stash_bytes = 0;
  int64_t scratch_bytes = 0;  // enough for any part

  const std::vector<Instruction>& part(Part p) const { return parts[static_cast<int>(p)]; }
};

// A listing for people and tests: one line an instruction, then the sizes. "~": Buffer::rounded.
std::string ToString(const Program& program);

}  // namespace runnel
