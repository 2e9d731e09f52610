#pragma once

// The one table of figures: a row a member of Telemetry. The row drives the message from the worker
// to central, the keys of the summary and the page, the metrics with their help, and the tables of
// central/README.md (tests/tidy/docs.py). So a new figure is a field in proto/control.proto, a
// member (telemetry.h), a row here, and the code that counts it.
//
// Plain data and pure functions; any thread.

#include <cstdint>
#include <variant>

#include "absl/types/span.h"
#include "proto/base/figures/telemetry.h"
#include "proto/base/ids.h"

namespace runnel {

// A histogram is a figure of its time, in nanoseconds.
using FigureMember =
    std::variant<int64_t Telemetry::*, double Telemetry::*, Histogram Telemetry::*>;
using FigureValue = std::variant<int64_t, double>;

// Of several stages or links: how one figure comes of theirs.
enum class FigureSum : uint8_t { kAdded, kLargest };

// What is shown of a value.
enum class FigureScale : uint8_t {
  kPlain,
  kSeconds,      // nanoseconds
  kShareOfTime,  // nanoseconds over the training time since the plan holds
  kPerSample,    // over the samples trained since the plan holds
};

// Who the figure is about. A stage counts what it sends on its links and measures what it receives.
enum class FigureOf : uint8_t {
  kStage,
  kNextForward,  // the link to the next stage, activations
  kNextBackward,
  kPreviousForward,  // the link to the stage before, activations
  kPreviousBackward,
};

// Zero stands for "not known".
enum class FigureAtZero : uint8_t { kShown, kNoMetric, kLeftOut };

// One way to show a figure. Null: not there.
struct FigureView {
  FigureScale scale = FigureScale::kPlain;
  // Of stages[] and links[] in the summary. Rows of a link with the same key make one figure.
  const char* key = nullptr;
  bool on_page = false;  // under the same key
  bool of_run = false;   // in the summary also as one figure of all stages, under the same key
  // A histogram's is a histogram; else a counter if it ends in "_total", or a gauge. Labels: stage
  // and worker, or link and direction. Starts with "runnel_", but for what OpenTelemetry has a name of.
  const char* metric = nullptr;
  const char* help = nullptr;  // one sentence
  FigureAtZero at_zero = FigureAtZero::kShown;
};

struct FigureField {
  const char* name;  // in control.proto
  FigureMember member;
  const char* unit;  // of the member
  FigureSum sum = FigureSum::kAdded;
  FigureOf of = FigureOf::kStage;
  // Telemetry::energy_source belongs to it: a label of the metric, a key beside it.
  bool has_source = false;
  FigureView views[2] = {};
};

absl::Span<const FigureField> FigureFields();

constexpr bool IsOfLink(FigureOf of) { return of != FigureOf::kStage; }
// The end of the link that reports it: the stage above, which sends activations.
constexpr bool IsOfAbove(FigureOf of) {
  return of == FigureOf::kNextForward || of == FigureOf::kNextBackward;
}
constexpr Direction DirectionOf(FigureOf of) {
  return of == FigureOf::kNextForward || of == FigureOf::kPreviousForward ? Direction::kForward
                                                                          : Direction::kBackward;
}

// What a value is measured against.
struct FigureBase {
  int64_t training_ns = 0;  // time between grants and their barriers, since the plan holds
  int64_t samples = 0;      // trained in that time
};

// 0 where there was no time or sample yet.
FigureValue ShownValue(const FigureField& field, const FigureView& view, const Telemetry& telemetry,
                       const FigureBase& base);
FigureValue Combined(FigureSum sum, const FigureValue& a, const FigureValue& b);
double AsReal(const FigureValue& value);

}  // namespace runnel
