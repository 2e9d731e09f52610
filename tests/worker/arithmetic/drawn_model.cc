#include "tests/worker/arithmetic/drawn_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/kernels/random_model.h"

namespace runnel {
namespace {

constexpr int64_t kMostElements = 6000;   // of one sample at any point
constexpr int64_t kMostMacs = 1'500'000;  // of one sample and layer

class ImageModelMaker {
 public:
  ImageModelMaker(Draws& draws, const ModelLimits& limits) : draws_(draws), limits_(limits) {}

  ModelSpec Make() {
    model_.name = "drawn";
    model_.classes = draws_.Between(2, 6);
    model_.input = {draws_.Between(1, 4), draws_.Between(5, 20), draws_.Between(5, 20)};
    shape_ = model_.input.Prepend(2);
    for (int64_t i = draws_.Between(2, 6); i > 0; --i) AddBlock();
    if (draws_.Chance(60)) AddLayer({OpOf(OpKind::kGlobalAvgPool, {0})});
    if (shape_.rank() > 2) AddLayer({OpOf(OpKind::kFlatten, {0})});
    if (draws_.Chance(40)) AddLayer({Linear(draws_.Between(3, 40)), ReluOp(1)});
    AddLayer({Linear(model_.classes)});
    return model_;
  }

 private:
  bool AddLayer(std::vector<OpSpec> ops) {
    LayerSpec layer = {absl::StrCat("l", model_.layers.size()), std::move(ops)};
    absl::StatusOr<LayerInfo> info = InferLayer(layer, shape_);
    if (!info.ok() || info->macs > 2 * kMostMacs) return false;
    for (const Shape& output : info->op_outputs) {
      if (output.elements() > 2 * kMostElements) return false;
    }
    shape_ = info->output;
    model_.layers.push_back(std::move(layer));
    return true;
  }

  OpSpec Linear(int64_t features) {
    OpSpec op = LinearOp(features);
    op.bias = limits_.biases && draws_.Chance(70);
    return op;
  }

  int64_t Channels() { return draws_.Pick<int64_t>({2, 3, 5, 7, 8, 11, 12, 16, 17, 24}); }

  OpSpec Conv(int64_t channels, int32_t input, int64_t groups = 1, int64_t stride = 1) {
    const int64_t kernel = draws_.Pick<int64_t>({1, 3, 3, 3, 5});
    OpSpec op = ConvOp(channels, {kernel, stride, kernel / 2}, input, groups);
    op.bias = limits_.biases && draws_.Chance(30);
    if (limits_.odd_windows && kernel > 1 && draws_.Chance(15)) {
      op.dilation = {2, 2};
      op.padding = {kernel - 1, kernel - 1};
    }
    if (draws_.Chance(10) && stride > 1) op.padding = {0, 0};
    if (limits_.odd_windows && draws_.Chance(5)) op.padding_end = {kernel / 2, kernel / 2 + 1};
    return op;
  }

  int32_t Append(OpSpec op, std::vector<OpSpec>& ops) {
    ops.push_back(std::move(op));
    return static_cast<int32_t>(ops.size());
  }
  // A norm and an activation behind value `at`, or not.
  int32_t Finish(int32_t at, bool activates, std::vector<OpSpec>& ops) {
    if (limits_.norms && draws_.Chance(65)) at = Append(OpOf(OpKind::kBatchNorm, {at}), ops);
    if (activates && draws_.Chance(85)) {
      const bool six = limits_.odd_windows && draws_.Chance(35);
      at = Append(OpOf(six ? OpKind::kRelu6 : OpKind::kRelu, {at}), ops);
    }
    return at;
  }

  void AddBlock() {
    if (shape_.rank() < 4) return;
    std::vector<OpSpec> ops;
    switch (draws_.Below(8)) {
      case 0:
      case 1:
        AddResidual(ops);
        break;
      case 2: {  // depthwise, then pointwise
        int32_t at =
            Finish(Append(Conv(shape_[1], 0, shape_[1], draws_.Between(1, 2)), ops), true, ops);
        at = Append(ConvOp(Channels(), {1}, at), ops);
        Finish(at, draws_.Chance(50), ops);
        break;
      }
      case 3:
        AddPool(0, ops);
        break;
      case 4:
        if (!AddChannelParts(ops)) return;
        break;
      default: {
        const int32_t at =
            Finish(Append(Conv(Channels(), 0, 1, draws_.Chance(25) ? 2 : 1), ops), true, ops);
        if (draws_.Chance(25)) AddPool(at, ops);
      }
    }
    if (!ops.empty()) AddLayer(std::move(ops));
  }

