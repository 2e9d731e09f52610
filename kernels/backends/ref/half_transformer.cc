// Layer norm, GELU and attention of halves, on widened operands: the softmax, the norms and the
// curve of arithmetic/transformer_math.h; each product of attention is one chain of fused
// multiply-adds in ascending order.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/transformer_math.h"

namespace runnel::ref {
namespace {

struct Plain {};

transformer::LayerNormRows RowsOf(const Call& call, const float* x, const float* scale) {
  const Shape& shape = call.in_shape(0);
  const int64_t width = shape[shape.rank() - 1];
  return {.x = x,
          .rows = shape.elements() / width,
          .width = width,
          .scale = scale,
          .epsilon = static_cast<float>(call.attributes().epsilon)};
}

// a[0] * b[0] + a[1] * b[1] + ..., `a_step` and `b_step` floats apart.
float Chain(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum = std::fma(a[i * a_step], b[i * b_step], sum);
  return sum;
}

// One head of one sample: its queries, keys and values lie `stride` apart by position.
struct Head {
  int64_t positions, width, features;
  int64_t at;      // of the first query
  int64_t out_at;  // of the first position's output
  bool sees_all;

  Head(const Shape& x, const OpSpec& attention, int64_t index)
      : positions(x[1]),
        width(x[2] / 3 / attention.heads),
        features(x[2] / 3),
        sees_all(attention.bidirectional) {
    const int64_t heads = attention.heads;
    const int64_t offset = index % heads * width;
    at = index / heads * positions * stride() + offset;
    out_at = index / heads * positions * features + offset;
  }
  int64_t stride() const { return 3 * features; }
  int64_t query(int64_t t) const { return at + t * stride(); }
  int64_t key(int64_t t) const { return query(t) + features; }
  int64_t value(int64_t t) const { return query(t) + 2 * features; }
  int64_t out(int64_t t) const { return out_at + t * features; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(width)); }
  // Position t sees those from the first one on; those from first_to_see(s) on see position s.
  int64_t seen(int64_t t) const { return sees_all ? positions : t + 1; }
  int64_t first_to_see(int64_t s) const { return sees_all ? 0 : s; }
};

// What position t gives to those that it sees: a row of products with x's keys or values.
std::vector<float> RowOf(const Head& head, const float* row, const float* columns, int64_t t) {
  std::vector<float> products(static_cast<size_t>(head.seen(t)));
  for (int64_t s = 0; s < head.seen(t); ++s)
    products[static_cast<size_t>(s)] = Chain(row, 1, columns + s * head.stride(), 1, head.width);
  return products;
}

void AttendForward(const Head& head, const float* x, float* y, float* log_sums) {
  for (int64_t t = 0; t < head.positions; ++t) {
    std::vector<float> scores = RowOf(head, x + head.query(t), x + head.key(0), t);
    float sum = 0;
    const float largest =
        transformer::ScoreMaximum<Plain>(scores.data(), head.seen(t), head.scale(), &sum);
    const float log_sum = largest + std::log(sum);
    if (log_sums != nullptr) log_sums[t] = log_sum;
    transformer::SharesOf<Plain>(scores.data(), head.seen(t), head.scale(), log_sum, scores.data());
    for (int64_t i = 0; i < head.width; ++i)
      y[head.out(t) + i] =
          Chain(scores.data(), 1, x + head.value(0) + i, head.stride(), head.seen(t));
  }
}

struct AttentionGradient {
  const float *dy, *x, *y, *log_sums;
  float* dx;
};

void AttendBackward(const Head& head, const AttentionGradient& g) {
  const int64_t count = head.positions;
  std::vector<float> shares(static_cast<size_t>(count * count)), dscores(shares.size());
  for (int64_t t = 0; t < count; ++t) {
    float* const share = &shares[static_cast<size_t>(t * count)];
    float* const dscore = &dscores[static_cast<size_t>(t * count)];
    const float* const dy = g.dy + head.out(t);
    std::ranges::copy(RowOf(head, g.x + head.query(t), g.x + head.key(0), t), share);
    transformer::SharesOf<Plain>(share, head.seen(t), head.scale(), g.log_sums[t], share);
    std::ranges::copy(RowOf(head, dy, g.x + head.value(0), t), dscore);
    float mean = 0;
    for (int64_t i = 0; i < head.width; ++i) mean += dy[i] * g.y[head.out(t) + i];
    transformer::ScoreGradient<Plain>(share, dscore, head.seen(t), head.scale(), mean, dscore);
  }
  for (int64_t t = 0; t < count; ++t) {
    const int64_t first = head.first_to_see(t), own = first * count + t, after = count - first;
    for (int64_t i = 0; i < head.width; ++i) {
      g.dx[head.query(t) + i] = Chain(&dscores[static_cast<size_t>(t * count)], 1,
                                      g.x + head.key(0) + i, head.stride(), head.seen(t));
      g.dx[head.key(t) + i] = Chain(&dscores[static_cast<size_t>(own)], count,
                                    g.x + head.query(first) + i, head.stride(), after);
      g.dx[head.value(t) + i] = Chain(&shares[static_cast<size_t>(own)], count,
                                      g.dy + head.out(first) + i, head.features, after);
    }
  }
}

}  // namespace

