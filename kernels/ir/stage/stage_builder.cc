#include "kernels/ir/stage/stage_builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/ir/stage/carried_state.h"
#include "kernels/ir/stage/grid_operands.h"
#include "kernels/ir/stage/op_nodes.h"
#include "kernels/ir/stage/program_writer.h"
#include "kernels/ir/stage/updates.h"
#include "proto/base/model/width_state.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

class StageBuilder {
 public:
  StageBuilder(const ModelSpec& model, const std::vector<LayerInfo>& infos, int first_layer,
               int last_layer, const Recipe& recipe, const CompileOptions& options)
      : model_(model), infos_(infos), recipe_(recipe), options_(options) {
    program_.first_layer = first_layer;
    program_.last_layer = last_layer;
    program_.batch = infos[first_layer].input[0];
    program_.values = recipe.numbers.activation;
    program_.has_loss = last_layer + 1 == model.layer_count();
    program_.needs_input_gradient = first_layer > model.frozen_front();
    program_.input = infos[first_layer].input;
    program_.output = infos[last_layer].output;
    program_.state = LayOutState(infos, first_layer, last_layer, recipe, options);
  }

  absl::StatusOr<StageDraft> Build() {
    RUNNEL_ASSIGN_OR_RETURN(
        nodes_, NodesOf(model_, infos_, program_.first_layer, program_.last_layer, recipe_));
    input_ = program_.first_layer == 0
                 ? writer_.AddPlaced(Storage::kInput, model_.input_type(), program_.input)
                 : writer_.AddBoundary(Storage::kInput, program_.input);
    output_ = writer_.AddBoundary(Storage::kOutput, nodes_.back().shape);
    const NumberFormat& numbers = recipe_.numbers;
    RUNNEL_ASSIGN_OR_RETURN(state_, PlaceCarriedState(model_, numbers, program_, placed_));
    program_.input_bytes = program_.first_layer == 0 ? program_.buffers[input_].bytes()
                                                     : BoundaryBytes(numbers, program_.input);
    program_.output_bytes = BoundaryBytes(numbers, program_.output);
    program_.input_gradient_bytes = BoundaryBytes(numbers, program_.input, Direction::kBackward);
    program_.output_gradient_bytes = BoundaryBytes(numbers, program_.output, Direction::kBackward);
    if (program_.has_loss) {
      const int64_t labels = LabelsPerSample(program_.output);
      labels_ = writer_.AddPlaced(Storage::kLabels, DType::kInt32, {program_.batch * labels});
      metrics_ = writer_.AddPlaced(Storage::kMetrics, DType::kUInt8, {2 * sizeof(double)});
    }
    AddState();
    EmitForward(/*training=*/true);
    EmitForward(/*training=*/false);
    EmitInputGradient();
    EmitWeightGradient();
    EmitUpdates(writer_, nodes_, options_);
    return StageDraft{std::move(program_), std::move(placed_)};
  }

 private:
  // The choice by which a node's input lies packed, if the node computes on it as it lies.
  BufferIndex GateOf(const OpNode& node, BufferIndex input) const {
    return node.spec->kind == OpKind::kUnpack ? kNoGate : program_.buffers[input].packed_by;
  }

