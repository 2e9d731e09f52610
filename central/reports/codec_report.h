#pragma once

// AccEPT's table 3 and figure 9 for every codec: what its frames weigh, what it loses, how fast it
// is on this machine.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// A latent output of table 3.
struct LatentTensor {
  const char* name;  // for people
  Shape shape;       // FP32
  double paper_kb;   // what the paper sends without a codec
};
// MobileNetV2's largest and smallest at batch 128, the simple CNN's at batch 64.
absl::Span<const LatentTensor> LatentTensors();

// Errors of a micro-batch after some others, relative to the tensor.
struct CodecLoss {
  double mean_error = 0;   // mean of (received - sent), over the root mean square: the bias
  double gain = 0;         // <received, sent> / <sent, sent>: below 1, the tensor shrinks
  double mean_square = 0;  // mean of (received - sent)^2 over the mean square
};

struct CodecReport {
  std::string codec;
  std::vector<int64_t> frame_bytes;  // of LatentTensors, with the frame's header
  // Bits an element of the largest tensor: its frame's, and what the codec's levels need.
  double bits = 0;
  double needed_bits = 0;
  CodecLoss activation;  // of a normal tensor after ReLU, as a forward codec sends it
  CodecLoss gradient;    // of a product of two normals (heavy-tailed), as a backward codec sends it
  double encode_gb_per_s = 0;  // FP32 bytes of the largest tensor, median
  double decode_gb_per_s = 0;
};

struct CodecReportOptions {
  std::vector<std::string> codecs;
  int repetitions = 9;
  uint64_t seed = 1;
};

// InvalidArgument for a codec that is not known.
absl::StatusOr<std::vector<CodecReport>> ReportCodecs(const CodecReportOptions& options,
                                                      const Clock& clock);

// What the paper's table 3 says that a codec sends of a tensor, in KB; 0 where it says nothing.
double PaperKilobytes(const std::string& codec, size_t tensor);

// Bandwidths of figure 9.
inline constexpr std::array<double, 6> kFigureMbps = {1, 2, 5, 10, 20, 50};
// Of a frame on an idle link, without the codec's own time.
double TransferMs(int64_t frame_bytes, double megabits_per_second);

std::string CodecReportText(const std::vector<CodecReport>& reports);
// One JSON object: "tensors", "codecs" (each: codec, frame_bytes, ratio, paper_kb, bits,
// needed_bits, activation, gradient, encode_gb_per_s, decode_gb_per_s), "figure_9" (mbps, and by codec the milliseconds of
// the largest and the smallest tensor of MobileNetV2).
std::string CodecReportJson(const std::vector<CodecReport>& reports);

}  // namespace runnel
