// Scenario files and what `simulate` makes of them.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "central/reports/scenario_file.h"
#include "central/reports/simulate_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "predictor/profiles/profile_folder.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel::scenario_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Released(absl::string_view name) {
  return absl::StrCat(RUNNEL_SOURCE_DIR, "/deploy/lab/scenarios/", name, ".json");
}

SimulateOptions Options() {
  return {.policies = {},
          .mbps = {},
          .codecs = {"eden:8/eden:8", "eden:6/eden:4", "eden:4/eden:4", "eden:2/eden:4"},
          .profiles = {absl::StrCat(RUNNEL_SOURCE_DIR, "/predictor/profiles"), "mixture"}};
}

TEST(Scenario, ReleasedOnesAreRightAndCanBePlanned) {
  for (const char* name : {"accept-1", "accept-3", "three-pis", "mixed-2", "four-backends"}) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Scenario> scenario = ReadScenario(Released(name));
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    const absl::StatusOr<ScenarioModel> model = ScenarioModel::Create(*scenario, Options());
    ASSERT_TRUE(model.ok()) << model.status();
    double accept = 0;
    for (const SimulatedMethod& method : MethodsFor(model->DefaultPolicies())) {
      const absl::StatusOr<SimulatedCell> cell = model->Run(method, 1);
      ASSERT_TRUE(cell.ok()) << cell.status();
      EXPECT_GT(cell->seconds_per_batch, 0);
      EXPECT_LE(cell->efficiency, 1 + 1e-6);
      for (double share : cell->busy_share) EXPECT_LE(share, 1);
      for (double share : cell->link_share) EXPECT_LE(share, 1);
      if (method.policy.rfind("accept", 0) == 0) accept = cell->seconds_per_batch;
      // Steady, accept's plan is one that runnel could have; between barriers it may pay more for
      // filling deeper pipelines.
      if (method.name == "runnel") {
        EXPECT_LE(cell->seconds_per_batch, accept * 1.05);
      }
    }
  }
}

TEST(Scenario, TheLabsAreKnownByName) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(RUNNEL_SOURCE_DIR, "/deploy/lab/scenarios"))) {
    files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(ScenarioNames(), files);
  for (const std::string& name : files) {
    const absl::StatusOr<Scenario> builtin = FindScenario(name);
    ASSERT_TRUE(builtin.ok()) << builtin.status();
    EXPECT_EQ(builtin->name, ReadScenario(Released(name))->name);
    EXPECT_EQ(builtin->hosts.size(), ReadScenario(Released(name))->hosts.size());
  }
  EXPECT_TRUE(FindScenario(Released("accept-1")).ok());
  const absl::Status unknown = FindScenario("accept-9").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("scenario accept-9: is no file and none of accept-1, accept-2"));
}

void ExpectKeysIn(const Json& json, const std::string& description) {
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) {
      EXPECT_THAT(description, HasSubstr(absl::StrCat("\"", key, "\": ")));
    }
    if (value.is_structured()) ExpectKeysIn(value, description);
  }
}

TEST(Scenario, TheDescriptionNamesEveryKey) {
  for (const char* name : {"mixed-1", "accept-3", "four-backends", "radio-boards"}) {
    const absl::StatusOr<std::string> text = ReadWholeFile(Released(name), 1 << 20);
    ASSERT_TRUE(text.ok());
    ExpectKeysIn(*ParseJson(*text), kScenarioFormat);
  }
}

TEST(Methods, NamedOnesPoliciesAndAblations) {
  const auto names = [](const std::vector<std::string>& asked) {
    std::vector<std::string> names;
    for (const SimulatedMethod& method : MethodsFor(asked)) names.push_back(method.name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"ftpipehd", "accept", "runnel"}),
            (Names{"ftpipehd", "compression", "predictor", "accept", "runnel"}));
  EXPECT_EQ(names({"accept", "uniform"}), (Names{"accept", "uniform"}));
  EXPECT_EQ(names({"ftpipehd", "predictor", "accept"}),
            (Names{"ftpipehd", "predictor", "compression", "accept"}));
  EXPECT_EQ(names({"ftpipehd", "accept", "measured_compression"}),
            (Names{"ftpipehd", "compression", "predictor", "accept", "measured",
                   "measured_compression"}));
  EXPECT_EQ(TrainFlags(MethodsFor({"compression"})[0]),
            (Names{"--policy", "ftpipehd", "--codec-forward", "mbq:2", "--codec-backward",
                   "stochastic:8"}));
  EXPECT_EQ(TrainFlags(MethodsFor({"runnel"})[0]),
            (Names{"--policy", "runnel", "--bits", "bandwidth"}));
}

