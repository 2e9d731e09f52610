#include "kernels/models/int8_executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/models/product/depthwise_codes.h"
#include "kernels/models/product/real_conv.h"
#include "kernels/models/product/requantizer.h"
#include "kernels/models/winograd.h"

namespace runnel::inference {
namespace {

// Tiles of a Winograd convolution whose factors are multiplied at a time: they stay in the
// second-level cache.
constexpr int64_t kTilesAtOnce = 128;

// Memory between runs only grows: what a smaller node needs is there, and nothing is filled again.
template <typename T>
void GrowTo(int64_t count, std::vector<T>& memory) {
  if (static_cast<int64_t>(memory.size()) < count) memory.resize(count);
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Whether the taps of a row, taken together, have a shorter reduction: few channels, as of samples.
bool MergesTaps(const Int8Node& n, const cpu::Int8Kernels& kernels) {
  const cpu::ConvShape& s = n.node.shape;
  if (s.groups > 1 || n.winograd || s.stride_w > s.kernel_w) return false;
  return DivideUp(s.kernel_w * s.in_c, kernels.k_group) <
         s.kernel_w * DivideUp(s.in_c, kernels.k_group);
}

// u of all filters: (point, out channel, in channel).
std::vector<int8_t> WinogradFilters(const Int8Node& n) {
  const int64_t outs = n.node.shape.out_c, ins = n.node.shape.in_c;
  std::vector<int8_t> u(kWinogradPoints * outs * ins);
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t i = 0; i < ins; ++i) {
      WinogradFilter(&n.weights[o * 9 * ins + i], ins, &u[o * ins + i], outs * ins);
    }
  }
  return u;
}

}  // namespace

struct Int8Executor::Product {
  std::optional<Requantizer> requantizer;
  std::vector<int64_t> offsets;           // by output channel, without a requantizer
  cpu::ConvShape shape;                   // without padding where the input is padded first
  bool pads = false;                      // the input, with its zero
  std::optional<PackedProduct> direct;    // sums of x w
  std::optional<PackedProduct> row_sums;  // sums of x, by group
  std::vector<PackedProduct> points;      // Winograd: by point
  std::optional<DepthwiseCodes> depthwise;
  std::optional<RealConv> real;
  std::optional<cpu::GatherCoding> coding;  // without `codes` and `other`
  int32_t addition = -1;                    // the kAdd that the coding has
  int32_t other = -1;                       // what it adds
};

Int8Executor::Int8Executor(const Int8Graph& graph, int threads, const cpu::Int8Kernels& kernels,
                           ValuesKept kept)
    : graph_(graph),
      pool_(threads),
      kernels_(kernels),
      products_(graph.nodes.size()),
      computed_in_(graph.nodes.size(), -1),
      codes_(graph.nodes.size()) {
  loops_.codes = &CodeLoopsFor(kernels.isa);
  loops_.integers = &cpu::IntegerLoopsFor(kernels.isa);
  const ProductMachine machine{&kernels, &pool_, &workspace_};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& n = graph.nodes[i];
    if (n.node.kind != NodeKind::kConv) continue;
    products_[i] = std::make_unique<Product>();
    Product& product = *products_[i];
    if (n.is_real()) {
      product.real.emplace(graph, i, *loops_.codes);
      continue;
    }
    const Coding& in = graph.input(n).coding;
    product.requantizer = Requantizer::Of(n, in, *loops_.codes);
    if (!product.requantizer.has_value()) product.offsets = SumOffsets(n, in);
    product.shape = n.node.shape;
    if (product.requantizer.has_value()) {
      product.depthwise = DepthwiseCodes::Of(n, in, *product.requantizer, *loops_.codes);
      if (product.depthwise.has_value()) continue;
    }
    const bool merges_taps = MergesTaps(n, kernels);
    const bool has_padding = product.shape.pad_h > 0 || product.shape.pad_w > 0;
    product.pads = merges_taps || (in.zero != 0 && has_padding);
    if (product.pads) {
      product.shape.in_h += 2 * product.shape.pad_h;
      product.shape.in_w += 2 * product.shape.pad_w;
      if (merges_taps) {
        product.shape.in_w =
            DivideUp(product.shape.in_w, product.shape.stride_w) * product.shape.stride_w;
      }
      product.shape.pad_h = product.shape.pad_w = 0;
    }
    if (n.winograd) {
      const std::vector<int8_t> u = WinogradFilters(n);
      const int64_t point = n.node.shape.out_c * n.node.shape.in_c;
      const cpu::ConvShape linear = cpu::LinearShape(1, n.node.shape.out_c, n.node.shape.in_c);
      product.points.reserve(kWinogradPoints);
      for (int p = 0; p < kWinogradPoints; ++p) {
        product.points.emplace_back(machine, linear,
                                    absl::MakeConstSpan(u).subspan(p * point, point));
      }
      continue;
    }
    product.direct.emplace(machine, product.shape, n.weights, merges_taps);
    if (product.requantizer.has_value() && product.requantizer->codes_tiles() &&
        product.direct->takes_coding()) {
      product.coding = product.requantizer->TileCoding();
    }
    if (n.weight_zeros.empty()) continue;
    cpu::ConvShape ones = product.shape;
    ones.out_c = ones.groups;
    product.row_sums.emplace(machine, ones, std::vector<int8_t>(ones.weight_elements(), 1));
  }
  SetNextProducts();
  if (kept == ValuesKept::kLast) {
    FuseAdditions();
    places_ = ShareMemory(graph, computed_in_);
  } else {
    places_ = OwnMemory(graph);
  }
}

