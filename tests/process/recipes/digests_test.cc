// The bytes that training comes to, over models, recipes, codecs, schedules and a move: the digests
// of tests/golden/digests.json were taken at commit b2800f2. A change of structure leaves all of
// them as they are; a change of arithmetic says in the CHANGELOG which one it moved, and why.

#include <cstdint>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"

namespace runnel::digests_test {
namespace {

using nlohmann::json;

struct Row {
  std::string name;
  std::string backend;  // "cpu": integer recipe, the same bytes on every instruction set
  std::string words;
  std::string journal;  // instead of words: a file of tests/golden to replay
  std::string weights_sha256;
  bool images = false;  // needs files in CIFAR-10's format
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Rows() {
  std::vector<Row> rows;
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/digests.json");
  for (const json& entry : json::parse(file)) {
    rows.push_back({entry["name"], entry["backend"], entry.value("words", ""),
                    entry.value("journal", ""), entry["weights_sha256"],
                    entry.value("images", false)});
  }
  return rows;
}

// Images of a linear congruential generator's high bytes, with labels in turn.
void WriteImages(const std::string& path, int count, uint64_t state) {
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < count; ++i) {
    file.put(static_cast<char>(i % 10));
    for (int e = 0; e < 3072; ++e) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      file.put(static_cast<char>(state >> 56));
    }
  }
}

bool MachineHas(const std::string& backend) { return MakeBackend(backend, 1).ok(); }

class Digest : public ::testing::TestWithParam<Row> {};

TEST_P(Digest, IsWhatItWas) {
  const Row& row = GetParam();
  if (!MachineHas(row.backend)) {
    GTEST_SKIP() << row.name << " is not compared: this machine has no backend " << row.backend;
  }
  if (!row.journal.empty()) {
    const std::string path = absl::StrCat(RUNNEL_SOURCE_DIR "/tests/golden/", row.journal);
    EXPECT_EQ(Weights({"replay", "--journal", path}), row.weights_sha256);
    return;
  }
  ScratchDir dir;
  Words words = {"train", "--backend", row.backend};
  for (absl::string_view word : absl::StrSplit(row.words, ' ')) words.emplace_back(word);
  if (row.images) {
    WriteImages(dir / "data_batch_1.bin", 200, 1);
    WriteImages(dir / "test_batch.bin", 20, 2);
    words = With(words, {"--data-dir", dir.path()});
  }
  EXPECT_EQ(Weights(words), row.weights_sha256);
}

INSTANTIATE_TEST_SUITE_P(Golden, Digest, ::testing::ValuesIn(Rows()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace runnel::digests_test
