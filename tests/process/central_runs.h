#pragma once

// Runs of the real central to a good end, and what they say of themselves.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace runnel {

using Words = std::vector<std::string>;

inline nlohmann::json Summary(const std::string& path) {
  return nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
}

// Runs central to a good end and gives its summary.
inline nlohmann::json RunCentral(const Words& words) {
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

inline std::string Weights(const Words& words) { return RunCentral(words)["weights_sha256"]; }

inline Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Central's end with exit code 2 and one line that says this.
inline void ExpectRefused(const Words& words, const std::string& message) {
  Process central(With({"runnel-central"}, words));
  EXPECT_EQ(central.Wait(), 2) << central.out();
  const std::string err = central.err();
  EXPECT_THAT(err, testing::HasSubstr(message));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

// Trains on central's CPU and a worker with another backend, a stage on each: gives the weights
// that one process computes with plain loops. log: what the worker says, if wanted. flags: more of
// the worker's.
inline void ExpectWeightsOfPlainLoops(const Words& run, const std::string& backend,
                                      std::string* log = nullptr, const Words& flags = {}) {
  const std::string plain = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
  EXPECT_EQ(plain.size(), 64u);
  ScratchDir dir;
  Process central(With({"runnel-central"}, With(run, {"--workers", "1", "--summary", dir / "s"})));
  const std::string marker = "runnel-worker --central ";
  ASSERT_TRUE(central.WaitForOutput(marker)) << central.err();
  const std::string text = central.out();
  const size_t at = text.find(marker) + marker.size();
  const std::string address = text.substr(at, text.find_first_of(" \n", at) - at);
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

// Of this kind, in a journal.
inline int Records(const std::string& journal, const std::string& kind) {
  int records = 0;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n'))
    records += absl::StrContains(line, absl::StrCat(R"({"record":")", kind, R"(")")) ? 1 : 0;
  return records;
}

// Polls until there are so many of them; false after a minute, or if the run ends before.
inline bool WaitForRecords(const std::string& journal, const std::string& kind, int count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Records(journal, kind) < count) {
    if (std::chrono::steady_clock::now() > deadline || Records(journal, "finished") > 0)
      return false;
    usleep(500);
  }
  return true;
}

}  // namespace runnel