void Int8Executor::SetNextProducts() {
  const PackedProduct* next = nullptr;
  for (size_t i = products_.size(); i-- > 0;) {
    if (products_[i] == nullptr || !products_[i]->direct.has_value()) continue;
    if (next != nullptr) products_[i]->direct->SetNext(*next);
    next = &*products_[i]->direct;
  }
}

// Additions of a convolution that nobody else reads and a value that is there before it.
void Int8Executor::FuseAdditions() {
  std::vector<int> readers(graph_.nodes.size(), 0);
  for (const Int8Node& n : graph_.nodes) {
    for (int k = 0; k < n.node.input_count(); ++k) ++readers[n.node.inputs[k]];
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Int8Node& n = graph_.nodes[i];
    if (n.node.kind != NodeKind::kAdd) continue;
    const bool second = n.node.inputs[1] > n.node.inputs[0];
    const int32_t last = n.node.inputs[second ? 1 : 0];
    if (readers[last] != 1 || products_[last] == nullptr) continue;
    std::optional<cpu::GatherCoding>& coding = products_[last]->coding;
    const std::optional<CodeAddition> a = AdditionOf(graph_, n);
    if (!coding.has_value() || !a.has_value()) continue;
    if (std::max(a->factor_a, a->factor_b) > INT16_MAX) continue;
    coding->tile.adds = true;
    coding->tile.factor = static_cast<int16_t>(second ? a->factor_b : a->factor_a);
    coding->tile.other_factor = static_cast<int16_t>(second ? a->factor_a : a->factor_b);
    coding->tile.start = -a->zero_a * a->factor_a - a->zero_b * a->factor_b;
    coding->tile.shift = a->shift;
    coding->tile.sum_zero = a->zero;
    coding->tile.sum_lowest = a->lowest;
    coding->tile.sum_highest = a->highest;
    products_[last]->addition = static_cast<int32_t>(i);
    products_[last]->other = n.node.inputs[second ? 0 : 1];
    computed_in_[i] = last;
  }
}

Int8Executor::~Int8Executor() = default;

std::string Int8Executor::kernel(size_t node) const {
  const Int8Node& n = graph_.nodes[node];
  if (computed_in_[node] >= 0) return absl::StrCat("in ", computed_in_[node]);
  if (n.node.kind != NodeKind::kConv) return absl::StrCat("loop ", loops_.codes->name);
  const cpu::ConvShape& s = n.node.shape;
  if (n.is_real()) return absl::StrCat("fp32 ", loops_.codes->name);
  const char* way = n.winograd      ? "winograd "
                    : s.depthwise() ? "depthwise "
                    : s.groups > 1  ? "grouped "
                                    : "direct ";
  return absl::StrCat(way, kernels_.name);
}

// The input with a border of its zero, where that is not code 0.
const int8_t* Int8Executor::Padded(size_t at, int64_t batch, const int8_t* x) {
  if (!products_[at]->pads) return x;
  const Int8Node& n = graph_.nodes[at];
  const cpu::ConvShape &from = n.node.shape, &to = products_[at]->shape;
  padded_.assign(batch * to.in_h * to.in_w * to.in_c + kReadBehindBytes,
                 static_cast<int8_t>(graph_.input(n).coding.zero));
  const int64_t row = from.in_w * from.in_c;
  for (int64_t line = 0; line < batch * from.in_h; ++line) {
    const int64_t image = line / from.in_h, h = line % from.in_h + from.pad_h;
    int8_t* place = &padded_[((image * to.in_h + h) * to.in_w + from.pad_w) * to.in_c];
    std::memcpy(place, x + line * row, row);
  }
  return padded_.data();
}

