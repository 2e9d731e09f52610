#include "kernels/ir/stage_builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/ir/arithmetic/integer_math.h"
#include "kernels/ir/carried_state.h"
#include "kernels/ir/op_nodes.h"
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
                 ? AddPlaced(Storage::kInput, model_.input_type(), program_.input)
                 : AddBoundary(Storage::kInput, program_.input);
    output_ = AddBoundary(Storage::kOutput, nodes_.back().shape);
    const NumberFormat& numbers = recipe_.numbers;
    RUNNEL_ASSIGN_OR_RETURN(state_, PlaceCarriedState(model_, numbers, program_, placed_));
    program_.input_bytes = program_.first_layer == 0 ? program_.buffers[input_].bytes()
                                                     : BoundaryBytes(numbers, program_.input);
    program_.output_bytes = BoundaryBytes(numbers, program_.output);
    program_.input_gradient_bytes = BoundaryBytes(numbers, program_.input, Direction::kBackward);
    program_.output_gradient_bytes = BoundaryBytes(numbers, program_.output, Direction::kBackward);
    if (program_.has_loss) {
      const int64_t labels = LabelsPerSample(program_.output);
      labels_ = AddPlaced(Storage::kLabels, DType::kInt32, {program_.batch * labels});
      metrics_ = AddPlaced(Storage::kMetrics, DType::kUInt8, {2 * sizeof(double)});
    }
    AddState();
    EmitForward(/*training=*/true);
    EmitForward(/*training=*/false);
    EmitInputGradient();
    EmitWeightGradient();
    EmitUpdate();
    return StageDraft{std::move(program_), std::move(placed_)};
  }

 private:
  BufferIndex AddBuffer(const Buffer& buffer, bool placed) {
    program_.buffers.push_back(buffer);
    placed_.push_back(placed);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }
  BufferIndex AddPlaced(Storage storage, DType dtype, const Shape& shape, int64_t offset = 0) {
    return AddBuffer({storage, dtype, shape, offset}, /*placed=*/true);
  }
  BufferIndex AddBoundary(Storage storage, const Shape& shape) {
    const bool is_gradient =
        storage == Storage::kOutputGradient || storage == Storage::kInputGradient;
    const DType dtype = is_gradient ? recipe_.numbers.error : recipe_.numbers.activation;
    return AddBuffer({storage, dtype, shape, 0, IsScaled(dtype)}, /*placed=*/true);
  }
  BufferIndex AddValue(DType dtype, const Shape& shape, bool scaled = false) {
    return AddBuffer({Storage::kScratch, dtype, shape, 0, scaled}, /*placed=*/false);
  }
  BufferIndex AddActivation(const Shape& shape, BufferIndex packed_by = kNoGate) {
    const BufferIndex value =
        AddValue(recipe_.numbers.activation, shape, IsScaled(recipe_.numbers.activation));
    program_.buffers[value].packed_by = packed_by;
    return value;
  }
  BufferIndex AddGradientOf(BufferIndex value) {
    const BufferIndex gradient =
        AddValue(recipe_.numbers.error, Shape(program_.buffers[value].shape),
                 IsScaled(recipe_.numbers.error));
    program_.buffers[gradient].packed_by = program_.buffers[value].packed_by;
    return gradient;
  }
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
        return AddBuffer({storage, dtype, tensor.spec.shape, offset, scaled}, /*placed=*/true);
      };
      if (tensor.spec.role == TensorRole::kInputRange) {
        nodes_[node].range = add(Storage::kStatistics, DType::kFloat32, tensor.offset_bytes);
        continue;
      }
      if (tensor.spec.role == TensorRole::kWidths) {
        for (int64_t row = 0; row < kWidthRows; ++row) {
          const int64_t offset =
              tensor.offset_bytes + row * static_cast<int64_t>(sizeof(WidthState));
          nodes_[node].widths.push_back(
              AddPlaced(Storage::kStatistics, DType::kFloat32, {kWidthWords}, offset));
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

  void Emit(Part part, OpCode code, const OpNode& node, std::vector<BufferIndex> inputs,
            std::vector<BufferIndex> outputs) {
    Instruction& instruction = program_.parts[static_cast<int>(part)].emplace_back();
    instruction = {code, std::move(inputs), std::move(outputs), node.layer, node.op, *node.spec};
    instruction.gate = node.gate;
    if (node.gate != kNoGate)
      instruction.keeps.push_back(node.gate);  // who runs it reads the choice
    instruction.integer = recipe_.rescale;
    instruction.grid = recipe_.operator_grid;
    if (code == recipe_.loss) instruction.integer.rounding = recipe_.loss_rounding;
    if (code == recipe_.update) instruction.integer.rounding = recipe_.gradient_rounding;
  }

  // At an end of the stage.
  void EmitCopy(Part part, OpNode node, BufferIndex from, BufferIndex to) {
    node.gate = kNoGate;
    Emit(part, OpCode::kCopy, node, {from}, {to});
  }

  // With the accumulator and its rescaling in between if `rescale`.
  void EmitRescaled(Part part, OpCode code, bool rescale, const OpNode& node,
                    std::vector<BufferIndex> inputs, std::vector<BufferIndex> outputs) {
    if (!rescale) return Emit(part, code, node, std::move(inputs), std::move(outputs));
    const Shape shape = program_.buffers[outputs[0]].shape;
    const BufferIndex accumulator = AddValue(DType::kInt32, shape, /*scaled=*/true);
    const BufferIndex result = std::exchange(outputs[0], accumulator);
    Emit(part, code, node, std::move(inputs), std::move(outputs));
    Emit(part, OpCode::kRescale, node, {accumulator}, {result});
  }

  // Puts a value on a quantizer's grid; gives the new one.
  BufferIndex EmitQuantizer(Part part, const Quantizer& quantizer, const OpNode& node,
                            BufferIndex from, const Shape& shape) {
    const BufferIndex to = AddValue(program_.buffers[from].dtype, shape);
    program_.buffers[to].packed_by = program_.buffers[from].packed_by;
    std::vector<BufferIndex> operands = {from}, results = {to};
    if (node.deviation != kNoBuffer && quantizer.grid.is_gradient &&
        TraitsOf(quantizer.code).min_outputs > 1)
      results.push_back(node.deviation);
    if (!node.widths.empty()) {
      const size_t row = quantizer.grid.is_gradient ? 3 : (part == Part::kInputGradient ? 2 : 0);
      const bool reads_only = part == Part::kForwardEval || node.evaluates;
      (reads_only ? operands : results).push_back(node.widths[row]);
    }
    Emit(part, quantizer.code, node, std::move(operands), std::move(results));
    GridRule& grid = program_.parts[static_cast<int>(part)].back().grid;
    grid = quantizer.grid;
    grid.to_nearest = part == Part::kForwardEval;
    return to;
  }

  // The weight that the product of this part reads: of a quantizer's making, or the parameter
  // itself. Made anew in each part, which costs less than keeping it for each micro-batch in
  // flight.
  BufferIndex WeightFor(Part part, const OpNode& node) {
    const BufferIndex parameter = node.parameters[0];
    if (node.grids == nullptr) return parameter;
    const std::optional<Quantizer>& quantizer = part == Part::kInputGradient
                                                    ? node.grids->input_gradient.weight
                                                    : node.grids->forward.weight;
    if (!quantizer) return parameter;
    // Rows of output channels: weights are row-major, whatever lies beside them.
    const Shape& shape = program_.buffers[parameter].shape;
    const Shape rows = {shape[0], shape.elements() / shape[0]};
    return EmitQuantizer(part, *quantizer, node, parameter, rows);
  }

  // What the forward reads in place of its input x.
  BufferIndex InputFor(Part part, const OpNode& node, BufferIndex x) {
    if (node.grids == nullptr || !node.grids->forward.input) return x;
    const InputQuantizer& quantizer = *node.grids->forward.input;
    const bool trains = part == Part::kForward && !node.evaluates;
    const BufferIndex to =
        AddActivation(Shape(program_.buffers[x].shape), program_.buffers[x].packed_by);
    std::vector<BufferIndex> inputs = {x}, outputs = {to};
    if (node.range != kNoBuffer) (trains ? outputs : inputs).push_back(node.range);
    if (!node.widths.empty()) (trains ? outputs : inputs).push_back(node.widths[1]);
    Emit(part, trains ? quantizer.forward : quantizer.forward_eval, node, std::move(inputs),
         std::move(outputs));
    GridRule& grid = program_.parts[static_cast<int>(part)].back().grid;
    grid = quantizer.grid;
    grid.to_nearest = part == Part::kForwardEval;
    return to;
  }

  // The operands of the node's gradients on their grids, before either product. What both products
  // read on one grid is made once, and so is the input that the forward has read.
  // `leads_on`: an input-gradient will be made.
  void EmitGradientGrids(OpNode& node, bool leads_on) {
    node.compensated_error = gradient_[node.output];
    if (node.grids == nullptr) return;
    const auto& [error, weight] = node.grids->input_gradient;
    const auto& [error_again, input_again] = node.grids->weight_gradient;
    const auto& input = node.grids->forward.input;
    const bool is_input_shared = input ? input_again == input->training() : !input_again;
    if (node.trains && !is_input_shared) {
      node.input_again = node.inputs[0];
      if (input_again) node.input_again = EmitGradientGrid(node, *input_again, node.inputs[0]);
    }
    BufferIndex& dy = gradient_[node.output];
    const BufferIndex plain = dy;
    if (error && (leads_on || error == error_again)) dy = EmitGradientGrid(node, *error, plain);
    if (!node.trains || error_again == error) return;
    node.error_again = plain;
    if (error_again) node.error_again = EmitGradientGrid(node, *error_again, plain);
  }

  BufferIndex EmitGradientGrid(OpNode& node, const Quantizer& quantizer, BufferIndex from) {
    if (TraitsOf(quantizer.code).min_outputs > 1 && quantizer.grid.is_gradient)
      node.deviation = AddValue(DType::kFloat32, {1});
    return EmitQuantizer(Part::kInputGradient, quantizer, node, from,
                         Shape(program_.buffers[from].shape));
  }

  // The parameters as operands of a forward.
  void AppendWeights(Part part, const OpNode& node, std::vector<BufferIndex>* inputs) {
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      inputs->push_back(i == 0 ? WeightFor(part, node) : node.parameters[i]);
    }
  }

  void EmitForward(bool training) {
    BufferIndex entering = input_;
    if (recipe_.quantize && program_.first_layer == 0 && IsFloat(model_.input_type())) {
      entering = AddActivation(program_.input);
      Emit(training ? Part::kForward : Part::kForwardEval, *recipe_.quantize, nodes_.front(),
           {input_}, {entering});
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
          &node == &nodes_.back() ? output_ : AddActivation(node.shape, packed_by);
      if (training) {
        node.inputs = inputs;
        node.output = output;
      }
      if (training && !node.evaluates) {
        EmitTraining(node);
      } else {
        const Part part = training ? Part::kForward : Part::kForwardEval;
        inputs[0] = InputFor(part, node, inputs[0]);
        AppendWeights(part, node, &inputs);
        Append(node.statistics, &inputs);
        const BufferIndex result = ProductOf(node, output);
        EmitRescaled(part, ForwardCode(node, node.rule->forward_eval), node.rule->rescale_forward,
                     node, inputs, {result});
        EmitCompensation(part, node, result, output);
      }
      if (training && node.spec->kind == OpKind::kUnpack) EmitExploration(node);
      if (node.gives_value) values.push_back(output);
      if (node.spec->kind == OpKind::kLstmCell) state = output;
      entering = output;
    }
    if (training) last_state_ = state;
    if (state_.output != kNoBuffer)
      EmitCopy(training ? Part::kForward : Part::kForwardEval, nodes_.back(), state, state_.output);
    if (program_.has_loss) EmitLoss(training);
  }

  // What the operator itself writes, where something is added to it behind.
  BufferIndex ProductOf(const OpNode& node, BufferIndex output) {
    return node.compensation.empty() ? output : AddActivation(node.shape);
  }

  void EmitCompensation(Part part, const OpNode& node, BufferIndex product, BufferIndex output) {
    if (node.compensation.empty()) return;
    std::vector<BufferIndex> operands = {product};
    Append(node.compensation, &operands);
    Emit(part, OpCode::kCompensate, node, std::move(operands), {output});
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
      inputs[0] = InputFor(Part::kForward, again, inputs[0]);
      if (packs) inputs.push_back(unpack.exploration);
      AppendWeights(Part::kForward, again, &inputs);
      Append(again.statistics, &inputs);
      const BufferIndex output = AddActivation(again.shape, unpack.exploration);
      Emit(Part::kForward, again.rule->forward_eval, again, std::move(inputs), {output});
      explored[node.output] = output;
    }
    if (const auto end = explored.find(unpack.inputs[0]); end != explored.end())
      unpack.explored = end->second;
  }

  void EmitTraining(OpNode& node) {
    std::vector<BufferIndex> inputs = node.inputs;
    inputs[0] = node.read_input = InputFor(Part::kForward, node, inputs[0]);
    AppendWeights(Part::kForward, node, &inputs);
    std::vector<BufferIndex> outputs = {ProductOf(node, node.output)};
    if (const auto by_product = ByProductOf(node)) {
      node.by_product = AddValue(by_product->dtype, by_product->shape);
      outputs.push_back(node.by_product);
    }
    Append(node.statistics, &outputs);
    if (node.learns_choice) outputs.push_back(node.exploration = AddActivation(node.shape));
    EmitRescaled(Part::kForward, ForwardCode(node, node.rule->forward), node.rule->rescale_forward,
                 node, inputs, outputs);
    EmitCompensation(Part::kForward, node, outputs[0], node.output);
  }

  void EmitLoss(bool training) {
    OpNode node = nodes_.back();
    node.gate = kNoGate;
    const OpSpec none;
    node.spec = &none;
    if (training) {
      output_gradient_ = AddGradientOf(output_);
      Emit(Part::kForward, recipe_.loss, node, {output_, labels_}, {output_gradient_, metrics_});
    } else {
      Emit(Part::kForwardEval, recipe_.loss_eval, node, {output_, labels_}, {metrics_});
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
    if (!program_.has_loss) {
      output_gradient_ = AddBoundary(Storage::kOutputGradient, program_.output);
    }
    gradient_.assign(program_.buffers.size(), kNoBuffer);
    gradient_[output_] = output_gradient_;
    if (state_.output != kNoBuffer) gradient_[last_state_] = state_.output_gradient;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!wanted[node->output]) continue;
      node->gate = GateOf(*node, node->inputs[0]);
      const auto is_wanted = [&](BufferIndex value) { return wanted[value]; };
      EmitGradientGrids(*node, std::any_of(node->inputs.begin(), node->inputs.end(), is_wanted));
      const bool always = node->rule->saved == Saved::kInputAndStats;
      const size_t count = node->spec->kind == OpKind::kPack ? 1 : node->inputs.size();
      for (size_t i = 0; i < count; ++i)
        if (always || wanted[node->inputs[i]]) AddContribution(*node, i);
    }
    if (!program_.needs_input_gradient) return;
    const BufferIndex leaving = AddBoundary(Storage::kInputGradient, program_.input);
    EmitCopy(Part::kInputGradient, nodes_.front(), gradient_[input_], leaving);
    if (state_.input_gradient != kNoBuffer)
      EmitCopy(Part::kInputGradient, nodes_.front(), gradient_[state_.input],
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
      operands.push_back(WeightFor(Part::kInputGradient, node));
    if (code == OpCode::kMaskGradient)
      operands.insert(operands.end(), {node.inputs[1], node.explored, node.exploration});
    BufferIndex dx = AddGradientOf(input);
    std::vector<BufferIndex> results = {dx};
    if (node.rule->saved == Saved::kInputAndStats) {
      const int64_t scales = program_.buffers[node.parameters[0]].shape.elements();
      node.dscale_dshift = AddValue(DType::kFloat32, {2 * scales});
      results.push_back(node.dscale_dshift);
    }
    EmitRescaled(Part::kInputGradient, code, node.rule->rescale_input_gradient, node, operands,
                 results);
    if (gradient_[input] != kNoBuffer) {
      const BufferIndex sum = AddGradientOf(input);
      // A sum of packed gradients is computed by the samples that run, too.
      Emit(Part::kInputGradient, recipe_.add_gradients, node, {gradient_[input], dx}, {sum});
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
        Emit(Part::kWeightGradient, OpCode::kCompensationGradient, *node, std::move(compensated),
             node->compensation_gradients);
      }
      std::vector<BufferIndex> operands = {node->dscale_dshift};
      if (node->dscale_dshift == kNoBuffer) operands = OperandsOfWeightGradient(*node);
      if (recipe_.add_weight_gradient && options_.accumulates_gradients) {
        EmitAddedGradient(*node, operands);
      } else if (node->grids != nullptr && node->grids->master_gradient) {
        EmitMasterGradient(*node, operands);
      } else {
        Emit(Part::kWeightGradient, *node->rule->weight_gradient, *node, operands, node->gradients);
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
    const BufferIndex sum = AddValue(dtype, shape, /*scaled=*/true);
    Emit(Part::kWeightGradient, *node.rule->weight_gradient, node, operands, {sum});
    Emit(Part::kWeightGradient, *recipe_.add_weight_gradient, node, {sum}, {node.gradients[0]});
  }

  // The gradients of what the operator computed with, then those of the master weights. A bias is
  // its own master.
  void EmitMasterGradient(const OpNode& node, const std::vector<BufferIndex>& operands) {
    std::vector<BufferIndex> computed;
    for (BufferIndex gradient : node.gradients) {
      const Shape flat = {program_.buffers[gradient].shape.elements()};
      computed.push_back(AddValue(program_.buffers[gradient].dtype, flat));
    }
    std::vector<Instruction>& part = program_.parts[static_cast<int>(Part::kWeightGradient)];
    Emit(Part::kWeightGradient, *node.rule->weight_gradient, node, operands, computed);
    part.back().overwrites = true;
    for (size_t i = 0; i < computed.size(); ++i) {
      const BufferIndex by = node.deviation != kNoBuffer ? node.deviation : node.parameters[i];
      Emit(Part::kWeightGradient, *node.grids->master_gradient, node, {computed[i], by},
           {node.gradients[i]});
      part.back().grid = i == 0 ? node.grids->forward.weight->grid : GridRule{};
    }
  }

  void EmitUpdate() {
    const int64_t bytes = program_.state.parameter_bytes;
    if (bytes == 0) return;
    if (IsScaled(recipe_.numbers.parameter)) {
      for (const OpNode& node : nodes_) {
        for (size_t i = 0; i < node.updated.size(); ++i) {
          Emit(Part::kUpdate, *recipe_.update, node, {node.parameters[i], node.gradients[i]},
               {node.updated[i]});
        }
      }
      return;
    }
    if (recipe_.step_grid) return EmitRoundedUpdates();
    const auto whole = [&](Storage storage, int64_t offset = 0) {
      return AddPlaced(storage, DType::kFloat32, {bytes / static_cast<int64_t>(sizeof(float))},
                       offset);
    };
    OpNode node = nodes_.front();
    node.gate = kNoGate;
    const OpSpec none;
    node.spec = &none;
    const BufferIndex parameters = whole(Storage::kParameters);
    const BufferIndex gradients = whole(Storage::kGradients);
    std::vector<BufferIndex> inputs = {parameters, gradients};
    for (int64_t at = 0; at < program_.state.slot_bytes; at += bytes)
      inputs.push_back(whole(Storage::kSlots, at));
    Emit(Part::kUpdate, OpCode::kOptimizerUpdate, node, std::move(inputs),
         {whole(Storage::kNewParameters)});
    program_.parts[static_cast<int>(Part::kUpdate)].back().optimizer = &StepOf(options_.optimizer);
  }

  // Tensor by tensor, so that the draws depend on no cut.
  void EmitRoundedUpdates() {
    for (OpNode& node : nodes_) {
      if (!node.trains) continue;
      node.gate = kNoGate;
      for (size_t i = 0; i < node.parameters.size(); ++i) {
        const Buffer weight = program_.buffers[node.parameters[i]];
        std::vector<BufferIndex> inputs = {node.parameters[i], node.gradients[i]};
        for (int64_t at = 0; at < program_.state.slot_bytes; at += program_.state.parameter_bytes) {
          inputs.push_back(
              AddPlaced(Storage::kSlots, weight.dtype, weight.shape, at + weight.offset_bytes));
        }
        const BufferIndex updated =
            AddPlaced(Storage::kNewParameters, weight.dtype, weight.shape, weight.offset_bytes);
        Emit(Part::kUpdate, recipe_.step, node, std::move(inputs), {updated});
        Instruction& update = program_.parts[static_cast<int>(Part::kUpdate)].back();
        update.optimizer = &StepOf(options_.optimizer);
        update.grid = StepGridOf(recipe_, node, i);
      }
    }
  }

  const ModelSpec& model_;
  const std::vector<LayerInfo>& infos_;
  const Recipe& recipe_;
  const CompileOptions& options_;
  Program program_;
  std::vector<bool> placed_;
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
