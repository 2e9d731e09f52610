// runnel-sim: histories of a simulated cluster, each a function of its seed.

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "tests/sim/cluster/drawn_scenario.h"
#include "tests/sim/cluster/history.h"

namespace {

struct Arguments {
  std::vector<std::string> scenarios;
  uint64_t drawn = 0;
  uint64_t first_drawn = 1;
  uint64_t seed = 1;
  uint64_t seeds = 1;
  std::string bug;
  bool verbose = false;
};

// The scenario's histories; false: a rule was broken.
bool RunAll(const std::string& path, const runnel::Scenario& scenario, const std::string& flags,
            const Arguments& arguments, runnel::PlantedBug bug) {
  const auto begin = std::chrono::steady_clock::now();
  runnel::History sums;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.seeds; ++seed) {
    const runnel::History history = runnel::RunHistory(scenario, seed, bug, arguments.verbose);
    if (arguments.verbose) std::fputs(history.log.c_str(), stdout);
    if (!history.violation.empty()) {
      std::printf("%s seed %llu: %s\nagain: runnel-sim %s --seed %llu%s --verbose\n", path.c_str(),
                  static_cast<unsigned long long>(seed), history.violation.c_str(), flags.c_str(),
                  static_cast<unsigned long long>(seed),
                  arguments.bug.empty() ? "" : (" --bug " + arguments.bug).c_str());
      return false;
    }
    sums.digest = sums.digest * 31 + history.digest;
    sums.virtual_s += history.virtual_s;
    sums.faults += history.faults;
    sums.losses += history.losses;
    sums.recoveries += history.recoveries;
    sums.plans += history.plans;
    sums.commits += history.commits;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%s: %llu histories, %.1f/s, %.0f virtual s, %lld faults, %lld losses, %lld recoveries, "
      "%lld plans, %lld commits, digest %016llx\n",
      path.c_str(), static_cast<unsigned long long>(arguments.seeds),
      static_cast<double>(arguments.seeds) / seconds, sums.virtual_s,
      static_cast<long long>(sums.faults), static_cast<long long>(sums.losses),
      static_cast<long long>(sums.recoveries), static_cast<long long>(sums.plans),
      static_cast<long long>(sums.commits), static_cast<unsigned long long>(sums.digest));
  return true;
}

bool RunDrawn(const Arguments& arguments, runnel::PlantedBug bug) {
  bool is_whole = true;
  for (uint64_t i = 0; i < arguments.drawn; ++i) {
    const uint64_t number = arguments.first_drawn + i;
    const std::string flags = absl::StrCat("--drawn 1 --first-drawn ", number);
    if (arguments.verbose) std::fputs(runnel::DrawnText(number).c_str(), stdout);
    is_whole &=
        RunAll(absl::StrCat("drawn ", number), runnel::DrawScenario(number), flags, arguments, bug);
  }
  return is_whole;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Simulates whole clusters: production code over virtual time and a virtual network");
  app.add_option("--scenario", arguments.scenarios, "scenario files");
  app.add_option("--drawn", arguments.drawn, "so many drawn scenarios");
  app.add_option("--first-drawn", arguments.first_drawn, "number of the first one");
  app.add_option("--seed", arguments.seed, "the first seed");
  app.add_option("--seeds", arguments.seeds, "histories of each scenario");
  app.add_option("--bug", arguments.bug, "plant a bug (planted_bugs.h)");
  app.add_flag("--verbose", arguments.verbose, "print what happens");
  CLI11_PARSE(app, argc, argv);
  auto bug = runnel::PlantedBug::kNone;
  if (!arguments.bug.empty()) {
    const auto found = runnel::FindPlantedBug(arguments.bug);
    if (!found.has_value()) {
      std::fprintf(stderr, "--bug %s: no such bug; planted_bugs.h lists them\n",
                   arguments.bug.c_str());
      return 2;
    }
    bug = *found;
  }
  for (const std::string& path : arguments.scenarios) {
    const absl::StatusOr<runnel::Scenario> scenario = runnel::ReadScenario(path);
    if (!scenario.ok()) {
      std::fprintf(stderr, "--scenario %s\n", std::string(scenario.status().message()).c_str());
      return 2;
    }
    if (!RunAll(path, *scenario, "--scenario " + path, arguments, bug)) return 1;
  }
  return RunDrawn(arguments, bug) ? 0 : 1;
}
