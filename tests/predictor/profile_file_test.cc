#include "predictor/profiles/profile_file.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

DeviceProfile Sample() {
  DeviceProfile profile;
  profile.name = "quota_50";
  profile.family = "quota";
  profile.host = "a processor, 2 of them";
  profile.date = "2026-11-21T16:10:00Z";
  profile.cpu_share = 0.5;
  profile.numerics_class = "cpu/avx512";
  profile.batch = 16;
  profile.repetitions = 7;
  profile.sub_models = {{"lenet", {0, 2}, 16, 0.00125, 0.25, 0.5, 0.125},
                        {"lenet", {0, 2}, 8, 1.5e-7, 0, 0, 0},
                        {"vgg11", {3, 3}, 2, 12.5, 0.5, 13.25, 1.5}};
  return profile;
}

TEST(ProfileFile, ComesBackAsItWas) {
  const absl::StatusOr<DeviceProfile> back = ParseProfile(FormatProfile(Sample()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, Sample());
}

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = FormatProfile(Sample());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfileFile, SaysWhatIsWrong) {
  const struct {
    std::string text;
    const char* message;
  } rows[] = {
      {"", "line 1: is not 'runnel-profile 1'"},
      {Replaced("runnel-profile 1", "runnel-profile 2"), "line 1"},
      {Replaced("family: quota\n", ""), "there is no family"},
      {Replaced("family: quota\n", "family: quota\nfamily: quota\n"), "family is there twice"},
      {Replaced("family: quota", "family:"), "family must be"},
      {Replaced("threads: 1", "threads: 0"), "threads must be a number from 1"},
      {Replaced("threads: 1", "threads: 1x"), "threads must be"},
      {Replaced("threads: 1", "threads: 99999999999999999999"), "threads must be"},
      {Replaced("cpu_share: 0.5", "cpu_share: nan"), "cpu_share must be"},
      {Replaced("cpu_share: 0.5", "cpu_share: 1.5"), "cpu_share must be"},
      {Replaced("load: none", "speed: none"), "'speed' is no key"},
      {Replaced("lenet 0 2 16", "lenet 2 0 16"), "layers of a model, in order"},
      {Replaced("lenet 0 2 16", "lenet -1 2 16"), "layers of a model"},
      {Replaced("lenet 0 2 16", "lenet 0 9999 16"), "layers of a model"},
      {Replaced("lenet 0 2 16", "lenet 0 2 0"), "batch must be"},
      {Replaced("lenet 0 2 16", "lenet 0 16"), "has 7 columns, not 8"},
      {Replaced("lenet 0 2 8", "lenet 0 2 16"), "is there twice"},
      {Replaced("0.00125", "0"), "seconds must be above 0"},
      {Replaced("0.00125", "-1"), "seconds must be above 0"},
      {Replaced("0.00125", "inf"), "seconds must be above 0"},
      {Replaced("0.00125", "fast"), "seconds must be above 0"},
      {Replaced("lenet 0 2 16 0.00125 0.25 0.5 0.125\nlenet 0 2 8 1.5e-07 0 0 0\n"
                "vgg11 3 3 2 12.5 0.5 13.25 1.5\n",
                ""),
       "there is no sub-model"},
  };
  for (const auto& row : rows) {
    const absl::StatusOr<DeviceProfile> profile = ParseProfile(row.text);
    ASSERT_FALSE(profile.ok()) << row.message;
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr(row.message));
  }
}

TEST(ProfileFile, TooMuchIsRefused) {
  EXPECT_FALSE(ParseProfile(std::string(kMaxProfileBytes + 1, 'x')).ok());
  std::string text = FormatProfile(Sample());
  for (size_t i = 0; i < kMaxProfileLines; ++i)
    text += "m 0 0 " + std::to_string(i + 1) + " 1 0 0 0\n";
  EXPECT_THAT(std::string(ParseProfile(text).status().message()), HasSubstr("one too many"));
}

// Whatever is read without an error is written and read again without a change.
TEST(ProfileFile, DamagedFilesNeverCrash) {
  constexpr uint32_t kSeed = 20261121;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = FormatProfile(Sample());
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (uint32_t damage = 1 + random() % 3; damage > 0; --damage) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, good.substr(random() % good.size(), random() % 40));
          break;
        default:
          text[at] = "0123456789.-e \n"[random() % 15];
      }
      if (text.empty()) text = "x";
    }
    const absl::StatusOr<DeviceProfile> profile = ParseProfile(text);
    if (!profile.ok()) continue;
    ++accepted;
    const absl::StatusOr<DeviceProfile> again = ParseProfile(FormatProfile(*profile));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    EXPECT_EQ(FormatProfile(*again), FormatProfile(*profile));
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace runnel
