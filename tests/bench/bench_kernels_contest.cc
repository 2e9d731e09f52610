#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "tests/bench/bench_kernels.h"

namespace runnel::bench {
namespace {

double Now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

bool Options::Has(const std::string& part) const {
  return std::find(only.begin(), only.end(), part) != only.end();
}

bool Options::HasModel(const std::string& model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

double Seconds(int threads) { return threads == 1 ? Now(CLOCK_PROCESS_CPUTIME_ID) : WallSeconds(); }
double WallSeconds() { return Now(CLOCK_MONOTONIC); }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Contest::Time(const std::function<void()>& run, int64_t repeats) const {
  const double begin = Seconds(threads_);
  for (int64_t i = 0; i < repeats; ++i) run();
  return (Seconds(threads_) - begin) / static_cast<double>(repeats);
}

// Returns how often a turn repeats it.
int64_t Contest::WarmUp(const std::function<void()>& run) const {
  if (Time(run, 1) >= turn_seconds_) return 1;
  const double once = std::max(1e-7, Time(run, 1));
  return std::max<int64_t>(1, std::llround(std::ceil(turn_seconds_ / once)));
}

int Contest::Add(std::function<void()> run) {
  contenders_.push_back({std::move(run)});
  return static_cast<int>(contenders_.size()) - 1;
}

int Contest::AddFastest(std::vector<std::function<void()>> ways, int trials, size_t* way) {
  std::vector<std::vector<double>> seconds(ways.size());
  if (ways.size() > 1) {
    for (const auto& run : ways) run();
  }
  for (int trial = 0; ways.size() > 1 && trial < trials; ++trial) {
    for (size_t i = 0; i < ways.size(); ++i) seconds[i].push_back(Time(ways[i], 1));
  }
  size_t best = 0;
  for (size_t i = 1; i < ways.size(); ++i) {
    if (Median(seconds[i]) < Median(seconds[best])) best = i;
  }
  if (way != nullptr) *way = best;
  return Add(std::move(ways[best]));
}

double Contest::Round() {
  for (Contender& contender : contenders_) {
    if (contender.repeats == 0) contender.repeats = WarmUp(contender.run);
  }
  for (Contender& contender : contenders_) {
    contender.seconds.push_back(Time(contender.run, contender.repeats));
  }
  return contenders_[0].seconds.back();
}

double Contest::MedianSeconds(int contender) const {
  return Median(contenders_[static_cast<size_t>(contender)].seconds);
}

void Report::Heading(const std::string& name, const std::string& columns) {
  if (table == name) return;
  table = name;
  std::printf("\n%s\n%s\n", name.c_str(), columns.c_str());
}

void Report::Error(const std::string& row, const absl::Status& status) {
  std::printf("%-22s %s\n", row.c_str(), status.ToString().c_str());
  summary["errors"].push_back(row + ": " + status.ToString());
  if (first_error.ok()) first_error = status;
}

}  // namespace runnel::bench
