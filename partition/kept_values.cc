#include "partition/kept_values.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "proto/base/model/number_format.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

// Each buffer begins at a multiple of this.
constexpr int64_t kAlignment = 64;
constexpr int64_t kBits = 8;        // of a byte
constexpr int kPairedBits = 4;      // codes of no more lie two a byte
constexpr int64_t kGridFloats = 3;  // that say a grid of codes

int64_t Aligned(DType type, const Shape& shape) {
  return (ValueBytes(type, shape) + kAlignment - 1) / kAlignment * kAlignment;
}

class KeptValues {
 public:
  KeptValues(const LayerSpec& layer, const LayerInfo& info, DType kept, const CodesOfLayer& codes)
      : layer_(layer),
        info_(info),
        kept_type_(kept),
        codes_(codes),
        is_kept_(layer.ops.size() + 1),
        is_masked_(layer.ops.size() + 1),
        readers_(layer.ops.size() + 1) {
    for (const OpSpec& op : layer.ops)
      for (const int32_t value : op.inputs) ++readers_[static_cast<size_t>(value)];
  }

  int64_t Bytes() {
    for (size_t op = 0; op < layer_.ops.size(); ++op) Keep(op);
    if (layer_.recompute) return BytesBesideMadeAgain();
    for (size_t value = 0; value < is_kept_.size(); ++value) {
      if (IsMadeAgain(value)) continue;
      const Shape& shape = ShapeOfKept(value);
      if (is_kept_[value]) {
        bytes_ += Aligned(kept_type_, shape);
      } else if (is_masked_[value]) {
        bytes_ += Aligned(DType::kUInt8, {(shape.elements() + kBits - 1) / kBits});
      }
    }
    return bytes_;
  }

 private:
  const Shape& ShapeOf(size_t value) const {
    return value == 0 ? info_.input : info_.op_outputs[value - 1];
  }
  const OpSpec* MakerOf(size_t value) const {
    return value == 0 ? nullptr : &layer_.ops[value - 1];
  }
  bool IsOf(size_t value, OpKind kind) const {
    return MakerOf(value) != nullptr && MakerOf(value)->kind == kind;
  }
  bool IsRelu(size_t value) const {
    return IsOf(value, OpKind::kRelu) || IsOf(value, OpKind::kRelu6);
  }

  bool IsMadeAgain(size_t value) const {
    if (codes_.kept == KeptCodes::kAllBesideNorms) return false;
    if (IsRelu(value)) value = static_cast<size_t>(MakerOf(value)->inputs[0]);
    return IsOf(value, OpKind::kBatchNorm);
  }

  // A ReLU that a max pooling alone reads runs behind it.
  const Shape& ShapeOfKept(size_t value) const {
    if (!IsOf(value, OpKind::kRelu) || readers_[value] != 1) return ShapeOf(value);
    for (size_t op = 0; op < layer_.ops.size(); ++op) {
      const bool pools = layer_.ops[op].kind == OpKind::kMaxPool &&
                         static_cast<size_t>(layer_.ops[op].inputs[0]) == value;
      if (pools) return info_.op_outputs[op];
    }
    return ShapeOf(value);
  }

  // What enters the layer, as codes where nothing that is made again needs the values themselves, a
  // bit of what a ReLU at its end gives, and what norms note.
  int64_t BytesBesideMadeAgain() const {
    const size_t last = is_kept_.size() - 1;
    bool needs_values = false;
    for (size_t value = 0; value < is_kept_.size(); ++value) {
      const bool is_needed = is_kept_[value] || (is_masked_[value] && value != last);
      needs_values = needs_values || (is_needed && NeedsInput(value));
    }
    int64_t bytes = 0;
    bool is_whole = false;
    for (size_t op = 0; op < layer_.ops.size(); ++op) {
      const OpSpec& spec = layer_.ops[op];
      is_whole = is_whole || IsDepthwise(op);
      const bool is_needed = spec.kind == OpKind::kMaxPool || (IsOfCodes(op) && spec.inputs[0] > 0);
      needs_values = needs_values || (is_needed && NeedsInput(op + 1));
      if (spec.kind == OpKind::kBatchNorm)
        bytes += Aligned(DType::kFloat32, {2 * info_.op_outputs[op][1]});
    }
    if (is_masked_[last])
      bytes += Aligned(DType::kUInt8, {(ShapeOf(last).elements() + kBits - 1) / kBits});
    return bytes +
           (needs_values ? Aligned(kept_type_, info_.input) : CodeBytes(info_.input, is_whole));
  }

  // Whether making the value again reads what enters the layer, and not its codes.
  bool NeedsInput(size_t value) const {
    if (value == 0) return true;
    const OpSpec& op = *MakerOf(value);
    if (IsOfCodes(value - 1))
      return op.inputs[0] > 0 && NeedsInput(static_cast<size_t>(op.inputs[0]));
    return std::any_of(op.inputs.begin(), op.inputs.end(),
                       [this](int32_t input) { return NeedsInput(static_cast<size_t>(input)); });
  }

  void KeepInputs(const OpSpec& op) {
    for (const int32_t value : op.inputs) is_kept_[static_cast<size_t>(value)] = true;
  }

