// --links: what the user says of links.

#include "central/planning/live/given_links.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::given_links_test {
namespace {

using ::testing::HasSubstr;

std::vector<DeviceFacts> Devices() {
  std::vector<DeviceFacts> devices = {{"local-001"}, {"pi-1"}, {"pi-2"}};
  devices[0].is_local = true;
  return devices;
}

class GivenLinksTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<ScenarioLink>> Read(const std::string& text) {
    const std::string path = dir_ / "links.json";
    std::ofstream(path) << text;
    return ReadGivenLinks(path);
  }
  std::string Error(const std::string& text) { return std::string(Read(text).status().message()); }

  ScratchDir dir_;
};

TEST_F(GivenLinksTest, EachWayIsWhatTheLastEntryForItSays) {
  const auto links = Read(R"({"links": [
      {"from": "*", "to": "*", "down_mbps": 50, "up_mbps": 40, "delay_ms": 1},
      {"from": "central", "to": "pi-2", "down_mbps": 12, "up_mbps": 3, "delay_ms": 20}]})");
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_TRUE(CheckGivenLinks(*links, Devices()).ok());
  LinkRates rates;
  SetGivenWays(*links, Devices(), 0.5, rates);
  EXPECT_EQ(rates[0][2].rate.mbps(), 6) << "half of it is headers";
  EXPECT_EQ(rates[2][0].rate.mbps(), 1.5);
  EXPECT_EQ(rates[2][0].delay_seconds, 0.02);
  EXPECT_EQ(rates[0][1].rate.mbps(), 25);
  EXPECT_EQ(rates[1][0].rate.mbps(), 20);
  EXPECT_EQ(rates[1][2].rate.mbps(), 25);
}

TEST_F(GivenLinksTest, WhatIsNotGivenStaysAsItWas) {
  const auto links = Read(R"({"links": [
      {"from": "pi-1", "to": "central", "down_mbps": 0, "up_mbps": 4, "delay_ms": 0}]})");
  ASSERT_TRUE(links.ok()) << links.status();
  LinkRates rates(3, std::vector<WayFigures>(3));
  rates[0][2].rate = LinkRate::Mbps(7);
  SetGivenWays(*links, Devices(), 1, rates);
  EXPECT_EQ(rates[0][2].rate.mbps(), 7);
  EXPECT_EQ(rates[0][1].rate.mbps(), 4);
  EXPECT_GT(rates[1][0].rate.mbps(), 10'000) << "0: no limit";
  EXPECT_TRUE(GivesPath(*links, Devices(), 1));
  EXPECT_FALSE(GivesPath(*links, Devices(), 2)) << "to be probed";
}

TEST_F(GivenLinksTest, ErrorsNameWhatIsWrong) {
  const auto links = Read(R"({"links": [
      {"from": "pi-1", "to": "pi-9", "down_mbps": 1, "up_mbps": 4, "delay_ms": 0}]})");
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_THAT(std::string(CheckGivenLinks(*links, Devices()).message()),
              HasSubstr("'pi-9' is no device; give *, central or one of local-001, pi-1, pi-2"));
  EXPECT_THAT(Error(R"({"links": [{"from": "a", "to": "b", "down_mbps": -1, "up_mbps": 4,
                                   "delay_ms": 0}]})"),
              HasSubstr("link a to b: bandwidths and delay must be at least 0"));
  EXPECT_THAT(Error(R"({"links": [{"from": "a", "to": "b", "down_mbps": 1}]})"),
              HasSubstr("up_mbps"));
  EXPECT_THAT(Error(R"({"link": []})"), HasSubstr("links"));
  EXPECT_THAT(Error("{"), HasSubstr("links.json"));
  EXPECT_FALSE(ReadGivenLinks(dir_ / "none").ok());
}

}  // namespace
}  // namespace runnel::given_links_test
