// What a transformer has beside its linear layers, in plain loops and double precision.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/backends/host/plain_kernels.h"

namespace runnel::host {
namespace {

const double kSlope = std::sqrt(2 / std::numbers::pi);
constexpr double kCube = 0.044715;

double InnerOf(double x) { return std::tanh(kSlope * (x + kCube * x * x * x)); }

// Of the GELU by erf: the normal distribution's share below x, and its density there.
double ShareBelow(double x) { return std::erfc(-x * std::numbers::sqrt2 / 2) / 2; }
double DensityAt(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

// Queries, keys and values of one head of one sample.
struct Head {
  int64_t positions, width, stride;  // between positions, of the input and of its gradient
  double scale;                      // of scores
  int64_t at;                        // of the head's first query
  int64_t out_at, out_stride;        // likewise of the output
  int64_t features;                  // from a query to the key of its place, and on to the value
  bool sees_all;

  int64_t Query(int64_t t) const { return at + t * stride; }
  int64_t Key(int64_t t) const { return Query(t) + features; }
  int64_t Value(int64_t t) const { return Query(t) + 2 * features; }
  int64_t Out(int64_t t) const { return out_at + t * out_stride; }
  // How many positions t sees: from the first one on.
  int64_t Seen(int64_t t) const { return sees_all ? positions : t + 1; }
};

Head HeadOf(const Shape& x, const OpSpec& attention, int64_t index) {
  const int64_t heads = attention.heads;
  const int64_t features = x[2] / 3, width = features / heads;
  const int64_t sample = index / heads, offset = index % heads * width;
  return {.positions = x[1],
          .width = width,
          .stride = x[2],
          .scale = 1 / std::sqrt(static_cast<double>(width)),
          .at = sample * x[1] * x[2] + offset,
          .out_at = sample * x[1] * features + offset,
          .out_stride = features,
          .features = features,
          .sees_all = attention.bidirectional};
}

double Dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// What query t gives to the positions that it sees.
std::vector<double> ScoresOf(const Head& head, const float* x, int64_t t) {
  std::vector<double> scores(static_cast<size_t>(head.Seen(t)));
  for (int64_t s = 0; s < head.Seen(t); ++s)
    scores[static_cast<size_t>(s)] =
        head.scale * Dot(x + head.Query(t), x + head.Key(s), head.width);
  return scores;
}

void AttendForward(const Head& head, const float* x, float* y, float* log_sums) {
  for (int64_t t = 0; t < head.positions; ++t) {
    const std::vector<double> scores = ScoresOf(head, x, t);
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    if (log_sums != nullptr) log_sums[t] = static_cast<float>(log_sum);
    for (int64_t i = 0; i < head.width; ++i) {
      double value = 0;
      for (int64_t s = 0; s < head.Seen(t); ++s)
        value += std::exp(scores[static_cast<size_t>(s)] - log_sum) *
                 static_cast<double>(x[head.Value(s) + i]);
      y[head.Out(t) + i] = static_cast<float>(value);
    }
  }
}

struct AttentionGradient {
  const float *dy, *x, *y, *log_sums;
  float* dx;
};

void AttendBackward(const Head& head, const AttentionGradient& g) {
  const auto width = static_cast<size_t>(head.width);
  std::vector<double> dkeys(static_cast<size_t>(head.positions) * width), dvalues(dkeys.size());
  for (int64_t t = 0; t < head.positions; ++t) {
    const std::vector<double> scores = ScoresOf(head, g.x, t);
    const float* const dy = g.dy + head.Out(t);
    const double mean = Dot(dy, g.y + head.Out(t), head.width);
    std::vector<double> dquery(width);
    for (int64_t s = 0; s < head.Seen(t); ++s) {
      const double share =
          std::exp(scores[static_cast<size_t>(s)] - static_cast<double>(g.log_sums[t]));
      const double dscore = head.scale * share * (Dot(dy, g.x + head.Value(s), head.width) - mean);
      for (size_t i = 0; i < width; ++i) {
        const size_t at = static_cast<size_t>(s) * width + i;
        dvalues[at] += share * static_cast<double>(dy[i]);
        dkeys[at] += dscore * static_cast<double>(g.x[head.Query(t) + static_cast<int64_t>(i)]);
        dquery[i] += dscore * static_cast<double>(g.x[head.Key(s) + static_cast<int64_t>(i)]);
      }
    }
    std::copy(dquery.begin(), dquery.end(), g.dx + head.Query(t));
  }
  for (int64_t t = 0; t < head.positions; ++t) {
    const size_t at = static_cast<size_t>(t) * width;
    std::copy_n(&dkeys[at], width, g.dx + head.Key(t));
    std::copy_n(&dvalues[at], width, g.dx + head.Value(t));
  }
}

}  // namespace

absl::Status LayerNormForward(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t width = shape[shape.rank() - 1], rows = shape.elements() / width;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const x = call.in(0) + row * width;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) mean += static_cast<double>(x[i]);
    mean /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i)
      squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
    const double inverse =
        1 / std::sqrt(squares / static_cast<double>(width) + call.attributes().epsilon);
    for (int64_t i = 0; i < width; ++i) {
      const double normal = (static_cast<double>(x[i]) - mean) * inverse;
      call.out(0)[row * width + i] = static_cast<float>(
          normal * static_cast<double>(call.in(1)[i]) + static_cast<double>(call.in(2)[i]));
    }
    if (!call.has_output(1)) continue;
    call.out(1)[row] = static_cast<float>(mean);
    call.out(1)[rows + row] = static_cast<float>(inverse);
  }
  return absl::OkStatus();
}