  static bool HasWeights(const OpSpec& op) {
    return op.kind == OpKind::kConv || op.kind == OpKind::kLinear;
  }
  // Whether the layer's operators before or behind this one have no weights.
  bool IsFirst(size_t op) const {
    return std::none_of(layer_.ops.begin(), layer_.ops.begin() + static_cast<ptrdiff_t>(op),
                        HasWeights);
  }
  bool IsLast(size_t op) const {
    return std::none_of(layer_.ops.begin() + static_cast<ptrdiff_t>(op) + 1, layer_.ops.end(),
                        HasWeights);
  }

  // The recipe leaves the model's first and last operator with weights as they are.
  bool IsLeftEnd(size_t op) const {
    return codes_.kept == KeptCodes::kInner &&
           ((codes_.is_first && IsFirst(op)) || (codes_.is_last && IsLast(op)));
  }
  // Whether the operator multiplies codes.
  bool IsOfCodes(size_t op) const {
    return HasWeights(layer_.ops[op]) && !LeadsToGate(layer_, op) && !IsLeftEnd(op);
  }

  void KeepOperand(size_t op) {
    if (layer_.freezes(op)) return;
    const OpSpec& spec = layer_.ops[op];
    const bool is_kept_apart = codes_.reads_samples && spec.inputs[0] == 0 && IsLeftEnd(op) &&
                               codes_.is_first && IsFirst(op);
    if (is_kept_apart) return;
    if (!IsOfCodes(op)) return KeepInputs(spec);
    const Shape& x = ShapeOf(static_cast<size_t>(spec.inputs[0]));
    bytes_ += CodeBytes(x, IsPacked(spec.inputs[0]) || IsDepthwise(op));
    // Samples by choice have a grid of their own each.
    if (IsPacked(spec.inputs[0])) bytes_ += Aligned(DType::kFloat32, {kGridFloats * x[0]});
  }

  // Of the codes of a value; whole: a byte each, however few bits they have.
  int64_t CodeBytes(const Shape& shape, bool whole) const {
    return whole || codes_.bits > kPairedBits
               ? Aligned(DType::kInt8, shape) + kAlignment
               : Aligned(DType::kUInt8, {(shape.elements() + 1) / 2});
  }
  bool IsDepthwise(size_t op) const {
    const OpSpec& spec = layer_.ops[op];
    return spec.groups > 1 && spec.groups == ShapeOf(static_cast<size_t>(spec.inputs[0]))[1];
  }

  // What leads from a packing to this value.
  bool IsPacked(int32_t value) const {
    while (value > 0 && layer_.ops[static_cast<size_t>(value) - 1].kind != OpKind::kPack) {
      const OpSpec& op = layer_.ops[static_cast<size_t>(value) - 1];
      if (op.kind == OpKind::kUnpack || op.inputs.size() != 1) return false;
      value = op.inputs[0];
    }
    return value > 0;
  }

  // The gradient of a choice that is learned reads what the explored options give.
  void KeepExplored(const OpSpec& unpack) {
    const OpSpec& gate = layer_.ops[static_cast<size_t>(unpack.inputs[1]) - 1];
    if (!gate.held)
      bytes_ += Aligned(DType::kFloat32, ShapeOf(static_cast<size_t>(unpack.inputs[0])));
  }

  void Keep(size_t op) {
    const OpSpec& spec = layer_.ops[op];
    const Shape& y = info_.op_outputs[op];
    switch (spec.kind) {
      case OpKind::kConv:
      case OpKind::kLinear:
        return KeepOperand(op);
      case OpKind::kBatchNorm:
        bytes_ += Aligned(DType::kFloat32, {2 * y[1]});
        return KeepInputs(spec);
      case OpKind::kLayerNorm:
        bytes_ += Aligned(DType::kFloat32, {2 * y.elements() / y[y.rank() - 1]});
        return KeepInputs(spec);
      case OpKind::kMaxPool:
        bytes_ += Aligned(DType::kUInt8, y);
        return;
      case OpKind::kGelu:
      case OpKind::kMultiply:
      case OpKind::kLstmCell:
        return KeepInputs(spec);
      case OpKind::kUnpack:
        return KeepExplored(spec);
      case OpKind::kPack:
      case OpKind::kAvgPool:
      case OpKind::kGlobalAvgPool:
      case OpKind::kDropout:
      case OpKind::kAdd:
      case OpKind::kFlatten:
      case OpKind::kConcat:
      case OpKind::kSlice:
      case OpKind::kShuffle:
      case OpKind::kEmbedding:
      case OpKind::kCarriedState:
        return;
      case OpKind::kAttention:
        bytes_ += Aligned(DType::kFloat32, {y[0] * spec.heads * y[1]});
        KeepInputs(spec);
        break;
      case OpKind::kRelu:
      case OpKind::kRelu6:
        (kept_type_ == DType::kFloat32 ? is_masked_ : is_kept_)[op + 1] = true;
        return;
      default:
        break;
    }
    is_kept_[op + 1] = true;
  }

  const LayerSpec& layer_;
  const LayerInfo& info_;
  const DType kept_type_;
  const CodesOfLayer codes_;
  std::vector<bool> is_kept_;    // by value: in FP32, for whatever reads it
  std::vector<bool> is_masked_;  // by value: a bit an element, unless it is in FP32
  std::vector<int> readers_;     // by value, within the layer
  int64_t bytes_ = 0;
};

}  // namespace

int64_t KeptBytesWithCodes(const LayerSpec& layer, const LayerInfo& info, DType kept,
                           const CodesOfLayer& codes) {
  return KeptValues(layer, info, kept, codes).Bytes();
}

}  // namespace runnel
