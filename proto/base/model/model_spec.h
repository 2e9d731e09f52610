#pragma once

// A model as data: an ordered list of layers, each a small graph of operators, and the one shape
// inference that planner, compiler, transport and worker share. A worker receives this, never code.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

enum class OpKind : uint8_t {
  kConv = 1,       // 1d on (N,C,L), 2d on (N,C,H,W); groups == in_channels is depthwise
  kLinear = 2,     // on (N,F), or on each row of (N,T,F)
  kBatchNorm = 3,  // over N and the spatial axes
  kRelu = 4,
  kRelu6 = 5,
  kDropout = 6,        // kept values are scaled by 1 / (1 - rate)
  kMaxPool = 7,        // padding never wins; ties go to the first element in row-major order
  kAvgPool = 8,        // OpSpec::counts_padding
  kGlobalAvgPool = 9,  // spatial mean: (N,C,...) -> (N,C)
  kAdd = 10,           // two inputs of equal shape
  kFlatten = 11,       // (N,...) -> (N,F)
  kEmbedding = 12,     // of the samples, tokens: (N,T) -> (N,T,F), row `token` of its table
  kLayerNorm = 13,     // over the last axis of (N,F) or (N,T,F)
  kGelu = 14,          // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); OpSpec::exact
  // (N,T,3F) -> (N,T,F): queries, keys and values, F features each, those of a head side by side. A
  // position sees those before it and itself, or all (OpSpec::bidirectional); queries are divided by
  // sqrt(F / heads).
  kAttention = 15,
  kSigmoid = 16,      // 1 / (1 + e^-x)
  kHardSigmoid = 17,  // x / 6 + 1/2, within 0 and 1
  kLeakyRelu = 18,    // x > 0 ? x : rate * x
  // Two inputs: of equal shape, or the second one (N,C), a factor for each channel of the first.
  kMultiply = 19,
  kConcat = 20,  // two inputs (N,C,...) with equal axes behind the channels: those of both
  kSlice = 21,   // out_channels channels from `begin` on, of (N,C,...)
  // Channel j * groups + g of the output is channel g * (C / groups) + j of the input (N,C,...).
  kShuffle = 22,
  // Which of OpSpec::options each sample takes for a residual block, of which a held gate reads the
  // input (N,...), one that learns a logit for each option (N,K): (N,2) or (N,2+K), sample_choice.h.
  kGate = 23,
  // Two inputs, x and a gate's output: the samples that do not skip, in the gate's order, in front;
  // what is behind them means nothing. Up to its kUnpack, products and norms compute these alone.
  kPack = 24,
  kUnpack = 25,  // two inputs, of kPack and its gate: each sample in its place, 0 where it skips
  // z (N,64) and, unless it is 0, a state (N,32): the next state, of an LSTM of 16 units. z are the
  // sums of input gate, forget gate, candidate and output gate, 16 each; a state is h, then c.
  kLstmCell = 26,
  // The state of the last kLstmCell in front of it in the model, whose layer may be another one:
  // (N,32). Its input counts by the samples alone.
  kCarriedState = 27,
};
// Units of kLstmCell, and the values of its state for each sample.
inline constexpr int64_t kLstmUnits = 16;
inline constexpr int64_t kLstmState = 2 * kLstmUnits;

// "conv", "linear", ...: the wire's name of an operator.
absl::string_view Name(OpKind kind);
absl::StatusOr<OpKind> OpKindFromName(absl::string_view name);

// Distribution of a parameter tensor's first values (initial_state.h), drawn by the device that
// trains the layer.
enum class InitKind : uint8_t {
  kUniformFanIn =
      1,  // U(-b, b), b = 1 / sqrt(fan_in): the usual default of conv and linear, weight and bias
  kNormalFanOut = 2,  // N(0, 2 / (kernel_area * out_channels)), bias 0
  kNormal = 3,        // N(0, init_std^2), bias 0
  kXavierNormal = 4,  // N(0, 2 / (fan_in + fan_out)), fan_out = kernel_area * out_channels; bias 0
};

