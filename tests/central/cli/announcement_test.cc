#include "central/cli/announcement.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::announcement_test {
namespace {

using ::testing::HasSubstr;

// Stands in for Avahi's program: it writes its arguments into a pipe and stays.
class AnnouncementTest : public ::testing::Test {
 protected:
  AnnouncementTest() {
    std::ofstream(program_) << "#!/bin/sh\necho \"$@\" >" << pipe_ << "\nexec sleep 1000\n";
    std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
    setenv("PATH", (scratch_.path() + ":" + path_before_).c_str(), 1);
  }
  ~AnnouncementTest() override { setenv("PATH", path_before_.c_str(), 1); }

  // What the program was told.
  std::string Arguments() const {
    std::string line;
    std::ifstream file(pipe_);
    std::getline(file, line);
    return line;
  }

  const std::string path_before_ = std::getenv("PATH");
  ScratchDir scratch_;
  const std::string program_ = scratch_ / "avahi-publish-service";
  const std::string pipe_ = scratch_ / "told";
};

TEST_F(AnnouncementTest, SaysWhereTheDoorIs) {
  const auto announcement = Announcement::Begin({"192.168.1.10", 7001});
  ASSERT_NE(announcement, nullptr);
  EXPECT_THAT(Arguments(), HasSubstr("_runnel-join._tcp 7001 address=192.168.1.10"));
}

TEST_F(AnnouncementTest, EveryInterfaceHasItsOwnAddress) {
  const auto announcement = Announcement::Begin({"0.0.0.0", 7001});
  ASSERT_NE(announcement, nullptr);
  EXPECT_THAT(Arguments(), ::testing::EndsWith("_runnel-join._tcp 7001"));
}

TEST_F(AnnouncementTest, NobodyElseReachesLoopback) {
  EXPECT_EQ(Announcement::Begin({"127.0.0.1", 7001}), nullptr);
}

TEST_F(AnnouncementTest, WithoutAvahiThereIsNone) {
  std::filesystem::remove(program_);
  setenv("PATH", scratch_.path().c_str(), 1);  // this machine may have the real one
  EXPECT_EQ(Announcement::Begin({"192.168.1.10", 7001}), nullptr);
}

}  // namespace
}  // namespace runnel::announcement_test
