#include "tests/sim/cluster/drawn_scenario.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

// As a stream of draws no history has it.
constexpr uint64_t kScenarioDraws = 99;

class Draws {
 public:
  explicit Draws(uint64_t number) : random_(number, RandomPurpose::kTest, kScenarioDraws, 0) {}
  int64_t Between(int64_t least, int64_t most) {
    return least + random_.Below(count_++, static_cast<uint32_t>(most - least + 1));
  }
  bool Happens(double share) { return random_.Uniform(count_++) < share; }
  double Share(double most) { return Happens(0.5) ? 0 : random_.Uniform(count_++) * most; }
  // As many are small as are large. Now and then both ends are one, so that events meet.
  std::string Span(double least, double most) {
    double a = Decades(least, most), b = Decades(least, most);
    if (a > b) std::swap(a, b);
    if (Happens(0.2)) a = b;
    return absl::StrFormat("%.3g..%.3g", a, b);
  }
  double Decades(double least, double most) {
    return least * std::pow(most / least, random_.Uniform(count_++));
  }
  template <typename Value>
  const Value& OneOf(const std::vector<Value>& values) {
    return values[static_cast<size_t>(Between(0, static_cast<int64_t>(values.size()) - 1))];
  }

 private:
  const CounterRandom random_;
  uint64_t count_ = 0;
};

struct Fault {
  const char* kind;
  std::vector<std::string> targets;
  double longest_s;
};

const std::vector<Fault>& Faults() {
  static const auto* const kFaults =
      new std::vector<Fault>{{"crash", {"worker", "any", "local", "central"}, 4},
                             {"freeze", {"worker", "any", "local", "central"}, 12},
                             {"partition", {"worker", "any", "local", "central"}, 9},
                             {"cut_link", {"worker", "any", "central"}, 9},
                             {"break", {"worker", "any", "central"}, 1},
                             {"drain", {"worker", "any"}, 2},
                             {"disk_full", {"central"}, 2},
                             {"disk_rot", {"central"}, 0.1}};
  return *kFaults;
}

class Text {
 public:
  template <typename... Words>
  void Line(const Words&... words) {
    absl::StrAppend(&text_, words..., "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

struct Members {
  int64_t locals, workers;
  bool checkpoints, needs_all;
};

void DrawFaults(const Members& members, Draws& draws, Text& text) {
  for (const Fault& fault : Faults()) {
    if (!draws.Happens(0.45)) continue;
    const std::string& target = draws.OneOf(fault.targets);
    const std::string kind = fault.kind;
    const bool crashes_central = kind == "crash" && target == "central";
    // Whoever leaves is missed for good where all are needed.
    const bool fits = (target != "worker" || members.workers > 0) &&
                      !(crashes_central && !members.checkpoints) &&
                      !(kind == "drain" && members.needs_all);
    const std::string every = draws.Span(0.05, 3), lasts = draws.Span(0.05, fault.longest_s);
    const int64_t most = draws.Between(1, 6);
    if (fits)
      text.Line("fault ", kind, " ", target, " every=", every, " for=", lasts, " most=", most);
  }
}

void DrawTimes(Draws& draws, Text& text) {
  text.Line("latency_ms ", draws.OneOf<std::string>({"1..1", draws.Span(0.1, 2),
                                                     draws.Span(0.1, 40), draws.Span(0.1, 200)}));
  text.Line("state_ms ", draws.Happens(0.3) ? 0 : draws.Decades(1, 1500));
  text.Line("replica_ms ", draws.Happens(0.3) ? 0 : draws.Decades(1, 500));
  text.Line("compute_ms ", draws.Span(0.01, 20));
  text.Line("workshop_ms ", draws.Span(0.1, 200));
  text.Line("disk_ms ", draws.Span(0.1, 300));
  if (draws.Happens(0.3)) text.Line("damage_one_in ", draws.Between(300, 5000));
  text.Line("liveness_s 2000");
}

// Returns whether a measurement may fail.
bool DrawBarriers(bool checkpoints, Draws& draws, Text& text) {
  text.Line("barrier ", draws.Between(1, 8));
  text.Line("replicate ", draws.OneOf<int64_t>({-1, 0, 1, 1, 2, 3}));
  text.Line("checkpoints ", checkpoints ? "yes" : "no");
  text.Line("evaluates ", draws.Happens(0.3) ? "yes" : "no");
  text.Line("moves ", draws.Share(0.5));
  text.Line("measures ", draws.Share(0.4));
  text.Line("measures_first ", draws.OneOf<std::string>({"no", "layers", "ranges"}));
  const double fails = draws.Share(0.4);
  text.Line("measure_fails ", fails);
  // Where the only worker on central's host fails there is no plan.
  if (fails > 0) text.Line("expect_error the device was too busy to measure");
  return fails > 0;
}

}  // namespace

std::string DrawnText(uint64_t number) {
  Draws draws(number);
  Text text;
  Members members;
  members.locals = draws.OneOf<int64_t>({1, 1, 1, 2, 3});
  members.workers = draws.Between(members.locals > 1 ? 0 : 1, 6);
  members.checkpoints = draws.Happens(0.5);
  text.Line("locals ", members.locals);
  text.Line("workers ", members.workers);
  text.Line("spares ", draws.Happens(0.3) ? draws.Between(1, 2) : 0);
  text.Line("behind ",
            draws.Happens(0.25) ? draws.Between(0, std::min<int64_t>(2, members.workers)) : 0);
  text.Line("layers ", draws.Between(2, 12));
  const bool sync = draws.Happens(0.6);
  const int64_t micro_batches = sync ? draws.Between(1, 4) : 1;
  text.Line("schedule ", sync ? "sync" : "async");
  text.Line("micro_batches ", micro_batches);
  text.Line("extra_cap ", draws.Happens(0.3) ? draws.Between(1, 3) : 0);
  text.Line("batch ", draws.Between(micro_batches, 8));
  text.Line("samples ", draws.Between(8, 60));
  text.Line("steps ", draws.Between(8, 50));
  const bool fails = DrawBarriers(members.checkpoints, draws, text);
  // How many workers a plan needs; who failed is missed for good.
  members.needs_all = draws.Happens(0.3) && !fails;
  text.Line("needs ", members.needs_all ? members.locals + members.workers : 1);
  DrawTimes(draws, text);
  DrawFaults(members, draws, text);
  text.Line("sites ", draws.Happens(0.5) ? draws.Between(1, 3) : 0);
  text.Line("clips ", sync && draws.Happens(0.3) ? "yes" : "no");
  return text.Take();
}

Scenario DrawScenario(uint64_t number) {
  return ParseScenario(absl::StrCat("drawn ", number), DrawnText(number)).value();
}

}  // namespace runnel
