#include "tests/kernels/random_model.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

constexpr int64_t kMaxElements = 600;  // of one sample at any point

class ModelMaker {
 public:
  explicit ModelMaker(uint64_t seed) : random_(seed, RandomPurpose::kTest, 0, 0) {
    model_.name = absl::StrCat("random", seed);
    model_.classes = 2 + Below(4);
  }

  ModelSpec Make() {
    model_.input = Below(2) == 0 ? Shape{1 + Below(4), 4 + Below(6), 4 + Below(6)}
                                 : Shape{1 + Below(4), 6 + Below(20)};
    shape_ = model_.input.Prepend(2);
    const int64_t spatial_layers = 1 + Below(4);
    for (int64_t i = 0; i < spatial_layers; ++i) AddRandomLayer();
    AddLayer({Op(Below(2) == 0 ? OpKind::kFlatten : OpKind::kGlobalAvgPool)});
    for (int64_t i = Below(3); i > 0; --i) AddRandomLayer();
    OpSpec last = Op(OpKind::kLinear);
    last.out_channels = model_.classes;
    last.bias = Below(2) == 0;
    AddLayer({last});
    return model_;
  }

 private:
  int64_t Below(uint32_t bound) { return random_.Below(next_++, bound); }

  static OpSpec Op(OpKind kind, std::vector<int32_t> inputs = {0}) {
    OpSpec op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    return op;
  }

  void AddLayer(std::vector<OpSpec> ops) {
    LayerSpec layer = {absl::StrCat("l", model_.layers.size()), std::move(ops)};
    absl::StatusOr<LayerInfo> info = InferLayer(layer, shape_);
    if (!info.ok() || info->output.elements() > 2 * kMaxElements) return;
    shape_ = info->output;
    model_.layers.push_back(std::move(layer));
  }

  OpSpec RandomOp() {
    static constexpr OpKind kSpatial[] = {OpKind::kConv,    OpKind::kConv,    OpKind::kBatchNorm,
                                          OpKind::kRelu,    OpKind::kRelu6,   OpKind::kDropout,
                                          OpKind::kMaxPool, OpKind::kAvgPool, OpKind::kConv};
    static constexpr OpKind kFlat[] = {OpKind::kLinear, OpKind::kRelu,    OpKind::kDropout,
                                       OpKind::kLinear, OpKind::kFlatten, OpKind::kBatchNorm};
    OpSpec op = Op(shape_.rank() > 2 ? kSpatial[Below(9)] : kFlat[Below(6)]);
    op.groups = Below(3) == 0 ? 1 + Below(3) : 1;
    op.out_channels = op.groups * (1 + Below(4));
    for (int axis = 0; axis < 2; ++axis) {
      op.kernel[axis] = 1 + Below(3);
      op.stride[axis] = 1 + Below(2);
      op.padding[axis] = Below(3);
    }
    if (op.kind == OpKind::kAvgPool) op.padding = {0, 0};
    op.bias = Below(2) == 0;
    op.rate = 0.1 * static_cast<double>(Below(6));
    return op;
  }

  // A chain in which some values are read again: by an add, or by a second branch and then an add.
  void AddRandomLayer() {
    LayerSpec layer;
    const int64_t wanted = 1 + Below(6);
    for (int attempt = 0; attempt < 40 && static_cast<int64_t>(layer.ops.size()) < wanted;
         ++attempt) {
      LayerSpec longer = layer;
      const auto current = static_cast<int32_t>(layer.ops.size());
      const auto earlier = static_cast<int32_t>(Below(static_cast<uint32_t>(current) + 1));
      const int64_t choice = Below(4);
      OpSpec op = RandomOp();
      op.inputs = {choice == 1 ? earlier : current};
      if (choice > 0) longer.ops.push_back(op);
      if (choice == 0) longer.ops.push_back(Op(OpKind::kAdd, {current, earlier}));
      if (choice == 1) longer.ops.push_back(Op(OpKind::kAdd, {current + 1, current}));
      absl::StatusOr<LayerInfo> info = InferLayer(longer, shape_);
      if (info.ok() && info->output.elements() <= 2 * kMaxElements) layer = std::move(longer);
    }
    if (!layer.ops.empty()) AddLayer(std::move(layer.ops));
  }

  CounterRandom random_;
  uint64_t next_ = 0;
  ModelSpec model_;
  Shape shape_;  // of what the next layer reads, batch 2
};

}  // namespace

ModelSpec RandomModel(uint64_t seed) { return ModelMaker(seed).Make(); }

std::vector<float> RandomValues(uint64_t seed, uint64_t sequence, int64_t count) {
  const CounterRandom random(seed, RandomPurpose::kTest, 1, sequence);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.Normal(i));
  return values;
}

