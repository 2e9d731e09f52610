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

// What an instruction computes; kernels/ref is the specification of each, operands stand beside the
// code. "stats" are float[2C]: mean then 1/sqrt(var + epsilon).
enum class OpCode : uint8_t {
  // Forward. Inputs -> outputs.
  kConvForward,       // x, weight, [bias] -> y
  kLinearForward,     // x, weight, [bias] -> y
  kBatchNormForward,  // x, scale, shift -> y, stats, running_mean (in place), running_var (in
                      // place)
  kBatchNormEval,     // x, scale, shift, running_mean, running_var -> y
  kReluForward,       // x -> y
  kRelu6Forward,      // x -> y
  kDropoutForward,  // x -> y; the mask is a pure function of the step context, so it is not stored
  kMaxPoolForward,  // x -> y, indices (int64, position in the (H,W) or (L) plane of the input)
  kAvgPoolForward,  // x -> y
  kGlobalAvgPoolForward,  // x -> y
  kAddForward,            // a, b -> y
  kCopy,                  // x -> y, same element count
  kSoftmaxCrossEntropy,   // logits, labels (int32) -> logits_gradient, metrics (double[2]: sum of
                          // losses, correct)
                          // logits_gradient = (softmax - onehot) / step_samples
  kSoftmaxCrossEntropyEval,  // logits, labels -> metrics
  // Input-gradient: dy -> dx.
  kConvInputGradient,       // dy, weight -> dx
  kLinearInputGradient,     // dy, weight -> dx
  kBatchNormInputGradient,  // dy, x, scale, stats -> dx, dscale_dshift (float[2C], this micro-batch
                            // only)
  kReluInputGradient,       // dy, y -> dx
  kRelu6InputGradient,      // dy, y -> dx: passes where 0 < y < 6
  kDropoutInputGradient,    // dy -> dx
  kMaxPoolInputGradient,    // dy, indices -> dx
  kAvgPoolInputGradient,    // dy -> dx
  kGlobalAvgPoolInputGradient,  // dy -> dx
  kAccumulate,                  // a, b -> a + b: a value that several operators read gets the sum
  // Weight-gradient: writes, or adds to, the gradient storage (StepContext::accumulate).
  kConvWeightGradient,       // dy, x -> dweight, [dbias]
  kLinearWeightGradient,     // dy, x -> dweight, [dbias]
  kBatchNormWeightGradient,  // dscale_dshift -> dscale, dshift
  // Update, over the whole parameter storage at once.
  kSgdUpdate,  // parameters, gradients, momentum (in place) -> new_parameters
               // g += weight_decay * w; v = momentum * v + g; w' = w - learning_rate * v
};

// "conv_forward", ...
absl::string_view Name(OpCode code);

// Whose memory a buffer lies in. Each is one contiguous, 64-byte aligned area that the caller binds
// (backend.h).
enum class Storage : uint8_t {
  kInput,           // the boundary tensor that enters; stays bound until the backward is done
  kOutput,          // the boundary tensor that leaves; likewise if Program::backward_reads_output
  kOutputGradient,  // enters from the next stage; unused where the loss is
  kInputGradient,   // leaves to the previous stage; unused for the first layer
  kLabels,          // int32 per sample; where the loss is
  kMetrics,         // double[2]; where the loss is
  kParameters,      // one weight version
  kNewParameters,   // the version that the update writes; may be the same memory as kParameters
  kGradients,       // layout of kParameters
  kMomentum,        // layout of kParameters
  kStatistics,      // running statistics
  kStash,           // kept from a micro-batch's forward to its backward
  kScratch,         // free between a forward and the next action, and after a backward
};
inline constexpr int kStorageCount = 13;

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
