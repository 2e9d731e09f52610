#include "tests/bench/peer_onednn_graph.h"

#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel::bench {
namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Desc = dnnl::memory::desc;
using inference::Int8Node;
using inference::NodeKind;

struct Step {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

class Graph : public OneDnnGraph {
 public:
  Graph(const inference::Int8Graph& graph, int64_t batch)
      : graph_(graph),
        batch_(batch),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        values_(graph.nodes.size()),
        readers_(graph.nodes.size()) {}

  absl::Status Build() {
    for (const Int8Node& n : graph_.nodes) {
      for (int i = 0; i < n.node.input_count(); ++i) ++readers_[n.node.inputs[i]];
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) RUNNEL_RETURN_IF_ERROR(Add(i));
    return absl::OkStatus();
  }

  void Run() override {
    for (Step& step : steps_) step.primitive.execute(stream_, step.arguments);
    stream_.wait();
  }

 private:
  // An addition is part of the convolution before it, so it has that value already.
  bool AddsTo(size_t at, size_t& addition) const {
    if (at + 1 >= graph_.nodes.size() || readers_[at] != 1) return false;
    for (size_t i = at + 1; i < graph_.nodes.size(); ++i) {
      const inference::Node& n = graph_.nodes[i].node;
      if (n.kind != NodeKind::kAdd) continue;
      addition = i;
      const int other = n.inputs[0] == static_cast<int>(at) ? n.inputs[1] : n.inputs[0];
      const bool mine = n.inputs[0] == static_cast<int>(at) || n.inputs[1] == static_cast<int>(at);
      return mine && other < static_cast<int>(at) && values_[other].get(true) != nullptr;
    }
    return false;
  }

  Dims DimsOf(size_t at) const {
    const ConvShape& s = graph_.nodes[at].node.shape;
    return {batch_, s.out_c, s.out_h, s.out_w};
  }
  dnnl::memory NewValue(size_t at) { return Memory(Desc(DimsOf(at), Type::u8, Tag::nhwc)); }

  dnnl::memory Memory(const Desc& desc) {
    dnnl::memory memory(desc, engine_);
    const CounterRandom random(1, RandomPurpose::kTest, stream_of_noise_++, 0);
    auto* bytes = static_cast<uint8_t*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size(); ++i) {
      bytes[i] = static_cast<uint8_t>(random.Below(i, 16));
    }
    return memory;
  }

  absl::Status Add(size_t at) {
    const Int8Node& n = graph_.nodes[at];
    switch (n.node.kind) {
      case NodeKind::kInput:
        return AddInput(at);
      case NodeKind::kConv:
        return AddConv(at);
      case NodeKind::kMaxPool:
      case NodeKind::kAvgPool:
        return AddPool(at);
      case NodeKind::kFlatten:
        values_[at] = values_[n.node.inputs[0]];
        return absl::OkStatus();
      case NodeKind::kAdd:
        if (values_[at].get(true) != nullptr) return absl::OkStatus();
        break;
      default:
        break;
    }
    return absl::UnimplementedError(absl::StrCat("node ", at, ", ", Name(n.node.kind)));
  }

  absl::Status AddInput(size_t at) {
    const dnnl::memory samples = Memory(Desc(DimsOf(at), Type::f32, Tag::nchw));
    values_[at] = NewValue(at);
    dnnl::primitive_attr attributes;
    attributes.set_output_scales(0, {127.0f});
    const dnnl::reorder::primitive_desc desc(samples, values_[at], attributes);
    steps_.push_back({dnnl::reorder(desc), {{DNNL_ARG_FROM, samples}, {DNNL_ARG_TO, values_[at]}}});
    return absl::OkStatus();
  }

  absl::Status AddConv(size_t at) {
    const Int8Node& n = graph_.nodes[at];
    const ConvShape& s = n.node.shape;
    size_t addition = 0;
    const bool adds = AddsTo(at, addition);
    inference::Clamp clamp = n.node.clamp;
    dnnl::post_ops after;
    if (adds) {
      const inference::Node& add = graph_.nodes[addition].node;
      values_[at] = values_[add.inputs[0] == static_cast<int>(at) ? add.inputs[1] : add.inputs[0]];
      values_[addition] = values_[at];
      clamp = add.clamp;
      after.append_sum(0.5f);
    } else {
      values_[at] =
          n.gives_logits() ? Memory(Desc(Dims{batch_, s.out_c}, Type::f32, Tag::nc)) : NewValue(at);
    }
    if (clamp == inference::Clamp::kRelu) {
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    } else if (clamp == inference::Clamp::kRelu6) {
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_clip, 0.0f, 6.0f);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(after);
    attributes.set_output_scales(1 << 1, std::vector<float>(s.out_c, 1e-4f));
    const bool is_linear = s.in_h * s.in_w == 1 && s.taps() == 1;
    return is_linear ? AddLinear(at, attributes) : AddWindow(at, attributes);
  }

