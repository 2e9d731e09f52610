// Who takes part: joining, refusals, seats, leaving.

#include "central/run/machines/roster.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::roster_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RosterTest : public ::testing::Test {
 protected:
  explicit RosterTest(int local = 1, int dialling = 2)
      : roster_({.local_workers = local,
                 .dialling_workers = dialling,
                 .recipe = "fp32",
                 .codecs = {CodecId::Identity()}}) {}

  absl::StatusOr<bool> Join(int connection, const WorkerHello& hello, bool local = false) {
    effects_.clear();
    return roster_.Join(ConnectionId(connection), hello, local, effects_);
  }
  bool Joins(int connection, const std::string& name, bool local = false) {
    return Join(connection, SampleHello(name), local).value();
  }
  std::string Refusal() const {
    const auto refused = MessagesOf<Refused>(effects_);
    EXPECT_EQ(refused.size(), EffectsOf<CloseControl>(effects_).size());
    return refused.empty() ? "" : refused[0].second.reason;
  }

  bool RefusedForGood() const {
    const auto refused = MessagesOf<Refused>(effects_);
    return !refused.empty() && refused[0].second.is_final;
  }

  Roster roster_;
  RunEffects effects_;
};

TEST_F(RosterTest, LocalWorkersComeFirstThenByName) {
  EXPECT_FALSE(Joins(10, "b"));
  EXPECT_FALSE(Joins(11, "z", /*local=*/true));
  EXPECT_FALSE(roster_.complete());
  EXPECT_TRUE(Joins(12, "a"));
  EXPECT_TRUE(roster_.complete());
  EXPECT_THAT(ReceiversOf<Welcome>(effects_), ElementsAre(11, 12, 10));
  EXPECT_EQ(roster_.name(0), "z");
  EXPECT_EQ(roster_.name(1), "a");
  EXPECT_EQ(roster_.DeviceOf(ConnectionId(10)), 2);
  EXPECT_EQ(roster_.DeviceOf(ConnectionId(13)), std::nullopt);
}

// Between runs whoever comes is taken, hears that there is no run, and leaves no trace.
TEST(WaitingRoomRoster, TakesWhoeverComesAndForgetsWhoLeaves) {
  Roster roster({.is_waiting_room = true, .recipe = "fp32"});
  for (int i = 0; i < 3000; ++i) {
    RunEffects effects;
    const absl::StatusOr<bool> last =
        roster.Join(ConnectionId(i), SampleHello(absl::StrCat("w", i)), /*local=*/false, effects);
    ASSERT_TRUE(last.ok() && !*last) << i;
    const auto heard = MessagesOf<Awaiting>(effects);
    ASSERT_EQ(heard.size(), 1u);
    EXPECT_EQ(heard[0].second.here, 1);
    EXPECT_EQ(heard[0].second.wanted, 0);
    EXPECT_EQ(roster.Leave(ConnectionId(i), effects), std::nullopt);
    EXPECT_TRUE(roster.devices().empty());
  }
  RunEffects effects;
  ASSERT_TRUE(roster.Join(ConnectionId(1), SampleHello("w"), false, effects).ok());
  ASSERT_TRUE(roster.Join(ConnectionId(2), SampleHello("w"), false, effects).ok());
  EXPECT_EQ(roster.devices().size(), 1u) << "one of a name";
}

// Who waits hears how many are here, and so does who started central.
TEST_F(RosterTest, ThoseWhoWaitHearWhoIsHere) {
  EXPECT_FALSE(Joins(1, "a"));
  const auto first = MessagesOf<Awaiting>(effects_);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].second.here, 1);
  EXPECT_EQ(first[0].second.wanted, 2);
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[0].text, HasSubstr("a has joined: 1 of 2 is here"));
  EXPECT_FALSE(Joins(2, "z", /*local=*/true));
  EXPECT_THAT(EffectsOf<LogLine>(effects_), IsEmpty()) << "central's own is no news";
  effects_.clear();
  roster_.Leave(ConnectionId(1), effects_);
  EXPECT_THAT(ReceiversOf<Awaiting>(effects_), IsEmpty()) << "nobody is left to hear";
  EXPECT_FALSE(Joins(3, "a"));
  EXPECT_THAT(ReceiversOf<Awaiting>(effects_), ElementsAre(3));
  EXPECT_TRUE(Joins(4, "b"));
  EXPECT_THAT(ReceiversOf<Awaiting>(effects_), IsEmpty()) << "all are welcome at once";
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[0].text, HasSubstr("b has joined: 2 of 2 are here"));
}

