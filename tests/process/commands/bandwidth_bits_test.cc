// --bits bandwidth with real workers over links that the transport limits: what crosses them, that
// a journal of it replays, and that bits follow a link whose bandwidth was not known beforehand.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::bandwidth_bits_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Words kRun = {"train",
                    "--model",
                    "lenet",
                    "--dataset",
                    "synthetic_digits",
                    "--local-workers",
                    "2",
                    "--batch-size",
                    "16",
                    "--eval-every",
                    "-1",
                    "--bits",
                    "bandwidth"};

std::string Text(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The one link of a run's last plan.
nlohmann::json Link(const nlohmann::json& summary) {
  const auto links = summary.find("links");
  return links != summary.end() && links->size() == 1 ? links->front() : nlohmann::json::object();
}

// Codecs of the plans in a journal, in order, "FORWARD/BACKWARD".
std::vector<std::string> PlannedCodecs(const std::string& journal) {
  std::vector<std::string> codecs;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n')) {
    if (!absl::StrContains(line, R"("record":"plan")")) continue;
    const auto record = nlohmann::json::parse(std::string(line), nullptr, false);
    for (const auto& link : record["plan"]["links"]) {
      codecs.push_back(Text(link, "codec_forward") + "/" + Text(link, "codec_backward"));
    }
  }
  return codecs;
}

TEST(BandwidthBits, ASlowLinkIsCompressedAndTheJournalReplays) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const nlohmann::json summary =
      RunCentral(With(kRun, {"--policy", "uniform", "--replan", "off", "--link-mbps", "2",
                             "--max-batches", "8", "--journal", journal}));
  EXPECT_THAT(Text(Link(summary), "codec_forward"), HasSubstr("eden:"));
  EXPECT_THAT(Text(Link(summary), "codec_backward"), HasSubstr("eden:"));
  EXPECT_EQ(Text(summary["plan_bandwidth"], "source"), "--link-mbps");
  EXPECT_EQ(summary["plan_bandwidth"]["links"][0]["forward_mbps"], 2);
  EXPECT_EQ(Text(summary, "weights_sha256"), Weights({"replay", "--journal", journal}));
}

// Also on a busy machine, whose processors the workers share: coding takes them longer than sending.
TEST(BandwidthBits, WithoutALimitNothingIsCompressed) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const nlohmann::json summary =
      RunCentral(With(kRun, {"--policy", "uniform", "--replan", "off", "--max-batches", "8",
                             "--journal", journal}));
  EXPECT_EQ(Text(Link(summary), "codec_forward"), "identity") << ReadFile(journal);
  EXPECT_EQ(Text(Link(summary), "codec_backward"), "identity");
  EXPECT_EQ(Text(summary["plan_bandwidth"], "source"), "none");
  EXPECT_EQ(Text(summary, "weights_sha256"), Weights({"replay", "--journal", journal}));
}

// The plan thinks the link so fast that sending a byte takes less time than encoding it; the tenth
// step's barrier and the next one measure that sending takes longer.
TEST(BandwidthBits, BitsFollowWhatTheStagesMeasure) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const nlohmann::json summary =
      RunCentral(With(kRun, {"--policy", "uniform", "--link-mbps", "8", "--links", "1000000",
                             "--barrier-every", "5", "--max-batches", "50", "--journal", journal}));
  const std::vector<std::string> codecs = PlannedCodecs(journal);
  ASSERT_GE(codecs.size(), 2u) << ReadFile(journal);
  EXPECT_EQ(codecs.front(), "identity/identity");
  EXPECT_THAT(codecs.back(), HasSubstr("eden:"));
  EXPECT_EQ(Text(summary["plan_bandwidth"], "source"), "measured");
  // 8, and far from the 1000000 that the plan assumed, however busy this machine is.
  EXPECT_LT(summary["plan_bandwidth"]["links"][0]["backward_mbps"].get<double>(), 80);
  EXPECT_EQ(Text(summary, "weights_sha256"), Weights({"replay", "--journal", journal}));
}

// Two dry runs, the second one with the weights and encoders that the first one saw, trained on:
// codecs with state, batch norm, dropout, a last stage that steps in its backward.
TEST(MeasuredNoise, ChangesNoWeightAndIsSaid) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const Words run = {"train",
                     "--quick",
                     "--model",
                     "ds_cnn",
                     "--batch-size",
                     "8",
                     "--local-workers",
                     "3",
                     "--max-batches",
                     "12",
                     "--barrier-every",
                     "4",
                     "--eval-every",
                     "-1",
                     "--codec-forward",
                     "amsgrad_mbq:3",
                     "--codec-backward",
                     "hadamard_ef:4"};
  const std::string without = Weights(With(run, {"--measure-noise", "-1"}));
  const nlohmann::json summary =
      RunCentral(With(run, {"--measure-noise", "4", "--journal", journal}));
  EXPECT_EQ(Text(summary, "weights_sha256"), without);
  EXPECT_EQ(Weights({"replay", "--journal", journal}), without);
  const auto noise = summary.find("gradient_noise");
  ASSERT_TRUE(noise != summary.end() && !noise->empty()) << summary;
  EXPECT_EQ(noise->front()["step"], 4);
  EXPECT_GT(noise->front()["added"].get<double>(), 0.0001);
  EXPECT_LT(noise->front()["added"].get<double>(), 2);
  EXPECT_GT(noise->front()["by_table"].get<double>(), 0);
  EXPECT_EQ(Text(noise->front(), "codecs"), "3 bits forward and 4 bits back");
  EXPECT_EQ(Records(journal, "gradient_noise"), static_cast<int>(noise->size()));
  EXPECT_FALSE(RunCentral(run).contains("gradient_noise")) << "too short a run";
}

