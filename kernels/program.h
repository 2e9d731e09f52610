#pragma once

// The compiled stage: instructions over typed buffers. Recipes and the compiler write programs,
// backends run them; the two meet only here (DESIGN 2.3).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/base/dtype.h"
#include "proto/base/model_spec.h"
#include "proto/base/shape.h"

namespace runnel {

// What an instruction computes; kernels/ref is the specification of each. Operands stand beside the
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
  kReluForward,       // x -> y; NaN stays NaN
  kRelu6Forward,      // x -> y; NaN stays NaN
  kDropoutForward,    // x -> y = kept ? x * float(1 / (1 - rate)) : 0, where kept =
                      // double(CounterRandom(run_seed, kDropout, layer * 256 + op, sequence)
                      // .Uniform(element)) >= rate; so the mask need not be stored
  kMaxPoolForward,  // x -> y, [indices] (int64, position in the (H,W) or (L) plane of the input of
                    // the first maximum in row-major order; a NaN wins over every number).
                    // Without indices in evaluation
  kAvgPoolForward,  // x -> y
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
  // Update, over the whole parameter storage at once.
  kSgdUpdate,  // parameters, gradients, momentum (in place) -> new_parameters, all float[n]
               // g += weight_decay * w; v = momentum * v + g; w' = w - learning_rate * v
};

// True for the elementwise codes whose first output may be the very memory of one of their inputs
// (relu, relu6, dropout and their gradients, add, accumulate). Of all others outputs and inputs
// never overlap, except that kNewParameters may be kParameters.
bool AllowsInPlace(OpCode code);

// "conv_forward", ...
absl::string_view Name(OpCode code);

// Whose memory a buffer lies in. Each is one contiguous, 64-byte aligned area that the caller binds
// (backend.h). kGradients and kMomentum are zeroed by their owner when they are made.
enum class Storage : uint8_t {
  kInput,   // the boundary tensor that enters; stays bound until kWeightGradient is done
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
  kGradients,       // layout of kParameters
  kMomentum,        // layout of kParameters
  kStatistics,      // running statistics
  kStash,           // kept from a micro-batch's forward to its backward, which may overwrite it
  kScratch,         // free between a forward and the next action, and after a backward; needed by
                    // each part, and kept from kInputGradient to kWeightGradient
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

  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(SizeOf(dtype)); }
};

using BufferIndex = int32_t;

struct Instruction {
  OpCode code = OpCode::kCopy;
  std::vector<BufferIndex> inputs;
  std::vector<BufferIndex> outputs;
  int layer = 0;  // in the model, not in the stage: random draws and messages use it
  int op = 0;     // in the layer
  OpSpec attributes;
};

// Parts of a program, run as separate actions.
enum class Part : uint8_t {
  kForward,         // training mode; ends with the loss where the loss is
  kForwardEval,     // evaluation mode: running statistics, no dropout; writes nothing that lasts
  kInputGradient,   // everything that leads to the gradient for the previous stage
  kWeightGradient,  // after kInputGradient of the same micro-batch, with the scratch untouched in
                    // between
  kUpdate,          // the optimizer step
};
inline constexpr int kPartCount = 5;

// One parameter or statistic tensor of the stage.
struct StateTensor {
  int layer = 0;  // in the model
  StateTensorSpec spec;
  Storage storage = Storage::kParameters;  // or kStatistics
  int64_t offset_bytes = 0;
};

// Where a stage's state lies; the same for every batch size.
struct StateLayout {
  std::vector<StateTensor> tensors;  // by layer, then in the order of LayerInfo::state
  int64_t parameter_bytes =
      0;  // also of gradients and momentum; padding between tensors is zero for ever
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
  Shape input;
  Shape output;
  std::vector<Buffer> buffers;
  std::array<std::vector<Instruction>, kPartCount> parts;
  StateLayout state;
  int64_t stash_bytes = 0;
  int64_t scratch_bytes = 0;  // enough for any part

  const std::vector<Instruction>& part(Part p) const { return parts[static_cast<int>(p)]; }
};

// A listing for people and tests: one line an instruction, then the sizes.
std::string ToString(const Program& program);

}  // namespace runnel
