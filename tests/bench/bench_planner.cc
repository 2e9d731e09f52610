// How good and how fast the plans of the policy `runnel` are, on random networks:
//
//   bench_planner [--small N] [--large N] [--boards N] [--restarts N] [--changes N] [--seed N]
//                 [--verbose]
//
// Small networks are compared with every placement there is, large ones and boards that are alike
// with the best of many climbs from random placements, all by simulation and by what a placement is
// charged. A gap is how much more runnel's plan is charged; gaps are told apart by schedule, where
// steps drain the pipeline (synchronous) and where they do not. One more board must not be charged
// more.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/partition/random_networks.h"
#include "tests/partition/slow_searches.h"

namespace runnel {
namespace {

struct Options {
  int64_t small = 150;
  int64_t large = 100;
  int64_t boards = 60;
  int64_t restarts = 40;
  int64_t changes = 400;
  int64_t seed = 1;
  bool verbose = false;
};

using Make = std::function<std::unique_ptr<RandomNetwork>(uint64_t seed)>;
using Reference = std::function<Placement(const PipelineModel& model, uint64_t seed)>;

struct Gaps {
  std::vector<double> synchronous;
  std::vector<double> asynchronous;
  double worst_over_policy = 0;  // charge over that of the best other policy
  double worst_period_over = 0;  // period over that policy's
  double worst_over_single = 0;  // period over device 0 alone
  int unplanned = 0;             // nothing fits, or nothing was found
  int unfound = 0;               // the reference has a placement, runnel none
  int found_alone = 0;           // the opposite
  double seconds = 0;            // of runnel, the longest
};

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::min(values.size() - 1, at > 0 ? at - 1 : 0)];
}

