#pragma once

// From a trained FP32 graph to integers: calibration, codings, weights and factors, and which
// convolutions go by Winograd's algorithm.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/models/graph/folded_graph.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/quantize/calibration.h"

namespace runnel::inference {

enum class Scheme : uint8_t {
  kSymmetric,   // zero is code 0
  kAsymmetric,  // 255 codes over the range; zero is the code nearest to real 0
};
enum class Granularity : uint8_t { kLayer, kChannel };  // of weights; activations are by tensor
enum class WinogradUse : uint8_t { kOff, kInt4Int6, kAuto };

struct QuantizeOptions {
  CalibrationRule calibration;
  Scheme scheme = Scheme::kSymmetric;
  Granularity granularity = Granularity::kChannel;
  // kInt4Int6: of all convolutions that FitsWinograd but the one that reads the samples. A value
  // that one of them reads has codes of 6 bits for all of its readers.
  // kAuto: of those of them that UseWinograd names (QuantizeWithChosenWinograd).
  WinogradUse winograd = WinogradUse::kOff;
  // The convolutions that read the samples, and the last one, stay in FP32.
  bool first_in_fp32 = false;
  bool last_in_fp32 = false;

  friend bool operator==(const QuantizeOptions&, const QuantizeOptions&) = default;
};

// "symmetric", "layer", "int4_int6", ... InvalidArgument lists what there is.
absl::StatusOr<Scheme> ParseScheme(absl::string_view text);
absl::StatusOr<Granularity> ParseGranularity(absl::string_view text);
absl::StatusOr<WinogradUse> ParseWinograd(absl::string_view text);
// "int8" or "fp32": whether a layer stays in FP32. flag: for the error.
absl::StatusOr<bool> ParseLayer(absl::string_view flag, absl::string_view text);
// InvalidArgument: options that exclude each other.
absl::Status CheckOptions(const QuantizeOptions& options);

// Shows a graph the calibration samples, twice where the rule needs histograms, then quantises it.
// The rule is for what the graph computes; the samples themselves keep all of their range.
// graph and options outlive it. One thread.
class Quantizer {
 public:
  Quantizer(const FoldedGraph& graph, const QuantizeOptions& options);

  // Passes over all samples that Observe is called for; NCHW, `batch` of them a call.
  int passes() const { return options_.calibration.needs_histogram() ? 2 : 1; }
  void Observe(int pass, absl::Span<const float> samples, int64_t batch);

  // Nodes that can be computed by Winograd's algorithm.
  std::vector<size_t> WinogradCandidates() const;
  // Which of them Finish takes, by node; may be changed and Finish called again.
  void UseWinograd(std::vector<bool> nodes);

  // InvalidArgument: values that are not finite, a reduction that int32 does not hold.
  absl::StatusOr<Int8Graph> Finish() const;

 private:
  int MaxCode(size_t node) const { return max_codes_[node]; }
  bool StaysReal(size_t node) const;
  Coding CodingOf(size_t node) const;
  absl::Status QuantizeConv(const Int8Graph& graph, Int8Node& out) const;

  const FoldedGraph& graph_;
  const QuantizeOptions& options_;
  FoldedExecutor executor_;
  std::vector<Observer> observers_;  // by node
  std::vector<int32_t> max_codes_;   // by node
  std::vector<bool> winograd_;       // by node
};

// Seconds by node of a graph on the device that will run it (GraphRunner::TimeNodes).
using TimeGraph = absl::FunctionRef<absl::StatusOr<std::vector<double>>(const Int8Graph& graph)>;

// --winograd auto: takes those candidates that are faster by Winograd's algorithm than without it
// (by 5 % at least), those with the least error of their values first, and of these as many as
// leave the share of `samples` (NCHW, `count`) whose largest logit is the FP32 graph's at most one
// point below what it is without any. quantizer: has observed all samples; keeps the choice. real:
// its graph. backend: what computes the classes. Errors: those of `time` and the backend.
// winograd_choice.cc.
absl::StatusOr<Int8Graph> QuantizeWithChosenWinograd(Quantizer& quantizer, const FoldedGraph& real,
                                                     absl::Span<const float> samples, int64_t count,
                                                     Backend& backend, TimeGraph time);

}  // namespace runnel::inference
