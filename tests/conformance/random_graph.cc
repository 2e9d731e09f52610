#include "tests/conformance/random_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/random.h"

namespace runnel::inference {
namespace {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : random_(seed, RandomPurpose::kTest, stream, 0) {}
  // least..most
  int64_t Int(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_.Uniform(next_++) * (most - least + 1));
  }
  double Real(double least, double most) {
    return least + random_.Uniform(next_++) * (most - least);
  }
  bool Chance(double probability) { return random_.Uniform(next_++) < probability; }

 private:
  CounterRandom random_;
  int64_t next_ = 0;
};

class Builder {
 public:
  explicit Builder(uint64_t seed) : draws_(seed, 1) {
    is_symmetric_ = draws_.Chance(0.4);
    by_channel_ = draws_.Chance(0.6);
    is_extreme_ = draws_.Chance(0.25);
    for_winograd_ = is_symmetric_ && draws_.Chance(0.4);
    has_float_factors_ = draws_.Chance(0.6);
  }

  Int8Graph Build() {
    graph_.takes_codes = draws_.Chance(0.3);
    graph_.gives_codes = draws_.Chance(0.3);
    Int8Node samples;
    samples.node.shape.out_c = draws_.Int(1, 5);
    samples.node.shape.out_h = draws_.Int(3, 11);
    samples.node.shape.out_w = draws_.Int(3, 11);
    samples.coding = AnyCoding();
    Append(samples);
    const int64_t count = draws_.Int(2, 7);
    for (int64_t i = 0; i < count; ++i) AddAny(i == 0);
    if (draws_.Chance(0.7)) AddEnd();
    EXPECT_TRUE(CheckAndInfer(graph_).ok()) << CheckAndInfer(graph_);
    return std::move(graph_);
  }

 private:
  Coding AnyCoding() {
    Coding coding;
    coding.scale = std::ldexp(draws_.Real(0.5, 1), static_cast<int>(draws_.Int(-8, 0)));
    coding.max_code = for_winograd_ || draws_.Chance(0.3) ? 31 : 127;
    const int64_t most = is_extreme_ ? coding.max_code : coding.max_code / 2;
    if (!is_symmetric_) coding.zero = static_cast<int32_t>(draws_.Int(-most, most));
    return coding;
  }
  Clamp AnyClamp() { return static_cast<Clamp>(draws_.Int(0, 2)); }
  // One that gives codes of about the whole range from sums of this size.
  Factor AnyFactor(double size) {
    if (is_extreme_ && draws_.Chance(0.2)) {
      constexpr Factor kEnds[] = {{INT32_MAX, 1}, {0, 1}, {INT32_MAX, 62}, {1, 1}, {1 << 30, 31}};
      return kEnds[draws_.Int(0, 4)];
    }
    const double factor = draws_.Real(20, 200) / size;
    return has_float_factors_ ? FloatFactorOf(factor) : FactorOf(factor);
  }
  const Int8Node& at(int32_t node) const { return graph_.nodes[node]; }
  int32_t last() const { return static_cast<int32_t>(graph_.nodes.size()) - 1; }

  // Infers its shape; false: it does not fit.
  bool Append(const Int8Node& n) {
    std::vector<Node> before;
    for (const Int8Node& one : graph_.nodes) before.push_back(one.node);
    Int8Node added = n;
    if (!InferNode(before, added.node).ok()) return false;
    graph_.nodes.push_back(std::move(added));
    return true;
  }

  Int8Node NodeOf(NodeKind kind) {
    Int8Node n;
    n.node.kind = kind;
    // Mostly a chain, with some values that are read twice.
    n.node.inputs[0] = static_cast<int32_t>(draws_.Chance(0.8) ? last() : draws_.Int(0, last()));
    n.coding = AnyCoding();
    return n;
  }

  void AnyWindow(ConvShape& s) {
    s.kernel_h = draws_.Int(1, 3);
    s.kernel_w = draws_.Int(1, 3);
    s.stride_h = draws_.Int(1, 2);
    s.stride_w = draws_.Chance(0.7) ? s.stride_h : draws_.Int(1, 3);
    s.pad_h = draws_.Int(0, s.kernel_h - 1);
    s.pad_w = draws_.Int(0, s.kernel_w - 1);
    if (!for_winograd_ || draws_.Chance(0.3)) return;
    s.kernel_h = s.kernel_w = 3;
    s.stride_h = s.stride_w = 1;
    s.pad_h = draws_.Int(0, 1);
    s.pad_w = draws_.Int(0, 1);
  }