// First all codecs at once, then each way of each link by itself: together they add about what they
// add at once. Weights do not depend on it.
TEST(MeasuredNoise, EveryWayOfEveryLinkHasItsTurn) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const Words run = {"train",
                     "--quick",
                     "--model",
                     "lenet",
                     "--dataset",
                     "synthetic_digits",
                     "--batch-size",
                     "16",
                     "--lr",
                     "0.0001",
                     "--local-workers",
                     "3",
                     "--max-batches",
                     "24",
                     "--barrier-every",
                     "4",
                     "--eval-every",
                     "-1",
                     "--codec-forward",
                     "hadamard:3",
                     "--codec-backward",
                     "stochastic:4"};
  const std::string without = Weights(With(run, {"--measure-noise", "-1"}));
  const nlohmann::json summary =
      RunCentral(With(run, {"--measure-noise", "4", "--journal", journal}));
  EXPECT_EQ(Text(summary, "weights_sha256"), without);
  EXPECT_EQ(Weights({"replay", "--journal", journal}), without);
  const auto noise = summary.find("gradient_noise");
  ASSERT_TRUE(noise != summary.end() && noise->size() == 5) << summary;
  EXPECT_EQ(noise->front()["is_way"], false);
  double sum = 0;
  std::vector<std::string> names;
  for (size_t i = 1; i < noise->size(); ++i) {
    const auto& one = (*noise)[i];
    EXPECT_EQ(one["step"], 4 * (i + 1));
    EXPECT_EQ(one["is_way"], true);
    EXPECT_GT(one["added"].get<double>(), 0);
    sum += one["added"].get<double>();
    names.push_back(Text(one, "codecs"));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "hadamard:3 from stage 0 to 1", "stochastic:4 from stage 1 to 0",
                         "hadamard:3 from stage 1 to 2", "stochastic:4 from stage 2 to 1"));
  const double whole = noise->front()["added"].get<double>();
  EXPECT_GT(sum, whole / 2);
  EXPECT_LT(sum, whole * 2);
}

// What is measured within the first twenty steps tells where training ends: by rank correlation, for
// codecs of different families that lose enough to be told from chance. The table of codecs says of
// the third pair that it loses less than the fourth.
TEST(MeasuredNoise, RanksCodecsAsTheirTrainingsEnd) {
  const std::pair<const char*, const char*> codecs[] = {{"mbq:2", "stochastic:4"},
                                                        {"mbq:3", "stochastic:4"},
                                                        {"mbq:4", "stochastic:8"},
                                                        {"hadamard:3", "hadamard:4"}};
  std::vector<std::pair<double, double>> ends;  // noise, loss
  for (const auto& [forward, backward] : codecs) {
    const nlohmann::json summary = RunCentral({"train",
                                               "--quick",
                                               "--model",
                                               "lenet",
                                               "--dataset",
                                               "synthetic_digits",
                                               "--local-workers",
                                               "3",
                                               "--lr",
                                               "0.01",
                                               "--max-batches",
                                               "200",
                                               "--barrier-every",
                                               "10",
                                               "--eval-every",
                                               "0",
                                               "--measure-noise",
                                               "20",
                                               "--codec-forward",
                                               forward,
                                               "--codec-backward",
                                               backward});
    const auto noise = summary.find("gradient_noise");
    ASSERT_TRUE(noise != summary.end() && !noise->empty()) << summary;
    ends.emplace_back(noise->front()["added"].get<double>(), summary["loss"].get<double>());
  }
  const auto rank = [&ends](double std::pair<double, double>::*figure, size_t i) {
    return std::count_if(ends.begin(), ends.end(),
                         [&](const auto& one) { return one.*figure < ends[i].*figure; });
  };
  double squares = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto apart = static_cast<double>(rank(&std::pair<double, double>::first, i) -
                                           rank(&std::pair<double, double>::second, i));
    squares += apart * apart;
  }
  const auto n = static_cast<double>(ends.size());
  EXPECT_GE(1 - 6 * squares / (n * (n * n - 1)), 0.8 - 1e-9);
  EXPECT_GT(ends[0].first, 2 * ends[3].first);
}

TEST(BandwidthBits, FamiliesMayBeGivenAndBadOnesAreRefused) {
  const nlohmann::json summary =
      RunCentral(With(kRun, {"--policy", "runnel", "--replan", "off", "--codec-forward", "mbq:4",
                             "--codec-backward", "stochastic:8", "--link-mbps", "0.5", "--caps",
                             "2,1", "--max-batches", "6"}));
  for (const auto& link : summary["links"]) {
    EXPECT_THAT(Text(link, "codec_forward"), HasSubstr("mbq:"));
    EXPECT_THAT(Text(link, "codec_backward"), StartsWith("stochastic:"));
  }
  Words words = With({"runnel-central"}, kRun);
  Process central(With(words, {"--codec-forward", "zip"}));
  EXPECT_EQ(central.Wait(), 2);
  EXPECT_THAT(central.err(), HasSubstr("--codec-forward zip"));
}

}  // namespace
}  // namespace runnel::bandwidth_bits_test
