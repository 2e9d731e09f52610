#include "central/display/metrics_registry.h"

#include <prometheus/check_names.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <map>
#include <mutex>

namespace runnel {
namespace {

using Labels = std::map<std::string, std::string>;

bool CheckLabels(const MetricLabels& labels, Labels& out) {
  for (const auto& [name, value] : labels) {
    if (!prometheus::CheckLabelName(name) || !out.emplace(name, value).second) return false;
  }
  return true;
}

}  // namespace

struct MetricsRegistry::Impl {
  std::string HelpOf(const std::string& name) const {
    const auto at = help.find(name);
    return at == help.end() ? std::string() : at->second;
  }

  // Null if the name cannot be one of this kind. Holder of `mutex` only.
  template <typename T>
  prometheus::Family<T>* FamilyOf(std::map<std::string, prometheus::Family<T>*>& ours,
                                  bool is_other_kind, const std::string& name) {
    const auto at = ours.find(name);
    if (at != ours.end()) return at->second;
    // The library throws on both.
    if (is_other_kind || !prometheus::CheckMetricName(name)) return nullptr;
    auto& family =
        prometheus::detail::Builder<T>().Name(name).Help(HelpOf(name)).Register(registry);
    ours[name] = &family;
    return &family;
  }

  mutable std::mutex mutex;
  prometheus::Registry registry;
  std::map<std::string, std::string> help;
  std::map<std::string, prometheus::Family<prometheus::Gauge>*> gauges;
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  prometheus::Counter* rejected = nullptr;
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {
  const std::string name = "runnel_metrics_rejected_total";
  impl_->help[name] = "Values that were dropped: a bad name, label or increment.";
  impl_->rejected = &impl_->FamilyOf(impl_->counters, false, name)->Add({});
}

MetricsRegistry::~MetricsRegistry() = default;

void MetricsRegistry::Describe(absl::string_view name, absl::string_view help) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->help[std::string(name)] = std::string(help);
}

void MetricsRegistry::SetGauge(absl::string_view name, const MetricLabels& labels, double value) {
  const std::string key(name);
  Labels checked;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  auto* family = impl_->FamilyOf(impl_->gauges, impl_->counters.count(key) > 0, key);
  if (family == nullptr || !CheckLabels(labels, checked)) return impl_->rejected->Increment();
  family->Add(checked).Set(value);
}

void MetricsRegistry::AddCounter(absl::string_view name, const MetricLabels& labels,
                                 double increment) {
  const std::string key(name);
  Labels checked;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  auto* family = impl_->FamilyOf(impl_->counters, impl_->gauges.count(key) > 0, key);
  if (family == nullptr || !CheckLabels(labels, checked) || !std::isfinite(increment) ||
      increment < 0) {
    return impl_->rejected->Increment();
  }
  family->Add(checked).Increment(increment);
}

std::string MetricsRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace runnel
