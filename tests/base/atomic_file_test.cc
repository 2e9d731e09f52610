#include "proto/process/atomic_file.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::atomic_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AtomicFile, WritesPiecesAndReplaces) {
  ScratchDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", {"ab", "", "c"}).ok());
  EXPECT_EQ(Slurp(dir / "f"), "abc");
  ASSERT_TRUE(WriteFileAtomically(dir / "f", {"x"}).ok());
  EXPECT_EQ(Slurp(dir / "f"), "x");
  EXPECT_THAT(dir.List(), ElementsAre("f"));
}

// In a folder of everybody's, somebody has put a link where the temporary file would be.
TEST(AtomicFile, ALinkInTheTemporaryFilesPlaceIsNotFollowed) {
  ScratchDir dir;
  Spill(dir / "precious", "mine");
  ASSERT_EQ(symlink((dir / "precious").c_str(), (dir / "f.tmp").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomically(dir / "f", {"new"}).ok());
  EXPECT_EQ(Slurp(dir / "precious"), "mine");
  EXPECT_EQ(Slurp(dir / "f"), "new");
  EXPECT_THAT(dir.List(), ElementsAre("f", "precious"));
}

TEST(AtomicFile, FullDiskLeavesTheOldContent) {
  ScratchDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", {"old"}).ok());
  absl::Status status;
  {
    FileSizeLimit limit(1000);
    status = WriteFileAtomically(dir / "f", {std::string(5000, 'x')});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "f"));
  EXPECT_EQ(Slurp(dir / "f"), "old");
  EXPECT_THAT(dir.List(), ElementsAre("f"));
}

TEST(AtomicFile, FullFileSystem) {
  ScratchDir dir;
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "skipped: no tmpfs can be mounted here (" << strerror(errno) << ")";
  }
  const absl::Status small = WriteFileAtomically(dir / "f", {"old"});
  const absl::Status large = WriteFileAtomically(dir / "f", {std::string(1 << 20, 'x')});
  const std::string content = Slurp(dir / "f");
  const std::vector<std::string> files = dir.List();
  EXPECT_EQ(umount(dir.path().c_str()), 0);
  EXPECT_TRUE(small.ok()) << small;
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted) << large;
  EXPECT_THAT(std::string(large.message()), HasSubstr("No space left on device"));
  EXPECT_EQ(content, "old");
  EXPECT_THAT(files, ElementsAre("f"));
}

TEST(AtomicFile, ErrorsNamePathAndCause) {
  ScratchDir dir;
  const absl::Status missing = WriteFileAtomically(dir / "no/f", {"x"});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no/f"));
  Spill(dir / "file", "");
  const absl::Status below_file = WriteFileAtomically(dir / "file/f", {"x"});
  EXPECT_EQ(below_file.code(), absl::StatusCode::kInvalidArgument) << below_file;
}

TEST(AtomicFile, FollowsLinks) {
  ScratchDir dir;
  Spill(dir / "real", "old");
  ASSERT_EQ(symlink((dir / "real").c_str(), (dir / "link").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomically(dir / "link", {"new"}).ok());
  EXPECT_EQ(Slurp(dir / "real"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
}

// A pipe stands for all that is no regular file. Not /dev/null: a test that fails here would have
// replaced it.
TEST(AtomicFile, KeepsWhatIsNoRegularFile) {
  ScratchDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  const int reader = open((dir / "pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFileAtomically(dir / "pipe", {"a", "b"}).ok());
  EXPECT_TRUE(std::filesystem::is_fifo(dir / "pipe"));
  char got[3] = {};
  EXPECT_EQ(read(reader, got, 2), 2);
  EXPECT_STREQ(got, "ab");
  close(reader);
  EXPECT_THAT(dir.List(), ElementsAre("pipe"));
}

TEST(ReadWholeFile, ChecksBeforeItReads) {
  ScratchDir dir;
  Spill(dir / "f", "12345");
  EXPECT_EQ(*ReadWholeFile(dir / "f", 5), "12345");
  EXPECT_EQ(ReadWholeFile(dir / "f", 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadWholeFile(dir / "g", 4).status().code(), absl::StatusCode::kNotFound);
  const absl::Status folder = ReadWholeFile(dir.path(), 4).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("is a folder, no file"));
  // A file that claims to be huge costs nothing.
  const int fd = open((dir / "sparse").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(fd, off_t{1} << 40), 0);
  close(fd);
  EXPECT_EQ(ReadWholeFile(dir / "sparse", 1 << 20).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace runnel::atomic_file_test
