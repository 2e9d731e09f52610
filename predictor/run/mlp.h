#pragma once

// The latency predictor's network (AccEPT 3.2), evaluated in plain code: two streams and four
// fully connected layers. The sub-model's encoding passes two of them; their output beside the
// hardware vector h passes the other two; the result is the logarithm of the seconds. ReLU between
// them. LibTorch trains it (train_torch.h) and is the oracle in tests.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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
  // What is subtracted from an input and what it is divided by then.
  std::vector<float> encoding_mean, encoding_scale;
  std::vector<float> hardware_mean, hardware_scale;
  // Of the output: log seconds = mean + scale * network.
  float output_mean = 0;
  float output_scale = 1;
  LinearLayer encoding_1, encoding_2;  // first stream
  LinearLayer joint_1, joint_2;        // second stream: [encoding_2's output, hardware] -> 1

  int encoding_size() const { return encoding_1.inputs; }
  int hardware_size() const { return static_cast<int>(hardware_mean.size()); }

  // Sizes must be as above; CheckMlp guarantees what the network itself needs.
  double LogSeconds(absl::Span<const float> encoding, absl::Span<const float> hardware) const;

  friend bool operator==(const Mlp&, const Mlp&) = default;
};

inline constexpr int kMaxMlpWidth = 4096;
inline constexpr size_t kMaxMlpBytes = size_t{64} << 20;

// InvalidArgument names what does not fit: sizes of the layers to each other, a scale of 0, a value
// that is not finite.
absl::Status CheckMlp(const Mlp& mlp);

// As text: "runnel-mlp 1", then sizes, then the numbers (9 digits: floats come back as they were).
std::string FormatMlp(const Mlp& mlp);
// From outside: sizes are checked before anything is allocated by them, the result passes CheckMlp.
// InvalidArgument names what is wrong.
absl::StatusOr<Mlp> ParseMlp(absl::string_view text);

}  // namespace runnel
