#include "proto/process/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/scratch.h"

namespace runnel::file_lock_test {
namespace {

using ::testing::HasSubstr;

std::string Why(const absl::StatusOr<FileLock>& lock) {
  return std::string(lock.status().message());
}

TEST(FileLock, KeepsTheSecondOneOut) {
  ScratchDir dir;
  {
    const absl::StatusOr<FileLock> first = FileLock::Take(dir / "lock");
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::StatusOr<FileLock> second = FileLock::Take(dir / "lock");
    EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
    EXPECT_THAT(Why(second), HasSubstr(dir / "lock"));
    // Where the kernel says who: in some containers it does not.
    const bool is_said = std::ifstream("/proc/locks").peek() != EOF;
    EXPECT_THAT(Why(second), HasSubstr(is_said ? absl::StrCat("is in use by process ", getpid())
                                               : "is in use by another process"));
  }
  EXPECT_TRUE(FileLock::Take(dir / "lock").ok());
}

// Another process has it while it is stopped, and no more when it is killed.
TEST(FileLock, AStoppedProcessHasItAKilledOneHasNot) {
  ScratchDir dir;
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<FileLock> lock = FileLock::Take(dir / "lock");
    (void)!write(told[1], "x", 1);
    while (lock.ok()) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  EXPECT_TRUE(absl::IsAlreadyExists(FileLock::Take(dir / "lock").status()));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_TRUE(FileLock::Take(dir / "lock").ok());
  close(told[0]);
  close(told[1]);
}

TEST(FileLock, ErrorsNameThePath) {
  ScratchDir dir;
  EXPECT_TRUE(absl::IsNotFound(FileLock::Take(dir / "no/lock").status()));
  const int null = open("/dev/null", O_WRONLY);
  EXPECT_TRUE(LockOpenFile(null, "/dev/null").ok());
  const int again = open("/dev/null", O_WRONLY);
  EXPECT_TRUE(LockOpenFile(again, "/dev/null").ok()) << "it is nobody's";
  close(null);
  close(again);
}

}  // namespace
}  // namespace runnel::file_lock_test