  void AddState() {
    size_t node = 0;
    for (const StateTensor& tensor : program_.state.tensors) {
      while (nodes_[node].layer != tensor.layer || nodes_[node].op != tensor.spec.op ||
             nodes_[node].is_view)
        ++node;
      if (tensor.spec.role == TensorRole::kExponent) continue;    // in its weight's tail
      if (tensor.spec.role == TensorRole::kKeptScales) continue;  // FuseRescale
      const bool scaled = IsScaled(tensor.spec.dtype);
      const auto add = [&](Storage storage, DType dtype, int64_t offset) {
        return writer_.AddPlaced(storage, dtype, tensor.spec.shape, offset, scaled);
      };
      if (tensor.spec.role == TensorRole::kInputRange) {
        nodes_[node].range = add(Storage::kStatistics, DType::kFloat32, tensor.offset_bytes);
        continue;
      }
      if (tensor.spec.role == TensorRole::kWidths) {
        for (int64_t row = 0; row < kWidthRows; ++row) {
          constexpr int64_t kRowBytes = sizeof(WidthState);
          const int64_t offset = tensor.offset_bytes + row * kRowBytes;
          nodes_[node].widths.push_back(
              writer_.AddPlaced(Storage::kStatistics, DType::kFloat32, {kWidthWords}, offset));
        }
        continue;
      }
      if (!IsTrainable(tensor.spec.role)) {
        nodes_[node].statistics.push_back(
            add(Storage::kStatistics, DType::kFloat32, tensor.offset_bytes));
        continue;
      }
      const bool is_of_recipe = IsOfRecipe(tensor.spec.role);
      (is_of_recipe ? nodes_[node].compensation : nodes_[node].parameters)
          .push_back(add(tensor.storage, tensor.spec.dtype, tensor.offset_bytes));
      if (tensor.spec.frozen) continue;
      nodes_[node].trains = true;
      (is_of_recipe ? nodes_[node].compensation_gradients : nodes_[node].gradients)
          .push_back(add(Storage::kGradients, tensor.gradient_dtype, tensor.gradient_offset_bytes));
      if (!scaled) continue;
      nodes_[node].updated.push_back(
          add(Storage::kNewParameters, tensor.spec.dtype, tensor.offset_bytes));
    }
  }

  void EmitForward(bool training) {
    BufferIndex entering = input_;
    if (recipe_.quantize && program_.first_layer == 0 && IsFloat(model_.input_type())) {
      entering = writer_.AddActivation(program_.input);
      writer_.Emit(training ? Part::kForward : Part::kForwardEval, *recipe_.quantize,
                   nodes_.front(), {input_}, {entering});
    }
    std::vector<BufferIndex> values;  // of the layer, by value id
    int layer = kNoBuffer;
    BufferIndex state = state_.input;  // of the last cell so far
    for (OpNode& node : nodes_) {
      if (std::exchange(layer, node.layer) != node.layer) values = {entering};
      std::vector<BufferIndex> inputs = {entering};
      if (node.spec->kind == OpKind::kCarriedState) {
        inputs = {state};
      } else if (!node.reads_last) {
        inputs.clear();
        for (int32_t id : node.spec->inputs) inputs.push_back(values[id]);
      }
      node.gate = GateOf(node, inputs[0]);
      const BufferIndex packed_by = node.spec->kind == OpKind::kPack ? inputs[1] : node.gate;
      const BufferIndex output =
          &node == &nodes_.back() ? output_ : writer_.AddActivation(node.shape, packed_by);
      if (training) {
        node.inputs = inputs;
        node.output = output;
      }
      if (training && !node.evaluates) {
        EmitTraining(node);
      } else {
        const Part part = training ? Part::kForward : Part::kForwardEval;
        inputs[0] = InputFor(writer_, part, node, inputs[0]);
        AppendWeights(writer_, part, node, &inputs);
        Append(node.statistics, &inputs);
        const BufferIndex result = ProductOf(node, output);
        writer_.EmitRescaled(part, ForwardCode(node, node.rule->forward_eval),
                             node.rule->rescale_forward, node, inputs, {result});
        EmitCompensation(part, node, result, output);
      }
      if (training && node.spec->kind == OpKind::kUnpack) EmitExploration(node);
      if (node.gives_value) values.push_back(output);
      if (node.spec->kind == OpKind::kLstmCell) state = output;
      entering = output;
    }
    if (training) last_state_ = state;
    if (state_.output != kNoBuffer)
      writer_.EmitCopy(training ? Part::kForward : Part::kForwardEval, nodes_.back(), state,
                       state_.output);
    if (program_.has_loss) EmitLoss(training);
  }

