#include "central/display/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::progress_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kSecond = 1'000'000'000;
constexpr char kClear[] = "\r\x1b[K";

ProgressState At(int64_t step) {
  ProgressState s;
  s.epochs = 3;
  s.steps_per_epoch = 100;
  s.steps = 300;
  s.step = step;
  s.epoch = std::min<int64_t>(step / 100, 2);
  s.step_in_epoch = step - 100 * s.epoch;
  s.samples = 64 * step;
  s.loss = 0.5;
  s.stage_busy = {0.9, 0.456};
  return s;
}

ProgressOptions Terminal(int width = 120) {
  ProgressOptions options;
  options.terminal = true;
  options.width = width;
  return options;
}

TEST(Progress, TerminalLineSaysAll) {
  Progress progress(Terminal());
  progress.Update(0, At(0));
  EXPECT_EQ(progress.Update(10 * kSecond, At(50)),
            std::string(kClear) +
                "epoch 1/3  batch 50/100  loss 0.5000  320 samples/s  ETA 0:50  busy 90% 46%");
}

TEST(Progress, LayersOnTheirWayAreShownWithTheTimeLeft) {
  Progress lines((ProgressOptions()));
  EXPECT_EQ(lines.Transfer(0, "sending layers", 0, 1000), "");
  EXPECT_EQ(lines.Transfer(kSecond, "sending layers", 25, 1000), "") << "not yet";
  EXPECT_EQ(lines.Transfer(2 * kSecond, "sending layers", 40, 1000), "sending layers: 4 %\n");
  EXPECT_EQ(lines.Transfer(4 * kSecond, "sending layers", 100, 1000), "") << "not again so soon";
  EXPECT_EQ(lines.Transfer(68 * kSecond, "sending layers", 340, 1000),
            "sending layers: 34 %, 2:12 left\n");
  EXPECT_EQ(lines.Transfer(70 * kSecond, "sending layers", 350, 1000), "");
  EXPECT_EQ(lines.Transfer(90 * kSecond, "sending layers", 1000, 1000), "");
  // Another one has a rate of its own.
  EXPECT_EQ(lines.Transfer(100 * kSecond, "sending layers", 0, 500), "");
  EXPECT_EQ(lines.Transfer(110 * kSecond, "sending layers", 0, 500), "sending layers: 0 %\n");

  Progress terminal(Terminal());
  EXPECT_EQ(terminal.Transfer(0, "sending layers", 0, 1000), "");
  EXPECT_EQ(terminal.Transfer(kSecond, "sending layers", 500, 1000),
            std::string(kClear) + "sending layers: 50 %, 0:01 left");
}

TEST(Progress, AnEvaluationByTheStagesIsShownWithTheTimeLeft) {
  const auto evaluating = [](int64_t done) {
    ProgressState state = At(100);
    state.evaluated = done;
    state.to_evaluate = 50;
    return state;
  };
  Progress lines((ProgressOptions()));
  lines.Update(0, At(99));
  EXPECT_EQ(lines.Update(kSecond, evaluating(0)),
            "epoch 1/3 done  epoch 2/3  batch 0/100  loss "
            "0.5000  evaluating 0 %\n");
  EXPECT_EQ(lines.Update(2 * kSecond, evaluating(1)), "") << "not yet";
  EXPECT_EQ(lines.Update(3 * kSecond, evaluating(2)),
            "epoch 2/3  batch 0/100  loss 0.5000  evaluating 4 %\n");
  EXPECT_EQ(lines.Update(6 * kSecond, evaluating(5)), "") << "not again so soon";
  EXPECT_EQ(lines.Update(11 * kSecond, evaluating(10)),
            "epoch 2/3  batch 0/100  loss 0.5000  evaluating 20 %, 0:40 left\n");
  EXPECT_THAT(lines.Update(60 * kSecond, evaluating(50)), HasSubstr("ETA"));

  Progress terminal(Terminal());
  terminal.Update(0, evaluating(0));
  EXPECT_EQ(
      terminal.Update(10 * kSecond, evaluating(25)),
      std::string(kClear) + "epoch 2/3  batch 0/100  loss 0.5000  evaluating 50 %, 0:10 left");
}

TEST(Progress, EtaIsNotGuessedAtTheStart) {
  Progress progress(Terminal());
  EXPECT_THAT(progress.Update(0, At(0)), HasSubstr("ETA --"));
  // One batch after a tenth of a second says little.
  EXPECT_THAT(progress.Update(kSecond / 10, At(1)), HasSubstr("ETA --"));
  EXPECT_THAT(progress.Update(3 * kSecond, At(3)), HasSubstr("ETA 4:57"));
}

TEST(Progress, EtaAfterAResumeCountsFromThere) {
  Progress progress(Terminal());
  progress.Update(0, At(200));
  EXPECT_THAT(progress.Update(10 * kSecond, At(210)), HasSubstr("64 samples/s  ETA 1:30"));
}

TEST(Progress, RateFollowsTheLastWhile) {
  Progress progress(Terminal());
  int64_t now = 0;
  for (int step = 0; step <= 100; ++step) progress.Update(now += kSecond / 10, At(step));
  // From ten a second to one in five seconds.
  for (int step = 101; step <= 110; ++step) progress.Update(now += 5 * kSecond, At(step));
  EXPECT_THAT(progress.Update(now + kSecond, At(110)), HasSubstr("13 samples/s"));
  // And nothing at all.
  EXPECT_THAT(progress.Update(now + 300 * kSecond, At(110)), HasSubstr("  0 samples/s"));
}

