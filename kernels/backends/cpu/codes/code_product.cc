#include "kernels/backends/cpu/codes/code_product.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/ir/arithmetic/integer_math.h"
#include "kernels/ir/arithmetic/winograd.h"

namespace runnel::cpu {
namespace {

// Tiles of a Winograd convolution whose factors are multiplied at a time: they stay in the
// second-level cache.
constexpr int64_t kTilesAtOnce = 128;

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Whether the taps of a row, taken together, have a shorter reduction: few channels, as of samples.
bool MergesTaps(const ConvShape& s, const Int8Kernels& kernels) {
  if (s.groups > 1 || s.stride_w > s.kernel_w) return false;
  return DivideUp(s.kernel_w * s.in_c, kernels.k_group) <
         s.kernel_w * DivideUp(s.in_c, kernels.k_group);
}

int8_t Clamped(const CodeRule& rule, int64_t code) {
  return static_cast<int8_t>(std::clamp(code + rule.zero, rule.lowest, rule.highest));
}

}  // namespace

int8_t CodeOf(const CodeRule& rule, const CodeChannel& channel, int32_t sum) {
  return Clamped(rule, RoundHalfAway(sum * channel.multiplier, static_cast<int>(channel.shift)));
}

std::optional<CodeAddition> AdditionOf(const CodeRule& rule) {
  if (rule.shift > 30) return std::nullopt;
  const int64_t most =
      (127 + std::abs(rule.zero_a)) * rule.factor_a + (127 + std::abs(rule.zero_b)) * rule.factor_b;
  if (most + (int64_t{1} << (rule.shift - 1)) > INT32_MAX) return std::nullopt;
  return CodeAddition{.zero_a = static_cast<int32_t>(rule.zero_a),
                      .zero_b = static_cast<int32_t>(rule.zero_b),
                      .factor_a = static_cast<int32_t>(rule.factor_a),
                      .factor_b = static_cast<int32_t>(rule.factor_b),
                      .shift = static_cast<int32_t>(rule.shift),
                      .zero = static_cast<int32_t>(rule.zero),
                      .lowest = static_cast<int32_t>(rule.lowest),
                      .highest = static_cast<int32_t>(rule.highest)};
}

void AddCodes(const Machine& machine, const CodeRule& rule, const int8_t* a, const int8_t* b,
              int64_t count, int8_t* y) {
  const std::optional<CodeAddition> addition = AdditionOf(rule);
  // The loops want a result of its own: a chunk of it at a time.
  constexpr int64_t kChunk = 4096;
  ParallelFor(machine, DivideUp(count, kChunk), [&](int, int64_t first, int64_t last) {
    int8_t codes[kChunk];
    for (int64_t from = first * kChunk; from < std::min(count, last * kChunk); from += kChunk) {
      const int64_t n = std::min(kChunk, count - from);
      if (addition.has_value()) {
        machine.codes->add(*addition, a + from, b + from, n, codes);
      } else {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t sum = (a[from + i] - rule.zero_a) * rule.factor_a +
                              (b[from + i] - rule.zero_b) * rule.factor_b;
          codes[i] = Clamped(rule, RoundHalfAway(sum, static_cast<int>(rule.shift)));
        }
      }
      std::memcpy(y + from, codes, static_cast<size_t>(n));
    }
  });
}

CodeProduct::CodeProduct(const Machine& machine, const ProductSpec& spec)
    : shape_(spec.shape),
      rule_(*spec.rule),
      channels_(spec.channels.begin(), spec.channels.end()),
      gives_sums_(spec.gives_sums),
      requantizer_(Requantizer::Of(spec, *machine.codes)) {
  if (spec.addition != nullptr) addition_ = *spec.addition;
  if (requantizer_.has_value() && !spec.winograd) {
    depthwise_ = DepthwiseCodes::Of(spec, *requantizer_, *machine.codes);
  }
  if (spec.winograd) {
    PackWinograd(*machine.int8, spec.weights);
  } else if (!depthwise_.has_value()) {
    PackDirect(machine, spec);
  }
}

