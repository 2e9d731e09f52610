// Verdicts on workers that are slow, stopped, dead, cut off, restarted or stuck, on a clock of the
// test's own.

#include "central/run/machines/losses/detector.h"

#include "central/run/machines/losses/standstill.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::detector_test {
namespace {

using ::testing::HasSubstr;
using Verdict = Detector::Verdict;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

// Three workers that send heartbeats, and a central that looks at them, in steps of 10 ms.
class DetectorTest : public ::testing::Test {
 protected:
  static constexpr int64_t kStepNs = 10 * kMs;

  struct Worker {
    bool speaks = true;
    PortAnswer port = PortAnswer::kAnswered;
    int64_t answers_after_ns = 10 * kMs;  // a host that is gone is known after the time-out
    int64_t every_ns = kHeartbeatNs;
    Heartbeat heartbeat;
    int64_t next_ns = 0;
    int64_t answer_ns = 0;  // to the question that is out; 0: none is
  };

  // Lets time pass; workers say what they have to say.
  void Pass(int64_t ns) {
    for (const int64_t end_ns = now_ns_ + ns; now_ns_ < end_ns;) {
      now_ns_ += kStepNs;
      for (size_t i = 0; i < workers_.size(); ++i) Live(i);
      if (now_ns_ < timer_ns_) continue;
      RunEffects effects;
      for (const auto& finding : detector_.Tick(roster_, now_ns_, effects)) Lose(finding);
      Read(effects);
    }
  }
  // Central does not run. Afterwards its timer comes ahead of what workers say; first: behind it.
  void Sleep(int64_t ns, bool first = false) {
    now_ns_ += ns;
    for (Worker& worker : workers_) worker.next_ns = now_ns_ + (first ? 0 : 200 * kMs);
  }

  void Live(size_t i) {
    Worker& worker = workers_[i];
    const ConnectionId id(static_cast<int64_t>(i));
    if (worker.speaks && now_ns_ >= worker.next_ns) {
      worker.next_ns = now_ns_ + worker.every_ns;
      worker.heartbeat.arrived_ns = now_ns_;
      detector_.AddHeartbeat(id, worker.heartbeat);
    }
    if (worker.answer_ns == 0 || now_ns_ < worker.answer_ns) return;
    worker.answer_ns = 0;
    if (const auto finding = detector_.AddAnswer(id, worker.port, now_ns_)) Lose(*finding);
  }

  void Read(const RunEffects& effects) {
    for (const ProbePort& probe : EffectsOf<ProbePort>(effects)) {
      const auto i = static_cast<size_t>(probe.connection.value());
      EXPECT_EQ(probe.data_address, "127.0.0.1:w" + std::to_string(i));
      EXPECT_EQ(workers_[i].answer_ns, 0) << "one question at a time";
      workers_[i].answer_ns =
          now_ns_ +
          (workers_[i].port == PortAnswer::kNone ? 300 * kMs : workers_[i].answers_after_ns);
    }
    for (const SetTimer& timer : EffectsOf<SetTimer>(effects)) timer_ns_ = timer.at_ns;
    for (const LogLine& line : EffectsOf<LogLine>(effects)) log_ += line.text + "\n";
  }

  void Lose(const Detector::Finding& finding) {
    RunEffects effects;
    roster_.Leave(finding.connection, effects);
    found_.push_back(finding);
    found_ns_.push_back(now_ns_);
  }

  // Until worker 1 is lost: after how long; none within ten minutes.
  std::optional<int64_t> TimeUntilLost() {
    const int64_t begin_ns = now_ns_;
    while (found_.empty() && now_ns_ - begin_ns < 600 * kSecond) Pass(kStepNs);
    if (found_.empty()) return std::nullopt;
    EXPECT_EQ(found_.front().connection, ConnectionId(1));
    return now_ns_ - begin_ns;
  }

  Worker& one() { return workers_[1]; }
  void Break() {
    RunEffects effects;
    detector_.Break(ConnectionId(1), absl::UnavailableError("reset"), roster_, now_ns_, effects);
    Read(effects);
  }
  void Resume() {
    RunEffects effects;
    detector_.Resume(ConnectionId(1), now_ns_, effects);
    Read(effects);
  }

