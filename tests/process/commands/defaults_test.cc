// What `train` does when nothing is said but how many workers there are.

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::defaults_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Words kThree = {"runnel-central", "train", "--local-workers", "3",
                      "--max-batches",  "12",    "--eval-every",    "-1"};

// Measurements in the folder: what was taken beside other work is not kept.
size_t Kept(const std::string& folder) {
  size_t kept = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, none))
    kept += entry.path().extension() == ".measurement" ? 1 : 0;
  return kept;
}

// Of a worker that keeps its measurements in `folder`.
void ExpectSays(const Words& words, const std::string& folder, bool from_an_earlier_run) {
  Process central(words, [folder] { setenv("RUNNEL_STATE_DIR", folder.c_str(), 1); });
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.out(), HasSubstr("policy runnel predicts"));
  EXPECT_THAT(central.out(), HasSubstr("an even cut without compression (--quick)"));
  const std::string kept = "measured in an earlier run: local-000, local-001, local-002";
  if (from_an_earlier_run) {
    EXPECT_THAT(central.err(), HasSubstr(kept));
  } else {
    EXPECT_THAT(central.err(), Not(HasSubstr(kept)));
  }
}

TEST(Defaults, ThePlannerPlansAndTheSecondRunNeedNotMeasure) {
  ScratchDir dir;
  ExpectSays(With(kThree, {"--summary", dir / "s"}), dir / "state", false);
  const nlohmann::json summary = Summary(dir / "s");
  EXPECT_EQ(summary["policy"], "runnel");
  EXPECT_GT(summary["predicted_samples_per_s"], 0);
  if (Kept(dir / "state") == 3) ExpectSays(kThree, dir / "state", true);
  // Another question is asked anew.
  ExpectSays(With(kThree, {"--batch-size", "32"}), dir / "state", false);
}

TEST(Defaults, QuickMeasuresNothing) {
  const nlohmann::json summary = RunCentral(
      {"train", "--local-workers", "3", "--max-batches", "5", "--eval-every", "-1", "--quick"});
  EXPECT_EQ(summary["policy"], "uniform");
  EXPECT_FALSE(summary.contains("predicted_samples_per_s"));
  for (const nlohmann::json& link : summary["links"]) EXPECT_EQ(link["codec_forward"], "identity");
}

TEST(Defaults, CodecsThatAreGivenStay) {
  const nlohmann::json summary =
      RunCentral({"train", "--local-workers", "2", "--max-batches", "12", "--eval-every", "-1",
                  "--policy", "runnel", "--codec-forward", "tile:8"});
  EXPECT_EQ(summary["codecs"]["forward"], "tile:8");
  for (const nlohmann::json& link : summary["links"]) EXPECT_EQ(link["codec_forward"], "tile:8");
}

}  // namespace
}  // namespace runnel::defaults_test
