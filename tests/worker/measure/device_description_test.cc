#include "worker/measure/device_description.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::device_description_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DeviceDescription, SaysTheSameTwiceAndTellsWorkersApart) {
  const std::string one = DescribeDevice("worker pi-1");
  EXPECT_EQ(one, DescribeDevice("worker pi-1"));
  EXPECT_NE(one, DescribeDevice("worker pi-2"));
}

TEST(DeviceDescription, NamesHostProcessorsAndProgram) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  const std::string text = DescribeDevice("");
  EXPECT_THAT(text, HasSubstr(host));
  EXPECT_THAT(text, Not(HasSubstr("processors 0")));
  EXPECT_THAT(text, Not(HasSubstr("program \n"))) << "a new build is another device";
}

}  // namespace
}  // namespace runnel::device_description_test
