#include "tests/process/central_runs.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/random.h"

namespace runnel {

nlohmann::json Summary(const std::string& path) {
  return nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
}

nlohmann::json RunCentral(const Words& words) {
  ScratchDir dir;
  Words command = words;
  // A plan that follows measurements is another one each time.
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (words.front() == "train" && !has("--policy") && !has("--quick")) command.push_back("--quick");
  command.insert(command.begin(), "runnel-central");
  command.insert(command.end(), {"--summary", dir / "summary.json"});
  Process central(command);
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  nlohmann::json summary = Summary(dir / "summary.json");
  EXPECT_TRUE(summary.is_object());
  return summary.is_object() ? summary : nlohmann::json{{"weights_sha256", ""}};
}

std::string Weights(const Words& words) {
  Words run = words;
  // Nobody reads its accuracy, and an evaluation takes longer than a few steps. One in the middle is a
  // barrier, which synchronous schedules do not notice.
  const auto every = std::find(run.begin(), run.end(), "--eval-every");
  const bool is_sync = std::find(run.begin(), run.end(), "sync_1f1b") != run.end();
  if (every != run.end() && every + 1 != run.end()) {
    if (is_sync || every[1] == "0") every[1] = "-1";
  } else if (is_sync && run.front() == "train") {
    run.insert(run.end(), {"--eval-every", "-1"});
  }
  return RunCentral(run)["weights_sha256"];
}

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void ExpectRefused(const Words& words, const std::string& message) {
  Process central(With({"runnel-central"}, words));
  EXPECT_EQ(central.Wait(), 2) << central.out();
  const std::string err = central.err();
  EXPECT_THAT(err, testing::HasSubstr(message));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

nlohmann::json SummaryBehindALoss(const Words& run, const std::string& lost,
                                  const std::string& kind, int count) {
  ScratchDir dir;
  const std::string journal = dir / "j";
  Process central(
      With({"runnel-central"}, With(run, {"--journal", journal, "--summary", dir / "s"})));
  EXPECT_TRUE(WaitForRecords(journal, kind, count)) << central.err();
  EXPECT_TRUE(KillWorker(central, lost));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  nlohmann::json summary = Summary(dir / "s");
  EXPECT_TRUE(summary.is_object()) << central.err();
  if (!summary.is_object()) return nlohmann::json::object();
  EXPECT_GE(summary["recoveries"].size(), 1u) << lost;
  return summary;
}

std::string Replay(const std::string& journal) {
  Process replay({"runnel-central", "replay", "--journal", journal});
  EXPECT_EQ(replay.Wait(), 0) << replay.err();
  return replay.out();
}

void ExpectReplays(const std::string& journal) {
  EXPECT_THAT(Replay(journal), testing::HasSubstr("the same weights"));
}

std::string WordAfter(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  if (at == text.npos) return "";
  const size_t begin = at + before.size();
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

std::string WorkersAddress(Process& central) {
  const std::string before = "runnel-worker --central ";
  if (!central.WaitForOutput(before)) {
    ADD_FAILURE() << central.err();
    central.Signal(SIGKILL);
  }
  return WordAfter(central.out(), before);
}

void WriteImages(const std::string& path, int count) {
  std::ofstream file(path, std::ios::binary);
  const CounterRandom random(7, RandomPurpose::kTest, static_cast<uint64_t>(count), 0);
  for (int i = 0; i < count; ++i) {
    file.put(static_cast<char>(i % 10));
    for (int e = 0; e < 3072; ++e)
      file.put(static_cast<char>(random.Bits(static_cast<uint64_t>(i) * 3072 + e) & 0xff));
  }
}

void ExpectWeightsOfPlainLoops(const Words& run, const std::string& backend, std::string* log,
                               const Words& flags) {
  const std::string plain = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
  EXPECT_EQ(plain.size(), 64u);
  ScratchDir dir;
  Process central(With({"runnel-central"}, With(run, {"--workers", "1", "--summary", dir / "s"})));
  const std::string address = WorkersAddress(central);
  Process worker(With({"runnel-worker", "--once", "--central", address, "--name", "other",
                       "--backend", backend, "--state-dir", dir / "state"},
                      flags));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
  if (log != nullptr) *log = worker.err();
  const nlohmann::json summary = Summary(dir / "s");
  EXPECT_EQ(summary["weights_sha256"], plain);
  EXPECT_EQ(summary["plan"]["stages"].size(), 2u);
}

int Records(const std::string& journal, const std::string& kind) {
  int records = 0;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n'))
    records += absl::StrContains(line, absl::StrCat(R"({"record":")", kind, R"(")")) ? 1 : 0;
  return records;
}

bool WaitForRecords(const std::string& journal, const std::string& kind, int count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Records(journal, kind) < count) {
    if (std::chrono::steady_clock::now() > deadline || Records(journal, "finished") > 0)
      return false;
    usleep(500);
  }
  return true;
}

}  // namespace runnel
