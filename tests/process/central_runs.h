#pragma once

// Runs of the real central to a good end, and what they say of themselves.

#include <algorithm>
#include <string>
#include <vector>

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

}  // namespace runnel
