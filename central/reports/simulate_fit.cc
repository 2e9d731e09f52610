#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/reports/simulate_table.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Speeds that are tried first, one after the other a factor apart, and how often the best ones are
// looked at more closely.
constexpr double kSlowest = 1.0 / 32;
constexpr double kFastest = 4;
constexpr int kCoarseSteps = 15;
constexpr size_t kRefined = 6;
constexpr int kRounds = 6;
// Published times repeat to about 10 %, and devices that share a pipeline have speeds within a
// factor of two or so: a departure by that factor counts like an error of 10 %. A column of four
// times would otherwise leave three speeds undetermined.
constexpr double kTimesRepeat = 0.1;
const double kSpeedsSpread = std::log(2.0);

struct Guess {
  std::vector<double> logs;  // of the speed of every group
  double error = std::numeric_limits<double>::infinity();
};

class Fit {
 public:
  Fit(ScenarioModel model, const std::vector<SimulatedMethod>& methods)
      : model_(std::move(model)), methods_(methods) {
    // Hosts of one kind share a speed.
    const Scenario& scenario = model_.scenario();
    group_.assign(scenario.hosts.size(), -1);
    for (size_t i = 0; i < group_.size(); ++i) {
      if (group_[i] >= 0) continue;
      group_[i] = groups_++;
      for (const std::vector<std::string>& kind : scenario.published.same_speed) {
        if (!Contains(kind, scenario.hosts[i].name)) continue;
        for (size_t j = i; j < group_.size(); ++j) {
          if (Contains(kind, scenario.hosts[j].name)) group_[j] = group_[i];
        }
      }
    }
  }

  absl::StatusOr<std::vector<double>> Run() {
    if (groups_ > 3) {
      return absl::InvalidArgumentError(absl::StrCat("scenario: speeds of ", groups_,
                                                     " kinds of hosts cannot be fitted; say in "
                                                     "same_speed which are alike"));
    }
    std::vector<Guess> guesses;
    const double step = std::log(kFastest / kSlowest) / (kCoarseSteps - 1);
    Guess centre;
    centre.logs.assign(groups_, (std::log(kFastest) + std::log(kSlowest)) / 2);
    RUNNEL_RETURN_IF_ERROR(TryAround(centre, step, kCoarseSteps / 2, guesses));
    Sort(guesses);
    guesses.resize(std::min(guesses.size(), kRefined));
    Guess best = guesses[0];
    for (const Guess& guess : guesses) {
      Guess nearest = guess;
      double width = step / 2;
      for (int round = 0; round < kRounds; ++round, width /= 2) {
        std::vector<Guess> around = {nearest};
        RUNNEL_RETURN_IF_ERROR(TryAround(nearest, width, 1, around));
        Sort(around);
        nearest = around[0];
      }
      if (nearest.error < best.error) best = nearest;
    }
    return Speeds(best);
  }

 private:
  static bool Contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  static void Sort(std::vector<Guess>& guesses) {
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Guess& a, const Guess& b) { return a.error < b.error; });
  }

  std::vector<double> Speeds(const Guess& guess) const {
    std::vector<double> speeds;
    for (int group : group_) speeds.push_back(std::exp(guess.logs[group]));
    return speeds;
  }

  // Every combination of -steps..steps widths about the centre.
  absl::Status TryAround(const Guess& centre, double width, int steps, std::vector<Guess>& out) {
    std::vector<int> offsets(groups_, -steps);
    while (true) {
      Guess guess = centre;
      for (int g = 0; g < groups_; ++g) guess.logs[g] += offsets[g] * width;
      RUNNEL_ASSIGN_OR_RETURN(guess.error, Error(guess));
      out.push_back(std::move(guess));
      int g = 0;
      while (g < groups_ && ++offsets[g] > steps) offsets[g++] = -steps;
      if (g == groups_) return absl::OkStatus();
    }
  }

  absl::StatusOr<double> Error(const Guess& guess) {
    model_.SetSpeeds(Speeds(guess));
    const PublishedTimes& published = model_.scenario().published;
    double error = 0;
    for (const auto& [name, minutes] : published.minutes) {
      for (const SimulatedMethod& method : methods_) {
        if (method.name != name) continue;
        RUNNEL_ASSIGN_OR_RETURN(const double seconds,
                                model_.BoundSecondsPerBatch(method, published.fit_mbps));
        for (size_t i = 0; i < minutes.size(); ++i) {
          if (published.mbps[i] != published.fit_mbps) continue;
          const double simulated = seconds * static_cast<double>(published.steps) / 60;
          const double log_ratio = std::log(simulated / minutes[i]);
          error += log_ratio * log_ratio;
        }
      }
    }
    return error + Departure(guess);
  }

  static double Departure(const Guess& guess) {
    double mean = 0;
    for (double log : guess.logs) mean += log / static_cast<double>(guess.logs.size());
    double squares = 0;
    for (double log : guess.logs) squares += (log - mean) * (log - mean);
    return squares * (kTimesRepeat / kSpeedsSpread) * (kTimesRepeat / kSpeedsSpread);
  }

  ScenarioModel model_;
  const std::vector<SimulatedMethod>& methods_;
  std::vector<int> group_;  // by host
  int groups_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<double>> FitSpeeds(ScenarioModel model,
                                              const std::vector<SimulatedMethod>& methods) {
  return Fit(std::move(model), methods).Run();
}

}  // namespace runnel
