#include "worker/membership/device_identity.h"

#include "gmock/gmock.h"
#include "tests/support/scratch.h"

namespace runnel::device_identity_test {
namespace {

using ::testing::MatchesRegex;

TEST(DeviceIdentity, IsTheSameFromStartToStart) {
  ScratchDir dir;
  std::string name, id;
  {
    const DeviceIdentity first = FindDeviceIdentity(dir / "state", "", "pi");
    EXPECT_THAT(first.name, MatchesRegex("pi-[0-9a-f]+"));
    EXPECT_EQ(first.id.size(), 16u);
    name = first.name;
    id = first.id;
    // A second one on this host, meanwhile.
    const DeviceIdentity second = FindDeviceIdentity(dir / "state", "", "pi");
    EXPECT_NE(second.name, name);
    EXPECT_NE(second.id, id);
  }
  const DeviceIdentity again = FindDeviceIdentity(dir / "state", "", "pi");
  EXPECT_EQ(again.name, name);
  EXPECT_EQ(again.id, id);
}

TEST(DeviceIdentity, ANameOfTheUsersOwnHasAnIdOfItsOwn) {
  ScratchDir dir;
  std::string id;
  {
    const DeviceIdentity one = FindDeviceIdentity(dir.path(), "bench", "pi");
    EXPECT_EQ(one.name, "bench");
    id = one.id;
    const DeviceIdentity twin = FindDeviceIdentity(dir.path(), "bench", "pi");
    EXPECT_EQ(twin.name, "bench");
    EXPECT_NE(twin.id, id) << "central must not take it for the other one";
    EXPECT_NE(twin.id, "");
  }
  EXPECT_EQ(FindDeviceIdentity(dir.path(), "bench", "pi").id, id);
}

TEST(DeviceIdentity, WhereNothingCanBeKept) {
  ScratchDir dir;
  EXPECT_EQ(FindDeviceIdentity("", "bench", "pi").name, "bench");
  EXPECT_EQ(FindDeviceIdentity("", "bench", "pi").id, "");
  Spill(dir / "file", "");
  const DeviceIdentity identity = FindDeviceIdentity(dir / "file", "", "pi");
  EXPECT_THAT(identity.name, MatchesRegex("pi-[0-9]+"));
  EXPECT_EQ(identity.id, "");
}

TEST(DeviceIdentity, ADamagedFileIsWrittenAnew) {
  ScratchDir dir;
  const std::string id = FindDeviceIdentity(dir.path(), "bench", "pi").id;
  Spill(dir / "workers/name-bench.id", "../../etc\n");
  const std::string other = FindDeviceIdentity(dir.path(), "bench", "pi").id;
  EXPECT_EQ(other.size(), 16u);
  EXPECT_NE(other, id);
}

}  // namespace
}  // namespace runnel::device_identity_test
