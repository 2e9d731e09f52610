#pragma once

// Prometheus' text exposition format 0.0.4.

#include <string>
#include <utility>
#include <vector>

#include "proto/base/figures/histogram.h"

namespace runnel {

// A family: of values a counter if its name ends in "_total", else a gauge.
struct Metric {
  const char* name;
  const char* help;         // one sentence
  const char* labels = "";  // their names, separated by commas
};

class MetricText {
 public:
  // One value for each label, in their order. A value that is not finite is not known and left out.
  void Add(const Metric& metric, const std::vector<std::string>& label_values, double value);
  // In seconds.
  void Add(const Metric& metric, const std::vector<std::string>& label_values,
           const Histogram& histogram);
  // Families in the order of their first values.
  std::string Text() const;

 private:
  // The text of the family, which begins with what it is.
  std::string& FamilyOf(const Metric& metric, const char* type);

  std::vector<std::pair<std::string, std::string>> families_;  // name, lines
};

}  // namespace runnel