// One operator. Fields that a kind does not name are ignored by it.
struct OpSpec {
  OpKind kind = OpKind::kRelu;
  // Value ids inside the layer: 0 is the layer's input, j + 1 the output of op j. An op reads
  // earlier values only.
  std::vector<int32_t> inputs;
  int64_t out_channels = 0;                // conv, slice, linear and embedding (out features)
  std::array<int64_t, 2> kernel = {1, 1};  // conv, pools; 1d uses [0]
  std::array<int64_t, 2> stride = {1, 1};
  // Padding in front, and behind if padding_end does not say otherwise. conv: zeros; pools: nothing,
  // and less than the kernel.
  std::array<int64_t, 2> padding = {0, 0};
  int64_t groups = 1;     // conv, shuffle
  bool bias = false;      // conv, linear
  double rate = 0;        // dropout: probability of a zero; leaky_relu: slope below 0; in [0, 1)
  double epsilon = 1e-5;  // batch norm, layer norm
  double momentum = 0.1;  // batch norm: running = (1 - momentum) * running + momentum * batch
  InitKind init = InitKind::kUniformFanIn;
  double init_std = 0.01;
  int64_t rows = 0;        // embedding: how many tokens there are
  bool positions = false;  // embedding: a trained vector for each position is added
  int64_t heads = 0;       // attention
  std::string name;        // with which its tensors' names begin; empty: its index
  bool frozen = false;     // as LayerSpec::frozen, of this operator alone
  std::array<int64_t, 2> padding_end = {-1, -1};  // conv, pools: behind; -1: as in front
  std::array<int64_t, 2> dilation = {1, 1};       // conv: from one tap of the kernel to the next
  int64_t begin = 0;                              // slice: the first channel
  // avg pool: divides by all of its kernel, else by the part that lies inside the input.
  bool counts_padding = false;
  // gate: bits of weights and activations, then those of gradients, of each option; 0: the sample
  // skips, 32: no grid.
  std::vector<int32_t> options;
  // gate: a share `rate` of the samples skips, by a draw; the others are spread over the other
  // options. Else it learns, and `rate` is the price of a sample that costs as much as in FP32.
  bool held = false;
  bool exact = false;          // gelu: x / 2 * (1 + erf(x / sqrt(2)))
  bool bidirectional = false;  // attention: each position sees all

  int64_t end_padding(int axis) const {
    const auto a = static_cast<size_t>(axis);
    return padding_end[a] < 0 ? padding[a] : padding_end[a];
  }
  // What the kernel covers.
  int64_t extent(int axis) const {
    const auto a = static_cast<size_t>(axis);
    return (kernel[a] - 1) * dilation[a] + 1;
  }
  bool is_dilated() const { return dilation != std::array<int64_t, 2>{1, 1}; }
  bool pads_by_side() const { return end_padding(0) != padding[0] || end_padding(1) != padding[1]; }
  bool is_padded() const { return padding != std::array<int64_t, 2>{0, 0} || pads_by_side(); }

  friend bool operator==(const OpSpec&, const OpSpec&) = default;
};

// One cuttable unit. Its output is the last op's output.
struct LayerSpec {
  std::string name;
  std::vector<OpSpec> ops;
  // The layer's state never steps: no gradient is computed for it, the optimizer has no slots for it.
  bool frozen = false;
  // Its inner values are made again in its backward, from the layer's input: only that is stashed.
  bool recompute = false;
  // Type of what its forward keeps for its backward, rounded to the nearest, ties to even. A type that
  // is no smaller than the recipe's values changes nothing.
  DType stash = DType::kFloat32;

  bool freezes(size_t op) const { return frozen || ops[op].frozen; }
  // OpSpec::name, or the index.
  std::string OpName(size_t op) const;

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

struct ModelSpec;
bool HasGates(const ModelSpec& model);
// Whether an operator reads the state of another layer (kCarriedState), which crosses cuts between
// them beside the boundary tensor.
bool CarriesState(const ModelSpec& model);
// Whether layers from `layer` on, up to the end, read the state of one in front of it.
bool StateEnters(const ModelSpec& model, int layer);

struct ModelSpec {
  std::string name;
  Shape input;  // one sample, without the batch dimension
  int64_t classes = 0;
  std::vector<LayerSpec> layers;