  // What the operator itself writes, where something is added to it behind.
  BufferIndex ProductOf(const OpNode& node, BufferIndex output) {
    return node.compensation.empty() ? output : writer_.AddActivation(node.shape);
  }

  void EmitCompensation(Part part, const OpNode& node, BufferIndex product, BufferIndex output) {
    if (node.compensation.empty()) return;
    std::vector<BufferIndex> operands = {product};
    Append(node.compensation, &operands);
    writer_.Emit(part, OpCode::kCompensate, node, std::move(operands), {output});
  }

  static void Append(const std::vector<BufferIndex>& from, std::vector<BufferIndex>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  static OpCode ForwardCode(const OpNode& node, OpCode usual) {
    return node.learns_choice ? node.rule->learned_forward.value_or(usual) : usual;
  }

  // The options that a gate explores: what leads from its packing to `unpack`, once more on the
  // samples of the exploration, as an evaluation computes it.
  void EmitExploration(OpNode& unpack) {
    const BufferIndex choice = unpack.inputs[1];
    std::map<BufferIndex, BufferIndex> explored;  // by value of the chosen options
    for (const OpNode& node : nodes_) {
      if (&node == &unpack) break;
      if (node.output == choice) unpack.exploration = node.exploration;
      if (unpack.exploration == kNoBuffer || node.inputs.empty()) continue;
      const bool packs = node.spec->kind == OpKind::kPack && node.inputs[1] == choice;
      const auto input = explored.find(node.inputs[0]);
      if (!packs && input == explored.end()) continue;
      OpNode again = node;
      again.evaluates = true;
      again.gate = packs ? kNoGate : unpack.exploration;
      std::vector<BufferIndex> inputs = {packs ? node.inputs[0] : input->second};
      inputs[0] = InputFor(writer_, Part::kForward, again, inputs[0]);
      if (packs) inputs.push_back(unpack.exploration);
      AppendWeights(writer_, Part::kForward, again, &inputs);
      Append(again.statistics, &inputs);
      const BufferIndex output = writer_.AddActivation(again.shape, unpack.exploration);
      writer_.Emit(Part::kForward, again.rule->forward_eval, again, std::move(inputs), {output});
      explored[node.output] = output;
    }
    if (const auto end = explored.find(unpack.inputs[0]); end != explored.end())
      unpack.explored = end->second;
  }

  void EmitTraining(OpNode& node) {
    std::vector<BufferIndex> inputs = node.inputs;
    inputs[0] = node.read_input = InputFor(writer_, Part::kForward, node, inputs[0]);
    AppendWeights(writer_, Part::kForward, node, &inputs);
    std::vector<BufferIndex> outputs = {ProductOf(node, node.output)};
    if (const auto by_product = ByProductOf(node)) {
      node.by_product = writer_.AddValue(by_product->dtype, by_product->shape);
      outputs.push_back(node.by_product);
    }
    Append(node.statistics, &outputs);
    if (node.learns_choice) outputs.push_back(node.exploration = writer_.AddActivation(node.shape));
    writer_.EmitRescaled(Part::kForward, ForwardCode(node, node.rule->forward),
                         node.rule->rescale_forward, node, inputs, outputs);
    EmitCompensation(Part::kForward, node, outputs[0], node.output);
  }

  void EmitLoss(bool training) {
    OpNode node = nodes_.back();
    node.gate = kNoGate;
    const OpSpec none;
    node.spec = &none;
    if (training) {
      output_gradient_ = writer_.AddGradientOf(output_);
      writer_.Emit(Part::kForward, recipe_.loss, node, {output_, labels_},
                   {output_gradient_, metrics_});
    } else {
      writer_.Emit(Part::kForwardEval, recipe_.loss_eval, node, {output_, labels_}, {metrics_});
    }
  }

  // True by value if a gradient is wanted for it: it leads to parameters or to the previous stage.
  std::vector<bool> WantedGradients() const {
    std::vector<bool> wanted(program_.buffers.size());
    wanted[input_] = program_.needs_input_gradient;
    if (state_.input != kNoBuffer) wanted[state_.input] = program_.needs_input_gradient;
    for (const OpNode& node : nodes_) {
      bool any = node.trains;
      const bool is_drawn = node.spec->kind == OpKind::kGate && !node.learns_choice;
      if (is_drawn) continue;  // nothing leads through a draw
      for (BufferIndex input : node.inputs) any = any || wanted[input];
      wanted[node.output] = any;
    }
    return wanted;
  }

  void EmitInputGradient() {
    const std::vector<bool> wanted = WantedGradients();
    if (!wanted[output_]) return;
    if (!program_.has_loss)
      output_gradient_ = writer_.AddBoundary(Storage::kOutputGradient, program_.output);
    gradient_.assign(program_.buffers.size(), kNoBuffer);
    gradient_[output_] = output_gradient_;
    if (state_.output != kNoBuffer) gradient_[last_state_] = state_.output_gradient;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!wanted[node->output]) continue;
      node->gate = GateOf(*node, node->inputs[0]);
      const auto is_wanted = [&](BufferIndex value) { return wanted[value]; };
      EmitGradientGrids(writer_, *node,
                        std::any_of(node->inputs.begin(), node->inputs.end(), is_wanted),
                        gradient_[node->output]);
      const bool always = node->rule->saved == Saved::kInputAndStats;
      const size_t count = node->spec->kind == OpKind::kPack ? 1 : node->inputs.size();
      for (size_t i = 0; i < count; ++i)
        if (always || wanted[node->inputs[i]]) AddContribution(*node, i);
    }
    if (!program_.needs_input_gradient) return;
    const BufferIndex leaving = writer_.AddBoundary(Storage::kInputGradient, program_.input);
    writer_.EmitCopy(Part::kInputGradient, nodes_.front(), gradient_[input_], leaving);
    if (state_.input_gradient != kNoBuffer)
      writer_.EmitCopy(Part::kInputGradient, nodes_.front(), gradient_[state_.input],
                       state_.input_gradient);
  }

  // What `node` adds to the gradient of its input at `place`.
  void AddContribution(OpNode& node, size_t place) {
    const BufferIndex input = node.inputs[place];
    const OpCode code = place == 0 ? node.rule->input_gradient
                                   : node.rule->second_gradient.value_or(node.rule->input_gradient);
    std::vector<BufferIndex> operands = {gradient_[node.output]};
    Append(SavedOperands(node, place), &operands);
    if (node.rule->saved == Saved::kNothing && !node.parameters.empty())
      operands.push_back(WeightFor(writer_, Part::kInputGradient, node));
    if (code == OpCode::kMaskGradient)
      operands.insert(operands.end(), {node.inputs[1], node.explored, node.exploration});
    BufferIndex dx = writer_.AddGradientOf(input);
    std::vector<BufferIndex> results = {dx};
    if (node.rule->saved == Saved::kInputAndStats) {
      const int64_t scales = program_.buffers[node.parameters[0]].shape.elements();
      node.dscale_dshift = writer_.AddValue(DType::kFloat32, {2 * scales});
      results.push_back(node.dscale_dshift);
    }
    writer_.EmitRescaled(Part::kInputGradient, code, node.rule->rescale_input_gradient, node,
                         operands, results);
    if (gradient_[input] != kNoBuffer) {
      const BufferIndex sum = writer_.AddGradientOf(input);
      // A sum of packed gradients is computed by the samples that run, too.
      writer_.Emit(Part::kInputGradient, recipe_.add_gradients, node, {gradient_[input], dx},
                   {sum});
      dx = sum;
    }
    gradient_[input] = dx;
  }

  void EmitWeightGradient() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!node->rule->weight_gradient || !node->trains) continue;
      node->gate = GateOf(*node, node->inputs[0]);
      if (!node->compensation_gradients.empty()) {
        std::vector<BufferIndex> compensated = {node->compensated_error};
        Append(node->compensation, &compensated);
        writer_.Emit(Part::kWeightGradient, OpCode::kCompensationGradient, *node,
                     std::move(compensated), node->compensation_gradients);
      }
      std::vector<BufferIndex> operands = {node->dscale_dshift};
      if (node->dscale_dshift == kNoBuffer) operands = OperandsOfWeightGradient(*node);
      if (recipe_.add_weight_gradient && options_.accumulates_gradients) {
        EmitAddedGradient(*node, operands);
      } else if (node->grids != nullptr && node->grids->master_gradient) {
        EmitMasterGradient(*node, operands);
      } else {
        writer_.Emit(Part::kWeightGradient, *node->rule->weight_gradient, *node, operands,
                     node->gradients);
      }
    }
  }

  std::vector<BufferIndex> OperandsOfWeightGradient(const OpNode& node) const {
    const auto either = [](BufferIndex own, BufferIndex shared) {
      return own != kNoBuffer ? own : shared;
    };
    return {either(node.error_again, gradient_[node.output]),
            either(node.input_again, node.read_input)};
  }

  // The micro-batch's own sum first, then into the step's.
  void EmitAddedGradient(const OpNode& node, const std::vector<BufferIndex>& operands) {
    const Shape shape = program_.buffers[node.gradients[0]].shape;
    const DType dtype =
        GradientTypeOf(infos_[node.layer].op_outputs[node.op], shape, options_.max_batch);
    const BufferIndex sum = writer_.AddValue(dtype, shape, /*scaled=*/true);
    writer_.Emit(Part::kWeightGradient, *node.rule->weight_gradient, node, operands, {sum});
    writer_.Emit(Part::kWeightGradient, *recipe_.add_weight_gradient, node, {sum},
                 {node.gradients[0]});
  }

  // The gradients of what the operator computed with, then those of the master weights. A bias is
  // its own master.
  void EmitMasterGradient(const OpNode& node, const std::vector<BufferIndex>& operands) {
    std::vector<BufferIndex> computed;
    for (BufferIndex gradient : node.gradients) {
      const Shape flat = {program_.buffers[gradient].shape.elements()};
      computed.push_back(writer_.AddValue(program_.buffers[gradient].dtype, flat));
    }
    writer_.Emit(Part::kWeightGradient, *node.rule->weight_gradient, node, operands, computed);
    writer_.last(Part::kWeightGradient).overwrites = true;
    for (size_t i = 0; i < computed.size(); ++i) {
      const BufferIndex by = node.deviation != kNoBuffer ? node.deviation : node.parameters[i];
      writer_.Emit(Part::kWeightGradient, *node.grids->master_gradient, node, {computed[i], by},
                   {node.gradients[i]});
      writer_.last(Part::kWeightGradient).grid =
          i == 0 ? node.grids->forward.weight->grid : GridRule{};
    }
  }

  const ModelSpec& model_;
  const std::vector<LayerInfo>& infos_;
  const Recipe& recipe_;
  const CompileOptions& options_;
  Program program_;
  std::vector<bool> placed_;
  ProgramWriter writer_{recipe_, program_, placed_};
  std::vector<OpNode> nodes_;
  BufferIndex input_ = kNoBuffer;
  BufferIndex output_ = kNoBuffer;
  BufferIndex labels_ = kNoBuffer;
  BufferIndex metrics_ = kNoBuffer;
  BufferIndex output_gradient_ = kNoBuffer;
  CarriedState state_;
  BufferIndex last_state_ = kNoBuffer;  // of the stage's last cell, or what entered; in training
  std::vector<BufferIndex> gradient_;   // by value of the forward
};

}  // namespace

absl::StatusOr<StageDraft> DraftStage(const ModelSpec& model, const std::vector<LayerInfo>& infos,
                                      int first_layer, int last_layer, const Recipe& recipe,
                                      const CompileOptions& options) {
  return StageBuilder(model, infos, first_layer, last_layer, recipe, options).Build();
}

}  // namespace runnel