TEST(RosterClasses, AreThoseOfTheStagesAndMatterOnce) {
  Roster roster = FullRoster(2);
  EXPECT_EQ(roster.ClassOf(1), "ref") << "as the worker says of its default";
  PlanDecided decided;
  decided.plan = PlanOf({0, 1}, {2, 5});
  decided.devices = {{"w0", "cpu/avx2"}, {"w1", "opencl/gpu"}};
  RunEffects effects;
  roster.SetClasses(decided, /*exact=*/true, effects);
  EXPECT_THAT(effects, IsEmpty()) << "integers have the same bytes everywhere";
  EXPECT_EQ(roster.ClassOf(1), "opencl/gpu");
  roster.SetClasses(decided, /*exact=*/false, effects);
  roster.SetClasses(decided, /*exact=*/false, effects);
  ASSERT_EQ(EffectsOf<LogLine>(effects).size(), 1u);
  EXPECT_THAT(EffectsOf<LogLine>(effects)[0].text, HasSubstr("(cpu/avx2; opencl/gpu)"));
}

// Three that dial in are quicker than the local worker: its seat is kept, and with it stage 0.
TEST_F(RosterTest, NobodyTakesTheSeatOfTheLocalWorker) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_FALSE(Joins(2, "b"));
  EXPECT_FALSE(Joins(3, "c"));
  EXPECT_THAT(Refusal(), HasSubstr("worker c came when the run had its 2 workers"));
  EXPECT_TRUE(Joins(4, "local", /*local=*/true));
  EXPECT_TRUE(roster_.device(0).local);
}

TEST_F(RosterTest, RefusesWhoDoesNotFit) {
  WorkerHello old = SampleHello("old");
  old.protocol_version = kProtocolVersion - 1;
  EXPECT_FALSE(Join(1, old).value());
  EXPECT_THAT(Refusal(),
              HasSubstr(absl::StrCat("worker old speaks protocol version ", kProtocolVersion - 1)));
  EXPECT_THAT(Refusal(), HasSubstr("sudo apt install ./runnel-worker_*.deb there"));
  WorkerHello newer = SampleHello("newer");
  newer.protocol_version = kProtocolVersion + 1;
  EXPECT_FALSE(Join(9, newer).value());
  EXPECT_THAT(Refusal(), HasSubstr("Update central to its release"));

  EXPECT_FALSE(Joins(2, "a"));
  EXPECT_FALSE(Joins(3, "a"));
  EXPECT_THAT(Refusal(), HasSubstr("named a already"));
  EXPECT_FALSE(RefusedForGood()) << "it may be the same device, whose stream has broken";

  WorkerHello bare = SampleHello("bare");
  bare.codecs.clear();
  EXPECT_FALSE(Join(4, bare).value());
  EXPECT_THAT(Refusal(), HasSubstr("codec identity"));
  // Our own worker will not get better by waiting.
  EXPECT_EQ(Join(5, bare, /*local=*/true).status().code(), absl::StatusCode::kInvalidArgument);

  EXPECT_FALSE(Joins(6, "own", /*local=*/true));
  EXPECT_TRUE(Joins(7, "b"));
  EXPECT_FALSE(Joins(8, "late"));
  EXPECT_THAT(Refusal(), HasSubstr("came when the run had its 2 workers"));
  EXPECT_FALSE(RefusedForGood()) << "it waits for the next run";
}

TEST_F(RosterTest, TwoDevicesOfOneNameAreToldSo) {
  WorkerHello first = SampleHello("pi");
  first.device_id = "1";
  WorkerHello second = first;
  second.device_id = "2";
  EXPECT_FALSE(Join(1, first).value());
  EXPECT_FALSE(Join(2, second).value());
  EXPECT_THAT(Refusal(), HasSubstr("named pi already"));
  EXPECT_TRUE(RefusedForGood());
}

