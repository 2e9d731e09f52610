// What one layer's operators make of its input: shapes, state, multiply-accumulates.

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

size_t InputCount(OpKind kind) {
  switch (kind) {
    case OpKind::kAdd:
    case OpKind::kMultiply:
    case OpKind::kConcat:
    case OpKind::kPack:
    case OpKind::kUnpack:
    case OpKind::kLstmCell:
      return 2;
    default:
      return 1;
  }
}

// Shape inference of one layer, op by op. Messages name the layer and the op.
class LayerInference {
 public:
  LayerInference(const LayerSpec& layer, const Shape& input) : layer_(layer) {
    info_.input = input;
  }

  absl::StatusOr<LayerInfo> Run() {
    if (layer_.ops.empty() || layer_.ops.size() > kMaxOpsPerLayer) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer_.name, ": has ",
                                                     layer_.ops.size(), " operators, needs 1 to ",
                                                     kMaxOpsPerLayer));
    }
    RUNNEL_RETURN_IF_ERROR(CheckNames());
    for (op_ = 0; op_ < static_cast<int>(layer_.ops.size()); ++op_) {
      RUNNEL_RETURN_IF_ERROR(CheckInputs());
      RUNNEL_RETURN_IF_ERROR(CheckPacked());
      RUNNEL_ASSIGN_OR_RETURN(Shape output, InferOp());
      info_.op_outputs.push_back(output);
    }
    info_.output = info_.op_outputs.back();
    return std::move(info_);
  }

  // What the second of two operators makes, if this is what the first one does.
  absl::StatusOr<Shape> OutputBehind(const Shape& first) {
    info_.op_outputs = {first};
    op_ = 1;
    RUNNEL_RETURN_IF_ERROR(CheckInputs());
    return InferOp();
  }

 private:
  const OpSpec& spec() const { return layer_.ops[op_]; }
  const Shape& Value(int32_t id) const { return id == 0 ? info_.input : info_.op_outputs[id - 1]; }

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer_.name, ", op ", op_, " (", Name(spec().kind), "): ", what));
  }

  absl::Status CheckNames() const {
    const auto has_none = [](const OpSpec& op) { return op.name.empty(); };
    if (std::all_of(layer_.ops.begin(), layer_.ops.end(), has_none)) return absl::OkStatus();
    std::set<std::string> names;
    for (size_t op = 0; op < layer_.ops.size(); ++op) {
      if (names.insert(layer_.OpName(op)).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer_.name, ": two operators are ", "named ", layer_.OpName(op)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInputs() const {
    const size_t expected = InputCount(spec().kind);
    const bool begins_at_zero = spec().kind == OpKind::kLstmCell && spec().inputs.size() == 1;
    if (spec().inputs.size() != expected && !begins_at_zero) {
      return Error(absl::StrCat("has ", spec().inputs.size(), " inputs, needs ", expected));
    }
    for (int32_t id : spec().inputs) {
      if (id < 0 || id > op_)
        return Error(absl::StrCat("reads value ", id, ", which is not there yet"));
    }
    return absl::OkStatus();
  }

  void AddState(const char* name, TensorRole role, const Shape& shape) {
    const auto op = static_cast<size_t>(op_);
    info_.state.push_back({absl::StrCat(layer_.OpName(op), ".", name), op_, role, shape});
    info_.state.back().frozen = layer_.freezes(op);
    if (IsTrainable(role)) info_.parameters += shape.elements();
  }

  // Each factor fits its shape's limit, their product need not fit an integer.
  absl::Status AddMacs(int64_t outputs, int64_t macs_per_output) {
    constexpr int64_t kLimit = int64_t{1} << 50;
    if (outputs > (kLimit - info_.macs) / macs_per_output) {
      return Error(absl::StrCat("the layer needs over ", kLimit, " multiply-accumulates"));
    }
    info_.macs += outputs * macs_per_output;
    return absl::OkStatus();
  }

  // Output length along one spatial axis.
  absl::StatusOr<int64_t> Window(int64_t length, int axis) const {
    const OpSpec& op = spec();
    const auto a = static_cast<size_t>(axis);
    constexpr int64_t kLimit = int64_t{1} << 20;
    for (const int64_t size : {op.kernel[a], op.stride[a], op.dilation[a]}) {
      if (size < 1 || size > kLimit) return Error("kernel, stride and dilation must be at least 1");
    }
    for (const int64_t padding : {op.padding[a], op.end_padding(axis)}) {
      if (padding < 0 || padding > kLimit) return Error("padding must be at least 0");
    }
    const int64_t padded = length + op.padding[a] + op.end_padding(axis);
    if (padded < op.extent(axis)) {
      return Error(
          absl::StrCat("kernel ", op.extent(axis), " is larger than its input of ", padded));
    }
    return (padded - op.extent(axis)) / op.stride[a] + 1;
  }

  absl::StatusOr<Shape> Windowed(const Shape& in, int64_t channels) const {
    if (in.rank() != 3 && in.rank() != 4)
      return Error(absl::StrCat("needs (N,C,L) or (N,C,H,W), got ", in.ToString()));
    absl::InlinedVector<int64_t, 4> dims = {in[0], channels};
    for (int axis = 0; axis < in.rank() - 2; ++axis) {
      RUNNEL_ASSIGN_OR_RETURN(int64_t length, Window(in[axis + 2], axis));
      dims.push_back(length);
    }
    absl::StatusOr<Shape> shape = Shape::Create(dims);
    if (!shape.ok()) return Error(shape.status().message());
    return shape;
  }

  absl::StatusOr<Shape> InferConv(const Shape& in) {
    const OpSpec& op = spec();
    if (in.rank() < 3) return Error("needs a spatial input");
    const int64_t in_channels = in[1];
    if (op.out_channels < 1 || op.groups < 1 || in_channels % op.groups != 0 ||
        op.out_channels % op.groups != 0) {
      return Error(absl::StrCat("channels ", in_channels, " -> ", op.out_channels, " do not fit ",
                                op.groups, " groups"));
    }
    RUNNEL_ASSIGN_OR_RETURN(Shape out, Windowed(in, op.out_channels));
    absl::InlinedVector<int64_t, 4> weight = {op.out_channels, in_channels / op.groups,
                                              op.kernel[0]};
    if (in.rank() == 4) weight.push_back(op.kernel[1]);
    absl::StatusOr<Shape> weight_shape = Shape::Create(weight);
    if (!weight_shape.ok()) return Error(weight_shape.status().message());
    AddState("weight", TensorRole::kWeight, *weight_shape);
    if (op.bias) AddState("bias", TensorRole::kBias, {op.out_channels});
    RUNNEL_RETURN_IF_ERROR(AddMacs(out.elements(), weight_shape->elements() / op.out_channels));
    return out;
  }

  absl::StatusOr<Shape> InferLinear(const Shape& in) {
    const OpSpec& op = spec();
    if (in.rank() != 2 && in.rank() != 3)
      return Error(absl::StrCat("needs (N,F) or (N,T,F), got ", in.ToString()));
    const int64_t features = in[in.rank() - 1];
    absl::StatusOr<Shape> weight = Shape::Create({op.out_channels, features});
    if (!weight.ok()) return Error(weight.status().message());
    AddState("weight", TensorRole::kWeight, *weight);
    if (op.bias) AddState("bias", TensorRole::kBias, {op.out_channels});
    RUNNEL_RETURN_IF_ERROR(AddMacs(in.elements() / features, weight->elements()));
    return WithFeatures(in.dims().first(static_cast<size_t>(in.rank()) - 1), op.out_channels);
  }

  absl::StatusOr<Shape> InferEmbedding(const Shape& in) {
    if (in.rank() != 2) return Error(absl::StrCat("needs (N,T), got ", in.ToString()));
    absl::StatusOr<Shape> table = Shape::Create({spec().rows, spec().out_channels});
    if (!table.ok()) return Error(table.status().message());
    AddState("weight", TensorRole::kWeight, *table);
    if (spec().positions) {
      absl::StatusOr<Shape> places = Shape::Create({in[1], spec().out_channels});
      if (!places.ok()) return Error(places.status().message());
      AddState("positions", TensorRole::kPositions, *places);
    }
    return WithFeatures(in.dims(), spec().out_channels);
  }

  absl::StatusOr<Shape> InferLayerNorm(const Shape& in) {
    if (in.rank() != 2 && in.rank() != 3)
      return Error(absl::StrCat("needs (N,F) or (N,T,F), got ", in.ToString()));
    if (!(spec().epsilon > 0)) return Error("epsilon must be positive");
    const Shape features = {in[in.rank() - 1]};
    AddState("scale", TensorRole::kScale, features);
    AddState("shift", TensorRole::kShift, features);
    return in;
  }

  // Counted as if each position saw all.
  absl::StatusOr<Shape> InferAttention(const Shape& in) {
    if (in.rank() != 3 || in[2] % 3 != 0)
      return Error(absl::StrCat("needs (N,T,3F), got ", in.ToString()));
    const int64_t features = in[2] / 3;
    if (spec().heads < 1 || features % spec().heads != 0)
      return Error(absl::StrCat(features, " features do not fit ", spec().heads, " heads"));
    RUNNEL_RETURN_IF_ERROR(AddMacs(in[0] * in[1], 2 * in[1] * features));
    return WithFeatures(in.dims().first(2), features);
  }

  absl::StatusOr<Shape> WithFeatures(absl::Span<const int64_t> rows, int64_t features) const {
    std::vector<int64_t> dims(rows.begin(), rows.end());
    dims.push_back(features);
    absl::StatusOr<Shape> shape = Shape::Create(dims);
    if (!shape.ok()) return Error(shape.status().message());
    return shape;
  }

  absl::StatusOr<Shape> InferMultiply(const Shape& in) {
    const Shape& factor = Value(spec().inputs[1]);
    if (factor == in || (in.rank() > 2 && factor == Shape({in[0], in[1]}))) return in;
    return Error(absl::StrCat("multiplies ", in.ToString(), " by ", factor.ToString()));
  }

  absl::StatusOr<Shape> InferConcat(const Shape& in) {
    const Shape& other = Value(spec().inputs[1]);
    absl::InlinedVector<int64_t, 4> dims(in.dims().begin(), in.dims().end());
    const bool fits = in.rank() == other.rank() && in.rank() >= 2;
    if (fits) dims[1] = other[1];
    if (!fits || Shape(other) != Shape::Create(dims).value())
      return Error(absl::StrCat("joins ", in.ToString(), " with ", other.ToString()));
    dims[1] = in[1] + other[1];
    absl::StatusOr<Shape> shape = Shape::Create(dims);
    if (!shape.ok()) return Error(shape.status().message());
    return shape;
  }

  // With less padding than kernel every window sees an element of the input.
  absl::StatusOr<Shape> InferPool(const Shape& in) {
    if (in.rank() < 3) return Error("needs a spatial input");
    if (spec().is_dilated()) return Error("pools have no dilation");
    for (int axis = 0; axis < std::min(in.rank() - 2, 2); ++axis) {
      const int64_t kernel = spec().kernel[static_cast<size_t>(axis)];
      for (const int64_t padding :
           {spec().padding[static_cast<size_t>(axis)], spec().end_padding(axis)}) {
        if (padding < kernel) continue;
        return Error(absl::StrCat("padding ", padding, " must be below the kernel of ", kernel));
      }
    }
    return Windowed(in, in[1]);
  }

  absl::StatusOr<Shape> InferSlice(const Shape& in) const {
    const OpSpec& op = spec();
    const int64_t channels = in.rank() < 2 ? 0 : in[1];
    if (op.begin < 0 || op.out_channels < 1 || op.out_channels > channels ||
        op.begin > channels - op.out_channels) {
      return Error(absl::StrCat("takes ", op.out_channels, " channels from ", op.begin, " on of ",
                                in.ToString()));
    }
    absl::InlinedVector<int64_t, 4> dims(in.dims().begin(), in.dims().end());
    dims[1] = op.out_channels;
    return Shape::Create(dims);
  }

  absl::StatusOr<Shape> InferShuffle(const Shape& in) const {
    if (in.rank() >= 2 && spec().groups >= 1 && in[1] % spec().groups == 0) return in;
    return Error(absl::StrCat("mixes ", spec().groups, " groups of ", in.ToString()));
  }

  absl::StatusOr<Shape> InferLstmCell(const Shape& in) const {
    const Shape sums = {in[0], 4 * kLstmUnits}, state = {in[0], kLstmState};
    if (!(in == sums))
      return Error(absl::StrCat("needs sums ", sums.ToString(), ", got ", in.ToString()));
    if (spec().inputs.size() > 1 && !(Value(spec().inputs[1]) == state)) {
      return Error(absl::StrCat("needs a state ", state.ToString(), ", got ",
                                Value(spec().inputs[1]).ToString()));
    }
    return state;
  }

  absl::StatusOr<Shape> InferGate(const Shape& in) const {
    const std::vector<int32_t>& options = spec().options;
    if (options.size() < 2 || options.size() % 2 != 0) return Error("needs pairs of bits");
    for (const int32_t bits : options) {
      if (bits < 0 || bits > 32) return Error(absl::StrCat(bits, " bits are not in 0..32"));
    }
    if (options[options.size() - 2] == 0) return Error("the last option has to run");
    if (!(spec().rate >= 0 && spec().rate <= 1)) return Error("rate must be in [0, 1]");
    bool any_skips = false;
    for (size_t i = 0; i < options.size(); i += 2) any_skips |= options[i] == 0;
    if (spec().held && spec().rate > 0 && !any_skips)
      return Error("holds samples back, and no option skips");
    if (spec().held) return Shape({in[0], 2});
    const auto count = static_cast<int64_t>(options.size() / 2);
    if (in.rank() != 2 || in[1] != count)
      return Error(absl::StrCat("needs a logit for each of ", count, " options"));
    return Shape({in[0], 2 + count});
  }

  // Only what lies packed by a gate's choice goes between kPack and kUnpack, through operators that
  // keep samples apart or are norms.
  absl::Status CheckPacked() {
    const std::vector<int32_t>& inputs = spec().inputs;
    const auto kind_of = [this](int32_t value) {
      return value == 0 ? OpKind::kFlatten : layer_.ops[static_cast<size_t>(value) - 1].kind;
    };
    const int32_t by = packed_by_[static_cast<size_t>(inputs[0])];
    const bool has_gate = inputs.size() == 2 && kind_of(inputs[1]) == OpKind::kGate;
    int32_t result = by;
    switch (spec().kind) {
      case OpKind::kPack:
        if (by != 0 || !has_gate) return Error("packs a value by a gate's choice");
        result = inputs[1];
        break;
      case OpKind::kUnpack:
        if (!has_gate || by != inputs[1]) return Error("unpacks what the same choice has packed");
        result = 0;
        break;
      case OpKind::kConv:
      case OpKind::kBatchNorm:
      case OpKind::kRelu:
      case OpKind::kRelu6:
        break;
      default:
        for (int32_t input : inputs) {
          if (packed_by_[static_cast<size_t>(input)] != 0)
            return Error("cannot read packed samples");
          if (kind_of(input) == OpKind::kGate) return Error("cannot read a choice");
        }
    }
    if (inputs.size() == 1 && kind_of(inputs[0]) == OpKind::kGate)
      return Error("cannot read a choice");
    packed_by_.push_back(result);
    const bool is_last = static_cast<size_t>(op_) + 1 == layer_.ops.size();
    if (is_last && (result != 0 || spec().kind == OpKind::kGate))
      return Error("leaves the layer with samples by choice");
    return absl::OkStatus();
  }

  absl::StatusOr<Shape> InferBatchNorm(const Shape& in) {
    if (in.rank() < 2) return Error("needs a channel axis");
    if (!(spec().epsilon > 0) || !(spec().momentum >= 0 && spec().momentum <= 1)) {
      return Error("epsilon must be positive, momentum between 0 and 1");
    }
    const Shape channels = {in[1]};
    AddState("scale", TensorRole::kScale, channels);
    AddState("shift", TensorRole::kShift, channels);
    AddState("running_mean", TensorRole::kRunningMean, channels);
    AddState("running_var", TensorRole::kRunningVar, channels);
    return in;
  }

  absl::StatusOr<Shape> InferOp() {
    const Shape in = Value(spec().inputs[0]);
    switch (spec().kind) {
      case OpKind::kConv:
        return InferConv(in);
      case OpKind::kLinear:
        return InferLinear(in);
      case OpKind::kBatchNorm:
        return InferBatchNorm(in);
      case OpKind::kDropout:
      case OpKind::kLeakyRelu:
        if (!(spec().rate >= 0 && spec().rate < 1)) return Error("rate must be in [0, 1)");
        return in;
      case OpKind::kRelu:
      case OpKind::kRelu6:
      case OpKind::kSigmoid:
      case OpKind::kHardSigmoid:
        return in;
      case OpKind::kMultiply:
        return InferMultiply(in);
      case OpKind::kConcat:
        return InferConcat(in);
      case OpKind::kMaxPool:
      case OpKind::kAvgPool:
        return InferPool(in);
      case OpKind::kGate:
        return InferGate(in);
      case OpKind::kLstmCell:
        return InferLstmCell(in);
      case OpKind::kCarriedState:
        return Shape({in[0], kLstmState});
      case OpKind::kPack:
      case OpKind::kUnpack:
        return in;
      case OpKind::kSlice:
        return InferSlice(in);
      case OpKind::kShuffle:
        return InferShuffle(in);
      case OpKind::kGlobalAvgPool:
        if (in.rank() < 3) return Error("needs a spatial input");
        return Shape({in[0], in[1]});
      case OpKind::kAdd:
        if (!(in == Value(spec().inputs[1]))) {
          return Error(
              absl::StrCat("adds ", in.ToString(), " to ", Value(spec().inputs[1]).ToString()));
        }
        return in;
      case OpKind::kFlatten:
        return Shape({in[0], in.elements() / in[0]});
      case OpKind::kEmbedding:
        return InferEmbedding(in);
      case OpKind::kLayerNorm:
        return InferLayerNorm(in);
      case OpKind::kGelu:
        return in;
      case OpKind::kAttention:
        return InferAttention(in);
    }
    return Error("is not known");
  }

  const LayerSpec& layer_;
  LayerInfo info_;
  std::vector<int32_t> packed_by_ = {0};  // by value id: the choice's id, or 0
  int op_ = 0;
};

}  // namespace

absl::StatusOr<LayerInfo> InferLayer(const LayerSpec& layer, const Shape& input) {
  return LayerInference(layer, input).Run();
}

absl::StatusOr<Shape> InferOutput(OpSpec op, absl::Span<const Shape> inputs) {
  LayerSpec layer;
  layer.ops.resize(2);
  op.inputs = inputs.size() == 2 ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{0};
  layer.ops[1] = std::move(op);
  return LayerInference(layer, inputs[0]).OutputBehind(inputs.back());
}

}  // namespace runnel
