#include "central/run/workers/local_workers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::local_workers_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What stands in for the worker's binary: a shell script, told its name among its arguments.
class LocalWorkersTest : public ::testing::Test {
 protected:
  void Start(const std::string& script, int64_t count) {
    const std::string path = dir_ / "worker";
    Spill(path, "#!/bin/sh\n" + script + "\n");
    ASSERT_EQ(chmod(path.c_str(), 0700), 0);
    setenv("RUNNEL_WORKER", path.c_str(), 1);
    ASSERT_TRUE(workers_.Start(count, {}, "127.0.0.1:1", {}).ok());
  }
  ~LocalWorkersTest() override { unsetenv("RUNNEL_WORKER"); }
  // Polls until somebody's end is to be told.
  std::vector<std::string> AwaitEnds() {
    std::vector<std::string> ends;
    for (int i = 0; i < 60'000 && ends.empty(); ++i) {
      ends = workers_.TakeEnds();
      usleep(500);
    }
    return ends;
  }

  ScratchDir dir_;
  LocalWorkers workers_;
};

// Its stream only breaks: that the system has killed it nothing else says.
TEST_F(LocalWorkersTest, OneThatWasKilledIsToldOnceWithWhatMayHelp) {
  Start("case \"$*\" in *local-001*) kill -9 $$;; *) exec sleep 600;; esac", 2);
  EXPECT_THAT(AwaitEnds(),
              ElementsAre(AllOf(HasSubstr("worker local-001 ended with signal 9"),
                                HasSubstr("out of memory: take a smaller --batch-size"))));
  EXPECT_THAT(workers_.TakeEnds(), IsEmpty());
  // Central itself ends one that is stopped before it starts it again: that is no news.
  workers_.ExpectStart();
  ASSERT_TRUE(workers_.StartAgain("local-000").ok());
  EXPECT_THAT(workers_.TakeEnds(), IsEmpty());
}

TEST_F(LocalWorkersTest, AnEndInOrderIsNoNews) {
  Start("case \"$*\" in *local-000*) exit 0;; *) exit 3;; esac", 2);
  EXPECT_THAT(AwaitEnds(), ElementsAre("worker local-001 ended with exit code 3"));
  workers_.AwaitEnds();
  EXPECT_THAT(workers_.TakeEnds(), IsEmpty());
}

}  // namespace
}  // namespace runnel::local_workers_test
