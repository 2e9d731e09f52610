// Centrals that run are found, those that ended are not.

#include "proto/transport/grpc/security/running_central.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::running_central_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunningCentral, TheOnlyOneIsFoundWhileItLives) {
  ScratchDir dir;
  const std::string folder = dir / "run";
  EXPECT_TRUE(absl::IsNotFound(FindRunningCentral(folder).status())) << "there is no folder";
  {
    const auto shown = RunningCentral::Show(folder, "192.168.1.10:7000");
    ASSERT_TRUE(shown.ok()) << shown.status();
    EXPECT_EQ(FindRunningCentral(folder).value(), "192.168.1.10:7000");
  }
  const absl::Status gone = FindRunningCentral(folder).status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("--central HOST:PORT"));
}

TEST(RunningCentral, EveryInterfaceIsDialledHere) {
  ScratchDir dir;
  const auto shown = RunningCentral::Show(dir / "run", "0.0.0.0:7000");
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(FindRunningCentral(dir / "run").value(), "127.0.0.1:7000");
}

TEST(RunningCentral, OneThatWaitsForARunIsFoundAsSuch) {
  ScratchDir dir;
  const std::string folder = dir / "run";
  const auto runs = RunningCentral::Show(folder, "127.0.0.1:7100");
  EXPECT_TRUE(absl::IsNotFound(FindWaitingCentral(folder).status())) << "it has a run";
  const auto waits = RunningCentral::Show(folder, "0.0.0.0:7000", /*waits=*/true);
  const absl::StatusOr<ShownCentral> found = FindWaitingCentral(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->listens, "0.0.0.0:7000");
  EXPECT_EQ(found->dialled, "127.0.0.1:7000");
  const auto another = RunningCentral::Show(folder, "127.0.0.1:7200", /*waits=*/true);
  EXPECT_THAT(std::string(FindWaitingCentral(folder).status().message()),
              AllOf(HasSubstr("--listen 0.0.0.0:7000"), HasSubstr("--listen 127.0.0.1:7200")));
}

TEST(RunningCentral, SeveralAreNamed) {
  ScratchDir dir;
  const auto one = RunningCentral::Show(dir / "run", "127.0.0.1:7000");
  const auto two = RunningCentral::Show(dir / "run", "127.0.0.1:7100");
  ASSERT_TRUE(one.ok() && two.ok());
  const absl::Status several = FindRunningCentral(dir / "run").status();
  EXPECT_TRUE(absl::IsInvalidArgument(several)) << several;
  EXPECT_THAT(std::string(several.message()),
              AllOf(HasSubstr("--central 127.0.0.1:7000"), HasSubstr("--central 127.0.0.1:7100")));
}

TEST(RunningCentral, OneThatWasKilledIsNotFoundAndItsPortIsFree) {
  ScratchDir dir;
  const std::string folder = dir / "run";
  const pid_t child = fork();
  if (child == 0) {
    const auto shown = RunningCentral::Show(folder, "127.0.0.1:7000");
    raise(SIGKILL);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how));
  EXPECT_EQ(access((folder + "/central-7000").c_str(), F_OK), 0) << "nobody removed it";
  EXPECT_TRUE(absl::IsNotFound(FindRunningCentral(folder).status()));
  const auto next = RunningCentral::Show(folder, "127.0.0.1:7000");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(FindRunningCentral(folder).value(), "127.0.0.1:7000");
}

TEST(RunningCentral, WhatLiesThereIsNotBelieved) {
  ScratchDir dir;
  const std::string folder = dir / "run";
  const auto shown = RunningCentral::Show(folder, "127.0.0.1:7000");
  ASSERT_TRUE(shown.ok()) << shown.status();
  std::ofstream(folder + "/central-1") << "not an address";
  std::ofstream(folder + "/central-2") << "127.0.0.1:2";  // nobody holds it
  ASSERT_EQ(symlink("/etc/passwd", (folder + "/central-3").c_str()), 0);
  EXPECT_EQ(FindRunningCentral(folder).value(), "127.0.0.1:7000");
}

}  // namespace
}  // namespace runnel::running_central_test
