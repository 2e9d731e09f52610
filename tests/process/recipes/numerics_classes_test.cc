// The numerics class of each stage is that of the backend that computed it: in the journal, in the
// summary beside the weights, and where `replay` compares.

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::numerics_classes_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--batch-size", "8", "--max-batches", "4", "--eval-every", "0"};
// clang-format on

// By stage of the journal's last plan.
std::vector<std::string> JournalledClasses(const std::string& journal) {
  std::vector<std::string> classes;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n', absl::SkipEmpty())) {
    const json record = json::parse(std::string(line), nullptr, /*allow_exceptions=*/false);
    if (record["record"] != "plan") continue;
    classes.clear();
    for (const json& stage : record["plan"]["stages"])
      classes.push_back(record["devices"][stage["device"].get<size_t>()]["numerics_class"]);
  }
  return classes;
}

TEST(NumericsClasses, AreThoseOfTheBackendThatTheRunNames) {
  ScratchDir dir;
  const json summary = RunCentral(
      With(kRun, {"--backend", "ref", "--local-workers", "2", "--journal", dir / "journal"}));
  EXPECT_THAT(JournalledClasses(dir / "journal"), ElementsAre("ref", "ref"));
  for (const json& stage : summary["stages"]) EXPECT_EQ(stage["numerics_class"], "ref");
}

TEST(NumericsClasses, OfAMixedRunAreNamedByStageAndComparedByReplay) {
  ScratchDir dir;
  Process central(
      With({"runnel-central"}, With(kRun, {"--workers", "1", "--local-workers", "1", "--journal",
                                           dir / "journal", "--summary", dir / "summary"})));
  Process worker({"runnel-worker", "--once", "--central", WorkersAddress(central), "--name",
                  "other", "--backend", "ref", "--state-dir", dir / "state"});
  ASSERT_EQ(central.Wait(), 0) << central.out() << central.err();
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
  EXPECT_THAT(JournalledClasses(dir / "journal"), ElementsAre(StartsWith("cpu/"), "ref"));
  const json summary = Summary(dir / "summary");
  EXPECT_EQ(summary["stages"][1]["numerics_class"], "ref");
  EXPECT_THAT(central.err(), HasSubstr("stages compute in several numerics classes (cpu/"));
  EXPECT_THAT(central.out(), AllOf(HasSubstr("weights "), HasSubstr(" in ref)")));

  Process replay({"runnel-central", "replay", "--journal", dir / "journal"});
  EXPECT_NE(replay.Wait(), 0);
  EXPECT_THAT(replay.err(), HasSubstr("were computed in class ref, here in cpu/"));
}

}  // namespace
}  // namespace runnel::numerics_classes_test
