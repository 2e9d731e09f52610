#include "kernels/stage_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/memory_plan.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr BufferIndex kNone = -1;

int64_t AlignUp(int64_t bytes) {
  return (bytes + AreaPlan::kAlignment - 1) / AreaPlan::kAlignment * AreaPlan::kAlignment;
}

// One operator of the stage and the values around it in training.
struct OpNode {
  int layer = 0;
  int op = 0;
  const OpSpec* spec = nullptr;
  const OpRule* rule = nullptr;
  std::vector<BufferIndex> inputs;
  BufferIndex output = kNone;
  BufferIndex by_product = kNone;     // batch norm's stats, max-pool's indices
  BufferIndex dscale_dshift = kNone;  // batch norm's, from its input-gradient
  std::vector<BufferIndex> trainable;
  std::vector<BufferIndex> gradients;  // of trainable
  std::vector<BufferIndex> statistics;
};

class StageBuilder {
 public:
  StageBuilder(const ModelSpec& model, const std::vector<LayerInfo>& infos, int first_layer,
               int last_layer, const Recipe& recipe)
      : model_(model), infos_(infos), recipe_(recipe) {
    program_.first_layer = first_layer;
    program_.last_layer = last_layer;
    program_.batch = infos[first_layer].input[0];
    program_.has_loss = last_layer + 1 == model.layer_count();
    program_.needs_input_gradient = first_layer > 0;
    program_.input = infos[first_layer].input;
    program_.output = infos[last_layer].output;
    program_.state = LayOutState(infos, first_layer, last_layer);
  }

