#include "central/display/metric_text.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

// The shortest text that reads back as the same number.
std::string NumberText(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::string LabelText(const char* names, const std::vector<std::string>& values) {
  const std::vector<std::string> keys = absl::StrSplit(names, ',', absl::SkipEmpty());
  assert(keys.size() == values.size());
  std::string text;
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StrAppend(&text, text.empty() ? "{" : ",", keys[i], "=\"",
                    absl::StrReplaceAll(values[i], {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                    "\"");
  }
  return text.empty() ? text : text + "}";
}

}  // namespace

void MetricText::Add(const Metric& metric, const std::vector<std::string>& label_values,
                     double value) {
  if (!std::isfinite(value)) return;
  const char* type = absl::EndsWith(metric.name, "_total") ? "counter" : "gauge";
  absl::StrAppend(&FamilyOf(metric, type), metric.name, LabelText(metric.labels, label_values), " ",
                  NumberText(value), "\n");
}

void MetricText::Add(const Metric& metric, const std::vector<std::string>& label_values,
                     const Histogram& histogram) {
  std::string& text = FamilyOf(metric, "histogram");
  const std::string labels = absl::StrCat(metric.labels, ",le");
  std::vector<std::string> values = label_values;
  values.emplace_back();
  int64_t count = 0;  // up to the bound
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    count += histogram.counts[i];
    values.back() = i < Histogram::kBoundsNs.size()
                        ? absl::StrCat(static_cast<double>(Histogram::kBoundsNs[i]) / 1e9)
                        : "+Inf";
    absl::StrAppend(&text, metric.name, "_bucket", LabelText(labels.c_str(), values), " ", count,
                    "\n");
  }
  const std::string own = LabelText(metric.labels, label_values);
  absl::StrAppend(&text, metric.name, "_sum", own, " ",
                  NumberText(static_cast<double>(histogram.sum_ns) / 1e9), "\n");
  absl::StrAppend(&text, metric.name, "_count", own, " ", count, "\n");
}

std::string& MetricText::FamilyOf(const Metric& metric, const char* type) {
  auto found = std::find_if(families_.begin(), families_.end(),
                            [&](const auto& family) { return family.first == metric.name; });
  if (found == families_.end()) {
    found = families_.insert(
        families_.end(), {metric.name, absl::StrCat("# HELP ", metric.name, " ", metric.help,
                                                    "\n# TYPE ", metric.name, " ", type, "\n")});
  }
  return found->second;
}

std::string MetricText::Text() const {
  std::string text;
  for (const auto& family : families_) text += family.second;
  return text;
}

}  // namespace runnel