void Int8Executor::Direct(size_t at, int64_t batch, absl::Span<float> logits) {
  const Int8Node& n = graph_.nodes[at];
  const Product& product = *products_[at];
  if (product.depthwise.has_value()) {
    product.depthwise->Run(pool_, batch, Value(n.node.inputs[0]), Value(at));
    return;
  }
  const int8_t* x = Padded(at, batch, Value(n.node.inputs[0]));
  if (product.coding.has_value()) {
    cpu::GatherCoding coding = *product.coding;
    coding.codes = Value(product.addition < 0 ? at : product.addition);
    if (product.addition >= 0) coding.other = Value(product.other);
    return product.direct->Run(batch, x, coding);
  }
  if (product.row_sums.has_value()) {
    GrowTo(batch * n.node.shape.out_h * n.node.shape.out_w * n.node.shape.groups, row_sums_);
    product.row_sums->Run(batch, x, row_sums_.data());
  }
  const int64_t out_c = n.node.shape.out_c, positions = batch * n.node.outputs() / out_c;
  if (!product.requantizer.has_value()) {
    GrowTo(positions * out_c, sums_);
    product.direct->Run(batch, x, sums_.data());
    return Finish(at, batch, logits);
  }
  CodeSink sink(*product.requantizer, out_c, row_sums_.data(), Value(at));
  if (product.direct->takes_sink()) return product.direct->Run(batch, x, sink);
  GrowTo(positions * out_c, sums_);
  product.direct->Run(batch, x, sums_.data());
  pool_.ParallelFor(positions, [&](int, int64_t p) {
    const int32_t* row = &sums_[p * out_c];
    const int64_t place = p * out_c;
    sink.Take({&row, &place, 1, 0, out_c});
  });
}

// Transformed inputs of `count` tiles from `first` on; all images have `tiles` of them.
void Int8Executor::TransformTiles(size_t at, int64_t first, int64_t count, int64_t tiles) {
  const Int8Node& n = graph_.nodes[at];
  const cpu::ConvShape& s = n.node.shape;
  const int8_t* x = Value(n.node.inputs[0]);
  const int64_t tiles_w = DivideUp(s.out_w, 2), v_step = count * s.in_c;
  pool_.ParallelFor(count, [&](int, int64_t t) {
    const int64_t image = (first + t) / tiles, tile = (first + t) % tiles;
    const int64_t h0 = tile / tiles_w * 2 - s.pad_h, w0 = tile % tiles_w * 2 - s.pad_w;
    const int8_t* d[kWinogradPoints];
    for (int p = 0; p < kWinogradPoints; ++p) {
      const int64_t h = h0 + p / 4, w = w0 + p % 4;
      const bool inside = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w;
      d[p] = inside ? &x[((image * s.in_h + h) * s.in_w + w) * s.in_c] : outside_.data();
    }
    loops_.codes->winograd_input(d, s.in_c, &factors_[t * s.in_c], v_step);
  });
}

// Codes of those tiles, or their sums where there is no requantizer.
void Int8Executor::FinishTiles(size_t at, int64_t first, int64_t count, int64_t tiles) {
  const cpu::ConvShape& s = graph_.nodes[at].node.shape;
  const std::optional<Requantizer>& requantizer = products_[at]->requantizer;
  const int64_t tiles_w = DivideUp(s.out_w, 2), m_step = count * s.out_c;
  pool_.ParallelFor(count, [&](int thread, int64_t t) {
    const int64_t image = (first + t) / tiles, tile = (first + t) % tiles;
    const int64_t oh = tile / tiles_w * 2, ow = tile % tiles_w * 2;
    int32_t* sums[4];
    for (int k = 0; k < 4; ++k) sums[k] = &tile_sums_[(4 * thread + k) * s.out_c];
    loops_.codes->winograd_output(&products_of_factors_[t * s.out_c], m_step, s.out_c, sums);
    const int32_t* rows[4];
    int64_t places[4];
    int inside = 0;
    for (int k = 0; k < 4; ++k) {
      const int64_t h = oh + k / 2, w = ow + k % 2;
      if (h >= s.out_h || w >= s.out_w) continue;
      rows[inside] = sums[k];
      places[inside++] = ((image * s.out_h + h) * s.out_w + w) * s.out_c;
    }
    if (requantizer.has_value()) {
      CodeSink(*requantizer, s.out_c, nullptr, Value(at)).Take({rows, places, inside, 0, s.out_c});
      return;
    }
    for (int k = 0; k < inside; ++k) std::copy_n(rows[k], s.out_c, &sums_[places[k]]);
  });
}

