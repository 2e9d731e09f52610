// A device that its neighbours cannot dial, as a phone behind a router, with real processes: it
// gives an address where nobody listens, and everything else is as ever.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"
#include "tests/transport/closed_port.h"

namespace runnel::relay_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "20",
                    "--schedule", "sync_1f1b", "--micro-batches", "4", "--max-batches", "200"};
// clang-format on

// A run of central's worker and two that dial in, of which one cannot be dialled.
class RunWithPhone {
 public:
  // home: of a cluster with certificates; empty: there are none.
  explicit RunWithPhone(const std::string& home = "")
      : home_(home),
        central_(With({"runnel-central"}, With(With(kRun, {"--workers", "2", "--journal", journal(),
                                                           "--summary", dir_ / "s"}),
                                               home.empty() ? Words{} : Words{"--home", home}))) {
    address_ = WorkersAddress(central_);
    door_ = WordAfter(central_.out(), "--join TOKEN@");
  }
  std::string journal() const { return dir_ / "j"; }
  Process& central() { return central_; }
  Words Worker(const std::string& name) const {
    Words words = {"runnel-worker", "--state-dir", dir_ / name};
    if (home_.empty()) return With(words, {"--central", address_, "--name", name});
    Process token({"runnel-central", "token", "--name", name, "--home", home_});
    EXPECT_EQ(token.Wait(), 0) << token.err();
    return With(words, {"--join", token.out().substr(0, token.out().find('\n')) + "@" + door_});
  }
  Words Phone(const std::string& name) const {
    return With(Worker(name), {"--advertise", closed_.address()});
  }
  std::string Devices() const {
    Process devices(With({"runnel-central", "devices", "--central", address_},
                         home_.empty() ? Words{} : Words{"--home", home_}));
    EXPECT_EQ(devices.Wait(), 0) << devices.err();
    return devices.out();
  }
  bool Trains(int barriers = 2) { return WaitForRecords(journal(), "barrier", barriers); }
  json End() {
    EXPECT_EQ(central_.Wait(), 0) << central_.out() << central_.err();
    return Summary(dir_ / "s");
  }
  std::string said() const { return central_.out() + central_.err(); }

 private:
  ScratchDir dir_;
  ClosedPort closed_;
  const std::string home_;
  Process central_;
  std::string address_;
  std::string door_;
};

const std::string& DirectWeights() {
  static const std::string weights = Weights(With(kRun, {"--local-workers", "3"}));
  return weights;
}

// The last stage: central's feed cannot dial it either. With certificates, which say who is there.
TEST(Relay, ALastStageThatNobodyCanDialTrainsAllTheSame) {
  const ScratchDir home;
  Process init({"runnel-central", "init", "--home", home / "home"});
  ASSERT_EQ(init.Wait(), 0) << init.err();
  RunWithPhone run(home / "home");
  Process one(run.Worker("one")), phone(run.Phone("phone"));
  ASSERT_TRUE(run.Trains()) << run.said() << phone.err();
  EXPECT_THAT(run.Devices(), HasSubstr(", by way of central"));
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], DirectWeights());
  EXPECT_EQ(summary["recoveries"].size(), 0u);
  ASSERT_EQ(summary["links"].size(), 2u);
  EXPECT_EQ(summary["links"][0]["relayed"], false);
  EXPECT_EQ(summary["links"][1]["relayed"], true);
  EXPECT_THAT(run.said(), HasSubstr("the link from one to phone goes by way of central"));
  EXPECT_THAT(run.said(), HasSubstr("the link from central to phone goes by way of central"));
  EXPECT_THAT(run.said(), Not(HasSubstr("from local-000 to one goes by way of central")));
}

TEST(Relay, AMiddleStage) {
  RunWithPhone run;
  Process phone(run.Phone("phone")), tablet(run.Worker("tablet"));
  ASSERT_TRUE(run.Trains()) << run.said() << phone.err();
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], DirectWeights());
  EXPECT_EQ(summary["links"][0]["relayed"], true);
  EXPECT_EQ(summary["links"][1]["relayed"], false);
}

// Another generation: what was relayed for the plan before ends, and the next plan's links are
// relayed where they must be.
TEST(Relay, AnotherPlanIsRelayedToo) {
  RunWithPhone run;
  Process one(run.Worker("one")), phone(run.Phone("phone"));
  ASSERT_TRUE(run.Trains()) << run.said();
  one.Signal(SIGTERM);
  EXPECT_EQ(one.Wait(), 0) << one.err();
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], DirectWeights());
  EXPECT_EQ(summary["recoveries"].size(), 0u) << run.said();
  ASSERT_EQ(summary["links"].size(), 1u);
  EXPECT_EQ(summary["links"][0]["relayed"], true);
}

// Its closed port says nothing of it: it is known lost by its silence, and nobody else is blamed.
TEST(Relay, ARelayedWorkerThatIsKilledIsTheOneThatIsLost) {
  RunWithPhone run;
  Process one(run.Worker("one")), phone(run.Phone("phone"));
  ASSERT_TRUE(run.Trains()) << run.said();
  phone.Signal(SIGKILL);
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], DirectWeights());
  ASSERT_EQ(summary["recoveries"].size(), 1u) << run.said();
  EXPECT_EQ(summary["recoveries"][0]["workers"], json::array({"phone"}));
}

}  // namespace
}  // namespace runnel::relay_test