  void FillConv(Int8Node& n, bool gives_logits) {
    const ConvShape& s = n.node.shape;
    const Int8Node& x = at(n.node.inputs[0]);
    const int64_t row = s.taps() * s.group_in();
    n.winograd = !gives_logits && FitsWinograd(n.node) && x.coding.zero == 0 &&
                 x.coding.max_code <= 31 && draws_.Chance(0.7);
    const int64_t most = n.winograd ? 7 : 127;
    for (int64_t i = 0; i < s.weight_elements(); ++i) {
      const int64_t weight = draws_.Int(-most, most);
      n.weights.push_back(static_cast<int8_t>(is_extreme_ ? (weight < 0 ? -most : most) : weight));
    }
    const bool has_zeros = !n.winograd && !is_symmetric_ && draws_.Chance(0.6);
    const double size = std::sqrt(static_cast<double>(row)) * 40 * static_cast<double>(most);
    for (int64_t o = 0; o < s.out_c; ++o) {
      const bool same = o > 0 && !by_channel_;
      const int64_t bound = is_extreme_ ? INT32_MAX : 4000;
      n.bias.push_back(static_cast<int32_t>(draws_.Int(-bound, bound)));
      if (has_zeros) {
        n.weight_zeros.push_back(same ? n.weight_zeros[0]
                                      : static_cast<int32_t>(draws_.Int(-127, 127)));
      }
      if (gives_logits) {
        n.logit_scales.push_back(draws_.Real(-1e-3, 1e-2));
      } else {
        n.factors.push_back(same ? n.factors[0] : AnyFactor(size));
      }
    }
  }

  void FillReal(Int8Node& n, bool gives_logits) {
    for (int64_t i = 0; i < n.node.shape.weight_elements(); ++i) {
      n.real_weights.push_back(static_cast<float>(draws_.Real(-1, 1)));
    }
    for (int64_t o = 0; o < n.node.shape.out_c; ++o) {
      n.real_bias.push_back(static_cast<float>(draws_.Real(-1, 1)));
      if (gives_logits) n.logit_scales.push_back(1);
    }
  }

  // Convolutions, also of one position. Gives logits: is the last node and has no clamp.
  void AddConv(bool is_end, bool is_real) {
    Int8Node n = NodeOf(NodeKind::kConv);
    if (is_end) n.node.inputs[0] = last();
    ConvShape& s = n.node.shape;
    const ConvShape& x = at(n.node.inputs[0]).node.shape;
    if (!is_end) AnyWindow(s);
    s.out_c = draws_.Int(1, 9);
    if (!is_end && !for_winograd_ && draws_.Chance(0.35)) {
      s.groups = x.out_c;
      s.out_c = x.out_c * draws_.Int(1, 2);
      if (is_symmetric_) s.kernel_h = s.kernel_w = 3;  // depthwise_codes.h
    } else if (x.out_c % 2 == 0 && draws_.Chance(0.3)) {
      s.groups = 2;
      s.out_c = 2 * draws_.Int(1, 4);
    }
    n.node.clamp = AnyClamp();
    if (is_end && !draws_.Chance(0.2)) n.node.clamp = Clamp::kNone;
    if (!Append(n)) return;
    Int8Node& added = graph_.nodes.back();
    const bool gives_logits = is_end && !graph_.gives_codes && added.node.clamp == Clamp::kNone;
    // A node that is last by chance would have to give logits.
    if (!is_end && added.node.clamp == Clamp::kNone) added.node.clamp = Clamp::kRelu;
    if (is_real) {
      FillReal(added, gives_logits);
    } else {
      FillConv(added, gives_logits);
    }
  }

