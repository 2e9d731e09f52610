#include "proto/base/figures/figure_fields.h"

#include <algorithm>

namespace runnel {
namespace {

using T = Telemetry;
using Of = FigureOf;
using AtZero = FigureAtZero;
using Scale = FigureScale;
using Sum = FigureSum;

// In the order in which they are shown.
constexpr FigureField kFields[] = {
    {.name = "forwards", .member = &T::forwards, .unit = "micro-batches"},
    {.name = "backwards", .member = &T::backwards, .unit = "micro-batches"},
    {.name = "busy_ns",
     .member = &T::busy_ns,
     .unit = "ns",
     .views = {{.scale = Scale::kShareOfTime,
                .key = "busy_share",
                .on_page = true,
                .metric = "runnel_stage_busy_ratio",
                .help = "Share of the training time in which the stage computes."}}},
    {.name = "wait_ns",
     .member = &T::wait_ns,
     .unit = "ns",
     .views = {{.scale = Scale::kShareOfTime,
                .key = "wait_share",
                .on_page = true,
                .metric = "runnel_stage_wait_ratio",
                .help = "Share of the training time in which the stage waits for a tensor."}}},
    {.name = "codec_ns", .member = &T::codec_ns, .unit = "ns"},
    {.name = "busy_processor_ns",
     .member = &T::busy_processor_ns,
     .unit = "ns",
     .views = {{.scale = Scale::kShareOfTime,
                .key = "busy_processor_share",
                .help = "Processor time of the computing thread over the training time."}}},
    {.name = "processor_ns",
     .member = &T::processor_ns,
     .unit = "ns",
     .views = {{.scale = Scale::kShareOfTime,
                .key = "processor_share",
                .help = "Processor time of the whole worker over the training time."}}},
    {.name = "last_backward_ns",
     .member = &T::last_backward_ns,
     .unit = "ns",
     .sum = Sum::kLargest},
    {.name = "peak_rss_bytes",
     .member = &T::peak_rss_bytes,
     .unit = "bytes",
     .sum = Sum::kLargest,
     .views = {{.key = "peak_rss_bytes",
                .metric = "runnel_stage_peak_resident_bytes",
                .help = "Most memory that the worker's process has had."}}},
    {.name = "memory_bytes",
     .member = &T::memory_bytes,
     .unit = "bytes",
     .views = {{.key = "memory_bytes",
                .help = "What the stage's memory plan takes of the process's memory."}}},
    {.name = "joules",
     .member = &T::joules,
     .unit = "J",
     .has_source = true,
     .views = {{.scale = Scale::kPerSample,
                .key = "joules_per_sample",
                .of_run = true,
                .metric = "runnel_stage_joules_per_sample",
                .help = "Energy that a training sample takes since the plan holds.",
                .at_zero = AtZero::kLeftOut},
               {.metric = "runnel_stage_joules",
                .help = "Energy that training took since the plan holds.",
                .at_zero = AtZero::kLeftOut}}},
    {.name = "stale_frames_dropped",
     .member = &T::stale_frames_dropped,
     .unit = "frames",
     .views = {{.metric = "runnel_stage_stale_frames_total",
                .help = "Frames of an older plan that the stage dropped."}}},
    {.name = "bytes_down",
     .member = &T::bytes_down,
     .unit = "bytes",
     .of = Of::kNextForward,
     .views = {{.key = "bytes_forward",
                .on_page = true,
                .metric = "runnel_link_bytes_total",
                .help = "Bytes sent over the link, headers included, each frame once."}}},
    {.name = "bytes_up",
     .member = &T::bytes_up,
     .unit = "bytes",
     .of = Of::kPreviousBackward,
     .views = {{.key = "bytes_backward",
                .on_page = true,
                .metric = "runnel_link_bytes_total",
                .help = "Bytes sent over the link, headers included, each frame once."}}},
    {.name = "raw_bytes_down",
     .member = &T::raw_bytes_down,
     .unit = "bytes",
     .of = Of::kNextForward,
     .views = {{.key = "raw_bytes_forward",
                .help = "Bytes of the activations in FP32, before they are encoded."}}},
    {.name = "raw_bytes_up",
     .member = &T::raw_bytes_up,
     .unit = "bytes",
     .of = Of::kPreviousBackward,
     .views = {{.key = "raw_bytes_backward",
                .help = "Bytes of the gradients in FP32, before they are encoded."}}},
    {.name = "frames_down",
     .member = &T::frames_down,
     .unit = "frames",
     .of = Of::kNextForward,
     .views = {{.key = "frames", .help = "Frames sent over the link, both ways together."}}},
    {.name = "frames_up",
     .member = &T::frames_up,
     .unit = "frames",
     .of = Of::kPreviousBackward,
     .views = {{.key = "frames", .help = "Frames sent over the link, both ways together."}}},
    {.name = "resent_frames_down",
     .member = &T::resent_frames_down,
     .unit = "frames",
     .of = Of::kNextForward,
     .views = {{.key = "resent_forward",
                .on_page = true,
                .metric = "runnel_link_resent_frames_total",
                .help = "Frames sent over the link once more after a connection broke."}}},
    {.name = "resent_frames_up",
     .member = &T::resent_frames_up,
     .unit = "frames",
     .of = Of::kPreviousBackward,
     .views = {{.key = "resent_backward",
                .on_page = true,
                .metric = "runnel_link_resent_frames_total",
                .help = "Frames sent over the link once more after a connection broke."}}},
    {.name = "upstream_bytes_per_second",
     .member = &T::upstream_bytes_per_second,
     .unit = "bytes/s",
     .of = Of::kPreviousForward,
     .views = {{.key = "bandwidth_forward_bytes_per_s",
                .on_page = true,
                .metric = "runnel_link_bandwidth_bytes_per_second",
                .help = "Bytes a second that the link carries, as its receiver measures them.",
                .at_zero = AtZero::kNoMetric}}},
    {.name = "downstream_bytes_per_second",
     .member = &T::downstream_bytes_per_second,
     .unit = "bytes/s",
     .of = Of::kNextBackward,
     .views = {{.key = "bandwidth_backward_bytes_per_s",
                .on_page = true,
                .metric = "runnel_link_bandwidth_bytes_per_second",
                .help = "Bytes a second that the link carries, as its receiver measures them.",
                .at_zero = AtZero::kNoMetric}}},
    {.name = "upstream_round_trip_ns",
     .member = &T::upstream_round_trip_ns,
     .unit = "ns",
     .of = Of::kPreviousForward},
    {.name = "downstream_round_trip_ns",
     .member = &T::downstream_round_trip_ns,
     .unit = "ns",
     .of = Of::kNextBackward},
    {.name = "loss_sum", .member = &T::loss_sum, .unit = "nats"},
    {.name = "correct", .member = &T::correct, .unit = "labels"},
    {.name = "loss_samples", .member = &T::loss_samples, .unit = "samples"},
};

}  // namespace

absl::Span<const FigureField> FigureFields() { return kFields; }

FigureValue ShownValue(const FigureField& field, const FigureView& view, const Telemetry& telemetry,
                       const FigureBase& base) {
  const FigureValue value =
      std::visit([&](auto member) { return FigureValue(telemetry.*member); }, field.member);
  if (view.scale == FigureScale::kPlain) return value;
  const int64_t whole = view.scale == FigureScale::kPerSample ? base.samples : base.training_ns;
  return whole > 0 ? AsReal(value) / static_cast<double>(whole) : 0.0;
}

FigureValue Combined(FigureSum sum, const FigureValue& a, const FigureValue& b) {
  const auto combine = [sum](auto x, auto y) -> FigureValue {
    return sum == FigureSum::kAdded ? x + y : std::max(x, y);
  };
  if (std::holds_alternative<int64_t>(a) && std::holds_alternative<int64_t>(b))
    return combine(std::get<int64_t>(a), std::get<int64_t>(b));
  return combine(AsReal(a), AsReal(b));
}

double AsReal(const FigureValue& value) {
  return std::visit([](auto number) { return static_cast<double>(number); }, value);
}

}  // namespace runnel