TEST_F(RosterTest, TheWelcomeSaysWhichLifeOfWhichRun) {
  Roster roster({.local_workers = 1, .recipe = "fp32", .run = "r", .life = 3});
  EXPECT_TRUE(roster.Join(ConnectionId(1), SampleHello("own"), true, effects_).value());
  const Welcome welcome = MessagesOf<Welcome>(effects_)[0].second;
  EXPECT_EQ(welcome.run, "r");
  EXPECT_EQ(welcome.life, 3);
}

// A service that is started anew each second says the same each second.
TEST_F(RosterTest, ARefusalIsLoggedOnce) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_FALSE(Joins(2, "a"));
  EXPECT_EQ(EffectsOf<LogLine>(effects_).size(), 1u);
  EXPECT_FALSE(Joins(3, "a"));
  EXPECT_THAT(Refusal(), HasSubstr("named a already"));
  EXPECT_THAT(EffectsOf<LogLine>(effects_), IsEmpty());
}

TEST(Roster, WorkersFromElsewhereMustBeWhereOthersReachThem) {
  const RosterOptions seats = {
      .local_workers = 1, .dialling_workers = 2, .loopback_only = false, .recipe = "fp32"};
  for (const char* address : {"127.0.0.1:7001", "0.0.0.0:7001", "[::]:1", "[::1]:1", "", "pi"}) {
    Roster roster(seats);
    RunEffects effects;
    WorkerHello hello = SampleHello("pi");
    hello.data_address = address;
    EXPECT_FALSE(roster.Join(ConnectionId(1), hello, false, effects).value());
    const auto refused = MessagesOf<Refused>(effects);
    ASSERT_EQ(refused.size(), 1u) << address;
    EXPECT_THAT(refused[0].second.reason, HasSubstr("give the worker --listen ADDRESS:0"));
    EXPECT_TRUE(roster.devices().empty());
  }
  Roster roster(seats);
  RunEffects effects;
  WorkerHello hello = SampleHello("pi");
  hello.data_address = "10.9.0.11:7001";
  EXPECT_FALSE(roster.Join(ConnectionId(1), hello, false, effects).value());
  EXPECT_FALSE(roster.Join(ConnectionId(2), SampleHello("own"), true, effects).value());
  EXPECT_EQ(roster.devices().size(), 2u);
}

// Only who proves that central started it, and only what was lost.
TEST_F(RosterTest, ALocalWorkerThatWasLostTakesItsSeatAgain) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_FALSE(Joins(2, "own", /*local=*/true));
  EXPECT_TRUE(Joins(3, "b"));
  EXPECT_EQ(roster_.Return(ConnectionId(4), SampleHello("own"), effects_).value(), std::nullopt)
      << "it is there";
  EXPECT_EQ(roster_.MissingLocal(), std::nullopt);
  EXPECT_EQ(roster_.Leave(ConnectionId(2), effects_), 0);
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), 1);
  EXPECT_EQ(roster_.MissingLocal(), 0);
  EXPECT_EQ(roster_.Return(ConnectionId(4), SampleHello("a"), effects_).value(), std::nullopt)
      << "it is no local worker's";
  WorkerHello bare = SampleHello("own");
  bare.recipes.clear();
  EXPECT_FALSE(roster_.Return(ConnectionId(4), bare, effects_).ok());
  effects_.clear();
  EXPECT_EQ(roster_.Return(ConnectionId(4), SampleHello("own"), effects_).value(), 0);
  EXPECT_EQ(MessagesOf<Welcome>(effects_)[0].second.device, DeviceId(0));
  EXPECT_EQ(roster_.DeviceOf(ConnectionId(4)), 0);
  EXPECT_THAT(roster_.lost(), ElementsAre(false, true, false));
  EXPECT_EQ(roster_.MissingLocal(), std::nullopt);
}

