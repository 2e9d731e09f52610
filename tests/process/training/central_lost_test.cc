// Central itself is stopped or killed, with real processes.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::central_lost_test {
namespace {

using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "10",
                    "--schedule", "sync_1f1b", "--micro-batches", "4", "--max-batches", "150"};
// clang-format on

// A central that is stopped has its run all the same: whoever wants to go on with it is told, and
// when it continues nothing has changed.
TEST(CentralLost, AStoppedOneKeepsItsRun) {
  const Words run = With(kRun, {"--local-workers", "2"});
  const std::string whole = Weights(run);
  ScratchDir dir;
  Process central(With({"runnel-central"}, With(run, {"--journal", dir / "j", "--checkpoint-dir",
                                                      dir / "c", "--summary", dir / "s"})));
  ASSERT_TRUE(WaitForRecords(dir / "j", "checkpoint", 2)) << central.err();
  central.Signal(SIGSTOP);
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir / "c"});
  EXPECT_EQ(resume.Wait(30), 2) << resume.out();
  EXPECT_THAT(resume.err(), HasSubstr(dir / "c/lock"));
  EXPECT_THAT(resume.err(), HasSubstr("is in use by"));
  Process same_journal(With({"runnel-central"}, With(run, {"--journal", dir / "j"})));
  EXPECT_EQ(same_journal.Wait(30), 2) << same_journal.out();
  EXPECT_THAT(same_journal.err(), HasSubstr("is in use by"));
  central.Signal(SIGCONT);
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], whole);
}

// On a disk that has no locks (here the lock's file is taken away) another central has gone on with
// the run meanwhile. The old one finds its number, which is lower, before it writes anything.
TEST(CentralLost, AnOldOneThatContinuesWritesNothing) {
  const Words run = With(kRun, {"--local-workers", "2"});
  ScratchDir dir;
  Process old(
      With({"runnel-central"}, With(run, {"--journal", dir / "j", "--checkpoint-dir", dir / "c"})));
  ASSERT_TRUE(WaitForRecords(dir / "j", "checkpoint", 2)) << old.err();
  old.Signal(SIGSTOP);
  std::filesystem::remove(dir / "c/lock");
  const std::string last = "checkpoint-000000000150.runnel";
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--journal", ""}), Weights(run));
  const std::string written = ReadFile(dir / "c/" + last);
  ASSERT_FALSE(written.empty());
  old.Signal(SIGCONT);
  EXPECT_EQ(old.Wait(), 1) << old.out();
  EXPECT_THAT(old.err(), HasSubstr("another central has gone on with this run"));
  EXPECT_EQ(ReadFile(dir / "c/" + last), written);
}

// Its workers were not started by it: they wait, and join the next one by themselves.
TEST(CentralLost, WorkersThatWaitedJoinTheNextOne) {
  const std::string whole = Weights(With(kRun, {"--local-workers", "3"}));
  ScratchDir dir;
  std::optional<Process> central(
      std::in_place, With({"runnel-central"}, With(kRun, {"--workers", "2", "--journal", dir / "j",
                                                          "--checkpoint-dir", dir / "c"})));
  const std::string address = WorkersAddress(*central);
  const Words worker = {"runnel-worker", "--central", address, "--name"};
  Process one(With(worker, {"one"}));
  Process two(With(worker, {"two"}));
  for (const int checkpoints : {2, 5}) {
    ASSERT_TRUE(WaitForRecords(dir / "j", "checkpoint", checkpoints)) << central->err();
    central->Signal(SIGKILL);
    EXPECT_EQ(central->Wait(30), -SIGKILL);
    central.emplace(
        Words{"runnel-central", "resume", "--checkpoint-dir", dir / "c", "--summary", dir / "s"});
    ASSERT_TRUE(central->WaitForOutput("resuming")) << central->err();
  }
  EXPECT_EQ(central->Wait(), 0) << central->err();
  EXPECT_EQ(WordAfter(central->out(), "runnel-worker --central "), address);
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], whole);
  // They wait for the next run; told to end while they wait, they do.
  for (Process* waiting : {&one, &two}) {
    EXPECT_TRUE(waiting->WaitForOutput("waiting for the next one")) << waiting->err();
    waiting->Signal(SIGTERM);
    EXPECT_EQ(waiting->Wait(30), 0) << waiting->err();
  }
  Replay(dir / "j");
}

