// Elementwise kernels and the loss: any layout, all operands alike.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/torch/kernel.h"
#include "kernels/torch/simd.h"

namespace runnel::torch_kernels {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements that one thread takes at least

// ivdep: where an output is one of the inputs, it is the very same memory.
RUNNEL_TORCH_SIMD void ReluLoop(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}
RUNNEL_TORCH_SIMD void Relu6Loop(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float low = x[i] < 0 ? 0.0f : x[i];
    y[i] = low > 6 ? 6.0f : low;
  }
}
RUNNEL_TORCH_SIMD void ReluGradientLoop(const float* dy, const float* y, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = y[i] <= 0 ? 0.0f : g;
  }
}
RUNNEL_TORCH_SIMD void Relu6GradientLoop(const float* dy, const float* y, int64_t count,
                                         float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = (y[i] <= 0) | (y[i] >= 6) ? 0.0f : g;
  }
}
RUNNEL_TORCH_SIMD void AddLoop(const float* a, const float* b, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

struct SgdFactors {
  float rate, momentum, decay;
};
RUNNEL_TORCH_SIMD void SgdLoop(const SgdFactors& f, const float* w, const float* g, int64_t count,
                               float* v, float* new_w) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] + f.decay * w[i];
    v[i] = f.momentum * v[i] + gradient;
    new_w[i] = w[i] - f.rate * v[i];
  }
}

// body(begin, count) over all elements of the output.
template <typename Body>
absl::Status OverElements(const Call& call, const Body& body) {
  const int64_t count = call.out_shape(0).elements();
  ParallelFor((count + kChunk - 1) / kChunk, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kChunk;
    body(begin, std::min(count, last * kChunk) - begin);
  });
  return absl::OkStatus();
}

// Loss and gradient of one sample. gradient may be null.
double CrossEntropy(const float* logits, int64_t classes, int32_t label, double samples,
                    float* gradient) {
  const double top = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - top);
  for (int64_t c = 0; gradient != nullptr && c < classes; ++c) {
    const double p = std::exp(logits[c] - top) / sum;
    gradient[c] = static_cast<float>((p - (c == label ? 1.0 : 0.0)) / samples);
  }
  return std::log(sum) - (logits[label] - top);
}

absl::Status Loss(const Call& call, float* gradient, double* metrics) {
  const int64_t samples = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const int32_t* labels = call.in<int32_t>(1);
  const double divisor = static_cast<double>(call.context->step_samples);
  double loss = 0, correct = 0;
  for (int64_t n = 0; n < samples; ++n) {
    if (labels[n] < 0 || labels[n] >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", labels[n], " of sample ", n, " is not in [0, ", classes, ")"));
    }
    const float* logits = call.in(0) + n * classes;
    loss += CrossEntropy(logits, classes, labels[n], divisor,
                         gradient == nullptr ? nullptr : gradient + n * classes);
    correct += std::max_element(logits, logits + classes) - logits == labels[n] ? 1 : 0;
  }
  metrics[0] = loss;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReluForward(const Call& call) {
  return OverElements(
      call, [&](int64_t at, int64_t count) { ReluLoop(call.in(0) + at, count, call.out(0) + at); });
}
absl::Status Relu6Forward(const Call& call) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    Relu6Loop(call.in(0) + at, count, call.out(0) + at);
  });
}
absl::Status ReluInputGradient(const Call& call) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    ReluGradientLoop(call.in(0) + at, call.in(1) + at, count, call.out(0) + at);
  });
}
absl::Status Relu6InputGradient(const Call& call) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    Relu6GradientLoop(call.in(0) + at, call.in(1) + at, count, call.out(0) + at);
  });
}
absl::Status Add(const Call& call) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    AddLoop(call.in(0) + at, call.in(1) + at, count, call.out(0) + at);
  });
}

absl::Status SgdUpdate(const Call& call) {
  const SgdFactors factors = {static_cast<float>(call.context->learning_rate),
                              static_cast<float>(call.context->momentum),
                              static_cast<float>(call.context->weight_decay)};
  return OverElements(call, [&](int64_t at, int64_t count) {
    SgdLoop(factors, call.in(0) + at, call.in(1) + at, count,
            reinterpret_cast<float*>(call.inputs[2].data) + at, call.out(0) + at);
  });
}

absl::Status Copy(const Call& call) {
  std::memmove(call.outputs[0].data, call.inputs[0].data, call.outputs[0].buffer->bytes());
  return absl::OkStatus();
}

void StoreGradient(const float* source, int64_t count, bool accumulate, float* target) {
  if (accumulate) {
    AddLoop(target, source, count, target);
  } else if (source != target) {
    std::copy_n(source, count, target);
  }
}

absl::Status SoftmaxCrossEntropy(const Call& call) {
  return Loss(call, call.out(0), call.out<double>(1));
}
absl::Status SoftmaxCrossEntropyEval(const Call& call) {
  return Loss(call, nullptr, call.out<double>(0));
}

}  // namespace runnel::torch_kernels