TEST_F(RosterTest, WhoLeavesBeforeTheRunGivesItsSeatBack) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_FALSE(Joins(2, "b"));
  effects_.clear();
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), std::nullopt);
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[0].text, HasSubstr("worker a left before the run"));
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), std::nullopt);
  EXPECT_FALSE(Joins(3, "a"));
  EXPECT_TRUE(Joins(4, "own", /*local=*/true));
  EXPECT_THAT(roster_.lost(), ElementsAre(false, false, false));
}

// It was started for this run: nobody else takes its seat.
TEST_F(RosterTest, ALocalWorkerThatLeavesBeforeTheRunIsStartedAgain) {
  EXPECT_FALSE(Joins(1, "own", /*local=*/true));
  effects_.clear();
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), std::nullopt);
  EXPECT_EQ(EffectsOf<StartLocalWorker>(effects_)[0].name, "own");
}

TEST_F(RosterTest, WhoLeavesDuringTheRunIsLostAndNotSpokenTo) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_FALSE(Joins(2, "b"));
  EXPECT_TRUE(Joins(3, "own", /*local=*/true));
  effects_.clear();
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), 1);
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_THAT(roster_.lost(), ElementsAre(false, true, false));
  roster_.ReleaseAll(effects_);
  EXPECT_THAT(ReceiversOf<Release>(effects_), ElementsAre(3, 2));
}

TEST_F(RosterTest, SaysWhoIsMissing) {
  EXPECT_FALSE(Joins(1, "a"));
  EXPECT_THAT(std::string(roster_.TimeoutError(60).message()),
              HasSubstr("after 60 s 1 of 3 workers is there (a)"));
}

TEST(Roster, ABackendMayBeAskedForWithAParameter) {
  for (const char* backend : {"ref:slow", "cpu:slow"}) {
    Roster roster({.local_workers = 1, .recipe = "fp32", .backend = backend});
    RunEffects effects;
    const absl::StatusOr<bool> joined =
        roster.Join(ConnectionId(1), SampleHello("w"), true, effects);
    EXPECT_EQ(joined.ok(), std::string(backend) == "ref:slow") << joined.status();
  }
}

const auto kNobodyHasAStage = [](int) { return false; };

// While the run trains.
TEST_F(RosterTest, WhoComesLaterGetsTheSeatItHadOrTheNext) {
  Joins(1, "a");
  Joins(2, "own", /*local=*/true);
  ASSERT_TRUE(Joins(3, "b"));
  const auto enter = [this](int connection, const WorkerHello& hello) {
    effects_.clear();
    return roster_.Enter(ConnectionId(connection), hello, kNobodyHasAStage, effects_);
  };
  EXPECT_EQ(enter(4, SampleHello("a")), std::nullopt) << "it is there";
  EXPECT_THAT(Refusal(), HasSubstr("named a already"));
  EXPECT_EQ(enter(5, SampleHello("own")), std::nullopt) << "a local worker's name";
  EXPECT_EQ(enter(6, SampleHello("c")), 3);
  EXPECT_EQ(MessagesOf<Welcome>(effects_)[0].second.device, DeviceId(3));
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), 1);
  EXPECT_EQ(enter(7, SampleHello("a")), 1);
  EXPECT_EQ(roster_.DeviceOf(ConnectionId(7)), 1);
  EXPECT_THAT(roster_.lost(), ElementsAre(false, false, false, false));
  WorkerHello bare = SampleHello("d");
  bare.codecs.clear();
  EXPECT_EQ(enter(8, bare), std::nullopt);
  EXPECT_TRUE(RefusedForGood());
}

TEST_F(RosterTest, WhoWasDrainedComesBackOnlyIfItIsStartedAgain) {
  WorkerHello hello = SampleHello("a");
  hello.incarnation = 5;
  Join(1, hello).value();
  Joins(2, "own", /*local=*/true);
  ASSERT_TRUE(Joins(3, "b"));
  roster_.SetLeaving(1, true);
  roster_.Release(1, effects_);
  EXPECT_EQ(ReceiversOf<Release>(effects_), std::vector<int64_t>{1});
  EXPECT_EQ(roster_.Leave(ConnectionId(1), effects_), 1);
  effects_.clear();
  EXPECT_EQ(roster_.Enter(ConnectionId(4), hello, kNobodyHasAStage, effects_), std::nullopt);
  EXPECT_THAT(Refusal(), HasSubstr("was drained"));
  EXPECT_FALSE(RefusedForGood());
  hello.incarnation = 6;
  EXPECT_EQ(roster_.Enter(ConnectionId(5), hello, kNobodyHasAStage, effects_), 1);
  EXPECT_FALSE(roster_.device(1).leaving);
}