  absl::StatusOr<StageDraft> Build() {
    RUNNEL_RETURN_IF_ERROR(CollectNodes());
    input_ = AddPlaced(Storage::kInput, recipe_.activation, program_.input);
    output_ = AddPlaced(Storage::kOutput, recipe_.activation, program_.output);
    if (program_.has_loss) {
      labels_ = AddPlaced(Storage::kLabels, DType::kInt32, {program_.batch});
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
  absl::Status CollectNodes() {
    for (int layer = program_.first_layer; layer <= program_.last_layer; ++layer) {
      const std::vector<OpSpec>& ops = model_.layers[layer].ops;
      std::vector<bool> read(ops.size() + 1);
      for (size_t op = 0; op < ops.size(); ++op) {
        const OpRule* rule = recipe_.Find(ops[op].kind);
        if (rule == nullptr) {
          return Error(layer, op, absl::StrCat("recipe ", recipe_.name, " has no rule for it"));
        }
        for (int32_t id : ops[op].inputs) read[id] = true;
        nodes_.push_back(
            {.layer = layer, .op = static_cast<int>(op), .spec = &ops[op], .rule = rule});
      }
      for (size_t op = 0; op + 1 < ops.size(); ++op) {
        if (!read[op + 1]) return Error(layer, op, "nobody reads its output");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Error(int layer, size_t op, absl::string_view what) const {
    const LayerSpec& spec = model_.layers[layer];
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", spec.name, ", op ", op, " (", Name(spec.ops[op].kind), "): ", what));
  }

  BufferIndex AddBuffer(const Buffer& buffer, bool placed) {
    program_.buffers.push_back(buffer);
    placed_.push_back(placed);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }
  BufferIndex AddPlaced(Storage storage, DType dtype, const Shape& shape, int64_t offset = 0) {
    return AddBuffer({storage, dtype, shape, offset}, /*placed=*/true);
  }
  BufferIndex AddValue(DType dtype, const Shape& shape) {
    return AddBuffer({Storage::kScratch, dtype, shape, 0}, /*placed=*/false);
  }
  BufferIndex AddLike(BufferIndex other) {
    const Buffer buffer = program_.buffers[other];
    return AddValue(buffer.dtype, buffer.shape);
  }

  void AddState() {
    size_t node = 0;
    for (const StateTensor& tensor : program_.state.tensors) {
      while (nodes_[node].layer != tensor.layer || nodes_[node].op != tensor.spec.op) ++node;
      const auto add = [&](Storage storage) {
        return AddPlaced(storage, DType::kFloat32, tensor.spec.shape, tensor.offset_bytes);
      };
      if (tensor.storage == Storage::kStatistics) {
        nodes_[node].statistics.push_back(add(Storage::kStatistics));
        continue;
      }
      nodes_[node].trainable.push_back(add(Storage::kParameters));
      nodes_[node].gradients.push_back(add(Storage::kGradients));
    }
  }

  void Emit(Part part, OpCode code, const OpNode& node, std::vector<BufferIndex> inputs,
            std::vector<BufferIndex> outputs) {
    program_.parts[static_cast<int>(part)].push_back(
        {code, std::move(inputs), std::move(outputs), node.layer, node.op, *node.spec});
  }

  void EmitForward(bool training) {
    BufferIndex entering = input_;
    std::vector<BufferIndex> values;  // of the layer, by value id
    for (OpNode& node : nodes_) {
      if (node.op == 0) values = {entering};
      std::vector<BufferIndex> inputs;
      for (int32_t id : node.spec->inputs) inputs.push_back(values[id]);
      const BufferIndex output =
          &node == &nodes_.back()
              ? output_
              : AddValue(recipe_.activation, infos_[node.layer].op_outputs[node.op]);
      if (training) {
        node.inputs = inputs;
        node.output = output;
        EmitTraining(node);
      } else {
        Append(node.trainable, &inputs);
        Append(node.statistics, &inputs);
        Emit(Part::kForwardEval, node.rule->forward_eval, node, inputs, {output});
      }
      values.push_back(output);
      entering = output;
    }
    if (program_.has_loss) EmitLoss(training);
  }

  static void Append(const std::vector<BufferIndex>& from, std::vector<BufferIndex>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  void EmitTraining(OpNode& node) {
    std::vector<BufferIndex> inputs = node.inputs;
    Append(node.trainable, &inputs);
    std::vector<BufferIndex> outputs = {node.output};
    if (node.rule->saved == Saved::kInputAndStats) {
      const int64_t channels = program_.buffers[node.inputs[0]].shape[1];
      node.by_product = AddValue(DType::kFloat32, {2 * channels});
    } else if (node.rule->saved == Saved::kIndices) {
      node.by_product = AddValue(DType::kInt64, infos_[node.layer].op_outputs[node.op]);
    }
    if (node.by_product != kNone) outputs.push_back(node.by_product);
    Append(node.statistics, &outputs);
    Emit(Part::kForward, node.rule->forward, node, inputs, outputs);
  }

  void EmitLoss(bool training) {
    OpNode node = nodes_.back();
    const OpSpec none;
    node.spec = &none;
    if (training) {
      output_gradient_ = AddLike(output_);
      Emit(Part::kForward, recipe_.loss, node, {output_, labels_}, {output_gradient_, metrics_});
    } else {
      Emit(Part::kForwardEval, recipe_.loss_eval, node, {output_, labels_}, {metrics_});
    }
  }

  // True by value if a gradient is wanted for it: it leads to parameters or to the previous stage.
  std::vector<bool> WantedGradients() const {
    std::vector<bool> wanted(program_.buffers.size());
    wanted[input_] = program_.needs_input_gradient;
    for (const OpNode& node : nodes_) {
      bool any = !node.trainable.empty();
      for (BufferIndex input : node.inputs) any = any || wanted[input];
      wanted[node.output] = any;
    }
    return wanted;
  }

  void EmitInputGradient() {
    const std::vector<bool> wanted = WantedGradients();
    if (!wanted[output_]) return;
    if (!program_.has_loss) {
      output_gradient_ = AddPlaced(Storage::kOutputGradient, recipe_.activation, program_.output);
    }
    gradient_.assign(program_.buffers.size(), kNone);
    gradient_[output_] = output_gradient_;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!wanted[node->output]) continue;
      for (BufferIndex input : node->inputs) {
        if (wanted[input] || node->rule->saved == Saved::kInputAndStats) {
          AddContribution(*node, input);
        }
      }
    }
    if (program_.needs_input_gradient) {
      const BufferIndex leaving =
          AddPlaced(Storage::kInputGradient, recipe_.activation, program_.input);
      Emit(Part::kInputGradient, OpCode::kCopy, nodes_.front(), {gradient_[input_]}, {leaving});
    }
  }

  // What `node` adds to the gradient of one of its inputs.
  void AddContribution(OpNode& node, BufferIndex input) {
    std::vector<BufferIndex> operands = {gradient_[node.output]};
    switch (node.rule->saved) {
      case Saved::kNothing:
        if (!node.trainable.empty()) operands.push_back(node.trainable[0]);
        break;
      case Saved::kInput:
        operands.push_back(input);
        break;
      case Saved::kOutput:
        operands.push_back(node.output);
        break;
      case Saved::kInputAndStats:
        operands.insert(operands.end(), {input, node.trainable[0], node.by_product});
        break;
      case Saved::kIndices:
        operands.push_back(node.by_product);
        break;
    }
    const BufferIndex dx = AddLike(input);
    std::vector<BufferIndex> results = {dx};
    if (node.rule->saved == Saved::kInputAndStats) {
      node.dscale_dshift = AddLike(node.by_product);
      results.push_back(node.dscale_dshift);
    }
    Emit(Part::kInputGradient, node.rule->input_gradient, node, operands, results);
    if (gradient_[input] == kNone) {
      gradient_[input] = dx;
      return;
    }
    const BufferIndex sum = AddLike(input);
    Emit(Part::kInputGradient, OpCode::kAccumulate, node, {gradient_[input], dx}, {sum});
    gradient_[input] = sum;
  }

  void EmitWeightGradient() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!node->rule->weight_gradient || node->trainable.empty()) continue;
      std::vector<BufferIndex> operands = {node->dscale_dshift};
      if (node->dscale_dshift == kNone) operands = {gradient_[node->output], node->inputs[0]};
      Emit(Part::kWeightGradient, *node->rule->weight_gradient, *node, operands, node->gradients);
    }
  }

  void EmitUpdate() {
    const int64_t bytes = program_.state.parameter_bytes;
    if (bytes == 0) return;
    const auto whole = [&](Storage storage) {
      return AddPlaced(storage, DType::kFloat32, {bytes / static_cast<int64_t>(sizeof(float))});
    };
    OpNode node = nodes_.front();
    const OpSpec none;
    node.spec = &none;
    const BufferIndex parameters = whole(Storage::kParameters);
    const BufferIndex gradients = whole(Storage::kGradients);
    const BufferIndex momentum = whole(Storage::kMomentum);
    Emit(Part::kUpdate, recipe_.update, node, {parameters, gradients, momentum},
         {whole(Storage::kNewParameters)});
  }

  const ModelSpec& model_;
  const std::vector<LayerInfo>& infos_;
  const Recipe& recipe_;
  Program program_;
  std::vector<bool> placed_;
  std::vector<OpNode> nodes_;
  BufferIndex input_ = kNone;
  BufferIndex output_ = kNone;
  BufferIndex labels_ = kNone;
  BufferIndex metrics_ = kNone;
  BufferIndex output_gradient_ = kNone;
  std::vector<BufferIndex> gradient_;  // by value of the forward
};

}  // namespace

StateLayout LayOutState(const std::vector<LayerInfo>& infos, int first_layer, int last_layer) {
  StateLayout layout;
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    for (const StateTensorSpec& spec : infos[layer].state) {
      const bool trainable = IsTrainable(spec.role);
      int64_t& end = trainable ? layout.parameter_bytes : layout.statistic_bytes;
      layout.tensors.push_back(
          {layer, spec, trainable ? Storage::kParameters : Storage::kStatistics, end});
      end += AlignUp(spec.shape.elements() * static_cast<int64_t>(sizeof(float)));
    }
  }
  return layout;
}

absl::StatusOr<StageDraft> DraftStage(const ModelSpec& model, const std::vector<LayerInfo>& infos,
                                      int first_layer, int last_layer, const Recipe& recipe) {
  return StageBuilder(model, infos, first_layer, last_layer, recipe).Build();
}

}  // namespace runnel
