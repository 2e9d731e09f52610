#include "proto/base/refusal_log.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::refusal_log_test {
namespace {

using ::testing::ElementsAre;

class Lines final : public Logger {
 public:
  void Log(Severity, absl::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class HandClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_ns; }
  int64_t now_ns = 0;
};

TEST(RefusalLog, SaysEachTextOnceAMinute) {
  Lines lines;
  HandClock clock;
  RefusalLog log(&lines, &clock);
  for (int i = 0; i < 1000; ++i) log.Refused("a");
  log.Refused("b");
  clock.now_ns = 61'000'000'000;
  log.Refused("a");
  EXPECT_THAT(lines.lines,
              ElementsAre("refused: a", "refused: b (999 more such lines were left out before)",
                          "refused: a"));
}

TEST(RefusalLog, BoundsDifferentTexts) {
  Lines lines;
  HandClock clock;
  RefusalLog log(&lines, &clock);
  for (int i = 0; i < 1000; ++i) log.Refused(std::to_string(i));
  EXPECT_EQ(lines.lines.size(), static_cast<size_t>(RefusalLog::kMostLines));
}

}  // namespace
}  // namespace runnel::refusal_log_test