  Roster roster_ = FullRoster(3);
  Detector detector_;
  std::vector<Worker> workers_{3};
  int64_t now_ns_ = 1'000 * kSecond;
  int64_t timer_ns_ = 0;
  std::vector<Detector::Finding> found_;
  std::vector<int64_t> found_ns_;
  std::string log_;
};

TEST_F(DetectorTest, WhoeverSpeaksIsWell) {
  Pass(600 * kSecond);
  EXPECT_TRUE(found_.empty());
  EXPECT_EQ(log_, "");
}

// The verdict for a worker that is stopped, by how long.
TEST_F(DetectorTest, AStoppedWorkerIsWaitedForSixSeconds) {
  for (const int64_t seconds : {3, 5}) {
    Pass(10 * kSecond);
    one().speaks = false;
    Pass(seconds * kSecond);
    EXPECT_TRUE(found_.empty()) << seconds;
    one().speaks = true;
    Pass(kSecond);
    EXPECT_THAT(log_, HasSubstr("worker w1 was slow"));
  }
  for (const int64_t seconds : {10, 30, 120}) {
    found_.clear();
    roster_ = FullRoster(3);
    one().speaks = true;
    Pass(10 * kSecond);
    one().speaks = false;
    Pass(seconds * kSecond);
    ASSERT_EQ(found_.size(), 1u) << seconds;
    EXPECT_EQ(found_[0].verdict, Verdict::kStopped);
    EXPECT_THAT(found_[0].why, HasSubstr("though its host answers"));
  }
}

TEST_F(DetectorTest, AStoppedWorkerIsLostAtSixSeconds) {
  Pass(10 * kSecond);
  one().speaks = false;
  const int64_t after_ns = TimeUntilLost().value();
  EXPECT_GT(after_ns, 5'700 * kMs);
  EXPECT_LE(after_ns, 6'200 * kMs);
}

TEST_F(DetectorTest, AWorkerThatIsCutOffIsLostWithinThreeSeconds) {
  Pass(10 * kSecond);
  one().speaks = false;
  one().port = PortAnswer::kNone;
  EXPECT_LE(TimeUntilLost().value(), 3 * kSecond);
  EXPECT_EQ(found_[0].verdict, Verdict::kCutOff);
}

// A cable is out for so long; the connection itself outlives it.
TEST_F(DetectorTest, ACableThatIsOutForTwoSecondsCostsNothingForThreeTheWorker) {
  Pass(10 * kSecond);
  one().speaks = false;
  one().port = PortAnswer::kNone;
  Pass(2 * kSecond);
  one().speaks = true;
  one().port = PortAnswer::kAnswered;
  Pass(10 * kSecond);
  EXPECT_TRUE(found_.empty());
  one().speaks = false;
  one().port = PortAnswer::kNone;
  Pass(3 * kSecond);
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].verdict, Verdict::kCutOff);
}

// The plan held 20 s before the worker fell silent, and took 4 s to come into force.
TEST_F(DetectorTest, AWorkerIsWaitedForAsLongAsItsLossWouldCost) {
  LossPrice price;
  Pass(kSecond);
  price.Watch(true, 0, now_ns_);
  Pass(4 * kSecond);
  price.Watch(false, 0, now_ns_);
  Pass(20 * kSecond);
  detector_.SetPrice(price);
  one().speaks = false;
  one().port = PortAnswer::kNone;
  Pass(3 * kSecond);
  EXPECT_TRUE(found_.empty());
  EXPECT_THAT(log_, HasSubstr("w1 is cut off for 2.5"));
  EXPECT_THAT(log_, HasSubstr("it is waited for until 2"));
  one().speaks = true;
  one().port = PortAnswer::kAnswered;
  Pass(kSecond);
  EXPECT_TRUE(found_.empty());
  one().speaks = false;
  one().port = PortAnswer::kNone;
  const int64_t after_ns = TimeUntilLost().value();
  EXPECT_GT(after_ns, 26 * kSecond) << "24 s, and 4 since then were trained";
  EXPECT_LT(after_ns, 29 * kSecond);
  // Its host answers that the process has ended: nothing is waited for.
  workers_[2].speaks = false;
  workers_[2].port = PortAnswer::kRefused;
  Pass(2 * kSecond);
  EXPECT_EQ(found_.back().verdict, Verdict::kDead);
}

TEST(LossPrice, IsWhatWouldBeTrainedAgainAndTheChangeOfPlan) {
  LossPrice price;
  EXPECT_EQ(price.NsOf(100 * kSecond), 0) << "no plan holds: nothing is lost";
  price.Watch(true, 0, 10 * kSecond);
  price.Watch(true, 0, 11 * kSecond);
  EXPECT_EQ(price.NsOf(100 * kSecond), 0);
  price.Watch(false, 0, 12 * kSecond);
  EXPECT_EQ(price.NsOf(15 * kSecond), 3 * kSecond + 2 * kSecond);
  price.Watch(false, 14 * kSecond, 15 * kSecond);
  EXPECT_EQ(price.NsOf(15 * kSecond), kSecond + 2 * kSecond) << "since the barrier that is kept";
  EXPECT_EQ(price.NsOf(13 * kSecond), 2 * kSecond);
  EXPECT_EQ(price.NsOf(500 * kSecond), LossPrice::kMostNs);
}

TEST_F(DetectorTest, ADeadProcessIsLostAtOnceWhenItsConnectionBreaks) {
  Pass(10 * kSecond);
  one().speaks = false;
  one().port = PortAnswer::kRefused;
  Break();
  EXPECT_LE(TimeUntilLost().value(), 20 * kMs);
  EXPECT_EQ(found_[0].verdict, Verdict::kDead);
  EXPECT_THAT(found_[0].why, HasSubstr("reset"));
}

// It was asked when it joined, and an answer to that comes late: it is of the time before.
TEST_F(DetectorTest, AnAnswerOlderThanTheSilenceSaysNothing) {
  one().answers_after_ns = 400 * kMs;
  Pass(200 * kMs);
  one().speaks = false;
  Break();
  EXPECT_EQ(workers_[1].answer_ns, now_ns_ + 210 * kMs) << "the first question is still out";
  one().answers_after_ns = 10 * kMs;
  Pass(210 * kMs);
  // The process has ended meanwhile.
  one().port = PortAnswer::kRefused;
  EXPECT_LE(TimeUntilLost().value(), 150 * kMs);
  EXPECT_EQ(found_[0].verdict, Verdict::kDead);
}

// A phone behind a router: its port was closed when all was well, so that says nothing now.
TEST_F(DetectorTest, AWorkerThatNobodyCanDialIsNotDeadForThat) {
  one().port = PortAnswer::kRefused;
  Pass(10 * kSecond);
  EXPECT_TRUE(found_.empty());
  EXPECT_EQ(log_, "") << "nobody is silent";
  EXPECT_FALSE(detector_.IsDialable(ConnectionId(1)));
  EXPECT_TRUE(detector_.IsDialable(ConnectionId(2)));
  EXPECT_TRUE(detector_.IsDialable(ConnectionId(9))) << "nothing is known of it";
  one().speaks = false;
  Break();
  Pass(kSecond);
  EXPECT_TRUE(found_.empty()) << "a radio that changes its access point";
  one().speaks = true;
  Resume();
  Pass(10 * kSecond);
  EXPECT_TRUE(found_.empty());
  one().speaks = false;
  EXPECT_LE(TimeUntilLost().value(), 3 * kSecond);
  EXPECT_EQ(found_[0].verdict, Verdict::kCutOff);
}

// The kernel closes one socket after the other.
TEST_F(DetectorTest, APortThatClosesLaterIsAskedAgain) {
  Pass(10 * kSecond);
  one().speaks = false;
  Break();
  Pass(50 * kMs);
  one().port = PortAnswer::kRefused;
  EXPECT_LE(TimeUntilLost().value(), 300 * kMs);
  EXPECT_EQ(found_[0].verdict, Verdict::kDead);
}

// A radio that changes its access point: its worker lives, and dials again.
TEST_F(DetectorTest, AConnectionThatIsBrokenForThreeSecondsIsNoLoss) {
  Pass(10 * kSecond);
  one().speaks = false;
  Break();
  Pass(3 * kSecond);
  Resume();
  one().speaks = true;
  Pass(10 * kSecond);
  EXPECT_TRUE(found_.empty());
  EXPECT_THAT(log_, HasSubstr("worker w1 is connected again"));
}

TEST_F(DetectorTest, AConnectionThatStaysBrokenIsALoss) {
  Pass(10 * kSecond);
  one().speaks = false;
  Break();
  EXPECT_LE(TimeUntilLost().value(), 7 * kSecond);
  EXPECT_EQ(found_[0].verdict, Verdict::kStopped);
}

// How long a worker may be silent follows from its own rhythm.
TEST_F(DetectorTest, AnIrregularWorkerMayBeSilentForLonger) {
  for (int i = 0; i < 40; ++i) {
    one().every_ns = (i % 2 == 0 ? 400 : 1'600) * kMs;
    Pass(one().every_ns);
  }
  EXPECT_TRUE(found_.empty());
  one().speaks = false;
  one().port = PortAnswer::kNone;
  const int64_t after_ns = TimeUntilLost().value();
  EXPECT_GT(after_ns, 10 * kSecond) << "median + 8 MAD of its intervals, and the factor";
  EXPECT_LT(after_ns, 30 * kSecond);
}

// Central is stopped: the verdict for 3, 10, 30 and 120 s is the same.
TEST_F(DetectorTest, NobodyIsSilentWhileCentralDoesNotRun) {
  for (const int64_t seconds : {3, 10, 30, 120}) {
    Pass(10 * kSecond);
    Sleep(seconds * kSecond);
    Pass(10 * kSecond);
    Sleep(seconds * kSecond, /*first=*/true);
    Pass(10 * kSecond);
    EXPECT_TRUE(found_.empty()) << seconds;
    EXPECT_THAT(log_, HasSubstr("central itself did not run for " + std::to_string(seconds)));
  }
  // Whoever does not come back is found as ever.
  one().speaks = false;
  one().port = PortAnswer::kRefused;
  Sleep(30 * kSecond);
  EXPECT_LE(TimeUntilLost().value(), 2 * kSecond);
}

TEST_F(DetectorTest, BusyForMinutesIsNotDeadButForEverIs) {
  Pass(10 * kSecond);
  one().heartbeat.phase = WorkerPhase::kPreparing;
  Pass(250 * kSecond);
  one().heartbeat.progress = 1;
  Pass(250 * kSecond);
  EXPECT_TRUE(found_.empty());
  Pass(100 * kSecond);
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].verdict, Verdict::kStuck);
  EXPECT_THAT(found_[0].why, HasSubstr("preparing a stage for 300"));
}