void Int8Executor::Winograd(size_t at, int64_t batch, absl::Span<float> logits) {
  const Int8Node& n = graph_.nodes[at];
  const cpu::ConvShape& s = n.node.shape;
  const int64_t image_tiles = DivideUp(s.out_h, 2) * DivideUp(s.out_w, 2);
  const int64_t tiles = batch * image_tiles, most = std::min(tiles, kTilesAtOnce);
  const bool stores_sums = !products_[at]->requantizer.has_value();
  GrowTo(kWinogradPoints * most * s.in_c + kReadBehindBytes, factors_);
  GrowTo(kWinogradPoints * most * s.out_c, products_of_factors_);
  GrowTo(pool_.threads() * 4 * s.out_c, tile_sums_);
  GrowTo(s.in_c, outside_);
  if (stores_sums) GrowTo(batch * n.node.outputs(), sums_);
  for (int64_t first = 0; first < tiles; first += most) {
    const int64_t count = std::min(most, tiles - first);
    const int64_t v_step = count * s.in_c, m_step = count * s.out_c;
    TransformTiles(at, first, count, image_tiles);
    for (int p = 0; p < kWinogradPoints; ++p) {
      products_[at]->points[p].Run(count, &factors_[p * v_step], &products_of_factors_[p * m_step]);
    }
    FinishTiles(at, first, count, image_tiles);
  }
  if (stores_sums) Finish(at, batch, logits);
}

// Stored sums to codes or logits, as the formulas say.
void Int8Executor::Finish(size_t at, int64_t batch, absl::Span<float> logits) {
  const Int8Node& n = graph_.nodes[at];
  const cpu::ConvShape& s = n.node.shape;
  const std::vector<int64_t>& offsets = products_[at]->offsets;
  const CodeLimits limits = LimitsOf(n);
  const int64_t positions = batch * s.out_h * s.out_w, group_out = s.group_out();
  constexpr int64_t kPart = 64;
  pool_.ParallelFor(DivideUp(positions, kPart), [&](int, int64_t part) {
    const int64_t end = std::min(positions, (part + 1) * kPart);
    for (int64_t p = part * kPart; p < end; ++p) {
      const int32_t* sums = &sums_[p * s.out_c];
      for (int64_t o = 0; o < s.out_c; ++o) {
        int64_t sum = sums[o] + offsets[o];
        if (!n.weight_zeros.empty()) {
          sum -= int64_t{n.weight_zeros[o]} * row_sums_[p * s.groups + o / group_out];
        }
        const int32_t saturated = SaturateSum(sum);
        if (n.gives_logits()) {
          logits[p * s.out_c + o] = static_cast<float>(saturated * n.logit_scales[o]);
        } else {
          Value(at)[p * s.out_c + o] = ClampCode(Multiply(saturated, n.factors[o]) + n.coding.zero,
                                                 limits.lowest, limits.highest);
        }
      }
    }
  });
}

void Int8Executor::Convolve(size_t at, const float* samples, int64_t batch,
                            absl::Span<float> logits) {
  if (std::optional<RealConv>& real = products_[at]->real; real.has_value()) {
    const Int8Node& n = graph_.nodes[at];
    const int64_t sample = graph_.nodes[0].node.outputs(), outs = n.node.outputs();
    const int64_t ins = graph_.input(n).node.outputs();
    for (int64_t b = 0; b < batch; ++b) {
      real->Run(samples == nullptr ? nullptr : samples + b * sample,
                Value(n.node.inputs[0]) + b * ins, Value(at) + b * outs,
                n.gives_logits() ? &logits[b * outs] : nullptr);
    }
    return;
  }
  if (graph_.nodes[at].winograd) return Winograd(at, batch, logits);
  Direct(at, batch, logits);
}

void Int8Executor::RunNodes(const float* samples, const int8_t* given, int64_t batch,
                            absl::Span<float> logits, absl::FunctionRef<void(size_t node)> after) {
  for (size_t i = 0; i < codes_.size(); ++i) {
    const int64_t elements = places_.elements[i];
    if (elements > 0) GrowTo(batch * elements + kReadBehindBytes, codes_[i]);
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Int8Node& n = graph_.nodes[i];
    const int64_t outs = n.node.outputs();
    if (computed_in_[i] >= 0) {
      // Done with its convolution.
    } else if (i == 0 && graph_.takes_codes) {
      std::copy_n(given, batch * outs, Value(0));
    } else if (n.node.kind == NodeKind::kConv) {
      Convolve(i, samples, batch, logits);
    } else {
      pool_.ParallelFor(batch, [&](int, int64_t b) {
        const auto input = [&](int k) -> const int8_t* {
          if (n.node.input_count() <= k) return nullptr;
          return Value(n.node.inputs[k]) + b * graph_.input(n, k).node.outputs();
        };
        RunFastNode(graph_, loops_, n, i == 0 ? samples + b * outs : nullptr, input(0), input(1),
                    Value(i) + b * outs);
      });
    }
    after(i);
  }
  if (graph_.nodes.back().gives_logits() || graph_.gives_codes) return;
  Decode(graph_.nodes.back().coding, codes_.back().data(), batch * graph_.classes(), logits.data());
}

}  // namespace runnel::inference
