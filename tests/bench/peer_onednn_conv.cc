#include <cstring>
#include <dnnl.hpp>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "tests/bench/peer_onednn.h"

namespace runnel::bench {
namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Desc = dnnl::memory::desc;

struct Geometry {
  explicit Geometry(const ConvShape& s)
      : x({s.batch, s.in_c, s.in_h, s.in_w}),
        w({s.out_c, s.in_c, s.kernel_h, s.kernel_w}),
        y({s.batch, s.out_c, s.out_h, s.out_w}),
        stride({s.stride_h, s.stride_w}),
        pad({s.pad_h, s.pad_w}) {}

  // With the layouts left to the primitive.
  dnnl::convolution_forward::desc Forward(dnnl::prop_kind kind, Type in, Type out) const {
    return dnnl::convolution_forward::desc(kind, dnnl::algorithm::convolution_direct,
                                           Desc(x, in, Tag::any), Desc(w, in, Tag::any),
                                           Desc(y, out, Tag::any), stride, pad, pad);
  }

  Dims x, w, y, stride, pad;
};

void FillNoise(uint64_t stream, dnnl::memory& memory) {
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  float* values = static_cast<float*>(memory.get_data_handle());
  for (size_t i = 0; i < memory.get_desc().get_size() / sizeof(float); ++i) {
    values[i] = random.Uniform(i) - 0.5f;
  }
}

// Runs `primitive` and the reorder of the weights before it, or of their gradient behind it.
class ConvF32 : public OneDnnConv {
 public:
  ConvF32(const ConvShape& shape, OneDnnConvPass pass)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), pass_(pass) {
    const Geometry geometry(shape);
    const dnnl::convolution_forward::primitive_desc forward(
        geometry.Forward(dnnl::prop_kind::forward_training, Type::f32, Type::f32), engine_);
    const Desc x(geometry.x, Type::f32, Tag::any), w(geometry.w, Type::f32, Tag::any),
        y(geometry.y, Type::f32, Tag::any);
    const auto direct = dnnl::algorithm::convolution_direct;
    if (pass == OneDnnConvPass::kForward) {
      primitive_ = dnnl::convolution_forward(forward);
      MakeMemory(forward.src_desc(), forward.weights_desc(), forward.dst_desc());
    } else if (pass == OneDnnConvPass::kInputGradient) {
      const dnnl::convolution_backward_data::primitive_desc backward(
          dnnl::convolution_backward_data::desc(direct, x, w, y, geometry.stride, geometry.pad,
                                                geometry.pad),
          engine_, forward);
      primitive_ = dnnl::convolution_backward_data(backward);
      MakeMemory(backward.diff_src_desc(), backward.weights_desc(), backward.diff_dst_desc());
    } else {
      const dnnl::convolution_backward_weights::primitive_desc backward(
          dnnl::convolution_backward_weights::desc(direct, x, w, y, geometry.stride, geometry.pad,
                                                   geometry.pad),
          engine_, forward);
      primitive_ = dnnl::convolution_backward_weights(backward);
      MakeMemory(backward.src_desc(), backward.diff_weights_desc(), backward.diff_dst_desc());
    }
    plain_ = dnnl::memory(Desc(geometry.w, Type::f32, Tag::ohwi), engine_);
    FillNoise(3, plain_);
    reorder_ = pass == OneDnnConvPass::kWeightGradient ? dnnl::reorder(w_, plain_)
                                                       : dnnl::reorder(plain_, w_);
  }

  void Run() override {
    switch (pass_) {
      case OneDnnConvPass::kForward:
        reorder_.execute(stream_, plain_, w_);
        primitive_.execute(stream_,
                           {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, y_}});
        break;
      case OneDnnConvPass::kInputGradient:
        reorder_.execute(stream_, plain_, w_);
        primitive_.execute(
            stream_, {{DNNL_ARG_DIFF_DST, y_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DIFF_SRC, x_}});
        break;
      case OneDnnConvPass::kWeightGradient:
        primitive_.execute(
            stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_DST, y_}, {DNNL_ARG_DIFF_WEIGHTS, w_}});
        reorder_.execute(stream_, w_, plain_);
        break;
    }
    stream_.wait();
  }

 private:
  void MakeMemory(const Desc& x, const Desc& w, const Desc& y) {
    x_ = dnnl::memory(x, engine_);
    w_ = dnnl::memory(w, engine_);
    y_ = dnnl::memory(y, engine_);
    FillNoise(1, x_);
    FillNoise(2, y_);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  OneDnnConvPass pass_;
  dnnl::primitive primitive_;
  dnnl::memory x_, w_, y_;
  dnnl::memory plain_;  // weights or their gradient, OHWI
  dnnl::reorder reorder_;
};

class ConvS8 : public OneDnnConvS8 {
 public:
  ConvS8(const ConvShape& shape, const int8_t* x, const int8_t* w)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), geometry_(shape) {
    const dnnl::convolution_forward::primitive_desc forward(
        geometry_.Forward(dnnl::prop_kind::forward_inference, Type::s8, Type::s32), engine_);
    convolve_ = dnnl::convolution_forward(forward);
    x_ = dnnl::memory(forward.src_desc(), engine_);
    w_ = dnnl::memory(forward.weights_desc(), engine_);
    y_ = dnnl::memory(forward.dst_desc(), engine_);
    dnnl::memory nhwc(Desc(geometry_.x, Type::s8, Tag::nhwc), engine_);
    std::memcpy(nhwc.get_data_handle(), x, nhwc.get_desc().get_size());
    dnnl::reorder(nhwc, x_).execute(stream_, nhwc, x_);
    plain_ = dnnl::memory(Desc(geometry_.w, Type::s8, Tag::ohwi), engine_);
    std::memcpy(plain_.get_data_handle(), w, plain_.get_desc().get_size());
    reorder_ = dnnl::reorder(plain_, w_);
    stream_.wait();
  }

  void Run() override {
    reorder_.execute(stream_, plain_, w_);
    convolve_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }

  std::vector<int32_t> Output() override {
    dnnl::memory nhwc(Desc(geometry_.y, Type::s32, Tag::nhwc), engine_);
    dnnl::reorder(y_, nhwc).execute(stream_, y_, nhwc);
    stream_.wait();
    const auto* values = static_cast<const int32_t*>(nhwc.get_data_handle());
    return std::vector<int32_t>(values, values + nhwc.get_desc().get_size() / sizeof(int32_t));
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  Geometry geometry_;
  dnnl::convolution_forward convolve_;
  dnnl::memory x_, w_, y_, plain_;
  dnnl::reorder reorder_;
};

absl::Status NoSuchConv(const dnnl::error& error) {
  return absl::UnimplementedError(absl::StrCat("oneDNN convolution: ", error.what()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OneDnnConv>> MakeOneDnnConvF32(const ConvShape& shape,
                                                              OneDnnConvPass pass) {
  try {
    return std::make_unique<ConvF32>(shape, pass);
  } catch (const dnnl::error& error) {
    return NoSuchConv(error);
  }
}

absl::StatusOr<std::unique_ptr<OneDnnConvS8>> MakeOneDnnConvS8(const ConvShape& shape,
                                                               const int8_t* x, const int8_t* w) {
  try {
    return std::make_unique<ConvS8>(shape, x, w);
  } catch (const dnnl::error& error) {
    return NoSuchConv(error);
  }
}

}  // namespace runnel::bench
