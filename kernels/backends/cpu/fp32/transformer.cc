// Layer norm, GELU and attention. Each thread has whole rows, or whole heads of a sample.

#include <algorithm>
#include <cmath>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

using transformer::kPieceRows;

int64_t WidthOf(const Shape& shape) { return shape[shape.rank() - 1]; }
int64_t RowsOf(const Shape& shape) { return shape.elements() / WidthOf(shape); }

LayerNormRows RowsFrom(const Call& call, const float* x, const float* scale, int64_t row,
                       int64_t rows) {
  const int64_t width = WidthOf(call.in_shape(0));
  return {.x = x + row * width,
          .rows = rows,
          .width = width,
          .scale = scale,
          .epsilon = static_cast<float>(call.instruction->attributes.epsilon)};
}

// Queries, keys and values of one head of one sample; x may be their gradient.
struct Head {
  int64_t positions, width, features, heads, index;
  bool sees_all;

  int64_t stride() const { return 3 * features; }
  // The query of position 0; its key is `features` further, its value another.
  int64_t at() const { return index / heads * positions * stride() + index % heads * width; }
  int64_t out_at() const { return index / heads * positions * features + index % heads * width; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(width)); }
  // Position t sees those from the first one on; those from first_to_see(s) on see position s.
  int64_t seen(int64_t t) const { return sees_all ? positions : t + 1; }
  int64_t first_to_see(int64_t s) const { return sees_all ? 0 : s; }
};

Head HeadOf(const Shape& x, const OpSpec& attention, int64_t index) {
  const int64_t features = x[2] / 3, heads = attention.heads;
  return {x[1], features / heads, features, heads, index, attention.bidirectional};
}

// scores[s] = query t * keys that t sees, which lie as columns.
void Scores(const Call& call, const Head& head, const float* query, const float* keys, int64_t t,
            float* scores) {
  call.kernels().row_product({.a = query,
                              .a_stride = 1,
                              .depth = head.width,
                              .b = keys,
                              .b_stride = head.positions,
                              .columns = head.seen(t),
                              .out = scores});
}

void AttendForward(const Call& call, const Head& head, float* memory) {
  const Kernels& kernels = call.kernels();
  const float* const x = call.in(0) + head.at();
  const int64_t t_count = head.positions, stride = head.stride();
  float* const keys = memory;
  float* const scores = keys + t_count * head.width;
  kernels.transpose(x + head.features, t_count, head.width, stride, keys, t_count);
  for (int64_t t = 0; t < t_count; ++t) {
    Scores(call, head, x + t * stride, keys, t, scores);
    float sum = 0;
    const float largest = kernels.score_maximum(scores, head.seen(t), head.scale(), &sum);
    const float log_sum = largest + std::log(sum);
    if (call.outputs.size() > 1) call.out(1)[head.index * t_count + t] = log_sum;
    kernels.shares(scores, head.seen(t), head.scale(), log_sum, scores);
    kernels.row_product({.a = scores,
                         .a_stride = 1,
                         .depth = head.seen(t),
                         .b = x + 2 * head.features,
                         .b_stride = stride,
                         .columns = head.width,
                         .out = call.out(0) + head.out_at() + t * head.features});
  }
}

