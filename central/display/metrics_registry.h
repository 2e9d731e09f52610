#pragma once

// MetricsSink over Prometheus' client library, and the text that /metrics serves.

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/base/metrics.h"

namespace runnel {

// Any thread. A name or label that Prometheus' rules forbid, a counter's negative or non-finite
// increment and a name used as both kinds are dropped and counted in
// runnel_metrics_rejected_total.
class MetricsRegistry final : public MetricsSink {
 public:
  MetricsRegistry();
  ~MetricsRegistry() override;

  void Describe(absl::string_view name, absl::string_view help) override;
  void SetGauge(absl::string_view name, const MetricLabels& labels, double value) override;
  void AddCounter(absl::string_view name, const MetricLabels& labels, double increment) override;

  // Text exposition format 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runnel
