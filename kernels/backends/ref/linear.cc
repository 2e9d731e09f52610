#include <vector>

#include "kernels/backends/ref/ref_kernels.h"

namespace runnel::ref {

// y = bias + sum over in features.
absl::Status LinearForward(const Call& call) {
  const int64_t batch = call.in_shape(0)[0], in = call.in_shape(0)[1], out = call.out_shape(0)[1];
  float* y = call.out(0);
  for (int64_t n = 0; n < batch; ++n) {
    const float* x = call.in(0) + n * in;
    for (int64_t o = 0; o < out; ++o) {
      const float* weight = call.in(1) + o * in;
      double sum = call.has_input(2) ? call.in(2)[o] : 0.0;
      for (int64_t i = 0; i < in; ++i) sum += static_cast<double>(weight[i]) * x[i];
      *y++ = static_cast<float>(sum);
    }
  }
  return absl::OkStatus();
}

// dx = sum over out features of dy * weight.
absl::Status LinearInputGradient(const Call& call) {
  const int64_t batch = call.in_shape(0)[0], out = call.in_shape(0)[1], in = call.out_shape(0)[1];
  std::vector<double> sums(in);
  float* dx = call.out(0);
  for (int64_t n = 0; n < batch; ++n) {
    sums.assign(in, 0.0);
    for (int64_t o = 0; o < out; ++o) {
      const double dy = call.in(0)[n * out + o];
      const float* weight = call.in(1) + o * in;
      for (int64_t i = 0; i < in; ++i) sums[i] += dy * weight[i];
    }
    for (double sum : sums) *dx++ = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

// dweight = sum over samples of dy * x; dbias = the same of dy.
absl::Status LinearWeightGradient(const Call& call) {
  const int64_t batch = call.in_shape(0)[0], out = call.in_shape(0)[1], in = call.in_shape(1)[1];
  std::vector<double> sums(in);
  for (int64_t o = 0; o < out; ++o) {
    sums.assign(in, 0.0);
    double bias_sum = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const double dy = call.in(0)[n * out + o];
      const float* x = call.in(1) + n * in;
      for (int64_t i = 0; i < in; ++i) sums[i] += dy * x[i];
      bias_sum += dy;
    }
    float* dweight = call.out(0) + o * in;
    for (double sum : sums) StoreGradient(call, static_cast<float>(sum), dweight++);
    if (call.has_output(1)) StoreGradient(call, static_cast<float>(bias_sum), call.out(1) + o);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