TEST(Progress, StepsThatGoBackStartAgain) {
  Progress progress(Terminal());
  progress.Update(0, At(0));
  progress.Update(10 * kSecond, At(100));
  EXPECT_THAT(progress.Update(11 * kSecond, At(50)), HasSubstr("ETA --"));
  EXPECT_THAT(progress.Update(21 * kSecond, At(60)), HasSubstr("ETA 4:00"));
}

TEST(Progress, TerminalLineFitsTheWidth) {
  for (int width : {0, 1, 20, 40, 200}) {
    Progress progress(Terminal(width));
    progress.Update(0, At(0));
    const std::string text = progress.Update(10 * kSecond, At(50));
    EXPECT_LE(text.size(), std::max<size_t>(width, 1) - 1 + sizeof(kClear) - 1) << width;
    EXPECT_THAT(text, StartsWith(kClear));
  }
}

TEST(Progress, TerminalIsNotRedrawnTooOften) {
  Progress progress(Terminal());
  EXPECT_NE(progress.Update(kSecond, At(1)), "");
  EXPECT_EQ(progress.Update(kSecond + 1, At(2)), "");
  EXPECT_NE(progress.Update(2 * kSecond, At(2)), "");
}

TEST(Progress, TerminalMakesRoomForLines) {
  Progress progress(Terminal());
  EXPECT_EQ(progress.Line(0, "hello"), std::string(kClear) + "hello\n");
  progress.Update(kSecond, At(1));
  const std::string text = progress.Line(kSecond, "worker pi joined");
  EXPECT_THAT(text, StartsWith(std::string(kClear) + "worker pi joined\n" + kClear + "epoch 1/3"));
  EXPECT_THAT(progress.Evaluation(2 * kSecond, At(100), 100, 0.9715, 0.25),
              StartsWith(std::string(kClear) +
                         "evaluation after 100 batches: accuracy 97.15%  loss 0.2500\n"));
  EXPECT_THAT(progress.Finish(3 * kSecond, At(300)), EndsWith("\n"));
  EXPECT_EQ(progress.Line(4 * kSecond, "bye"), std::string(kClear) + "bye\n");
}

TEST(Progress, NothingIsSaidOfARunThatTrainedNothing) {
  for (const bool terminal : {false, true}) {
    Progress progress({.terminal = terminal, .width = 80});
    EXPECT_EQ(progress.Finish(kSecond, At(0)), "");
    progress.Update(2 * kSecond, At(7));
    EXPECT_EQ(progress.Finish(3 * kSecond, At(7)), terminal ? kClear : "");
    progress.Update(4 * kSecond, At(8));
    EXPECT_THAT(progress.Finish(5 * kSecond, At(8)), HasSubstr("epoch 1/3"));
  }
}

// A log line is written to another stream: without a cleared line it would follow the progress.
TEST(Progress, TerminalMakesWayForOthers) {
  Progress progress({.terminal = true, .width = 80});
  EXPECT_EQ(progress.MakeWay(), "");
  progress.Update(0, At(3));
  EXPECT_EQ(progress.MakeWay(), kClear);
  progress.Finish(kSecond, At(4));
  EXPECT_EQ(progress.MakeWay(), "");
  Progress plain({.terminal = false});
  plain.Update(0, At(3));
  EXPECT_EQ(plain.MakeWay(), "");
}

TEST(Progress, PlainLinesNowAndThen) {
  Progress progress(ProgressOptions{});
  EXPECT_EQ(progress.Update(100 * kSecond, At(0)), "");
  EXPECT_EQ(progress.Update(102 * kSecond, At(20)), "");
  EXPECT_EQ(progress.Update(105 * kSecond, At(50)),
            "epoch 1/3  batch 50/100  loss 0.5000  640 samples/s  ETA 0:25  busy 90% 46%\n");
  EXPECT_EQ(progress.Update(106 * kSecond, At(60)), "");
  EXPECT_THAT(progress.Update(107 * kSecond, At(100)), StartsWith("epoch 1/3 done  "));
  EXPECT_EQ(progress.Update(108 * kSecond, At(110)), "");
  EXPECT_EQ(progress.Evaluation(109 * kSecond, At(110), 110, 0.5, 1.0),
            "evaluation after 110 batches: accuracy 50.00%  loss 1.0000\n");
  EXPECT_EQ(progress.Line(110 * kSecond, "log"), "log\n");
  EXPECT_THAT(progress.Update(114 * kSecond, At(120)), Not(HasSubstr("\x1b")));
  const std::string last = progress.Finish(115 * kSecond, At(300));
  EXPECT_THAT(last, StartsWith("epoch 3/3  batch 100/100"));
  EXPECT_THAT(last, HasSubstr("ETA 0:00"));
  EXPECT_THAT(last, EndsWith("\n"));
}

TEST(Progress, NothingKnownYet) {
  Progress progress(Terminal());
  EXPECT_EQ(progress.Update(0, ProgressState()),
            std::string(kClear) + "epoch 1/1  batch 0/1  ETA --");
}

TEST(FormatDuration, Reads) {
  EXPECT_EQ(FormatDuration(0), "0:00");
  EXPECT_EQ(FormatDuration(59.6), "1:00");
  EXPECT_EQ(FormatDuration(3599), "59:59");
  EXPECT_EQ(FormatDuration(3723), "1:02:03");
  EXPECT_EQ(FormatDuration(90000), "25:00:00");
  EXPECT_EQ(FormatDuration(-1), "--");
  EXPECT_EQ(FormatDuration(0.0 / 0.0), "--");
  EXPECT_EQ(FormatDuration(1e300), "--");
}

}  // namespace
}  // namespace runnel::progress_test
