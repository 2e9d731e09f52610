#pragma once

// What a worker was at, from when to when: the parts of a trace (`runnel-central trace`).

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace runnel {

// On the compute lane down to kDryRun, the others where boundary tensors are coded.
enum class SpanKind : uint8_t {
  kForward,
  kInputGradient,
  kWeightGradient,  // and the step, where the micro-batch ends one
  kStep,            // a step that waited for a norm over all stages
  kMicroBatch,      // all of these: a plain loop without a pipeline
  kEvaluation,
  kDryRun,
  kEncodeActivation,
  kDecodeActivation,
  kEncodeGradient,
  kDecodeGradient,
};
inline constexpr int kSpanKinds = 11;

constexpr absl::string_view NameOf(SpanKind kind) {
  constexpr absl::string_view kNames[kSpanKinds] = {
      "forward",           "input gradient",  "weight gradient", "step",
      "micro-batch",       "evaluation",      "dry run",         "encode activation",
      "decode activation", "encode gradient", "decode gradient"};
  return kNames[static_cast<int>(kind)];
}
constexpr bool IsCoding(SpanKind kind) { return kind >= SpanKind::kEncodeActivation; }

struct Span {
  SpanKind kind = SpanKind::kForward;
  int64_t micro_batch = 0;  // its sequence; 0 where there is none
  int64_t begin_ns = 0;     // by the worker's monotonic clock
  int64_t took_ns = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

// A worker keeps as many of one trace: some seconds of fast stages, and half a second of a link of
// 1 Mbps, which heartbeats wait for.
inline constexpr int64_t kMaxSpans = 2048;
inline constexpr int64_t kMaxTraceNs = 60'000'000'000;

}  // namespace runnel