  void AddPool(int32_t at, std::vector<OpSpec>& ops) {
    OpSpec op = MaxPoolOp({draws_.Between(2, 3), 2}, at);
    if (draws_.Chance(40)) {
      op.kind = OpKind::kAvgPool;
      op.kernel = op.stride = {2, 2};
    } else if (op.kernel[0] == 3 && draws_.Chance(50)) {
      op.padding = {1, 1};
    }
    Append(op, ops);
  }

  void AddResidual(std::vector<OpSpec>& ops) {
    const bool projects = draws_.Chance(30);
    const int64_t channels = projects ? Channels() : shape_[1];
    const int64_t stride = projects ? draws_.Between(1, 2) : 1;
    OpSpec first = ConvOp(channels, {3, stride, 1}, 0), second = ConvOp(channels, {3, 1, 1}, 0);
    int32_t at = Finish(Append(first, ops), true, ops);
    if (draws_.Chance(70)) {
      second.inputs = {at};
      at = Finish(Append(second, ops), false, ops);
    }
    int32_t shortcut = 0;
    if (projects) shortcut = Finish(Append(ConvOp(channels, {1, stride}, 0), ops), false, ops);
    at = Append(OpOf(OpKind::kAdd, {at, shortcut}), ops);
    if (draws_.Chance(80)) Append(ReluOp(at), ops);
  }

  // Half of the channels goes through a convolution.
  bool AddChannelParts(std::vector<OpSpec>& ops) {
    const int64_t channels = shape_[1], half = channels / 2;
    if (half < 1 || !limits_.odd_windows) return false;
    OpSpec kept = OpOf(OpKind::kSlice, {0}), changed = kept;
    kept.out_channels = channels - half;
    changed.begin = channels - half;
    changed.out_channels = half;
    const int32_t left = Append(kept, ops);
    int32_t right = Append(changed, ops);
    right = Finish(Append(ConvOp(half, {3, 1, 1}, right), ops), true, ops);
    const int32_t joined = Append(OpOf(OpKind::kConcat, {left, right}), ops);
    if (channels % 2 == 0 && draws_.Chance(60)) {
      OpSpec shuffle = OpOf(OpKind::kShuffle, {joined});
      shuffle.groups = 2;
      Append(shuffle, ops);
    }
    return true;
  }

  Draws& draws_;
  const ModelLimits limits_;
  ModelSpec model_;
  Shape shape_;  // of what the next layer reads, batch 2
};

}  // namespace

ModelSpec DrawImageModel(Draws& draws, const ModelLimits& limits) {
  return ImageModelMaker(draws, limits).Make();
}

ModelSpec DrawTokenModel(Draws& draws) {
  const int64_t heads = draws.Between(1, 3), features = heads * draws.Pick<int64_t>({3, 4, 7});
  const int64_t rows = draws.Between(5, 30), positions = draws.Between(3, 9);
  ModelSpec model;
  model.name = "drawn";
  model.classes = rows;
  model.input = {positions};
  OpSpec table = OpOf(OpKind::kEmbedding, {0});
  table.rows = rows;
  table.out_channels = features;
  table.positions = draws.Chance(70);
  model.layers.push_back({"table", {table}});
  for (int64_t i = draws.Between(1, 2); i > 0; --i) {
    OpSpec attention = OpOf(OpKind::kAttention, {2});
    attention.heads = heads;
    attention.bidirectional = draws.Chance(50);
    OpSpec dropout = OpOf(OpKind::kDropout, {4});
    dropout.rate = draws.Chance(50) ? 0.1 : 0;
    OpSpec gelu = OpOf(OpKind::kGelu, {8});
    gelu.exact = draws.Chance(50);
    model.layers.push_back({absl::StrCat("block", model.layers.size()),
                            {OpOf(OpKind::kLayerNorm, {0}), LinearOp(3 * features, {1}), attention,
                             LinearOp(features, {3}), dropout, OpOf(OpKind::kAdd, {0, 5}),
                             OpOf(OpKind::kLayerNorm, {6}), LinearOp(2 * features, {7}), gelu,
                             LinearOp(features, {9}), OpOf(OpKind::kAdd, {6, 10})}});
  }
  model.layers.push_back({"head", {OpOf(OpKind::kLayerNorm, {0}), LinearOp(rows, {1})}});
  return model;
}

}  // namespace runnel