// Each start of a worker without a name of its own has another name.
TEST_F(RosterTest, WhenSeatsAreUsedUpALostOneOfADeviceAlikeIsTaken) {
  Joins(1, "a");
  Joins(2, "own", /*local=*/true);
  ASSERT_TRUE(Joins(3, "b"));
  int connection = 4;
  const auto enter = [&](const std::string& name, const std::string& device_class, int busy = -1) {
    WorkerHello hello = SampleHello(name);
    hello.device_class = device_class;
    effects_.clear();
    return roster_.Enter(
        ConnectionId(connection++), hello, [busy](int number) { return number == busy; }, effects_);
  };
  while (roster_.devices().size() < 1024)
    ASSERT_TRUE(enter(absl::StrCat("pi-", roster_.devices().size()), "pi").has_value());
  EXPECT_EQ(enter("another", "pi"), std::nullopt) << "all are there";
  EXPECT_THAT(Refusal(), HasSubstr("the run has 1024 workers"));
  EXPECT_FALSE(RefusedForGood());
  for (const int gone : {7, 9})
    EXPECT_EQ(roster_.Leave(roster_.device(gone).connection, effects_), gone);
  EXPECT_EQ(enter("phone", "phone"), std::nullopt) << "what was measured of a pi is not true of it";
  EXPECT_EQ(enter("another", "pi", /*busy=*/7), 9);
  EXPECT_EQ(roster_.name(9), "another");
  EXPECT_EQ(enter("pi-7", "pi"), 7) << "its own";
}

TEST_F(RosterTest, TheStreamOfADeviceThatDialsAgain) {
  WorkerHello hello = SampleHello("a");
  hello.device_id = "x";
  Join(1, hello).value();
  EXPECT_EQ(roster_.StreamOf(hello), ConnectionId(1));
  hello.device_id = "y";
  EXPECT_EQ(roster_.StreamOf(hello), std::nullopt) << "another device";
  EXPECT_EQ(roster_.StreamOf(SampleHello("a")), std::nullopt) << "nobody knows";
}

// It was told to leave, and killed before it could.
TEST_F(RosterTest, WhoIsStartedAgainDoesNotLeave) {
  Joins(10, "own", /*local=*/true);
  Joins(11, "a");
  Joins(12, "b");
  roster_.SetLeaving(0, true);
  EXPECT_EQ(roster_.Leave(ConnectionId(10), effects_), 0);
  EXPECT_EQ(roster_.Return(ConnectionId(13), SampleHello("own"), effects_).value(), 0);
  EXPECT_FALSE(roster_.device(0).leaving);
  EXPECT_EQ(roster_.MissingLocal(), std::nullopt);
}

class TwoLocalsTest : public RosterTest {
 protected:
  TwoLocalsTest() : RosterTest(2, 0) {
    Joins(10, "l0", /*local=*/true);
    Joins(11, "l1", /*local=*/true);
  }
};

TEST_F(TwoLocalsTest, OneThatLeavesIsNotThereToStay) {
  roster_.SetLeaving(0, true);
  EXPECT_EQ(roster_.MissingLocal(), std::nullopt);
  EXPECT_EQ(roster_.Leave(ConnectionId(11), effects_), 1);
  EXPECT_EQ(roster_.MissingLocal(), 1);
}

TEST_F(TwoLocalsTest, OneThatWasDrainedIsStartedAgainLast) {
  roster_.SetLeaving(0, true);
  roster_.Release(0, effects_);
  EXPECT_EQ(roster_.Leave(ConnectionId(10), effects_), 0);
  EXPECT_EQ(roster_.Leave(ConnectionId(11), effects_), 1);
  EXPECT_EQ(roster_.MissingLocal(), 1);
}

}  // namespace
}  // namespace runnel::roster_test
