// A process without standard output writes its lines into no file of its own.

#include "proto/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::standard_streams_test {
namespace {

TEST(StandardStreams, AreTakenWhereTheyAreClosed) {
  const ScratchDir dir;
  const int input = dup(STDIN_FILENO), output = dup(STDOUT_FILENO);
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  KeepStandardStreams();
  const int file = open((dir / "f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const ssize_t written = write(STDOUT_FILENO, "a line", 6);
  const off_t size = lseek(file, 0, SEEK_END);
  close(file);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  close(input);
  close(output);
  EXPECT_GT(file, STDERR_FILENO);
  EXPECT_EQ(written, 6);
  EXPECT_EQ(size, 0);
}

TEST(StandardStreams, AreKeptWhereTheyAreOpen) {
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const int output = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  KeepStandardStreams();
  const ssize_t written = write(STDOUT_FILENO, "a", 1);
  dup2(output, STDOUT_FILENO);
  close(output);
  char got = 0;
  EXPECT_EQ(written, 1);
  EXPECT_EQ(read(ends[0], &got, 1), 1);
  EXPECT_EQ(got, 'a');
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace runnel::standard_streams_test