TEST(CentralLost, WorkersSayThatItDoesNotAnswer) {
  const std::string whole = Weights(With(kRun, {"--local-workers", "2"}));
  ScratchDir dir;
  Process central(With({"runnel-central"}, With(kRun, {"--workers", "1", "--journal", dir / "j",
                                                       "--summary", dir / "s"})));
  const std::string address = WorkersAddress(central);
  Process worker({"runnel-worker", "--once", "--central", address, "--name", "one"});
  ASSERT_TRUE(WaitForRecords(dir / "j", "barrier", 2)) << central.err();
  central.Signal(SIGSTOP);
  EXPECT_TRUE(worker.WaitForOutput("central at " + address + " does not answer: nothing came for"))
      << worker.err();
  central.Signal(SIGCONT);
  EXPECT_TRUE(worker.WaitForOutput("central at " + address + " answers again, ")) << worker.err();
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], whole);
  EXPECT_EQ(worker.Wait(30), 0) << worker.err();
}

// A run that has ended trains on, as one does that was to have more epochs: by milestones its weights
// are those of a run that had them from the start.
TEST(CentralLost, ResumesForMoreEpochs) {
  // clang-format off
  const Words run = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                     "--classes", "0-1", "--batch-size", "100", "--eval-every", "-1",
                     "--local-workers", "2", "--schedule", "sync_1f1b"};
  // clang-format on
  const Words steady = With(run, {"--milestones", "2", "--rate", "milestones"});
  ScratchDir dir;
  const auto trained_on = [&](const Words& words, const std::string& name) {
    Weights(With(words, {"--epochs", "1", "--max-batches", "12", "--journal", dir / (name + "j"),
                         "--checkpoint-dir", dir / name}));
    const std::string weights =
        Weights({"resume", "--checkpoint-dir", dir / name, "--epochs", "3"});
    EXPECT_EQ(Records(dir / (name + "j"), "run_resumed"), 1);
    ExpectReplays(dir / (name + "j"));
    return weights;
  };
  EXPECT_EQ(trained_on(steady, "steady"), Weights(With(steady, {"--epochs", "3"})));
  EXPECT_EQ(trained_on(With(run, {"--milestones", "50%"}), "share"),
            trained_on(With(run, {"--rate", "multi_step:0.5,1"}), "multi_step"));
  trained_on(With(run, {"--rate", "one_cycle"}), "cycle");
  ExpectRefused({"resume", "--checkpoint-dir", dir / "cycle", "--epochs", "3"},
                "--epochs 3: the run has trained 3 epochs");
  ExpectRefused({"resume", "--checkpoint-dir", dir / "cycle", "--epochs", "0"}, "--epochs");
}

// Another disk, another journal, another port.
TEST(CentralLost, ResumesInAnotherPlace) {
  const Words run = With(kRun, {"--local-workers", "2"});
  const std::string whole = Weights(run);
  ScratchDir dir;
  {
    Process central(With({"runnel-central"},
                         With(run, {"--journal", dir / "j", "--checkpoint-dir", dir / "c"})));
    ASSERT_TRUE(WaitForRecords(dir / "j", "checkpoint", 2)) << central.err();
    central.Signal(SIGKILL);
    central.Wait();
  }
  ASSERT_EQ(rename((dir / "j").c_str(), (dir / "elsewhere").c_str()), 0);
  Process lost({"runnel-central", "resume", "--checkpoint-dir", dir / "c"});
  EXPECT_EQ(lost.Wait(30), 2) << lost.out();
  EXPECT_THAT(lost.err(), HasSubstr(dir / "j"));
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir / "c", "--journal",
                  dir / "elsewhere", "--listen", "127.0.0.1:0", "--data-dir", dir.path(),
                  "--metrics-port", "0", "--summary", dir / "s"});
  EXPECT_EQ(resume.Wait(), 0) << resume.err();
  EXPECT_THAT(resume.out(), HasSubstr("/metrics"));
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], whole);
  Replay(dir / "elsewhere");
}

}  // namespace
}  // namespace runnel::central_lost_test
