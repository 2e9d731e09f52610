#pragma once

// A latency network (AccEPT 3.2), evaluated in plain code: two streams, four fully connected
// layers, ReLU between them.
//   z = layer_2(ReLU(layer_1(encoding of the sub-model)))
//   output = layer_4(ReLU(layer_3([ReLU(z), hardware vector h])))
// LibTorch trains it (train_torch.h) and is the oracle in tests. What goes in and what comes out is
// the predictor row's (accept_row.h, mlp_row.h).

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace runnel {

// y = W x + b, W (outputs, inputs) row-major.
struct LinearLayer {
  int inputs = 0;
  int outputs = 0;
  std::vector<float> weights;
  std::vector<float> bias;

  friend bool operator==(const LinearLayer&, const LinearLayer&) = default;
};

// A value type; evaluating it is thread-safe.
struct Mlp {
  // An input x enters as (x - mean) / scale, but at most kMostScales from 0: a device far from all
  // that the network learned from is taken for one at the edge.
  std::vector<float> encoding_mean, encoding_scale;
  std::vector<float> hardware_mean, hardware_scale;
  // The result is output_mean + output_scale * (network's output).
  float output_mean = 0;
  float output_scale = 1;
  LinearLayer encoding_1, encoding_2;  // first stream
  LinearLayer joint_1, joint_2;        // second stream: [encoding_2's output, hardware] -> 1

  int encoding_size() const { return encoding_1.inputs; }
  int hardware_size() const { return static_cast<int>(hardware_mean.size()); }

  // The spans' sizes must be encoding_size() and hardware_size(), the network one that CheckMlp
  // accepts.
  double Evaluate(absl::Span<const float> encoding, absl::Span<const float> hardware) const;

  friend bool operator==(const Mlp&, const Mlp&) = default;
};

inline constexpr float kMostScales = 5;
inline constexpr int kMaxMlpWidth = 4096;

// One training sample of a network.
struct MlpSample {
  std::vector<float> encoding;
  std::vector<float> hardware;
  float target = 0;  // the result that would be right
};

// Inputs as they enter: see Mlp::encoding_mean. The sizes must be equal.
std::vector<float> Normalised(absl::Span<const float> input, const std::vector<float>& mean,
                              const std::vector<float>& scale);

// InvalidArgument names the defect: sizes of neighbouring layers that differ, a scale of 0, a value
// that is not finite.
absl::Status CheckMlp(const Mlp& mlp);

}  // namespace runnel
