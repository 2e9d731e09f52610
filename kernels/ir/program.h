#pragma once

// The compiled stage: instructions over typed buffers. Recipes and the compiler write programs,
// backends run them; the two meet only here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/ir/op_code.h"
#include "kernels/ir/optimizers/optimizer_step.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/model/rescale.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"
#include "proto/base/training/grid_bits.h"

namespace runnel {

// Whose memory a buffer lies in. Each is one contiguous, 64-byte aligned area that the caller binds
// (backend.h). kGradients and kSlots are zeroed by their owner when they are made.
enum class Storage : uint8_t {
  kInput,   // the boundary tensor that enters (samples of ModelSpec::input_type at the first layer,
            // else the recipe's activation, scaled if that is i8); stays bound until
            // kWeightGradient is done
  kOutput,  // the boundary tensor that leaves, and the logits where the loss is; stays bound
            // until kWeightGradient is done if Program::backward_reads_output
  kOutputGradient,  // enters from the next stage, stays bound until kWeightGradient is done; unused
                    // where the loss is
  kInputGradient,   // leaves to the previous stage: written by kInputGradient, not touched by
                    // kWeightGradient; unused for the first layer
  kLabels,          // int32, LabelsPerSample for each sample; where the loss is
  kMetrics,         // double[2], as a buffer of 16 x u8; where the loss is
  kParameters,      // one weight version
  kNewParameters,   // the version that the update writes; may be the same memory as kParameters
  kGradients,       // layout of kParameters; integer recipes: wider integers, in the same order
  kSlots,           // the optimizer's, one after the other, each with the layout of kParameters;
                    // none with integer recipes
  kStatistics,      // running statistics, and the parameters of frozen layers: one version
  kStash,           // kept from a micro-batch's forward to its backward, which may overwrite it
  kScratch,         // free between a forward and the next action, and after a backward; needed by
                    // each part, and kept from kInputGradient to kWeightGradient, with
                    // CompileOptions::one_in_flight from kForward on
};
inline constexpr int kStorageCount = 13;

// "input", "output_gradient", ...
absl::string_view Name(Storage storage);

inline constexpr int32_t kNoGate = -1;

// A typed region. Several buffers may name the same bytes: views with other shapes (flatten), or
// values whose lives do not overlap.
struct Buffer {
  Storage storage = Storage::kScratch;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t offset_bytes = 0;  // multiple of 64
  bool scaled = false;  // has a ScaleTail behind its elements (proto/base/model/number_format.h)
  // FP32 that gets the values of this type: what writes it rounds as it would into a tensor of the
  // type (CompileOptions::stash).
  DType values_of = DType::kFloat32;
  // The choice of a gate by which the samples lie packed: those that run in front. -1: all lie in
  // their places.
  int32_t packed_by = kNoGate;

  bool is_rounded() const { return values_of != DType::kFloat32; }
  int64_t bytes() const {
    return scaled ? ScaledBytes(dtype, shape)
                  : shape.elements() * static_cast<int64_t>(SizeOf(dtype));
  }
};

// Rules for rounding integers to fewer bits. Dropping the low bits of |x| leaves a rest r.
enum class Rounding : uint8_t {
  kPseudoStochastic,  // away from zero if r's high half exceeds its low half (NITI's PSR)
  kHalfAway,          // to the nearest; halves away from zero
  kStochastic,        // away from zero with probability r / 2^shift; the draw is keyed by run_seed,
                      // layer, op, sequence and element
};

// An integer recipe's rule for an instruction.
struct IntegerRule {
  Rounding rounding = Rounding::kPseudoStochastic;
  bool promote_one_to_two = false;  // a shift of 1 becomes 2
  bool relu = false;                // kRescale: with the ReLU that follows
  bool power_of_two_input = false;  // kQuantize: x * 2^-e in place of 127 * x / M

  friend bool operator==(const IntegerRule&, const IntegerRule&) = default;
};

// Grid of quantised weights: kFakeQuantizeWeight.
enum class WeightGrid : uint8_t { kTanhMax, kSignMean };

// A fake-quantising recipe's rule for an instruction.
struct GridRule {
  int bits = 32;  // 1..16; 32: as they are
  WeightGrid weights = WeightGrid::kTanhMax;
  bool is_gradient = false;  // else weights or activations
  int exponent_bits = 0;     // of small floats, whose `bits` are those of mantissas
  bool to_nearest = false;   // in evaluation, where other passes may round by draws
  int draws = 0;             // kSymmetric codes, kRoundedUpdate: the stream of draws; 0: to_nearest
  float clip = 1;            // kSymmetricError: the share of the values' bounds that is kept
  int chunk = 0;             // kChunked codes: terms that are added up before their sum is
  bool of_tensor = false;    // weights of affine grids: one range for all output channels
  bool is_fixed = false;     // no level moves the bits
  bool is_open = false;      // kFixedPoint: values beyond the grid keep its steps, too

