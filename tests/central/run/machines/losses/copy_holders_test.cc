#include "central/run/machines/losses/copy_holders.h"

#include <algorithm>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::copy_holders_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string DomainOf(const std::string& address, const std::string& site = "") {
  return FailureDomain({.data_address = address, .site = site});
}

TEST(FailureDomain, IsTheSiteElseTheNetwork) {
  EXPECT_EQ(DomainOf("192.168.1.7:7001", "garage"), "garage");
  EXPECT_EQ(DomainOf("192.168.1.7:7001"), DomainOf("192.168.1.20:9"));
  EXPECT_NE(DomainOf("192.168.1.7:7001"), DomainOf("192.168.2.7:7001"));
  EXPECT_EQ(DomainOf("[2001:db8:0:1::5]:80"), DomainOf("[2001:db8:0:1:a::6]:80"));
  EXPECT_NE(DomainOf("[2001:db8:0:1::5]:80"), DomainOf("[2001:db8:0:2::5]:80"));
  for (const char* const unknown : {"", ":7000", "pi3.lan:7000", "pi3:7000"})
    EXPECT_EQ(DomainOf(unknown), "") << unknown;
}

TEST(CopyHolders, AnotherDomainElseTheNextButOne) {
  EXPECT_THAT(HoldersApart({}), IsEmpty());
  EXPECT_THAT(HoldersApart({"a"}), ElementsAre(IsEmpty()));
  EXPECT_THAT(HoldersApart({"a", "a"}), ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(HoldersApart({"a", "a", "a"}),
              ElementsAre(ElementsAre(2), ElementsAre(0, 2), ElementsAre(0)));
  EXPECT_THAT(HoldersApart({"", "", "", ""}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(HoldersApart({"home", "lan", "lan"}),
              ElementsAre(ElementsAre(1), ElementsAre(0), ElementsAre(0)));
  EXPECT_THAT(HoldersApart({"a", "a", "a", "a", "a", "a", "b"}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(6), ElementsAre(6),
                          ElementsAre(6), ElementsAre(6), ElementsAre(5)))
      << "four stages further at most";
}

// Whatever is lost together leaves each state with somebody: any two where nothing is known, and each
// domain that has another one near.
TEST(CopyHolders, WhatIsLostTogetherTakesNoStateWithIt) {
  std::mt19937 draw(20261127);
  for (int run = 0; run < 2000; ++run) {
    const auto stages = static_cast<int>(3 + draw() % 18);
    const int kinds = static_cast<int>(1 + draw() % 4);
    std::vector<std::string> domains;
    for (int i = 0; i < stages; ++i)
      domains.push_back(
          std::string(1, static_cast<char>('a' + draw() % static_cast<unsigned>(kinds))));
    const CopyHolders holders = HoldersApart(domains);
    const auto survives = [&](int stage, const std::set<int>& lost) {
      const std::vector<int> of_it = KeepersOf(holders, stage);
      return std::any_of(of_it.begin(), of_it.end(),
                         [&lost](int holder) { return lost.count(holder) == 0; });
    };
    for (int i = 0; i < stages; ++i) {
      const std::string& own = domains[static_cast<size_t>(i)];
      std::set<int> together;
      bool has_other_near = false;
      for (int j = 0; j < stages; ++j) {
        if (domains[static_cast<size_t>(j)] == own) {
          together.insert(j);
        } else if (std::abs(j - i) <= kMostCopyHops) {
          has_other_near = true;
        }
      }
      if (has_other_near) {
        EXPECT_TRUE(survives(i, together)) << "run " << run << ", stage " << i;
        continue;
      }
      for (int other = 0; other < stages; ++other)
        EXPECT_TRUE(survives(i, {i, other})) << "run " << run << ", stages " << i << ", " << other;
    }
  }
}

}  // namespace
}  // namespace runnel::copy_holders_test
