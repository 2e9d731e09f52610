#include "tests/sim/cluster/scenario.h"

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Words = std::vector<std::string>;
using ReadFn = std::function<absl::Status(const Words&, Scenario&)>;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<double> Number(const std::string& word, double least, double most) {
  double value = 0;
  if (!absl::SimpleAtod(word, &value) || !(value >= least && value <= most))
    return Bad(absl::StrCat("'", word, "' is no number from ", least, " to ", most));
  return value;
}

template <typename Value>
ReadFn Whole(Value Scenario::*field, double least, double most) {
  return [=](const Words& words, Scenario& scenario) -> absl::Status {
    if (words.size() != 2) return Bad(absl::StrCat(words[0], " wants one number"));
    RUNNEL_ASSIGN_OR_RETURN(const double value, Number(words[1], least, most));
    if (value != static_cast<double>(static_cast<int64_t>(value)))
      return Bad(absl::StrCat(words[0], " wants a whole number, not ", words[1]));
    scenario.*field = static_cast<Value>(value);
    return absl::OkStatus();
  };
}

ReadFn Real(double Scenario::*field, double least, double most) {
  return [=](const Words& words, Scenario& scenario) -> absl::Status {
    if (words.size() != 2) return Bad(absl::StrCat(words[0], " wants one number"));
    RUNNEL_ASSIGN_OR_RETURN(scenario.*field, Number(words[1], least, most));
    return absl::OkStatus();
  };
}

// "0.5" or "0.5..2".
absl::StatusOr<SpanOf> ParseSpan(const std::string& word, double most) {
  const std::vector<std::string> ends = absl::StrSplit(word, absl::MaxSplits("..", 1));
  SpanOf span;
  RUNNEL_ASSIGN_OR_RETURN(span.least, Number(ends.front(), 0, most));
  RUNNEL_ASSIGN_OR_RETURN(span.most, Number(ends.back(), 0, most));
  if (span.most < span.least)
    return Bad(absl::StrCat("'", word, "': the ends are the wrong way round"));
  return span;
}

ReadFn Span(SpanOf Scenario::*field, double most) {
  return [=](const Words& words, Scenario& scenario) -> absl::Status {
    if (words.size() != 2) return Bad(absl::StrCat(words[0], " wants a span, such as 0.5..2"));
    RUNNEL_ASSIGN_OR_RETURN(scenario.*field, ParseSpan(words[1], most));
    return absl::OkStatus();
  };
}

ReadFn Choice(bool Scenario::*field, std::string yes, std::string no) {
  return [=](const Words& words, Scenario& scenario) -> absl::Status {
    if (words.size() != 2 || (words[1] != yes && words[1] != no))
      return Bad(absl::StrCat(words[0], " is ", yes, " or ", no));
    scenario.*field = words[1] == yes;
    return absl::OkStatus();
  };
}

// fault KIND TARGET [every=SPAN] [for=SPAN] [most=N]
absl::Status ReadFault(const Words& words, Scenario& scenario) {
  static const auto* const kKinds = new std::map<std::string, FaultKind>{
      {"crash", FaultKind::kCrash},         {"freeze", FaultKind::kFreeze},
      {"partition", FaultKind::kPartition}, {"break", FaultKind::kBreak},
      {"drain", FaultKind::kDrain},         {"disk_full", FaultKind::kDiskFull},
      {"disk_rot", FaultKind::kDiskRot},    {"cut_link", FaultKind::kCutLink}};
  if (words.size() < 3) return Bad("fault wants a kind and a target");
  FaultSpec fault;
  const auto kind = kKinds->find(words[1]);
  if (kind == kKinds->end()) {
    return Bad(absl::StrCat("no fault is called '", words[1], "'; there are ",
                            absl::StrJoin(*kKinds, ", ", [](std::string* out, const auto& one) {
                              out->append(one.first);
                            })));
  }
  fault.kind = kind->second;
  fault.target = words[2];
  const bool at_central = fault.kind == FaultKind::kDiskFull || fault.kind == FaultKind::kDiskRot;
  const bool fits = at_central ? fault.target == "central"
                               : fault.target == "worker" || fault.target == "any" ||
                                     ((fault.target == "local" || fault.target == "central") &&
                                      fault.kind != FaultKind::kDrain);
  if (!fits) return Bad(absl::StrCat(words[1], " does not happen to '", fault.target, "'"));
  for (size_t i = 3; i < words.size(); ++i) {
    const std::vector<std::string> pair = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (pair.size() == 2 && pair[0] == "every") {
      RUNNEL_ASSIGN_OR_RETURN(fault.every_s, ParseSpan(pair[1], 1000));
    } else if (pair.size() == 2 && pair[0] == "for") {
      RUNNEL_ASSIGN_OR_RETURN(fault.for_s, ParseSpan(pair[1], 1000));
    } else if (pair.size() == 2 && pair[0] == "most") {
      RUNNEL_ASSIGN_OR_RETURN(const double most, Number(pair[1], 1, 1000));
      fault.most = static_cast<int>(most);
    } else {
      return Bad(absl::StrCat("'", words[i], "' is not every=, for= or most="));
    }
  }
  scenario.faults.push_back(std::move(fault));
  return absl::OkStatus();
}

