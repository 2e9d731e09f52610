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