  absl::Status AddWindow(size_t at, const dnnl::primitive_attr& attributes) {
    const ConvShape& s = graph_.nodes[at].node.shape;
    const dnnl::memory& x = values_[graph_.nodes[at].node.inputs[0]];
    const Dims weights = s.groups == 1
                             ? Dims{s.out_c, s.in_c, s.kernel_h, s.kernel_w}
                             : Dims{s.groups, s.group_out(), s.group_in(), s.kernel_h, s.kernel_w};
    const Dims pad = {s.pad_h, s.pad_w};
    const dnnl::convolution_forward::desc wanted(
        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, x.get_desc(),
        Desc(weights, Type::s8, Tag::any), Desc(Dims{s.out_c}, Type::s32, Tag::a),
        values_[at].get_desc(), {s.stride_h, s.stride_w}, pad, pad);
    const dnnl::convolution_forward::primitive_desc desc(wanted, attributes, engine_);
    Push(at, dnnl::convolution_forward(desc), desc.weights_desc(), desc.bias_desc());
    return absl::OkStatus();
  }

  absl::Status AddLinear(size_t at, const dnnl::primitive_attr& attributes) {
    const ConvShape& s = graph_.nodes[at].node.shape;
    const dnnl::memory& x = values_[graph_.nodes[at].node.inputs[0]];
    // What is flattened keeps its shape.
    const Dims from = x.get_desc().dims();
    Desc to = values_[at].get_desc();
    if (to.dims().size() == 4) to = to.reshape({batch_, s.out_c});
    const dnnl::inner_product_forward::desc wanted(
        dnnl::prop_kind::forward_inference, x.get_desc(),
        Desc({s.out_c, from[1], from[2], from[3]}, Type::s8, Tag::any),
        Desc(Dims{s.out_c}, Type::s32, Tag::a), to);
    const dnnl::inner_product_forward::primitive_desc desc(wanted, attributes, engine_);
    Push(at, dnnl::inner_product_forward(desc), desc.weights_desc(), desc.bias_desc());
    return absl::OkStatus();
  }

  void Push(size_t at, dnnl::primitive primitive, const Desc& weights, const Desc& bias) {
    steps_.push_back({std::move(primitive),
                      {{DNNL_ARG_SRC, values_[graph_.nodes[at].node.inputs[0]]},
                       {DNNL_ARG_WEIGHTS, Memory(weights)},
                       {DNNL_ARG_BIAS, Memory(bias)},
                       {DNNL_ARG_DST, values_[at]}}});
  }

  absl::Status AddPool(size_t at) {
    const Int8Node& n = graph_.nodes[at];
    const ConvShape& s = n.node.shape;
    const dnnl::memory& x = values_[n.node.inputs[0]];
    values_[at] = NewValue(at);
    const Dims pad = {s.pad_h, s.pad_w};
    // The last window may reach over the padding on the right.
    const Dims pad_end = {(s.out_h - 1) * s.stride_h + s.kernel_h - s.in_h - s.pad_h,
                          (s.out_w - 1) * s.stride_w + s.kernel_w - s.in_w - s.pad_w};
    const dnnl::pooling_forward::desc wanted(
        dnnl::prop_kind::forward_inference,
        n.node.kind == NodeKind::kMaxPool ? dnnl::algorithm::pooling_max
                                          : dnnl::algorithm::pooling_avg_exclude_padding,
        x.get_desc(), values_[at].get_desc(), {s.stride_h, s.stride_w}, {s.kernel_h, s.kernel_w},
        pad, pad_end);
    const dnnl::pooling_forward::primitive_desc desc(wanted, engine_);
    steps_.push_back(
        {dnnl::pooling_forward(desc), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, values_[at]}}});
    return absl::OkStatus();
  }

  const inference::Int8Graph& graph_;
  const int64_t batch_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> values_;  // by node
  std::vector<int> readers_;          // by node
  std::vector<Step> steps_;
  uint64_t stream_of_noise_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OneDnnGraph>> MakeOneDnnGraph(const inference::Int8Graph& graph,
                                                             int64_t batch) {
  auto made = std::make_unique<Graph>(graph, batch);
  try {
    RUNNEL_RETURN_IF_ERROR(made->Build());
  } catch (const dnnl::error& error) {
    return absl::UnimplementedError(absl::StrCat("oneDNN: ", error.message));
  }
  return std::unique_ptr<OneDnnGraph>(std::move(made));
}

}  // namespace runnel::bench