absl::Status LayerNormForward(const Call& call) {
  transformer::LayerNormRows rows = RowsOf(call, call.in(0), call.in(1));
  rows.shift = call.in(2);
  float* const mean = call.has_output(1) ? call.out(1) : nullptr;
  transformer::LayerNorm<Plain>(rows, call.out(0), mean,
                                mean == nullptr ? nullptr : mean + rows.rows);
  return absl::OkStatus();
}

absl::Status LayerNormInputGradient(const Call& call) {
  const transformer::LayerNormRows all = RowsOf(call, call.in(1), call.in(2));
  std::vector<double> sums(static_cast<size_t>(2 * all.width));
  for (int64_t row = 0; row < all.rows; row += transformer::kPieceRows) {
    transformer::LayerNormRows piece = all;
    piece.x += row * all.width;
    piece.rows = std::min(transformer::kPieceRows, all.rows - row);
    std::vector<float> of_piece(sums.size());
    transformer::LayerNormGradient<Plain>(
        piece, call.in(0) + row * all.width, call.in(3) + row, call.in(3) + all.rows + row,
        call.out(0) + row * all.width, of_piece.data(), of_piece.data() + all.width);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(of_piece[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i) call.out(1)[i] = static_cast<float>(sums[i]);
  return absl::OkStatus();
}

absl::Status GeluForward(const Call& call) {
  const auto curve =
      call.attributes().exact ? transformer::ExactGelu<Plain> : transformer::Gelu<Plain>;
  curve(call.in(0), call.out_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status GeluInputGradient(const Call& call) {
  const auto gradient = call.attributes().exact ? transformer::ExactGeluGradient<Plain>
                                                : transformer::GeluGradient<Plain>;
  gradient(call.in(0), call.in(1), call.out_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status AttentionForward(const Call& call) {
  const Shape& x = call.in_shape(0);
  const int64_t heads = call.attributes().heads;
  for (int64_t i = 0; i < x[0] * heads; ++i) {
    float* const log_sums = call.has_output(1) ? call.out(1) + i * x[1] : nullptr;
    AttendForward(Head(x, call.attributes(), i), call.in(0), call.out(0), log_sums);
  }
  return absl::OkStatus();
}

absl::Status AttentionInputGradient(const Call& call) {
  const Shape& x = call.in_shape(1);
  const int64_t heads = call.attributes().heads;
  for (int64_t i = 0; i < x[0] * heads; ++i)
    AttendBackward(Head(x, call.attributes(), i),
                   {call.in(0), call.in(1), call.in(2), call.in(3) + i * x[1], call.out(0)});
  return absl::OkStatus();
}

}  // namespace runnel::ref
