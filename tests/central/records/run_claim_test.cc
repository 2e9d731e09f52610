#include "central/records/run_claim.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/support/scratch.h"

namespace runnel::run_claim_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RunClaim, OneCentralAFolder) {
  ScratchDir dir;
  const std::string folder = dir / "deep/c";
  std::string run;
  {
    const absl::StatusOr<RunClaim> first = RunClaim::Begin(folder);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->life(), 1);
    run = first->run();
    const absl::Status second = RunClaim::Continue(folder).status();
    EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
    EXPECT_THAT(std::string(second.message()), HasSubstr("is in use by"));
  }
  for (int64_t life = 2; life <= 3; ++life) {
    const absl::StatusOr<RunClaim> next = RunClaim::Continue(folder);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->life(), life);
    EXPECT_EQ(next->run(), run);
    EXPECT_TRUE(next->CheckHeld().ok());
  }
  const absl::StatusOr<RunClaim> other = RunClaim::Begin(dir / "other");
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->run(), run);
}

// A disk of two hosts without locks: here the lock's file was taken away.
TEST(RunClaim, WhoLostTheRunWritesNoMore) {
  ScratchDir dir;
  const absl::StatusOr<RunClaim> old = RunClaim::Begin(dir / "c");
  ASSERT_TRUE(old.ok());
  std::filesystem::remove(dir / "c/lock");
  const absl::StatusOr<RunClaim> next = RunClaim::Continue(dir / "c");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->CheckHeld().ok());
  EXPECT_TRUE(absl::IsAborted(old->CheckHeld())) << old->CheckHeld();
  EXPECT_THAT(std::string(old->CheckHeld().message()), HasSubstr("life 2, this one is 1"));
}

// A central made plan 2 after its check-point, which had plan 1, and was killed; so was the next
// one.
TEST(RunClaim, NoLifeUsesAGenerationOfAnEarlierOne) {
  const Generation second = FirstGeneration(2, Generation(1));
  EXPECT_GT(second, Generation(2));
  const Generation third = FirstGeneration(3, Generation(1));
  EXPECT_GT(third, Generation(second.value() + 1000)) << "from the same check-point";
  EXPECT_GT(FirstGeneration(4, third), third);
  // A folder whose central.json is lost begins its lives anew.
  EXPECT_EQ(FirstGeneration(2, Generation(1'000'000)), Generation(1'000'001));
}

TEST(RunClaim, SweepsWhatAKilledOneLeft) {
  ScratchDir dir;
  { ASSERT_TRUE(RunClaim::Begin(dir / "c").ok()); }
  const ScratchDir& at = dir;
  for (const char* name : {"c/checkpoint-000000000010.runnel.tmp", "c/final.runnel.tmp",
                           "c/central.json.tmp", "c/notes.tmp"}) {
    Spill(at / name, "half");
  }
  ASSERT_TRUE(RunClaim::Continue(dir / "c").ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "c"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("central.json", "lock", "notes.tmp"));
}

TEST(RunClaim, AFolderOfAnOlderReleaseAndADamagedOne) {
  ScratchDir dir;
  std::filesystem::create_directory(dir / "c");
  {
    const absl::StatusOr<RunClaim> claim = RunClaim::Continue(dir / "c");
    ASSERT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(claim->life(), 1);
  }
  Spill(dir / "c/central.json", "{\"run\":");
  const absl::Status damaged = RunClaim::Continue(dir / "c").status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("central.json is damaged"));
  const absl::StatusOr<RunClaim> none = RunClaim::Begin("");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->CheckHeld().ok());
}

}  // namespace
}  // namespace runnel::run_claim_test