// With u = (x - mean) * inverse and g = dy * scale: dx = inverse * (g - mean(g) - u * mean(g * u)).
absl::Status LayerNormInputGradient(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t width = shape[shape.rank() - 1], rows = shape.elements() / width;
  std::vector<double> dscale(static_cast<size_t>(width)), dshift(dscale.size());
  for (int64_t row = 0; row < rows; ++row) {
    const auto mean = static_cast<double>(call.in(3)[row]);
    const auto inverse = static_cast<double>(call.in(3)[rows + row]);
    const auto normal = [&](int64_t i) {
      return (static_cast<double>(call.in(1)[row * width + i]) - mean) * inverse;
    };
    const auto gradient = [&](int64_t i) {
      return static_cast<double>(call.in(0)[row * width + i]) * static_cast<double>(call.in(2)[i]);
    };
    double sum = 0, product = 0;
    for (int64_t i = 0; i < width; ++i) {
      const auto dy = static_cast<double>(call.in(0)[row * width + i]);
      dscale[static_cast<size_t>(i)] += dy * normal(i);
      dshift[static_cast<size_t>(i)] += dy;
      sum += gradient(i);
      product += gradient(i) * normal(i);
    }
    const auto count = static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      call.out(0)[row * width + i] =
          static_cast<float>(inverse * (gradient(i) - sum / count - normal(i) * product / count));
    }
  }
  std::copy(dscale.begin(), dscale.end(), call.out(1));
  std::copy(dshift.begin(), dshift.end(), call.out(1) + width);
  return absl::OkStatus();
}

absl::Status GeluForward(const Call& call) {
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const auto x = static_cast<double>(call.in(0)[i]);
    call.out(0)[i] =
        static_cast<float>(call.attributes().exact ? x * ShareBelow(x) : x / 2 * (1 + InnerOf(x)));
  }
  return absl::OkStatus();
}

absl::Status GeluInputGradient(const Call& call) {
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const auto x = static_cast<double>(call.in(1)[i]);
    const double t = InnerOf(x);
    const double slope = call.attributes().exact
                             ? ShareBelow(x) + x * DensityAt(x)
                             : (1 + t) / 2 + x / 2 * (1 - t * t) * kSlope * (1 + 3 * kCube * x * x);
    call.out(0)[i] = static_cast<float>(static_cast<double>(call.in(0)[i]) * slope);
  }
  return absl::OkStatus();
}

absl::Status AttentionForward(const Call& call) {
  const Shape& x = call.in_shape(0);
  const int64_t heads = call.attributes().heads;
  for (int64_t i = 0; i < x[0] * heads; ++i) {
    AttendForward(HeadOf(x, call.attributes(), i), call.in(0), call.out(0),
                  call.has_output(1) ? call.out(1) + i * x[1] : nullptr);
  }
  return absl::OkStatus();
}

absl::Status AttentionInputGradient(const Call& call) {
  const Shape& x = call.in_shape(1);
  const int64_t heads = call.attributes().heads;
  for (int64_t i = 0; i < x[0] * heads; ++i) {
    AttendBackward(HeadOf(x, call.attributes(), i),
                   {call.in(0), call.in(1), call.in(2), call.in(3) + i * x[1], call.out(0)});
  }
  return absl::OkStatus();
}

}  // namespace runnel::host