void CodeProduct::PackDirect(const Machine& machine, const ProductSpec& spec) {
  const bool merges_taps = MergesTaps(shape_, *machine.int8);
  ChooseShape(merges_taps);
  direct_.emplace(*machine.int8, padded_, spec.weights, merges_taps);
  if (requantizer_.has_value() && requantizer_->codes_tiles() && direct_->takes_coding()) {
    coding_ = requantizer_->TileCoding();
    if (addition_.has_value()) FuseAddition();
  }
  if (!spec.has_weight_zeros()) return;
  ConvShape ones = padded_;
  ones.out_c = ones.groups;
  row_sums_.emplace(*machine.int8, ones, std::vector<int8_t>(ones.weight_elements(), 1));
}

// The input is padded in memory where its border is not code 0, or taps are taken together.
void CodeProduct::ChooseShape(bool merges_taps) {
  padded_ = shape_;
  pads_ = merges_taps || (rule_.zero_a != 0 && (shape_.pad_h > 0 || shape_.pad_w > 0));
  if (!pads_) return;
  padded_.in_h += 2 * padded_.pad_h;
  padded_.in_w += 2 * padded_.pad_w;
  if (merges_taps) padded_.in_w = DivideUp(padded_.in_w, padded_.stride_w) * padded_.stride_w;
  padded_.pad_h = padded_.pad_w = 0;
}

// Factors of all filters: (point, out channel, in channel).
void CodeProduct::PackWinograd(const Int8Kernels& kernels, absl::Span<const int8_t> weights) {
  const int64_t outs = shape_.out_c, ins = shape_.in_c;
  std::vector<int8_t> u(kWinogradPoints * outs * ins);
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t i = 0; i < ins; ++i) {
      WinogradFilter(&weights[o * 9 * ins + i], ins, &u[o * ins + i], outs * ins);
    }
  }
  points_.reserve(kWinogradPoints);
  for (int p = 0; p < kWinogradPoints; ++p) {
    points_.emplace_back(kernels, LinearShape(1, outs, ins),
                         absl::MakeConstSpan(u).subspan(p * outs * ins, outs * ins));
  }
  outside_.assign(ins, 0);
}

// Into the tiles, where their words hold the factors.
void CodeProduct::FuseAddition() {
  const std::optional<CodeAddition> a = AdditionOf(*addition_);
  if (!a.has_value() || std::max(a->factor_a, a->factor_b) > INT16_MAX) return;
  Int8TileCoding& tile = coding_->tile;
  tile.adds = true;
  tile.factor = static_cast<int16_t>(a->factor_a);
  tile.other_factor = static_cast<int16_t>(a->factor_b);
  tile.start = -a->zero_a * a->factor_a - a->zero_b * a->factor_b;
  tile.shift = a->shift;
  tile.sum_zero = a->zero;
  tile.sum_lowest = a->lowest;
  tile.sum_highest = a->highest;
}

void CodeProduct::SetNext(const CodeProduct& next) {
  if (direct_.has_value() && next.direct_.has_value()) direct_->SetNext(*next.direct_);
}

int64_t CodeProduct::bytes() const {
  int64_t bytes = 0;
  for (const std::optional<PackedProduct>* product : {&direct_, &row_sums_}) {
    if (product->has_value()) bytes += (*product)->bytes();
  }
  for (const PackedProduct& point : points_) bytes += point.bytes();
  return bytes + (depthwise_.has_value() ? depthwise_->bytes() : 0);
}

void CodeProduct::Run(const Machine& machine, int64_t batch, const int8_t* x, const int8_t* other,
                      std::byte* y) const {
  const int64_t count = batch * shape_.out_elements();
  Pass pass{.machine = machine, .batch = batch, .x = x};
  pass.codes = reinterpret_cast<int8_t*>(y);
  const bool adds_behind = addition_.has_value() && !adds_in_tiles();
  if (adds_behind) pass.codes = machine.workspace->Take<int8_t>(count);
  if (gives_sums_) {
    pass.sums = reinterpret_cast<int32_t*>(y);
  } else if (!requantizer_.has_value()) {
    pass.sums = machine.workspace->Take<int32_t>(count);
  }
  if (points_.empty()) {
    Direct(pass, other);
  } else {
    Winograd(pass);
  }
  if (pass.sums != nullptr) Finish(pass);
  if (adds_behind) {
    AddCodes(machine, *addition_, pass.codes, other, count, reinterpret_cast<int8_t*>(y));
  }
}