  void AddPool(NodeKind kind) {
    Int8Node n = NodeOf(kind);
    const Int8Node& x = at(n.node.inputs[0]);
    ConvShape& s = n.node.shape;
    AnyWindow(s);
    if (kind == NodeKind::kMaxPool) {
      n.coding = x.coding;
    } else {
      s.pad_h = s.pad_w = 0;
      if (draws_.Chance(0.4)) {
        s.kernel_h = x.node.shape.out_h;
        s.kernel_w = x.node.shape.out_w;
      }
      n.node.clamp = AnyClamp();
      n.factors = {AnyFactor(50.0 * static_cast<double>(s.taps()))};
    }
    Append(n);
  }

  void AddSum() {
    Int8Node n = NodeOf(NodeKind::kAdd);
    const ConvShape& a = at(n.node.inputs[0]).node.shape;
    n.node.inputs[1] = n.node.inputs[0];
    for (int32_t other = last(); other >= 0; --other) {
      const ConvShape& b = at(other).node.shape;
      if (other != n.node.inputs[0] && b.out_c == a.out_c && b.out_h == a.out_h &&
          b.out_w == a.out_w) {
        n.node.inputs[1] = other;
        break;
      }
    }
    n.node.clamp = AnyClamp();
    const auto shift = static_cast<int32_t>(is_extreme_ ? draws_.Int(1, 62) : draws_.Int(18, 24));
    for (int i = 0; i < 2; ++i) {
      const int64_t most = is_extreme_ ? 1 << 23 : std::min(1 << 23, 2 << shift);
      n.factors.push_back({static_cast<int32_t>(draws_.Int(0, most)), shift});
    }
    Append(n);
  }

  void AddClamp() {
    Int8Node n = NodeOf(NodeKind::kClamp);
    n.node.clamp = AnyClamp();
    n.factors = {AnyFactor(60)};
    Append(n);
  }

  void AddFlatten() {
    Int8Node n = NodeOf(NodeKind::kFlatten);
    n.coding = at(n.node.inputs[0]).coding;
    Append(n);
  }

  void AddAny(bool is_first) {
    if (is_first && draws_.Chance(0.8)) return AddConv(false, draws_.Chance(0.15));
    switch (draws_.Int(0, 9)) {
      case 0:
        return AddPool(NodeKind::kMaxPool);
      case 1:
        return AddPool(NodeKind::kAvgPool);
      case 2:
      case 3:
        return AddSum();
      case 4:
        return AddClamp();
      case 5:
        return AddFlatten();
      default:
        return AddConv(false, false);
    }
  }

  void AddEnd() {
    if (draws_.Chance(0.5)) {
      Int8Node flat = NodeOf(NodeKind::kFlatten);
      flat.node.inputs[0] = last();
      flat.coding = at(last()).coding;
      Append(flat);
    }
    AddConv(true, draws_.Chance(0.15));
  }

  Draws draws_;
  bool is_symmetric_ = false, by_channel_ = false, is_extreme_ = false;
  bool has_float_factors_ = false;  // as `quantize` writes them
  bool for_winograd_ = false;       // codes of 6 bits, mostly 3x3 convolutions
  Int8Graph graph_;
};

}  // namespace

Int8Graph RandomGraph(uint64_t seed) { return Builder(seed).Build(); }

std::vector<std::byte> RandomInput(const Int8Graph& graph, uint64_t seed, int64_t batch) {
  Draws draws(seed, 2);
  const Coding& coding = graph.nodes[0].coding;
  const int64_t count = batch * graph.nodes[0].node.outputs();
  std::vector<std::byte> bytes(batch * InputBytes(graph));
  if (graph.takes_codes) {
    for (int64_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<std::byte>(draws.Int(-coding.max_code, coding.max_code));
    }
    return bytes;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float rare[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                        1e-42f,    -1e-42f,    3e38f,
                        0.0f,      -0.0f};
  std::vector<float> samples(count);
  for (float& sample : samples) {
    sample = static_cast<float>(draws.Real(-150, 150) * coding.scale);
    if (draws.Chance(0.1)) {
      sample = static_cast<float>((static_cast<double>(draws.Int(-140, 140)) + 0.5) * coding.scale);
    }
    if (draws.Chance(0.02)) sample = rare[draws.Int(0, 7)];
  }
  std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

}  // namespace runnel::inference