  // The bits of a micro-batch. Grids of one bit are another rule, and 32 bits no grid: both stay.
  int BitsAt(const GridBits& level) const {
    const int of_level = is_gradient ? level.backward : level.forward;
    const bool stays = bits == 32 || is_fixed || weights == WeightGrid::kSignMean;
    return stays || of_level == 0 ? bits : of_level;
  }

  friend bool operator==(const GridRule&, const GridRule&) = default;
};

// Slices of the batch that an integer product takes one after the other, each of `samples`, the
// last one of the rest (Mandheling, section 3.5). Sums of slices are added, so the bytes are those
// of the whole, and a backend need not split. But a `shifted` weight-gradient gives other bytes:
// the sums of each slice become mantissas m_i with a shift s_i by kRescale's rule (IntegerRule); S
// = max s_i; g = saturate(sum of m_i / 2^(S - s_i)), each quotient towards zero, of exponent e_dy +
// e_x + S.
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
  // Values that stay in place until this instruction is done although it does not read them, so
  // that values derived from them may be computed as late as here.
  std::vector<BufferIndex> keeps;
  GridRule grid;
  RescaleRule rescale;  // of products with a kept scale
  // A product that F(2x2, 3x3) may compute: of codes with the same sums, of floats with others.
  bool winograd = false;
  BatchSplit split;  // of convolutions and linear layers, and their gradients
  const OptimizerStep* optimizer = nullptr;  // of kOptimizerUpdate
  // A weight-gradient whose outputs are values of this micro-batch: it overwrites, whatever
  // StepContext::accumulate says.
  bool overwrites = false;
  // The choice of a gate whose samples this instruction computes: what lies packed by it has their
  // count, and without any nothing is done but that gradients of parameters become 0. -1: computes
  // all samples.
  BufferIndex gate = kNoGate;
};

// One parameter or statistic tensor of the stage.
struct StateTensor {
  int layer = 0;  // in the model
  StateTensorSpec spec;
  Storage storage = Storage::kParameters;  // or kStatistics, or kSlots
  int64_t offset_bytes = 0;
  int64_t gradient_offset_bytes = 0;  // in kGradients, of trainable tensors
  DType gradient_dtype = DType::kFloat32;
  // The bytes of (out, in, kernel...) lie as (out, kernel..., in).
  bool channels_last = false;
};

// Layout of a stage's state; the same for every batch size.
struct StateLayout {
  std::vector<StateTensor> tensors;  // by layer, then in the order of LayerInfo::state
  std::vector<StateTensor> slots;    // likewise, in the order of SlotsOf
  int64_t parameter_bytes = 0;       // padding between tensors is zero for ever
  int64_t gradient_bytes = 0;
  int64_t slot_bytes = 0;  // of all slots together
  int64_t statistic_bytes = 0;

  // Of the optimizer's k-th slot of an FP32 parameter.
  int64_t SlotOffset(const StateTensor& parameter, size_t k) const {
    return static_cast<int64_t>(k) * parameter_bytes + parameter.offset_bytes;
  }
};

// Whether training or evaluation has an instruction with a gate.
struct Program;
bool HasGates(const Program& program);

// A stage compiled for one micro-batch size.
struct Program {
  int first_layer = 0;
  int last_layer = 0;
  int64_t batch = 0;
  // Of the recipe's activations. Instructions of halves (IsHalf) compute in FP32 on them.
  DType values = DType::kFloat32;
  bool has_loss = false;              // the stage ends with the model's last layer
  bool needs_input_gradient = false;  // a gradient leaves: first_layer > ModelSpec::frozen_front
  bool backward_reads_output = false;
  // kInputGradient does weight-gradients too and so writes kGradients, or takes the step
  // (CompileOptions::recomputes, steps_in_backward).
  bool early_weight_gradients = false;
  Shape input;
  Shape output;
  // Sizes of kInput, kOutput, kInputGradient and kOutputGradient, with the tails of scaled ones and
  // the values beside them (BoundaryBytes, SidePlaces).
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t input_gradient_bytes = 0;
  int64_t output_gradient_bytes = 0;
  std::vector<Buffer> buffers;
  std::array<std::vector<Instruction>, kPartCount> parts;
  StateLayout state;
  int64_t stash_bytes = 0;
  int64_t scratch_bytes = 0;  // enough for any part
  // What kParameters holds, where that never changes and lies on the host: a backend may pack it
  // when it prepares the program, whose executables it outlives. Null: not known beforehand.
  const std::byte* constants = nullptr;

  const std::vector<Instruction>& part(Part p) const { return parts[static_cast<int>(p)]; }
};

// Shape of an operand that the instruction has, as OpTraits::shapes names it.
const Shape& ShapeOf(const Program& program, const Instruction& instruction, Operand operand);
// Multiply-adds of a product; 0 for all other instructions.
int64_t MultiplyAdds(const Program& program, const Instruction& instruction);

// A listing for people and tests: one line an instruction, then the sizes. "~": Buffer::rounded.
std::string ToString(const Program& program);

}  // namespace runnel