// The input with a border of its zero, where it is padded in memory.
const int8_t* CodeProduct::Padded(const Pass& pass) const {
  if (!pads_) return pass.x;
  const ConvShape &from = shape_, &to = padded_;
  const int64_t bytes = pass.batch * to.in_elements() + kReadBehindBytes;
  auto* padded = pass.machine.workspace->Take<int8_t>(bytes);
  std::memset(padded, static_cast<int>(rule_.zero_a), static_cast<size_t>(bytes));
  const int64_t row = from.in_w * from.in_c;
  for (int64_t line = 0; line < pass.batch * from.in_h; ++line) {
    const int64_t image = line / from.in_h, h = line % from.in_h + from.pad_h;
    int8_t* place = &padded[((image * to.in_h + h) * to.in_w + from.pad_w) * to.in_c];
    std::memcpy(place, pass.x + line * row, static_cast<size_t>(row));
  }
  return padded;
}

void CodeProduct::Direct(Pass& pass, const int8_t* other) const {
  const Machine& machine = pass.machine;
  if (depthwise_.has_value()) {
    return depthwise_->Run(*machine.pool, pass.batch, pass.x, pass.codes);
  }
  const int8_t* x = Padded(pass);
  const auto workspace = [&](const PackedProduct& product, bool to_sink) {
    return machine.workspace->Take<std::byte>(
        product.WorkspaceBytes(pass.batch, machine.workers(), to_sink));
  };
  if (coding_.has_value()) {
    GatherCoding coding = *coding_;
    coding.codes = pass.codes;
    if (adds_in_tiles()) coding.other = other;
    return direct_->Run(machine, workspace(*direct_, false), pass.batch, x, coding);
  }
  const int64_t positions = pass.batch * shape_.out_h * shape_.out_w, out_c = shape_.out_c;
  if (row_sums_.has_value()) {
    auto* sums = machine.workspace->Take<int32_t>(positions * shape_.groups);
    row_sums_->Run(machine, workspace(*row_sums_, false), pass.batch, x, sums);
    pass.row_sums = sums;
  }
  if (pass.sums != nullptr) {
    return direct_->Run(machine, workspace(*direct_, false), pass.batch, x, pass.sums);
  }
  CodeSink sink(*requantizer_, out_c, pass.row_sums, pass.codes);
  if (direct_->takes_sink()) {
    return direct_->Run(machine, workspace(*direct_, true), pass.batch, x, sink);
  }
  auto* sums = machine.workspace->Take<int32_t>(positions * out_c);
  direct_->Run(machine, workspace(*direct_, false), pass.batch, x, sums);
  machine.pool->ParallelFor(positions, [&](int, int64_t p) {
    const int32_t* row = &sums[p * out_c];
    const int64_t place = p * out_c;
    sink.Take({&row, &place, 1, 0, out_c});
  });
}

// Where a tile lies: its image, and the first of its 2 x 2 outputs.
CodeProduct::Tile CodeProduct::TileAt(int64_t tile) const {
  const int64_t tiles_w = DivideUp(shape_.out_w, 2);
  const int64_t of_image = DivideUp(shape_.out_h, 2) * tiles_w;
  return {tile / of_image, tile % of_image / tiles_w * 2, tile % tiles_w * 2};
}

// The factors of a tile's inputs.
void CodeProduct::TransformTile(const Pass& pass, const Tile& tile, int8_t* v,
                                int64_t v_step) const {
  const ConvShape& s = shape_;
  const int8_t* d[kWinogradPoints];
  for (int p = 0; p < kWinogradPoints; ++p) {
    const int64_t h = tile.h - s.pad_h + p / 4, w = tile.w - s.pad_w + p % 4;
    const bool inside = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w;
    d[p] = inside ? &pass.x[((tile.image * s.in_h + h) * s.in_w + w) * s.in_c] : outside_.data();
  }
  pass.machine.codes->winograd_input(d, s.in_c, v, v_step);
}