absl::Status ReadMeasuresFirst(const Words& words, Scenario& scenario) {
  using First = Scenario::First;
  static const auto* const kFirst = new std::map<std::string, First>{
      {"no", First::kNothing}, {"layers", First::kLayers}, {"ranges", First::kRanges}};
  const auto found = kFirst->find(words.size() == 2 ? words[1] : "");
  if (found == kFirst->end()) return Bad("measures_first is no, layers or ranges");
  scenario.measures_first = found->second;
  return absl::OkStatus();
}

absl::Status ReadExpectation(const Words& words, Scenario& scenario) {
  if (words.size() < 2) return Bad("expect_error wants a part of the error's text");
  scenario.expected_errors.push_back(absl::StrJoin(words.begin() + 1, words.end(), " "));
  return absl::OkStatus();
}

const std::map<std::string, ReadFn>& Lines() {
  static const auto* const kLines = new std::map<std::string, ReadFn>{
      {"workers", Whole(&Scenario::workers, 0, 64)},
      {"locals", Whole(&Scenario::locals, 1, 4)},
      {"spares", Whole(&Scenario::spares, 0, 16)},
      {"behind", Whole(&Scenario::behind, 0, 16)},
      {"sites", Whole(&Scenario::sites, 0, 16)},
      {"layers", Whole(&Scenario::layers, 1, 64)},
      {"schedule", Choice(&Scenario::sync, "sync", "async")},
      {"clips", Choice(&Scenario::clips, "yes", "no")},
      {"micro_batches", Whole(&Scenario::micro_batches, 1, 16)},
      {"batch", Whole(&Scenario::batch, 1, 64)},
      {"samples", Whole(&Scenario::samples, 1, 100000)},
      {"steps", Whole(&Scenario::steps, 1, 100000)},
      {"barrier", Whole(&Scenario::barrier, 1, 1000)},
      {"replicate", Whole(&Scenario::replicate, -1, 100)},
      {"checkpoints", Choice(&Scenario::checkpoints, "yes", "no")},
      {"evaluates", Choice(&Scenario::evaluates, "yes", "no")},
      {"loses_nothing", Choice(&Scenario::loses_nothing, "yes", "no")},
      {"extra_cap", Whole(&Scenario::extra_cap, 0, 8)},
      {"latency_ms", Span(&Scenario::latency_ms, 10000)},
      {"state_ms", Real(&Scenario::state_ms, 0, 100000)},
      {"replica_ms", Real(&Scenario::replica_ms, 0, 100000)},
      {"compute_ms", Span(&Scenario::compute_ms, 100000)},
      {"workshop_ms", Span(&Scenario::workshop_ms, 100000)},
      {"disk_ms", Span(&Scenario::disk_ms, 100000)},
      {"damage_one_in", Whole(&Scenario::damage_one_in, 0, 1e9)},
      {"moves", Real(&Scenario::moves, 0, 1)},
      {"measures", Real(&Scenario::measures, 0, 1)},
      {"measures_first", ReadMeasuresFirst},
      {"needs", Whole(&Scenario::needs, 1, 32)},
      {"measure_fails", Real(&Scenario::measure_fails, 0, 1)},
      {"liveness_s", Real(&Scenario::liveness_s, 1, 100000)},
      {"fault", ReadFault},
      {"expect_error", ReadExpectation}};
  return *kLines;
}

absl::Status CheckWhole(const Scenario& scenario) {
  if (scenario.micro_batches > scenario.batch)
    return Bad("micro_batches: a micro-batch needs a sample of the batch");
  if (!scenario.sync && scenario.micro_batches != 1)
    return Bad("schedule async: micro_batches is 1");
  if (!scenario.sync && scenario.clips) return Bad("schedule async: clips is no");
  if (scenario.behind > scenario.workers) return Bad("behind: so many of workers, at most");
  if (scenario.needs > scenario.locals + scenario.workers)
    return Bad("needs: so many of locals and workers, at most");
  for (const FaultSpec& fault : scenario.faults) {
    if (fault.target == "worker" && scenario.workers == 0)
      return Bad("a fault happens to a worker, and workers is 0");
    if (fault.target == "central" && fault.kind == FaultKind::kCrash && !scenario.checkpoints)
      return Bad("central crashes: it goes on from check-points only, so checkpoints is yes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Scenario> ParseScenario(absl::string_view name, absl::string_view text) {
  Scenario scenario;
  scenario.name = std::string(name);
  int number = 0;
  const auto at = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":", number, ": ", status.message()));
  };
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const Words words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const auto found = Lines().find(words[0]);
    if (found == Lines().end()) {
      return at(
          Bad(absl::StrCat("no line begins with '", words[0], "'; there are ",
                           absl::StrJoin(Lines(), ", ", [](std::string* out, const auto& one) {
                             out->append(one.first);
                           }))));
    }
    if (const absl::Status read = found->second(words, scenario); !read.ok()) return at(read);
  }
  if (const absl::Status whole = CheckWhole(scenario); !whole.ok()) return at(whole);
  return scenario;
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  const std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseScenario(path, text.str());
}

}  // namespace runnel