double SecondsOf(const std::function<void()>& act) {
  // Of the processor: others may run on this machine.
  const std::clock_t begin = std::clock();
  act();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

Placement InGivenOrder(const RandomNetwork& network, const Partition& partition) {
  Placement placement;
  const int devices = network.request.devices;
  for (int i = 0; i < devices; ++i) {
    placement.order.push_back(i);
    placement.caps.push_back(std::min<int64_t>(devices - i, network.model.max_cap));
  }
  placement.last_layer = partition.placement.last_layer;
  placement.codecs.assign(devices - 1, network.model.default_codec);
  return placement;
}

void CompareWithOthers(const RandomNetwork& network, double charged, double period, Gaps& gaps) {
  const PipelineModel& model = network.model;
  const Placement alone = {{0}, {model.layers() - 1}, {1}, {}};
  if (FitsMemory(model, alone)) {
    gaps.worst_over_single =
        std::max(gaps.worst_over_single, period / *SimulatedPeriod(model, alone));
  }
  if (network.request.devices > network.request.layers) return;
  for (const char* policy : {"uniform", "dp", "accept", "ftpipehd+"}) {
    const absl::StatusOr<Partition> partition = (*FindPolicy(policy))->plan(network.request);
    if (!partition.ok()) continue;
    const Placement placement = InGivenOrder(network, *partition);
    const double other = SimulatedCharge(model, placement);
    gaps.worst_over_policy = std::max(gaps.worst_over_policy, charged / other);
    if (std::isfinite(other)) {
      gaps.worst_period_over =
          std::max(gaps.worst_period_over, period / *SimulatedPeriod(model, placement));
    }
  }
}

Gaps Compare(const Options& options, int64_t count, const Make& make, const Reference& reference) {
  Gaps gaps;
  const PolicyRow& policy = **FindPolicy("runnel");
  for (int64_t i = 0; i < count; ++i) {
    const auto seed = static_cast<uint64_t>(options.seed + i);
    const std::unique_ptr<RandomNetwork> network = make(seed);
    absl::StatusOr<Partition> partition;
    const double seconds = SecondsOf([&] { partition = policy.plan(network->request); });
    gaps.seconds = std::max(gaps.seconds, seconds);
    const Placement best = reference(network->model, seed);
    const double least = best.order.empty() ? HUGE_VAL : SimulatedCharge(network->model, best);
    if (!partition.ok()) {
      ++gaps.unplanned;
      if (std::isfinite(least)) {
        ++gaps.unfound;
        std::printf("seed %d: %s: %s\n", static_cast<int>(seed), network->about.c_str(),
                    std::string(partition.status().message()).c_str());
      }
      continue;
    }
    const double charged = SimulatedCharge(network->model, partition->placement);
    CompareWithOthers(*network, charged, partition->bottleneck_seconds, gaps);
    if (!std::isfinite(least)) {
      ++gaps.found_alone;
      continue;
    }
    const double gap = charged / least - 1;
    (network->model.drain_every > 0 ? gaps.synchronous : gaps.asynchronous).push_back(gap);
    if (!options.verbose && gap < 0.02) continue;
    const auto text = [](const Placement& one) {
      return absl::StrCat("devices ", absl::StrJoin(one.order, ","), " cut ",
                          absl::StrJoin(one.last_layer, ","), " caps ",
                          absl::StrJoin(one.caps, ","), " codecs ", absl::StrJoin(one.codecs, ","));
    };
    std::printf("seed %d: gap %.2f %%, %.0f ms: %s\n   %s\n   %s\n", static_cast<int>(seed),
                gap * 100, seconds * 1e3, network->about.c_str(),
                text(partition->placement).c_str(), text(best).c_str());
  }
  return gaps;
}

void PrintGaps(const char* schedules, const std::vector<double>& gaps) {
  std::printf(
      "  gap, %s (%d): median %.3f %%, 99th percentile %.3f %%, worst %.3f %%, best %.3f %%\n",
      schedules, static_cast<int>(gaps.size()), Percentile(gaps, 0.5) * 100,
      Percentile(gaps, 0.99) * 100, Percentile(gaps, 1) * 100, Percentile(gaps, 0) * 100);
}

void Print(const char* name, const Gaps& gaps) {
  std::vector<double> all = gaps.synchronous;
  all.insert(all.end(), gaps.asynchronous.begin(), gaps.asynchronous.end());
  std::printf(
      "%s: %d networks; %d without a plan by runnel, %d of them have one; %d with a plan by "
      "runnel only\n",
      name, static_cast<int>(all.size()) + gaps.unplanned + gaps.found_alone, gaps.unplanned,
      gaps.unfound, gaps.found_alone);
  PrintGaps("all", all);
  PrintGaps("synchronous", gaps.synchronous);
  PrintGaps("asynchronous", gaps.asynchronous);
  std::printf(
      "  at most %.4f of what another policy's plan is charged; period at most %.4f of its, "
      "%.4f of device 0 alone\n",
      gaps.worst_over_policy, gaps.worst_period_over, gaps.worst_over_single);
  std::printf("  longest search %.0f ms\n", gaps.seconds * 1e3);
  std::fflush(stdout);
}

// Half of the boards are equal, the others as measurements tell equal ones apart.
double SpreadOf(uint64_t seed) { return seed % 2 == 0 ? 0 : 0.02; }

// One more board that is charged more than this has a line of its own.
constexpr double kNamed = 1.001;

double WorstOfOneMore(int64_t networks, uint64_t first_seed) {
  double worst = 0;
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(networks); ++seed) {
    double before = HUGE_VAL;
    for (int boards = 1; boards <= 7; ++boards) {
      const std::unique_ptr<RandomNetwork> network = MakeBoards(boards, SpreadOf(seed), seed);
      const absl::StatusOr<Partition> found = (*FindPolicy("runnel"))->plan(network->request);
      if (!found.ok()) continue;
      const double charged = SimulatedCharge(network->model, found->placement);
      if (charged > before * kNamed) {
        std::printf("seed %d: board %d is charged %.4f: %s\n", static_cast<int>(seed), boards,
                    charged / before, network->about.c_str());
      }
      worst = std::max(worst, charged / before);
      before = charged;
    }
  }
  return worst;
}