TEST(Scenario, EveryMistakeIsNamed) {
  const absl::StatusOr<std::string> good = ReadWholeFile(Released("three-pis"), 1 << 20);
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(ScenarioFromJson(*good).ok());
  const std::pair<std::string, std::pair<std::string, std::string>> mistakes[] = {
      {"twice", {"\"pi-1\"", "\"pi-0\""}},
      {"profile 'none'", {"\"profile\": \"cpu-1\"", "\"profile\": \"none\""}},
      {"duplex 'twice'", {"\"full\"", "\"twice\""}},
      {"batch_size 0", {"\"batch_size\": 64,\n    \"micro", "\"batch_size\": 0,\n    \"micro"}},
      {"speed must be above 0", {"\"speed\": 0.4", "\"speed\": 0"}},
      {"cpu_quota", {"\"cpu_quota\": 0.4", "\"cpu_quota\": -1"}},
      {"host 'x' is not there", {"\"to\": \"*\"", "\"to\": \"x\""}},
      {"bandwidths", {"\"up_mbps\": 4", "\"up_mbps\": -4"}},
      {"shares", {"\"forward_share\": 0.333", "\"forward_share\": 0.9"}},
      {"colour", {"\"name\": \"pi-0\"", "\"colour\": 1, \"name\": \"pi-0\""}},
      {"delay_ms", {"\"delay_ms\": 0", "\"delay\": 0"}},
      {"backend", {"\"name\": \"pi-0\"", "\"name\": \"pi-0\", \"backend\": 3"}},
      {"either layer_ms or device_profile", {"1.527, 7.686, 1.348, 1.835, 0.01429", ""}},
      {"either layer_ms or device_profile",
       {"\"about\": \"backend", "\"device_profile\": \"x\", \"about\": \"backend"}},
  };
  for (const auto& [text, change] : mistakes) {
    const std::string bad = absl::StrReplaceAll(*good, {change});
    ASSERT_NE(bad, *good) << text;
    const absl::Status status = ScenarioFromJson(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
  EXPECT_EQ(ReadScenario("/nowhere/x.json").status().code(), absl::StatusCode::kNotFound);
  // What follows a key that is missing is read all the same.
  const absl::StatusOr<std::string> published = ReadWholeFile(Released("accept-1"), 1 << 20);
  ASSERT_THAT(*published, HasSubstr("\"published\""));
  const absl::Status no_about =
      ScenarioFromJson(absl::StrReplaceAll(*published, {{"\"about\"", "\"abuot\""}})).status();
  EXPECT_THAT(no_about.message(), HasSubstr("about"));
  EXPECT_FALSE(ScenarioFromJson("[]").ok());
  EXPECT_FALSE(ScenarioFromJson("{").ok());
}

TEST(Scenario, LinksGoBothWays) {
  absl::StatusOr<Scenario> scenario = ReadScenario(Released("three-pis"));
  ASSERT_TRUE(scenario.ok());
  scenario->links = {{"*", "*", LinkRate::Mbps(4), LinkRate::Mbps(2), 1},
                     {"pi-2", "pi-0", LinkRate::Mbps(8), LinkRate::Mbps(1), 0}};
  const std::vector<std::vector<LinkSpeed>> speeds = SpeedsBetween(*scenario);
  EXPECT_EQ(speeds[0][1].rate.mbps(), 4);
  EXPECT_EQ(speeds[1][0].rate.mbps(), 2);
  EXPECT_EQ(speeds[0][1].delay_seconds, 1e-3);
  EXPECT_EQ(speeds[2][0].rate.mbps(), 8);
  EXPECT_EQ(speeds[0][2].rate.mbps(), 1);
  EXPECT_EQ(speeds[0][2].medium, -1);
  scenario->half_duplex = true;
  const std::vector<std::vector<LinkSpeed>> half = SpeedsBetween(*scenario);
  EXPECT_GE(half[0][1].medium, 0);
  EXPECT_EQ(half[0][1].medium, half[1][0].medium);
  EXPECT_NE(half[0][1].medium, half[0][2].medium);
}

TEST(Scenario, HostsOfAMediumShareItsAir) {
  const absl::StatusOr<std::string> text = ReadWholeFile(Released("three-pis"), 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto with = [&](const std::string& media) {
    return ScenarioFromJson(absl::StrReplaceAll(
        *text, {{"\"profiles\":", absl::StrCat("\"media\": ", media, ", \"profiles\":")}}));
  };
  const absl::StatusOr<Scenario> scenario = with(
      R"([{"name": "wifi", "hosts": ["pi-1", "pi-2"], "mbps": 20, "delay_ms": 5,
           "access_point": true}])");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const std::vector<std::vector<LinkSpeed>> speeds = SpeedsBetween(*scenario);
  EXPECT_EQ(speeds[0][1].medium, -1);
  EXPECT_EQ(speeds[1][2].medium, speeds[2][1].medium);
  EXPECT_GE(speeds[1][2].medium, 0);
  EXPECT_EQ(speeds[1][2].hops, 2);
  EXPECT_EQ(speeds[1][2].rate.mbps(), 20);
  EXPECT_EQ(speeds[1][2].delay_seconds, 5e-3);
  EXPECT_DOUBLE_EQ(speeds[2][1].SendSeconds(1e6), 0.8);
  const std::pair<std::string, std::string> mistakes[] = {
      {R"([{"name": "w", "hosts": ["x"], "mbps": 1, "delay_ms": 0, "access_point": false}])",
       "host 'x' is not there"},
      {R"([{"name": "w", "hosts": [], "mbps": 1, "delay_ms": 0, "access_point": false}])",
       "no hosts"},
      {R"([{"name": "w", "hosts": ["*"], "mbps": 0, "delay_ms": 0, "access_point": false}])",
       "mbps must be above 0"},
      {R"([{"name": "w", "hosts": ["*"], "mbps": 1, "delay_ms": 0}])", "access_point"},
  };
  for (const auto& [media, why] : mistakes) {
    EXPECT_THAT(std::string(with(media).status().message()), HasSubstr(why));
  }
}

TEST(Scenario, HostsOfAMachineShareItsProcessors) {
  const absl::StatusOr<std::string> text = ReadWholeFile(Released("three-pis"), 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto with = [&](const std::string& machines) {
    return ScenarioFromJson(absl::StrReplaceAll(
        *text, {{"\"profiles\":", absl::StrCat("\"machines\": ", machines, ", \"profiles\":")}}));
  };
  const absl::StatusOr<Scenario> scenario =
      with(R"([{"name": "laptop", "hosts": ["pi-2", "pi-1"], "processors": 1.5}])");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  EXPECT_THAT(MachinesOf(*scenario), ElementsAre(-1, 0, 0));
  EXPECT_EQ(scenario->machines[0].processors, 1.5);
  const std::pair<std::string, std::string> mistakes[] = {
      {R"([{"name": "l", "hosts": ["x"], "processors": 1}])", "host 'x' is not there"},
      {R"([{"name": "l", "hosts": ["pi-1", "pi-1"], "processors": 1}])", "on a machine already"},
      {R"([{"name": "l", "hosts": ["pi-1"], "processors": 0}])",
       "processors 0 must be at least 0.001"},
      {R"([{"name": "l", "hosts": ["pi-1"], "processors": 1e-12}])", "machine l: processors 1e-12"},
      {R"([{"name": "", "hosts": ["pi-1"], "processors": 1}])", "needs a name"},
      {R"([{"name": "l", "hosts": ["pi-1"]}])", "processors"},
  };
  for (const auto& [machines, why] : mistakes) {
    EXPECT_THAT(std::string(with(machines).status().message()), HasSubstr(why));
  }
}

// Hosts that are measured devices.
class MixedHosts : public ::testing::Test {
 protected:
  absl::StatusOr<SimulatedCell> Run(const std::string& method, double mbps) const {
    const absl::StatusOr<ScenarioModel> model = ScenarioModel::Create(scenario_, options_);
    RUNNEL_RETURN_IF_ERROR(model.status());
    return model->Run(MethodsFor({method})[0], mbps);
  }

  Scenario scenario_ = *FindScenario("mixed-1");
  SimulateOptions options_ = Options();
};

// Of different shapes, so that one ratio a host is wrong: what the policies know matters.
TEST_F(MixedHosts, OneRatioADeviceIsNotEnough) {
  const std::vector<double> speeds = {0.15, 0.06, 0.06};
  for (size_t i = 0; i < speeds.size(); ++i) scenario_.hosts[i].speed = speeds[i];
  const absl::StatusOr<SimulatedCell> ftpipehd = Run("ftpipehd", 4);
  ASSERT_TRUE(ftpipehd.ok()) << ftpipehd.status();
  EXPECT_EQ(ftpipehd->plans_in_turn, 2) << "never settles";
  const double predicted = Run("predictor", 4)->seconds_per_batch;
  const double measured = Run("measured", 4)->seconds_per_batch;
  EXPECT_LT(measured, ftpipehd->seconds_per_batch * 0.9);
  EXPECT_LT(predicted, ftpipehd->seconds_per_batch * 0.9);
  // With one shape for all the ratio says everything, and nothing can be predicted.
  for (ScenarioHost& host : scenario_.hosts) host.profile = "alike";
  scenario_.profiles.push_back({"alike", "", "", 128, std::vector<double>(20, 5), 0.333, 0.333, 0});
  EXPECT_EQ(Run("ftpipehd", 1000)->plan.stages, Run("measured", 1000)->plan.stages);
  const absl::Status cannot = Run("accept", 1000).status();
  EXPECT_EQ(cannot.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cannot.message()), HasSubstr("have no device_profile"));
}

TEST_F(MixedHosts, AStageTakesWhatWasMeasured) {
  for (ScenarioHost& host : scenario_.hosts) host.speed = 2;
  scenario_.hosts.resize(1);
  const DeviceProfile profile = *ParseProfile(
      *ReadText(absl::StrCat(RUNNEL_SOURCE_DIR, "/predictor/profiles/unseen/u_t2_torch.profile"),
                kMaxProfileBytes));
  const auto whole = std::find_if(
      profile.sub_models.begin(), profile.sub_models.end(), [](const SubModelTime& one) {
        return one.model == "mobilenet_v2" && one.range == LayerRange{0, 19};
      });
  ASSERT_NE(whole, profile.sub_models.end());
  const double mean_s = std::sqrt(whole->seconds_1 * whole->seconds_2);
  EXPECT_NEAR(Run("uniform", 0)->seconds_per_batch, mean_s * 128 / whole->batch / 2, 1e-6);
}

TEST_F(MixedHosts, MistakesAreNamed) {
  const auto why = [&](const std::string& method) {
    return std::string(Run(method, 0).status().message());
  };
  std::string& file = scenario_.profiles[0].device_profile;
  file = "base.profile";
  EXPECT_THAT(why("accept"), HasSubstr("device profile base is one of"));
  EXPECT_TRUE(Run("measured", 0).ok());
  file = "niti.profile";
  EXPECT_THAT(why("measured"), HasSubstr("device_profile niti.profile: has no times of model"));
  file = "none.profile";
  EXPECT_THAT(why("measured"), HasSubstr("none.profile"));
  file = "README.md";
  EXPECT_THAT(why("measured"), HasSubstr("device_profile README.md: "));
  options_.profiles.folder = "";
  EXPECT_THAT(why("measured"), HasSubstr("--predictor-profiles"));
  options_.profiles.predictor = "oracle";
  EXPECT_THAT(why("uniform"), HasSubstr("--predictor-profiles"));
}

// Hosts with the layer times of the released boards, planned by runnel.
class Boards {
 public:
  explicit Boards(const std::vector<double>& speeds)
      : scenario_(*ReadScenario(Released("three-boards"))) {
    const ScenarioHost host = scenario_.hosts[0];
    scenario_.hosts.clear();
    for (const double speed : speeds) {
      scenario_.hosts.push_back(host);
      scenario_.hosts.back().name = absl::StrCat("h", scenario_.hosts.size() - 1);
      scenario_.hosts.back().speed = speed;
    }
    scenario_.training.barrier_every = 0;
    Everywhere(100, 0);
  }

  Scenario& scenario() { return scenario_; }
  void Everywhere(double mbps, double delay_ms) {
    scenario_.links = {{"*", "*", LinkRate::Mbps(mbps), LinkRate::Mbps(mbps), delay_ms}};
  }
  void Between(const std::string& from, const std::string& to, double mbps) {
    scenario_.links.push_back({from, to, LinkRate::Mbps(mbps), LinkRate::Mbps(mbps), 0});
  }
  SimulatedCell Planned() const {
    SimulateOptions options = Options();
    options.codecs.insert(options.codecs.begin(), "identity/identity");
    const absl::StatusOr<ScenarioModel> model = ScenarioModel::Create(scenario_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    const absl::StatusOr<SimulatedCell> cell = model->Run(MethodsFor({"runnel"})[0], 0);
    EXPECT_TRUE(cell.ok()) << cell.status();
    return cell.value_or(SimulatedCell());
  }

 private:
  Scenario scenario_;
};

TEST(RunnelPlans, ADeviceBehindASlowLinkIsLeftOut) {
  Boards boards({0.6, 1, 0.3, 0.3, 0.3, 0.3, 0.3});
  boards.Between("h1", "*", 0.05);
  Boards without({0.6, 0.3, 0.3, 0.3, 0.3, 0.3});
  EXPECT_LE(boards.Planned().seconds_per_batch, without.Planned().seconds_per_batch * 1.001);
  EXPECT_LT(boards.Planned().seconds_per_batch, 0.034);
}

TEST(RunnelPlans, TheOrderOfTheListDoesNotMatter) {
  std::vector<double> alternating;
  for (const bool is_sorted : {true, false}) {
    Boards boards(std::vector<double>(9, 0.3));
    boards.Everywhere(200, 0);
    for (int a = 0; a < 9; ++a) {
      for (int b = a + 1; b < 9; ++b) {
        const bool is_near = is_sorted ? (a < 5) == (b < 5) : a % 2 == b % 2;
        if (!is_near) boards.Between(absl::StrCat("h", a), absl::StrCat("h", b), 2);
      }
    }
    alternating.push_back(boards.Planned().seconds_per_batch);
  }
  EXPECT_LE(alternating[1], alternating[0] * 1.01);
}

TEST(RunnelPlans, TheTwoDevicesWithEnoughMemoryAreFound) {
  Boards boards({0.6, 1, 1, 1, 1, 1, 1, 0.3});
  for (ScenarioHost& host : boards.scenario().hosts) host.memory_limit_mb = 5;
  boards.scenario().hosts[0].memory_limit_mb = 60;
  boards.scenario().hosts[7].memory_limit_mb = 4096;
  EXPECT_GT(boards.Planned().seconds_per_batch, 0);
}

TEST(RunnelPlans, SynchronousStepsAreNotRankedByTheSteadyPeriod) {
  Boards boards(std::vector<double>(6, 0.3));
  boards.scenario().training.schedule = "sync_1f1b";
  boards.scenario().training.micro_batches = 4;
  boards.Everywhere(20, 2);
  const double six = boards.Planned().seconds_per_batch;
  boards.scenario().hosts.resize(2);
  EXPECT_LE(six, boards.Planned().seconds_per_batch * 1.0001);
}

TEST(RunnelPlans, EachLinkHasItsOwnCodecs) {
  Boards boards({0.5, 0.5, 0.5});
  boards.Everywhere(4, 0);
  boards.Between("h0", "h1", 1000);
  boards.scenario().profiles[0].codec_gb_per_s = 0.03;
  // Three stages are worth having where weights are not stale.
  boards.scenario().training.schedule = "sync_1f1b";
  boards.scenario().training.micro_batches = 8;
  const SimulatedCell cell = boards.Planned();
  EXPECT_LT(cell.seconds_per_batch, 0.036) << PlanText(boards.scenario(), cell.plan);
  ASSERT_EQ(cell.plan.links.size(), 2u);
  EXPECT_NE(cell.plan.links[0].codec_forward, cell.plan.links[1].codec_forward);
}

TEST(RunnelPlans, ADeviceThatGainsNothingWorthHavingIsLeftOut) {
  EXPECT_EQ(Boards({1, 0.01}).Planned().plan.stages.size(), 1u);
  EXPECT_EQ(Boards({1, 0.3}).Planned().plan.stages.size(), 2u);
}

TEST(RunnelPlans, BarriersAreCounted) {
  Boards boards({0.3, 0.3, 0.3});
  boards.Everywhere(200, 80);
  boards.scenario().training.barrier_every = 5;
  EXPECT_EQ(boards.Planned().plan.stages.size(), 1u);
  boards.scenario().training.barrier_every = 5000;
  EXPECT_GT(boards.Planned().plan.stages.size(), 1u);
}

// Three boards on a radio through an access point.
TEST(RunnelPlans, SharedAirIsCounted) {
  Boards boards({0.6, 0.3, 0.3});
  boards.scenario().media = {{"wifi", {"*"}, LinkRate::Mbps(10), 0, true}};
  EXPECT_LT(boards.Planned().seconds_per_batch, 0.054);
  boards.scenario().media[0].access_point = false;
  EXPECT_LT(boards.Planned().seconds_per_batch, 0.046);
}

// Four workers on two processors are as fast as two, and no plan takes all of them.
TEST(RunnelPlans, SharedProcessorsAreCounted) {
  Boards boards({0.3, 0.3, 0.3, 0.3});
  const double apart = boards.Planned().seconds_per_batch;
  boards.scenario().machines = {{"laptop", {"h0", "h1", "h2", "h3"}, 2}};
  const SimulatedCell together = boards.Planned();
  EXPECT_GT(together.seconds_per_batch, 1.45 * apart);
  EXPECT_LE(together.plan.stages.size(), 3u);
  // One more on a machine of its own is worth having.
  boards.scenario().machines[0].hosts.pop_back();
  EXPECT_LT(boards.Planned().seconds_per_batch, 0.75 * together.seconds_per_batch);
}

TEST(RunnelPlans, MoreHostsThanLayersAndThanAFileOnceHad) {
  Boards boards(std::vector<double>(100, 0.3));
  const SimulatedCell cell = boards.Planned();
  EXPECT_GT(cell.plan.stages.size(), 2u);
  EXPECT_LE(cell.plan.stages.size(), 20u);
}

// AccEPT's Table 5 by simulation, speeds from the column at 4 Mbps alone.
TEST(Simulate, PublishedTimesComeOut) {
  std::vector<ReproducedCell> cells;
  for (const char* name : {"accept-1", "accept-2"}) {
    absl::StatusOr<ScenarioModel> model =
        ScenarioModel::Create(*ReadScenario(Released(name)), Options());
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<SimulatedMethod> methods = PublishedMethods(model->scenario());
    ASSERT_EQ(methods.size(), 4u);
    const absl::StatusOr<std::vector<double>> speeds = FitSpeeds(*model, methods);
    ASSERT_TRUE(speeds.ok()) << speeds.status();
    model->SetSpeeds(*speeds);
    const absl::StatusOr<std::vector<ReproducedCell>> some = Reproduce(*model, methods);
    ASSERT_TRUE(some.ok()) << some.status();
    EXPECT_EQ(some->size(), 20);
    cells.insert(cells.end(), some->begin(), some->end());
  }
  EXPECT_LE(MedianError(cells), kMostMedianError);
}

TEST(Simulate, MedianErrorLooksAtTheDecidingCellsOnly) {
  std::vector<ReproducedCell> cells = {{"s", "ftpipehd", 1, 100, 110, false},
                                       {"s", "ftpipehd", 4, 100, 900, true},
                                       {"s", "predictor", 1, 100, 900, false}};
  EXPECT_NEAR(MedianError(cells), 0.1, 1e-12);
  cells.push_back({"s", "accept", 1, 100, 70, false});
  EXPECT_NEAR(MedianError(cells), 0.2, 1e-12);
  EXPECT_TRUE(std::isnan(MedianError({})));
}

}  // namespace
}  // namespace runnel::scenario_test
