#pragma once

// What the parts of bench_kernels share: options, the clock, contests in which ours and the peers
// take turns, and the summary. One thread unless --threads says otherwise.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace runnel::bench {

struct Options {
  std::vector<std::string> only = {"gemm", "conv", "step", "scaling"};
  std::vector<std::string> models;  // empty: all
  std::string backend = "cpu";      // of our training steps
  std::string summary;
  int threads = 1;
  int rounds = 7;  // of products and convolutions
  int steps = 3;   // rounds of training steps

  bool Has(const std::string& part) const;
  bool HasModel(const std::string& model) const;
};

// Seconds of CPU time of this process. With more than one thread wall-clock time, since CPU time
// would add the threads up.
double Seconds(int threads);
double WallSeconds();
double Median(std::vector<double> values);

// Contenders that take turns, A B C A B C ..., so that slow phases of a shared machine hit all.
class Contest {
 public:
  // Each turn repeats a contender until it takes about `turn_seconds`.
  Contest(int threads, double turn_seconds) : threads_(threads), turn_seconds_(turn_seconds) {}

  int Add(std::function<void()> run);
  // Adds the fastest of some ways to do the same, by so many trials of each, and says which it was.
  int AddFastest(std::vector<std::function<void()>> ways, int trials = 3, size_t* way = nullptr);
  // One turn of each, after a warm-up in the first round. Returns the seconds of a single run of
  // contender 0.
  double Round();
  // Of a single run.
  double MedianSeconds(int contender) const;

 private:
  struct Contender {
    std::function<void()> run;
    int64_t repeats = 0;  // 0: not known yet
    std::vector<double> seconds;
  };
  double Time(const std::function<void()>& run, int64_t repeats) const;
  int64_t WarmUp(const std::function<void()>& run) const;

  int threads_;
  double turn_seconds_;
  std::vector<Contender> contenders_;
};

// Filled by the parts, in the order in which they run.
struct Report {
  Options options;
  nlohmann::json summary;
  absl::Status first_error;  // of any row; the others run all the same
  std::string table;         // whose heading was printed last

  // Prints the heading of a table once, before its first row.
  void Heading(const std::string& name, const std::string& columns);
  void Error(const std::string& row, const absl::Status& status);
};

// Each part registers its rows with Google Benchmark, one benchmark a row, one iteration a round.
// `report` outlives the run.
void RegisterGemm(Report& report);
void RegisterConv(Report& report);
void RegisterSteps(Report& report);
void RegisterScaling(Report& report);

}  // namespace runnel::bench