// Shares and the scores' gradients of the whole head, then what each position's keys and values
// get of the positions that see it.
void AttendBackward(const Call& call, const Head& head, float* memory) {
  const Kernels& kernels = call.kernels();
  const float* const x = call.in(1) + head.at();
  const float* const dy = call.in(0) + head.out_at();
  const float* const y = call.in(2) + head.out_at();
  const float* const log_sums = call.in(3) + head.index * head.positions;
  float* const dx = call.out(0) + head.at();
  const int64_t t_count = head.positions, stride = head.stride(), features = head.features;
  float* const keys = memory;
  float* const values = keys + t_count * head.width;
  float* const shares = values + t_count * head.width;
  float* const dscores = shares + t_count * t_count;
  kernels.transpose(x + features, t_count, head.width, stride, keys, t_count);
  kernels.transpose(x + 2 * features, t_count, head.width, stride, values, t_count);
  for (int64_t t = 0; t < t_count; ++t) {
    float* const share = shares + t * t_count;
    float* const dscore = dscores + t * t_count;
    Scores(call, head, x + t * stride, keys, t, share);
    kernels.shares(share, head.seen(t), head.scale(), log_sums[t], share);
    Scores(call, head, dy + t * features, values, t, dscore);
    float mean = 0;
    for (int64_t i = 0; i < head.width; ++i) mean += dy[t * features + i] * y[t * features + i];
    kernels.score_gradient(share, dscore, head.seen(t), head.scale(), mean, dscore);
    kernels.row_product({.a = dscore,
                         .a_stride = 1,
                         .depth = head.seen(t),
                         .b = x + features,
                         .b_stride = stride,
                         .columns = head.width,
                         .out = dx + t * stride});
  }
  const auto add_columns = [&](const float* a, const float* b, int64_t b_stride, float* out) {
    for (int64_t t = 0; t < t_count; ++t) {
      const int64_t first = head.first_to_see(t);
      kernels.row_product({.a = a + first * t_count + t,
                           .a_stride = t_count,
                           .depth = t_count - first,
                           .b = b + first * b_stride,
                           .b_stride = b_stride,
                           .columns = head.width,
                           .out = out + t * stride});
    }
  };
  add_columns(dscores, x, stride, dx + features);
  add_columns(shares, dy, features, dx + 2 * features);
}

// `attend` on each head of each sample of x, with `memory` floats for each thread.
template <typename Attend>
absl::Status OverHeads(const Call& call, const Shape& x, int64_t memory, const Attend& attend) {
  const OpSpec& attention = call.instruction->attributes;
  float* const all = call.Take<float>(call.machine.workers() * memory);
  ParallelFor(call.machine, x[0] * attention.heads, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      attend(call, HeadOf(x, attention, i), all + worker * memory);
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status LayerNormForward(Calls calls) {
  const Call& call = calls[0];
  const int64_t rows = RowsOf(call.in_shape(0)), width = WidthOf(call.in_shape(0));
  float* const mean = call.outputs.size() > 1 ? call.out(1) : nullptr;
  ParallelFor(call.machine, rows, [&](int, int64_t begin, int64_t end) {
    LayerNormRows norm = RowsFrom(call, call.in(0), call.in(1), begin, end - begin);
    norm.shift = call.in(2);
    call.kernels().layer_norm(norm, call.out(0) + begin * width,
                              mean == nullptr ? nullptr : mean + begin,
                              mean == nullptr ? nullptr : mean + rows + begin);
  });
  return absl::OkStatus();
}

absl::Status LayerNormInputGradient(Calls calls) {
  const Call& call = calls[0];
  const int64_t rows = RowsOf(call.in_shape(0)), width = WidthOf(call.in_shape(0));
  const int64_t pieces = (rows + kPieceRows - 1) / kPieceRows;
  float* const sums = call.Take<float>(pieces * 2 * width);
  ParallelFor(call.machine, pieces, [&](int, int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece * kPieceRows, count = std::min(kPieceRows, rows - row);
      float* const dscale = sums + piece * 2 * width;
      std::fill_n(dscale, 2 * width, 0.0f);
      call.kernels().layer_norm_gradient(RowsFrom(call, call.in(1), call.in(2), row, count),
                                         call.in(0) + row * width, call.in(3) + row,
                                         call.in(3) + rows + row, call.out(0) + row * width, dscale,
                                         dscale + width);
    }
  });
  for (int64_t i = 0; i < 2 * width; ++i) {
    double sum = 0;
    for (int64_t piece = 0; piece < pieces; ++piece)
      sum += static_cast<double>(sums[piece * 2 * width + i]);
    call.out(1)[i] = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

absl::Status AttentionForward(Calls calls) {
  const Shape& x = calls[0].in_shape(0);
  const int64_t width = x[2] / 3 / calls[0].instruction->attributes.heads;
  return OverHeads(calls[0], x, x[1] * (width + 1), AttendForward);
}

absl::Status AttentionInputGradient(Calls calls) {
  const Shape& x = calls[0].in_shape(1);
  const int64_t width = x[2] / 3 / calls[0].instruction->attributes.heads;
  return OverHeads(calls[0], x, 2 * x[1] * (width + x[1]), AttendBackward);
}

}  // namespace runnel::fp32