// Half of the layers are frozen, and links have nine codecs to choose from, each more bits.
void FreezeWithManyCodecs(RandomNetwork& network) {
  PipelineModel& model = network.model;
  model.frozen_front = model.layers() / 2;
  while (model.codecs.size() < 9) {
    CodecCost codec = model.codecs.front();
    codec.noise = 1e-3 * static_cast<double>(model.codecs.size());
    codec.lossy_directions = 2;
    codec.forward_works = codec.backward_works = true;
    for (int64_t& bytes : codec.down_bytes) bytes /= static_cast<int64_t>(model.codecs.size()) + 1;
    for (int64_t& bytes : codec.up_bytes) bytes /= static_cast<int64_t>(model.codecs.size()) + 1;
    model.codecs.push_back(codec);
  }
}

// The longest of some networks of this size.
double LongestSearch(int layers, int devices, int networks, uint64_t first_seed, bool is_hard) {
  double longest = 0;
  for (int i = 0; i < networks; ++i) {
    const std::unique_ptr<RandomNetwork> network =
        MakeNetwork(layers, devices, 16, first_seed + static_cast<uint64_t>(i));
    if (is_hard) FreezeWithManyCodecs(*network);
    double least = HUGE_VAL;
    for (int again = 0; again < 2; ++again) {
      least = std::min(least,
                       SecondsOf([&] { (void)(*FindPolicy("runnel"))->plan(network->request); }));
    }
    longest = std::max(longest, least);
  }
  return longest;
}

int64_t* NumberOf(const char* flag, Options& options) {
  const std::map<std::string, int64_t*> numbers = {
      {"--small", &options.small},     {"--large", &options.large},
      {"--boards", &options.boards},   {"--restarts", &options.restarts},
      {"--changes", &options.changes}, {"--seed", &options.seed}};
  const auto found = numbers.find(flag);
  return found == numbers.end() ? nullptr : found->second;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verbose") == 0) {
      options.verbose = true;
      continue;
    }
    int64_t* const number = NumberOf(argv[i], options);
    if (number == nullptr || i + 1 == argc || !absl::SimpleAtoi(argv[++i], number)) {
      std::fprintf(stderr, "bench_planner: %s: not known, or without a number\n", argv[i]);
      return 2;
    }
  }
  const Gaps small =
      Compare(options, options.small, MakeSmallNetwork,
              [](const PipelineModel& model, uint64_t) { return BestByTryingAll(model); });
  Print("small networks, against all placements", small);
  const Reference climbs = [&](const PipelineModel& model, uint64_t seed) {
    return BestOfRestarts(model, static_cast<int>(options.restarts),
                          static_cast<int>(options.changes), seed);
  };
  const Gaps large = Compare(options, options.large, MakeLargeNetwork, climbs);
  Print("large networks, against restarts", large);
  const Gaps boards = Compare(
      options, options.boards,
      [](uint64_t seed) {
        return MakeBoards(2 + static_cast<int>(seed % 6), SpreadOf(seed), seed);
      },
      climbs);
  Print("boards, against restarts", boards);
  std::printf("one more board is charged at most %.4f of what it was\n",
              WorstOfOneMore(options.boards, static_cast<uint64_t>(options.seed)));
  const auto print_longest = [](int layers, int devices, int networks, bool is_hard) {
    std::printf("longest search of %d networks, %d devices x %d layers%s: %.0f ms\n", networks,
                devices, layers, is_hard ? ", half of them frozen, nine codecs" : "",
                LongestSearch(layers, devices, networks, 1, is_hard) * 1e3);
    std::fflush(stdout);
  };
  print_longest(20, 3, 20, false);
  print_longest(200, 1000, 4, false);
  print_longest(20, 10, 20, false);
  print_longest(20, 8, 10, false);
  print_longest(20, 8, 5, true);
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Main(argc, argv); }