// Codes of a tile, or its sums where they are stored. sums: memory for four outputs.
void CodeProduct::FinishTile(const Pass& pass, const Tile& tile, const int32_t* m, int64_t m_step,
                             int32_t* sums) const {
  const ConvShape& s = shape_;
  int32_t* outputs[4];
  for (int k = 0; k < 4; ++k) outputs[k] = sums + k * s.out_c;
  pass.machine.codes->winograd_output(m, m_step, s.out_c, outputs);
  const int32_t* rows[4];
  int64_t places[4];
  int inside = 0;
  for (int k = 0; k < 4; ++k) {
    const int64_t h = tile.h + k / 2, w = tile.w + k % 2;
    if (h >= s.out_h || w >= s.out_w) continue;
    rows[inside] = outputs[k];
    places[inside++] = ((tile.image * s.out_h + h) * s.out_w + w) * s.out_c;
  }
  if (pass.sums == nullptr) {
    return CodeSink(*requantizer_, s.out_c, nullptr, pass.codes)
        .Take({rows, places, inside, 0, s.out_c});
  }
  for (int k = 0; k < inside; ++k) std::copy_n(rows[k], s.out_c, &pass.sums[places[k]]);
}

void CodeProduct::Winograd(Pass& pass) const {
  const Machine& machine = pass.machine;
  const ConvShape& s = shape_;
  const int64_t tiles = pass.batch * DivideUp(s.out_h, 2) * DivideUp(s.out_w, 2);
  const int64_t most = std::min(tiles, kTilesAtOnce);
  auto* v = machine.workspace->Take<int8_t>(kWinogradPoints * most * s.in_c + kReadBehindBytes);
  auto* m = machine.workspace->Take<int32_t>(kWinogradPoints * most * s.out_c);
  auto* tile_sums = machine.workspace->Take<int32_t>(machine.workers() * 4 * s.out_c);
  auto* workspace =
      machine.workspace->Take<std::byte>(points_.front().WorkspaceBytes(most, machine.workers()));
  for (int64_t first = 0; first < tiles; first += most) {
    const int64_t count = std::min(most, tiles - first);
    const int64_t v_step = count * s.in_c, m_step = count * s.out_c;
    machine.pool->ParallelFor(count, [&](int, int64_t t) {
      TransformTile(pass, TileAt(first + t), &v[t * s.in_c], v_step);
    });
    for (int p = 0; p < kWinogradPoints; ++p) {
      points_[p].Run(machine, workspace, count, &v[p * v_step], &m[p * m_step]);
    }
    machine.pool->ParallelFor(count, [&](int thread, int64_t t) {
      FinishTile(pass, TileAt(first + t), &m[t * s.out_c], m_step,
                 &tile_sums[4 * thread * s.out_c]);
    });
  }
}

// Stored sums to codes or to what they are with their offsets, as the rule says.
void CodeProduct::Finish(const Pass& pass) const {
  const int64_t positions = pass.batch * shape_.out_h * shape_.out_w;
  const int64_t out_c = shape_.out_c, group_out = shape_.group_out();
  ParallelFor(pass.machine, positions, [&](int, int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      int32_t* sums = &pass.sums[p * out_c];
      for (int64_t o = 0; o < out_c; ++o) {
        const CodeChannel& channel = channels_[o];
        int64_t sum = sums[o] + channel.offset;
        if (pass.row_sums != nullptr) {
          sum -= channel.weight_zero * pass.row_sums[p * shape_.groups + o / group_out];
        }
        const auto saturated =
            static_cast<int32_t>(std::clamp<int64_t>(sum, -INT32_MAX, INT32_MAX));
        if (gives_sums_) {
          sums[o] = saturated;
        } else {
          pass.codes[p * out_c + o] = CodeOf(rule_, channel, saturated);
        }
      }
    }
  });
}

}  // namespace runnel::cpu
