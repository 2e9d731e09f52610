#include "partition/import/onnx_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/import/known_shapes.h"
#include "partition/import/onnx_attention.h"
#include "partition/import/onnx_channels.h"
#include "partition/import/onnx_facts.h"
#include "partition/import/onnx_folding.h"
#include "partition/import/onnx_gelu.h"
#include "partition/import/onnx_norms.h"
#include "partition/import/onnx_pointwise.h"
#include "partition/import/onnx_weights.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

constexpr size_t kMostComplaints = 20;

absl::Status Unsupported(absl::string_view what) { return absl::InvalidArgumentError(what); }

class Flattener final : private GraphFacts {
 public:
  explicit Flattener(const onnx::GraphProto& graph) : graph_(graph) {}

  absl::StatusOr<FlatGraph> Run() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      absl::StatusOr<Constant> constant = ReadTensor(tensor);
      if (constant.ok()) {
        constants_[tensor.name()] = *std::move(constant);
      } else {
        Complain(absl::StrCat("tensor '", tensor.name(), "': ", constant.status().message()));
      }
    }
    RUNNEL_RETURN_IF_ERROR(ReadInput());
    for (const onnx::NodeProto& node : graph_.node()) {
      for (const std::string& input : node.input()) readers_[input].push_back(&node);
    }
    gelus_.Begin(graph_);
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::NodeProto& node = graph_.node(i);
      const absl::Status status = AddNode(node, i + 1 == graph_.node_size());
      if (!status.ok()) {
        Complain(node, i, status.message());
        // Whoever reads it is judged all the same.
        for (const std::string& output : node.output()) aliases_[output] = flat_.input_name;
      }
    }
    for (const AttentionForms::Merge& merge : attentions_.merges()) {
      const absl::Status status = MergeLinears(merge, flat_.ops);
      if (!status.ok()) complaints_.emplace_back(status.message());
    }
    if (!complaints_.empty()) {
      if (complaints_.size() > kMostComplaints) {
        complaints_.resize(kMostComplaints);
        complaints_.push_back("...");
      }
      return Unsupported(absl::StrCat("not supported: ", absl::StrJoin(complaints_, "; ")));
    }
    if (graph_.output_size() != 1)
      return Unsupported(absl::StrCat("has ", graph_.output_size(), " outputs, not 1"));
    const std::string& output = graph_.output(0).name();
    if (padded_.count(output) > 0 || shuffles_.Has(output) || IsInside(output))
      return Unsupported("its output is padding, channels in groups, or inside of an operator");
    flat_.output_name = Resolved(output);
    return std::move(flat_);
  }

 private:
  const Constants& constants() const override { return constants_; }
  const std::vector<const onnx::NodeProto*>& Readers(const std::string& value) const override {
    static const std::vector<const onnx::NodeProto*>& none =
        *new std::vector<const onnx::NodeProto*>;
    const auto found = readers_.find(value);
    return found == readers_.end() ? none : found->second;
  }

  void Complain(std::string text) { complaints_.push_back(std::move(text)); }
  void Complain(const onnx::NodeProto& node, int index, absl::string_view what) {
    Complain(absl::StrCat("node ", node.name().empty() ? absl::StrCat(index) : node.name(), " (",
                          node.op_type(), "): ", what));
  }
  bool IsInside(const std::string& value) const {
    return norms_.Has(value) || gelus_.Has(value) || attentions_.Has(value);
  }
  bool HasTokens() const { return has_tokens_; }

  // The one input that is no weight.
  absl::Status ReadInput() {
    const onnx::ValueInfoProto* input = nullptr;
    for (const onnx::ValueInfoProto& value : graph_.input()) {
      if (constants_.count(value.name()) > 0) continue;
      if (input != nullptr)
        return Unsupported(
            absl::StrCat("two inputs, '", input->name(), "' and '", value.name(), "'"));
      input = &value;
    }
    if (input == nullptr) return Unsupported("has no input");
    std::vector<int64_t> dims;
    for (const auto& dim : input->type().tensor_type().shape().dim())
      dims.push_back(dim.has_dim_value() ? dim.dim_value() : 0);
    if (dims.size() < 2)
      return Unsupported(absl::StrCat("input '", input->name(), "' has no shape (batch, ...)"));
    dims.erase(dims.begin());  // the batch
    if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
      return Unsupported(absl::StrCat("input '", input->name(),
                                      "' has a size that is not fixed; only the batch may vary"));
    }
    const int32_t elements = input->type().tensor_type().elem_type();
    has_tokens_ = elements == onnx::TensorProto::INT64 || elements == onnx::TensorProto::INT32;
    flat_.input_name = input->name();
    RUNNEL_ASSIGN_OR_RETURN(flat_.input, Shape::Create(dims));
    shapes_.SetInput(flat_.input_name, flat_.input);
    return absl::OkStatus();
  }

  std::string Resolved(const std::string& value) const override {
    std::string name = value;
    for (auto found = aliases_.find(name); found != aliases_.end(); found = aliases_.find(name))
      name = found->second;
    return name;
  }

  const Shape* ShapeOf(const std::string& value) override { return shapes_.Find(Resolved(value)); }

  absl::StatusOr<Shape> NeedShape(const std::string& value) {
    if (const Shape* shape = ShapeOf(value)) return *shape;
    return Unsupported("of an input whose shape is not known");
  }

  // What the node's window slides over.
  WindowInput InputOf(const onnx::NodeProto& node) {
    WindowInput input;
    if (const Shape* shape = ShapeOf(node.input(0)); shape != nullptr && shape->rank() > 2)
      input.lengths.assign(shape->dims().begin() + 2, shape->dims().end());
    if (const auto found = padded_.find(node.input(0)); found != padded_.end())
      input.pads = found->second;
    return input;
  }

  // Of values that are no operator's until a later node comes.
  absl::Status CheckReader(const onnx::NodeProto& node) const {
    const std::string& type = node.op_type();
    for (const std::string& input : node.input()) {
      if (padded_.count(input) > 0 && type != "Conv" && type != "AveragePool" && type != "MaxPool")
        return Unsupported("of padded values, which only convolutions and means read");
      if (shuffles_.Has(input) && type != "Reshape" && type != "Transpose")
        return Unsupported("of channels in groups, which only a shuffle reads");
    }
    return absl::OkStatus();
  }

  void Alias(const onnx::NodeProto& node) { aliases_[node.output(0)] = Resolved(node.input(0)); }

  FlatOp& Add(const onnx::NodeProto& node, OpKind kind) {
    const Shape* shape = ShapeOf(node.input(0));
    const bool is_of_rows = shape != nullptr && shape->rank() > 2;
    FlatOp& op = flat_.ops.emplace_back();
    op.spec.kind = kind;
    op.inputs = {Resolved(node.input(0))};
    op.output = node.output(0);
    op.name = node.name();
    const bool gives_vectors = kind == OpKind::kGlobalAvgPool || kind == OpKind::kFlatten ||
                               (kind == OpKind::kLinear && !is_of_rows) || IsVector(op.inputs[0]);
    if (gives_vectors) vectors_.insert(op.output);
    return op;
  }

  // An operator with weights.
  absl::Status AddRead(const onnx::NodeProto& node, absl::StatusOr<FlatOp> read) {
    RUNNEL_RETURN_IF_ERROR(read.status());
    FlatOp& op = Add(node, read->spec.kind);
    op.spec = read->spec;
    op.constants = std::move(read->constants);
    op.name = std::move(read->name);
    return absl::OkStatus();
  }

  absl::Status AddNode(const onnx::NodeProto& node, bool is_last) {
    if (node.output_size() < 1) return Unsupported("has no output");
    const std::string& type = node.op_type();
    if (type == "Constant") return AddConstant(node);
    if (node.input_size() < 1) return Unsupported("has no input");
    RUNNEL_RETURN_IF_ERROR(CheckReader(node));
    if (type == "Identity") {
      if (const Constant* constant = FindConstant(constants_, node, 0)) {
        constants_[node.output(0)] = Constant(*constant);
      } else {
        Alias(node);
      }
      return absl::OkStatus();
    }
    if (type == "Shape") return AddShape(node);
    if (const std::vector<const Constant*> constants = AllConstants(node); !constants.empty()) {
      RUNNEL_ASSIGN_OR_RETURN(constants_[node.output(0)], Fold(node, constants));
      return absl::OkStatus();
    }
    RUNNEL_ASSIGN_OR_RETURN(const bool is_taken, AddForms(node));
    if (is_taken) return absl::OkStatus();
    if (HasWeights(type)) return AddWeighted(node);
    if (type == "MaxPool" || type == "AveragePool") return AddPool(node);
    if (type == "Add") return AddSum(node);
    if (type == "Clip") {
      RUNNEL_ASSIGN_OR_RETURN(const OpKind kind, ReadClip(node, constants_));
      Add(node, kind);
      return absl::OkStatus();
    }
    if (type == "Pad") return AddPad(node);
    if (type == "Mul") return AddProduct(node);
    if (type == "Concat") return AddConcat(node);
    if (type == "HardSigmoid" || type == "HardSwish") return AddHardSigmoid(node);
    if (type == "Split") return AddSplit(node);
    if (type == "Slice") return AddSlice(node);
    if (type == "Transpose") return shuffles_.Turn(node);
    if (type == "Reshape" && IsOfGroups(node)) return AddGroups(node);
    if (type == "Flatten" || type == "Reshape" || type == "Squeeze") return AddFlatten(node);
    if (type == "ReduceMean") return AddMean(node);
    if (type == "Cast") return AddCast(node);
    if ((type == "Softmax" || type == "LogSoftmax") && is_last) {
      Alias(node);
      return absl::OkStatus();
    }
    return AddPlain(node);
  }

  static bool HasWeights(absl::string_view type) {
    return type == "Gather" || type == "LayerNormalization" || type == "Conv" ||
           type == "BatchNormalization" || type == "Gemm" || type == "MatMul";
  }

  absl::Status AddWeighted(const onnx::NodeProto& node) {
    const std::string& type = node.op_type();
    if (type == "Gather") {
      RUNNEL_RETURN_IF_ERROR(AddRead(node, ReadEmbedding(node, constants_, HasTokens())));
      flat_.ops.back().inputs = {Resolved(node.input(1))};  // behind the table
      return absl::OkStatus();
    }
    if (type == "LayerNormalization") return AddRead(node, ReadLayerNorm(node, *this));
    if (type == "Conv")
      return AddRead(node,
                     ReadConv(node, constants_, InputOf(node), IsVector(Resolved(node.input(0)))));
    if (type == "BatchNormalization") return AddRead(node, ReadBatchNorm(node, constants_));
    return AddRead(node, ReadLinear(node, constants_));
  }

  absl::Status AddPlain(const onnx::NodeProto& node) {
    const std::string& type = node.op_type();
    if (type == "Dropout") {
      const Constant* rate = FindConstant(constants_, node, 1);
      Add(node, OpKind::kDropout).spec.rate = rate != nullptr && rate->values.size() == 1
                                                  ? double{rate->values[0]}
                                                  : Attributes(node).Real("ratio", 0.5);
    } else if (type == "Relu") {
      Add(node, OpKind::kRelu);
    } else if (type == "Sigmoid") {
      Add(node, OpKind::kSigmoid);
    } else if (type == "LeakyRelu") {
      Add(node, OpKind::kLeakyRelu).spec.rate = Attributes(node).Real("alpha", 0.01);
    } else if (type == "GlobalAveragePool") {
      Add(node, OpKind::kGlobalAvgPool);
    } else {
      return Unsupported("this operator");
    }
    return absl::OkStatus();
  }

  // Operators that exporters write as several nodes.
  absl::StatusOr<bool> AddForms(const onnx::NodeProto& node) {
    const size_t merges = attentions_.merges().size();
    RUNNEL_ASSIGN_OR_RETURN(Taken taken, norms_.Take(node, *this));
    if (!taken.is_taken) {
      RUNNEL_ASSIGN_OR_RETURN(taken, gelus_.Take(node, *this));
    }
    if (!taken.is_taken) {
      RUNNEL_ASSIGN_OR_RETURN(taken, attentions_.Take(node, *this));
    }
    if (taken.complaint.empty() && !taken.op.has_value()) return taken.is_taken;
    if (!taken.complaint.empty()) Complain(node, 0, taken.complaint);
    if (attentions_.merges().size() > merges) {
      // They become one when the graph is whole.
      const AttentionForms::Merge& merge = attentions_.merges().back();
      RUNNEL_RETURN_IF_ERROR(MergedLinear(flat_.ops, merge).status());
      if (const Shape* one = ShapeOf(merge.from[0]))
        shapes_.Set(merge.to, Shape({(*one)[0], (*one)[1], 3 * (*one)[2]}));
    }
    if (IsVector(taken.op->inputs[0])) vectors_.insert(taken.op->output);
    flat_.ops.push_back(*std::move(taken.op));
    return true;
  }

  // Of the samples to another integer, of values to themselves.
  absl::Status AddCast(const onnx::NodeProto& node) {
    const int64_t to = Attributes(node).Int("to", 0);
    const bool is_integer = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
    const bool is_of_samples = Resolved(node.input(0)) == flat_.input_name && HasTokens();
    if (is_of_samples ? !is_integer : to != onnx::TensorProto::FLOAT)
      return Unsupported(absl::StrCat("attribute to ", to));
    Alias(node);
    return absl::OkStatus();
  }

  // The node's inputs if each is a constant, else nothing.
  std::vector<const Constant*> AllConstants(const onnx::NodeProto& node) const {
    std::vector<const Constant*> constants;
    for (int i = 0; i < node.input_size(); ++i) {
      const Constant* constant = FindConstant(constants_, node, i);
      if (constant == nullptr) return {};
      constants.push_back(constant);
    }
    return constants;
  }

  // Samples are seen one by one here: the batch is 1.
  absl::Status AddShape(const onnx::NodeProto& node) {
    if (const Constant* constant = FindConstant(constants_, node, 0)) {
      const std::vector<int64_t> dims = constant->dims;
      constants_[node.output(0)] = {{static_cast<int64_t>(dims.size())},
                                    {dims.begin(), dims.end()},
                                    /*is_integral=*/true};
      return absl::OkStatus();
    }
    RUNNEL_ASSIGN_OR_RETURN(const Shape shape, NeedShape(node.input(0)));
    const Attributes attributes(node);
    if (attributes.Has("start") || attributes.Has("end"))
      return Unsupported("attributes start and end");
    Constant& list = constants_[node.output(0)];
    list.dims = {shape.rank()};
    list.is_integral = true;
    list.values.assign(shape.dims().begin(), shape.dims().end());
    return absl::OkStatus();
  }

  // A Reshape that begins or ends a shuffle of channels.
  bool IsOfGroups(const onnx::NodeProto& node) {
    if (shuffles_.Has(node.input(0))) return true;
    const Constant* to = FindConstant(constants_, node, 1);
    const Shape* shape = ShapeOf(node.input(0));
    return to != nullptr && shape != nullptr && ChannelShuffles::MakesGroups(to->values, *shape);
  }

  absl::Status AddGroups(const onnx::NodeProto& node) {
    const Constant* to = FindConstant(constants_, node, 1);
    if (to == nullptr) return Unsupported("its shape is no constant");
    if (!shuffles_.Has(node.input(0))) {
      shuffles_.Begin(node.output(0), to->values, Resolved(node.input(0)), *ShapeOf(node.input(0)));
      return absl::OkStatus();
    }
    RUNNEL_ASSIGN_OR_RETURN(const ChannelShuffles::Shuffle shuffle,
                            shuffles_.End(node.input(0), to->values));
    if (!shuffle.is_turned) {
      aliases_[node.output(0)] = shuffle.value;
      return absl::OkStatus();
    }
    FlatOp& op = Add(node, OpKind::kShuffle);
    op.inputs = {shuffle.value};
    op.spec.groups = shuffle.groups;
    return absl::OkStatus();
  }

  void AddRange(const onnx::NodeProto& node, int output, const ChannelRange& range) {
    FlatOp& op = Add(node, OpKind::kSlice);
    op.output = node.output(output);
    if (IsVector(op.inputs[0])) vectors_.insert(op.output);
    op.spec.begin = range.begin;
    op.spec.out_channels = range.count;
  }

  absl::Status AddSplit(const onnx::NodeProto& node) {
    RUNNEL_ASSIGN_OR_RETURN(const Shape x, NeedShape(node.input(0)));
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<ChannelRange> ranges, ReadSplit(node, constants_, x));
    for (int i = 0; i < node.output_size(); ++i) {
      if (!Readers(node.output(i)).empty() ||
          (graph_.output_size() > 0 && graph_.output(0).name() == node.output(i)))
        AddRange(node, i, ranges[static_cast<size_t>(i)]);
    }
    return absl::OkStatus();
  }

  absl::Status AddSlice(const onnx::NodeProto& node) {
    RUNNEL_ASSIGN_OR_RETURN(const Shape x, NeedShape(node.input(0)));
    RUNNEL_ASSIGN_OR_RETURN(const ChannelRange range, ReadSlice(node, constants_, x));
    if (x.rank() > 1 && range.count == x[1]) {
      Alias(node);
    } else {
      AddRange(node, 0, range);
    }
    return absl::OkStatus();
  }

  absl::Status AddConstant(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.name() != "value") continue;
      RUNNEL_ASSIGN_OR_RETURN(constants_[node.output(0)], ReadTensor(attribute.t()));
      return absl::OkStatus();
    }
    return Unsupported("a constant that is no tensor");
  }

  absl::Status AddPool(const onnx::NodeProto& node) {
    RUNNEL_ASSIGN_OR_RETURN(const OpSpec spec, ReadPool(node, InputOf(node)));
    Add(node, spec.kind).spec = spec;
    return absl::OkStatus();
  }

  // Exporters write it in front of means and convolutions, also where there is nothing to pad.
  absl::Status AddPad(const onnx::NodeProto& node) {
    const bool has_value = node.input_size() > 2 && !node.input(2).empty();
    const Constant* value = FindConstant(constants_, node, 2);
    if (has_value && value == nullptr) return Unsupported("what it pads with is no constant");
    RUNNEL_ASSIGN_OR_RETURN(const Pads pads,
                            ReadPads(node, FindConstant(constants_, node, 1), value));
    Alias(node);
    if (!pads.empty()) padded_[node.output(0)] = pads;
    return absl::OkStatus();
  }

  // Of two tensors; of an operator and a constant that is part of it: a linear one's bias, an
  // embedding's positions, a norm's shift.
  absl::Status AddSum(const onnx::NodeProto& node) {
    if (node.input_size() != 2) return Unsupported("needs two inputs");
    for (int constant = 0; constant < 2; ++constant) {
      const Constant* added = FindConstant(constants_, node, constant);
      if (added == nullptr) continue;
      const std::string input = Resolved(node.input(1 - constant));
      const bool is_newest = !flat_.ops.empty() && flat_.ops.back().output == input;
      if (!is_newest || !AddConstantTo(flat_.ops.back(), *added))
        return Unsupported("a constant that is no bias");
      aliases_[node.output(0)] = input;
      return absl::OkStatus();
    }
    Add(node, OpKind::kAdd).inputs.push_back(Resolved(node.input(1)));
    return absl::OkStatus();
  }

  // (batch, ...) -> (batch, features). Behind a mean nothing is left to flatten.
  absl::Status AddFlatten(const onnx::NodeProto& node) {
    if (node.op_type() == "Flatten") {
      if (Attributes(node).Int("axis", 1) != 1) return Unsupported("attribute axis");
    } else if (node.op_type() == "Reshape") {
      const Constant* shape = FindConstant(constants_, node, 1);
      if (shape == nullptr) return Unsupported("its shape is no constant");
      // (batch, channels) to (batch, channels, 1, 1), a factor for each channel.
      const bool is_vector = shape->values.size() > 2 && IsVector(Resolved(node.input(0))) &&
                             std::all_of(shape->values.begin() + 2, shape->values.end(),
                                         [](float d) { return d == 1; });
      if (!is_vector && (shape->values.size() != 2 || shape->values[0] > 1))
        return Unsupported(absl::StrCat("a shape of ", absl::StrJoin(shape->values, ","),
                                        ", which is not (batch, features)"));
    } else if (!IsVector(Resolved(node.input(0)))) {
      return Unsupported("of what is no mean over the plane");
    }
    if (IsVector(Resolved(node.input(0)))) {
      Alias(node);
    } else {
      Add(node, OpKind::kFlatten);
    }
    return absl::OkStatus();
  }

  // Whether the value is (batch, features), or has one position, which is the same here.
  bool IsVector(const std::string& value) const { return vectors_.count(value) > 0; }

  // Of two tensors, or of a tensor and a factor for each of its channels.
  absl::Status AddProduct(const onnx::NodeProto& node) {
    if (node.input_size() != 2) return Unsupported("needs two inputs");
    for (int constant = 0; constant < 2; ++constant) {
      const Constant* scale = FindConstant(constants_, node, constant);
      if (scale == nullptr) continue;
      const std::string input = Resolved(node.input(1 - constant));
      const bool is_of_norm = !flat_.ops.empty() && flat_.ops.back().output == input &&
                              flat_.ops.back().spec.kind == OpKind::kLayerNorm;
      if (!is_of_norm || !SetNormWeight(flat_.ops.back(), TensorRole::kScale, *scale))
        return Unsupported("by a constant");
      aliases_[node.output(0)] = input;
      return absl::OkStatus();
    }
    std::string first = Resolved(node.input(0)), factor = Resolved(node.input(1));
    if (IsVector(first) && !IsVector(factor)) std::swap(first, factor);
    FlatOp& op = Add(node, OpKind::kMultiply);
    op.inputs = {first, factor};
    if (!IsVector(first)) vectors_.erase(op.output);
    return absl::OkStatus();
  }

  // Two by two. What is joined already is read again: dense blocks join all that was before.
  absl::Status AddConcat(const onnx::NodeProto& node) {
    if (Attributes(node).Int("axis", 0) != 1) return Unsupported("attribute axis, which is not 1");
    for (int i = 0; i < node.input_size(); ++i) {
      if (FindConstant(constants_, node, i) != nullptr) return Unsupported("with a constant");
    }
    std::string joined = Resolved(node.input(0));
    for (int i = 1; i < node.input_size(); ++i) {
      std::string& there = joined_[{joined, Resolved(node.input(i))}];
      if (there.empty()) {
        FlatOp& op = Add(node, OpKind::kConcat);
        op.inputs = {joined, Resolved(node.input(i))};
        if (i + 1 < node.input_size()) op.output = absl::StrCat(node.output(0), ".", i);
        there = op.output;
      }
      joined = there;
    }
    if (joined != node.output(0)) aliases_[node.output(0)] = joined;
    return absl::OkStatus();
  }

  // HardSwish is x times it.
  absl::Status AddHardSigmoid(const onnx::NodeProto& node) {
    RUNNEL_RETURN_IF_ERROR(CheckHardSigmoid(node));
    const bool is_swish = node.op_type() == "HardSwish";
    FlatOp& gate = Add(node, OpKind::kHardSigmoid);
    if (!is_swish) return absl::OkStatus();
    gate.output = absl::StrCat(node.output(0), ".gate");
    const std::string factor = gate.output;
    Add(node, OpKind::kMultiply).inputs.push_back(factor);
    return absl::OkStatus();
  }

  // Over all axes behind the channels.
  absl::Status AddMean(const onnx::NodeProto& node) {
    RUNNEL_RETURN_IF_ERROR(CheckMean(node, constants_, flat_.input.rank() + 1));
    Add(node, OpKind::kGlobalAvgPool);
    return absl::OkStatus();
  }

  const onnx::GraphProto& graph_;
  FlatGraph flat_;
  Constants constants_;
  std::set<std::string> vectors_;  // values without a plane
  std::map<std::string, std::vector<const onnx::NodeProto*>> readers_;
  bool has_tokens_ = false;
  std::map<std::string, Pads> padded_;  // outputs of Pad nodes; they are aliases too
  ChannelShuffles shuffles_;
  NormForms norms_;
  GeluForms gelus_;
  AttentionForms attentions_;
  std::map<std::pair<std::string, std::string>, std::string> joined_;  // two values, and both
  KnownShapes shapes_{flat_.ops};
  std::map<std::string, std::string> aliases_;  // values that are other values
  std::vector<std::string> complaints_;
};

}  // namespace

absl::StatusOr<FlatGraph> FlattenGraph(const onnx::GraphProto& graph) {
  return Flattener(graph).Run();
}

}  // namespace runnel::import