TEST_F(DetectorTest, WaitingIsNotStuck) {
  one().heartbeat.phase = WorkerPhase::kIdle;
  Pass(1'000 * kSecond);
  EXPECT_TRUE(found_.empty());
}

TEST_F(DetectorTest, AnotherProcessUnderTheNameOfASilentOneMeansARestart) {
  RunEffects effects;
  Roster roster({.local_workers = 1, .dialling_workers = 0, .recipe = "fp32"});
  WorkerHello hello = SampleHello("a");
  hello.incarnation = 7;
  ASSERT_TRUE(roster.Join(ConnectionId(4), hello, true, effects).value());
  Detector detector;
  detector.Tick(roster, now_ns_, effects);
  WorkerHello next = hello;
  next.incarnation = 8;
  EXPECT_FALSE(detector.Restarted(roster, next).has_value()) << "it is well: a name twice";
  detector.Break(ConnectionId(4), absl::UnavailableError("reset"), roster, now_ns_, effects);
  EXPECT_FALSE(detector.Restarted(roster, hello).has_value()) << "it is the same process";
  const auto finding = detector.Restarted(roster, next);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::kRestarted);
  EXPECT_EQ(finding->connection, ConnectionId(4));
}

TEST(RhythmTest, MedianAndDeviationOfTheLastIntervals) {
  Rhythm rhythm;
  int64_t now = 0;
  EXPECT_FALSE(rhythm.is_known());
  for (const int64_t interval : {0, 100, 110, 90, 5'000, 100}) rhythm.Add(now += interval);
  EXPECT_TRUE(rhythm.is_known());
  EXPECT_EQ(rhythm.median_ns(), 100);
  EXPECT_EQ(rhythm.limit_ns(), 100 + Rhythm::kDeviations * 10) << "one outlier changes nothing";
  rhythm.Restart(now += 1'000'000);
  rhythm.Add(now += 100);
  EXPECT_EQ(rhythm.median_ns(), 100);
  for (int i = 0; i < 100; ++i) rhythm.Add(now += 700);
  EXPECT_EQ(rhythm.limit_ns(), 700);
}

TEST(StandstillTest, EndsWhatWaitsForWhatNeverComes) {
  Standstill standstill;
  int64_t now = 5 * kSecond;
  int64_t amount = 0;
  const auto pass = [&](int64_t seconds) {
    bool is_too_long = false;
    for (int64_t i = 0; i < seconds; ++i)
      is_too_long = standstill.IsTooLong(now += kSecond, amount) || is_too_long;
    return is_too_long;
  };
  EXPECT_FALSE(pass(800));
  standstill.Move();
  EXPECT_FALSE(pass(800));
  ++amount;
  EXPECT_FALSE(pass(800));
  now += 5'000 * kSecond;  // central did not run
  EXPECT_FALSE(pass(50));
  EXPECT_TRUE(pass(100));
}

}  // namespace
}  // namespace runnel::detector_test
