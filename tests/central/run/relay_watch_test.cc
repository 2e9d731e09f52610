// Which links go by way of central, as people and the record see it.

#include "central/run/relay_watch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::relay_watch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RelayWatchTest, SaysEachLinkOnceAndMarksStagesAndMembers) {
  RelayWatch watch;
  const std::vector<RelayedLink> both = {{"worker/one", "worker/phone", 10},
                                         {"server/central", "worker/phone", 20}};
  EXPECT_THAT(watch.Follow(both),
              ElementsAre(HasSubstr("the link from one to phone goes by way of central"),
                          HasSubstr("the link from central to phone goes by way of central")));
  EXPECT_THAT(watch.Follow(both), IsEmpty());

  std::vector<StageStatus> stages(3);
  stages[0].worker = "local-000";
  stages[1].worker = "one";
  stages[2].worker = "phone";
  const std::vector<StageStatus> marked = watch.Mark(stages);
  EXPECT_FALSE(marked[0].relayed);
  EXPECT_FALSE(marked[1].relayed);
  EXPECT_TRUE(marked[2].relayed);
  MemberList list;
  list.members.resize(2);
  list.members[0].name = "one";
  list.members[1].name = "phone";
  watch.Mark(list);
  EXPECT_FALSE(list.members[0].relayed);
  EXPECT_TRUE(list.members[1].relayed);

  // Central alone cannot dial it: a member is reached by way of central, the link is not.
  EXPECT_THAT(watch.Follow({both[1]}), IsEmpty());
  EXPECT_FALSE(watch.Mark(stages)[2].relayed);
  EXPECT_THAT(watch.Follow({}), IsEmpty());
  watch.Mark(list);
  EXPECT_FALSE(list.members[1].relayed);
}

}  // namespace
}  // namespace runnel::relay_watch_test