  int layer_count() const { return static_cast<int>(layers.size()); }
  bool has_batch_norm() const;
  // Samples are tokens: i32 in [0, tokens()), the rows of the smallest embedding. 0: they are f32.
  int64_t tokens() const;
  DType input_type() const { return tokens() > 0 ? DType::kInt32 : DType::kFloat32; }
  // Number of layers in front of the first layer that a gradient must reach: frozen layers, and
  // layers without parameters between or right behind them. 0 if the first layer is not frozen.
  // Frozen layers of this front compute as in evaluation. No gradient crosses the front's
  // boundaries, the one behind its last layer included.
  int frozen_front() const;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

enum class TensorRole : uint8_t {
  kWeight = 1,         // trainable
  kBias = 2,           // trainable
  kScale = 3,          // trainable: a norm's gamma, starts at 1
  kShift = 4,          // trainable: a norm's beta, starts at 0
  kRunningMean = 5,    // statistic, starts at 0
  kRunningVar = 6,     // statistic, starts at 1; unbiased estimate
  kExponent = 7,       // exponent of the op's int8 weight, fixed for the run (number_format.h)
  kKeptScales = 8,     // scales of the op's products, and their history (training/rescale.h)
  kPositions = 9,      // trainable: an embedding's, (T,F)
  kInputRange = 10,    // statistic: mean least and largest input of the op; both 0: not seen yet
  kWidths = 11,        // statistic: widths of the op's operands (width_state.h), starts at 0
  kGain = 12,          // trainable: factor of a compensation, starts at 1
  kCompensation = 13,  // trainable: added to the op's output, starts near 0
};
bool IsTrainable(TensorRole role);  // unless it is frozen
// Whether a recipe adds the tensor to the operator's own (NumberFormat).
bool IsOfRecipe(TensorRole role);

// One state tensor of a layer. Conv weights are (out, in / groups, k...), linear weights (out, in),
// tables (rows, out).
struct StateTensorSpec {
  std::string name;  // "2.weight": the op's name and the role; unique in the layer
  int op = 0;
  TensorRole role = TensorRole::kWeight;
  Shape shape;
  DType dtype = DType::kFloat32;
  bool frozen = false;  // LayerSpec::freezes
};

// Everything that follows from a layer and the shape that enters it.
struct LayerInfo {
  Shape input;                         // including the batch
  Shape output;                        // including the batch
  std::vector<Shape> op_outputs;       // by op, including the batch
  std::vector<StateTensorSpec> state;  // by op; within an op trainable first, in TensorRole order
  int64_t parameters = 0;              // trainable elements
  int64_t macs = 0;  // multiply-accumulates of conv, linear and attention for the whole batch
};

// Upper bounds for models from outside; checked by InferShapes before anything is sized by them.
inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxOpsPerLayer = 256;
inline constexpr int64_t kMaxLabelsPerSample = int64_t{1} << 16;

// The shape inference. batch >= 1. InvalidArgument names the layer, the op and what does not fit
// (an unknown input id, a kernel larger than its input, channels not divisible by groups, a shape
// over Shape::kMaxElements, ...).
absl::StatusOr<LayerInfo> InferLayer(const LayerSpec& layer, const Shape& input);

// The shape that one operator makes of its inputs, as InferLayer says; OpSpec::inputs is not read.
absl::StatusOr<Shape> InferOutput(OpSpec op, absl::Span<const Shape> inputs);

// InferLayer over all layers of the model; also requires the last output to be (batch, classes) or
// (batch, positions, classes), and samples to be read as what they are: all by embeddings, or none.
// Never empty.
absl::StatusOr<std::vector<LayerInfo>> InferShapes(const ModelSpec& model, int64_t batch);

// Labels that belong to a sample, one for each row of its logits. `logits`: the model's output.
int64_t LabelsPerSample(const Shape& logits);
absl::StatusOr<int64_t> LabelsPerSample(const ModelSpec& model);

// Sum of trainable elements and of MACs (batch 1) over all layers.
absl::StatusOr<int64_t> CountParameters(const ModelSpec& model);
absl::StatusOr<int64_t> CountMacs(const ModelSpec& model);

}  // namespace runnel