std::vector<int32_t> RandomLabels(uint64_t seed, uint64_t sequence, int64_t count,
                                  int64_t classes) {
  const CounterRandom random(seed, RandomPurpose::kTest, 2, sequence);
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(random.Below(i, static_cast<uint32_t>(classes)));
  }
  return labels;
}

OpSpec OpOf(OpKind kind, std::vector<int32_t> inputs) {
  OpSpec op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  return op;
}

OpSpec LinearOp(int64_t out_channels, std::vector<int32_t> inputs) {
  OpSpec op = OpOf(OpKind::kLinear, std::move(inputs));
  op.out_channels = out_channels;
  return op;
}

OpSpec ReluOp(int32_t input) { return OpOf(OpKind::kRelu, {input}); }

OpSpec ConvOp(int64_t out_channels, const Window& window, int32_t input, int64_t groups) {
  OpSpec op = MaxPoolOp(window, input);
  op.kind = OpKind::kConv;
  op.out_channels = out_channels;
  op.groups = groups;
  return op;
}

OpSpec MaxPoolOp(const Window& window, int32_t input) {
  OpSpec op = OpOf(OpKind::kMaxPool, {input});
  op.kernel = {window.kernel, window.kernel};
  op.stride = {window.stride, window.stride};
  op.padding = {window.padding, window.padding};
  return op;
}

ModelSpec ModelOf(Shape input, int64_t classes, std::vector<std::vector<OpSpec>> layers) {
  ModelSpec model;
  model.name = "test";
  model.input = std::move(input);
  model.classes = classes;
  for (auto& ops : layers) {
    model.layers.push_back({absl::StrCat("l", model.layers.size()), std::move(ops)});
  }
  return model;
}

ModelSpec LeNetModel() {
  return ModelOf({1, 28, 28}, 10,
                 {{ConvOp(20, {5}), ReluOp()},
                  {MaxPoolOp({2, 2})},
                  {ConvOp(50, {5}), ReluOp()},
                  {MaxPoolOp({2, 2}), OpOf(OpKind::kFlatten, {1})},
                  {LinearOp(500), ReluOp()},
                  {LinearOp(10)}});
}

ModelSpec ShapesModel() {
  const auto shaped = [](OpSpec op, const std::array<int64_t, 2>& padding_end,
                         const std::array<int64_t, 2>& dilation) {
    op.padding_end = padding_end;
    op.dilation = dilation;
    return op;
  };
  const auto slice = [](int32_t input, int64_t begin, int64_t channels) {
    OpSpec op = OpOf(OpKind::kSlice, {input});
    op.begin = begin;
    op.out_channels = channels;
    return op;
  };
  const auto shuffle = [](int32_t input, int64_t groups) {
    OpSpec op = OpOf(OpKind::kShuffle, {input});
    op.groups = groups;
    return op;
  };
  const auto mean = [&](int32_t input, bool counts_padding) {
    OpSpec op = shaped(MaxPoolOp({3, 2, 1}, input), {0, 2}, {1, 1});
    op.kind = OpKind::kAvgPool;
    op.counts_padding = counts_padding;
    return op;
  };
  const auto norm = [](int32_t input) { return OpOf(OpKind::kBatchNorm, {input}); };
  return ModelOf(
      {3, 17, 14}, 5,
      {{shaped(ConvOp(10, {3, 1, 2}), {0, 3}, {2, 3}), norm(1)},
       // Depthwise with a stride that shares a factor with the dilation; its sides differ.
       {shaped(ConvOp(10, {3, 2, 3}, 0, 10), {1, 0}, {4, 1}), norm(1), ConvOp(6, {1}, 2, 2)},
       // Parts that overlap, one of which nothing changes.
       {slice(0, 0, 4), slice(0, 2, 4), shaped(ConvOp(5, {2, 1, 0}, 1), {1, 1}, {1, 1}), norm(3),
        OpOf(OpKind::kConcat, {4, 2}), shuffle(5, 3)},
       {shaped(MaxPoolOp({3, 2, 1}), {2, 1}, {1, 1}), mean(1, false)},
       {shaped(ConvOp(8, {2, 3, 1}), {4, 4}, {2, 2}), mean(1, true),
        OpOf(OpKind::kGlobalAvgPool, {2}), LinearOp(5, {3})}});
}

ModelSpec TwoProducts() {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 6;
  conv.kernel = {3, 3};
  OpSpec pool = OpOf(OpKind::kMaxPool, {2});
  pool.kernel = pool.stride = {2, 2};
  return ModelOf(
      {2, 8, 8}, 5,
      {{conv, OpOf(OpKind::kRelu, {1}), pool}, {OpOf(OpKind::kFlatten, {0}), LinearOp(5, {1})}});
}

}  // namespace runnel
