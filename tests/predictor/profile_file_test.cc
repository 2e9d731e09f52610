#include "predictor/profiles/profile_file.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::profile_file_test {
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

DeviceProfile WithoutRows() {
  DeviceProfile profile = Sample();
  profile.sub_models.clear();
  return profile;
}

TEST(ProfileFile, SaysWhatIsWrong) {
  const struct {
    std::string text;
    const char* message;
  } rows[] = {
      {"", "JSON"},
      {"runnel-profile 1\nname: x\n", "is of version 1, this program reads 2"},
      {Replaced("\"version\": 2", "\"version\": 3"),
       "is runnel-profile 3, this program reads runnel-profile 2"},
      {Replaced("\"runnel-profile\"", "\"runnel-network\""), "is runnel-network 2"},
      {Replaced("\"family\": \"quota\",", ""), "'family' is missing"},
      {Replaced("\"family\": \"quota\"", "\"family\": \"\""), "'family' must be 1 to"},
      {Replaced("\"threads\": 1", "\"threads\": 0"), "'threads' must be a number from 1"},
      {Replaced("\"threads\": 1", "\"threads\": \"1\""), "'threads': needs an integer"},
      {Replaced("\"threads\": 1", "\"threads\": 99999999999999999999"), "'threads'"},
      {Replaced("\"cpu_share\": 0.5", "\"cpu_share\": 0"), "'cpu_share' must be"},
      {Replaced("\"cpu_share\": 0.5", "\"cpu_share\": 1.5"), "'cpu_share' must be"},
      {Replaced("\"load\": \"none\"", "\"load\": \"none\", \"speed\": 1"), "'speed' is not known"},
      {Replaced("cpu/avx512", "hexagon/v67-emulated"),
       "'numerics_class' is hexagon/v67-emulated: an emulator's times are no processor's"},
      {Replaced("spread_2\"", "spread\""), "'columns' must be"},
      {Replaced("\"lenet\",0,2,16", "\"lenet\",2,0,16"), "sub_models[0]: 'first' and 'last'"},
      {Replaced("\"lenet\",0,2,16", "\"lenet\",-1,2,16"), "layers of a model"},
      {Replaced("\"lenet\",0,2,16", "\"lenet\",0,9999,16"), "layers of a model"},
      {Replaced("\"lenet\",0,2,16", "\"lenet\",0,2,0"), "'batch' must be"},
      {Replaced("\"lenet\",0,2,16", "\"lenet\",0,16"), "an array of 8 columns"},
      {Replaced("\"lenet\",0,2,16", "7,0,2,16"), "'model': needs a string"},
      {Replaced("\"lenet\",0,2,8", "\"lenet\",0,2,16"), "sub_models[1]: is there twice"},
      {Replaced("0.00125", "0"), "seconds must be above 0"},
      {Replaced("0.00125", "-1"), "seconds must be above 0"},
      {Replaced("0.00125", "1e9"), "seconds must be above 0"},
      {Replaced("0.00125", "1e999"), "JSON"},
      {FormatProfile(WithoutRows()), "there is no sub-model"},
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
  DeviceProfile profile = Sample();
  for (size_t i = 0; i < kMaxProfileLines; ++i)
    profile.sub_models.push_back({"m", {0, 0}, static_cast<int64_t>(i + 1), 1, 0, 0, 0});
  EXPECT_THAT(std::string(ParseProfile(FormatProfile(profile)).status().message()),
              HasSubstr("more than 20000 sub-models"));
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
}  // namespace runnel::profile_file_test
