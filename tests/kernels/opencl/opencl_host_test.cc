// The vendor host with OpenCL's functions: libraries that are none, a host that is killed, requests
// that are nonsense. That products and whole programs have the same bytes through it, opencl_test
// shows when it runs as opencl_hosted_test, which has a test for each kind of call. All of them:
//   export LD_LIBRARY_PATH=build/dev/lib/hosted
//   export RUNNEL_TEST_VENDOR_HOST=build/dev/bin/runnel-vendor-host
//   build/dev/bin/opencl_test

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/hosted/use_host.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/vendor_host/host_process.h"
#include "tests/support/scratch.h"

extern char** environ;

namespace runnel::opencl::opencl_host_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kProgram = RUNNEL_BINARY_DIR "/runnel-vendor-host";
constexpr char kLibrary[] = "libOpenCL.so.1";

std::string FailureOf(const std::string& program, const std::vector<std::string>& libraries,
                      const std::string& table = "opencl") {
  return std::string(HostProcess::Start({program, table, libraries}).status().message());
}

TEST(VendorHost, NamesEachLibraryAndWhyItWasNotLoaded) {
  ScratchDir dir;
  const std::string text = dir / "libOpenCL.so";
  std::ofstream(text) << "not a library";
  const std::string line = FailureOf(kProgram, {"/nowhere/libOpenCL.so", text, "libm.so.6"});
  EXPECT_THAT(line,
              AllOf(HasSubstr("can load none of the libraries: /nowhere/libOpenCL.so: cannot open "
                              "shared object file"),
                    HasSubstr(text), HasSubstr("libm.so.6: has no clGetPlatformIDs")));
  EXPECT_THAT(line, testing::Not(HasSubstr("\n")));
  EXPECT_THAT(FailureOf(kProgram, {}), HasSubstr("can load none of the libraries"));
}

TEST(VendorHost, ProgramsThatAreNoneAreNamed) {
  EXPECT_THAT(FailureOf("/nowhere/host", {kLibrary}),
              HasSubstr("/nowhere/host cannot be started: No such file or directory"));
  EXPECT_THAT(FailureOf("/bin/true", {kLibrary}), HasSubstr("/bin/true ended"));
  EXPECT_THAT(FailureOf("/bin/false", {kLibrary}), HasSubstr("/bin/false ended with exit code 1"));
  EXPECT_THAT(FailureOf(kProgram, {kLibrary}, "abacus"),
              HasSubstr("does not take its arguments: it is of another release"));
}

// A host whose packets the test writes.
class RawHost {
 public:
  RawHost() {
    int ends[2], life[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life), 0);
    const int area = memfd_create("area", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(area, kHostAreaBytes), 0);
    const int host_end = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    const int high_area = fcntl(area, F_DUPFD_CLOEXEC, 10);
    const int high_life = fcntl(life[1], F_DUPFD_CLOEXEC, 10);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, host_end, kHostSocket);
    posix_spawn_file_actions_adddup2(&actions, high_area, kHostArea);
    posix_spawn_file_actions_adddup2(&actions, high_life, kHostLife);
    std::string words[] = {kProgram, "opencl", kLibrary};
    char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, kProgram.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    for (int file : {ends[1], area, host_end, high_area, life[1], high_life}) close(file);
    socket_ = ends[0];
    life_ = life[0];
    HostReply first;
    is_loaded_ = recv(socket_, &first, sizeof first, 0) == sizeof first && first.result == 0;
  }
  ~RawHost() {
    close(socket_);
    if (life_ >= 0) close(life_);
  }

  bool is_loaded() const { return is_loaded_; }
  // The exit code after this packet.
  int CodeAfter(const void* packet, size_t bytes) {
    EXPECT_EQ(send(socket_, packet, bytes, 0), static_cast<ssize_t>(bytes));
    // One that goes on sees the end of the packets.
    shutdown(socket_, SHUT_WR);
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // The signal that ends it when the worker's life is over, while its socket still is open.
  int SignalAfterTheWorker() {
    close(std::exchange(life_, -1));
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  int life_ = -1;
  bool is_loaded_ = false;
};

class VendorHostWithOpenCl : public testing::Test {
 protected:
  void SetUp() override {
    auto host = HostProcess::Start({kProgram, "opencl", {kLibrary}});
    if (!host.ok()) GTEST_SKIP() << "no OpenCL here: " << host.status().message();
    host_ = *std::move(host);
  }

  std::unique_ptr<HostProcess> host_;
};

TEST_F(VendorHostWithOpenCl, EndsAtAMessageThatItDoesNotUnderstand) {
  const auto code_after = [](auto change, size_t bytes = sizeof(HostRequest)) {
    // Finish of no queue, but for the change.
    HostRequest request = {};
    request.magic = kHostMagic;
    request.function = 9;
    request.arguments = 1;
    change(request);
    RawHost host;
    EXPECT_TRUE(host.is_loaded());
    return host.CodeAfter(&request, bytes);
  };
  EXPECT_EQ(code_after([](HostRequest&) {}, 7), kHostGotNonsense);
  EXPECT_EQ(code_after([](HostRequest& r) { r.magic ^= 1; }), kHostGotNonsense);
  EXPECT_EQ(code_after([](HostRequest& r) { r.function = 1000; }), kHostGotNonsense);
  EXPECT_EQ(code_after([](HostRequest& r) { r.arguments = 2; }), kHostGotNonsense);
  EXPECT_EQ(code_after([](HostRequest& r) { r.arguments = 1u << 30; }), kHostGotNonsense);
  // Pieces beyond the area: the names of platforms.
  for (const HostArgument piece : {HostArgument{kHostAreaBytes, 8}, HostArgument{8, kHostAreaBytes},
                                   HostArgument{UINT64_MAX - 7, 16}, HostArgument{1, 8}}) {
    EXPECT_EQ(code_after([&](HostRequest& r) {
                r.function = 0;
                r.arguments = 3;
                r.argument[1] = piece;
                r.argument[2] = {HOST_NO_PIECE, 0};
              }),
              kHostGotNonsense)
        << piece.value;
  }
}

TEST_F(VendorHostWithOpenCl, EndsWithTheWorkersLifeAndNotWithTheThreadThatStartedIt) {
  RawHost raw;
  ASSERT_TRUE(raw.is_loaded());
  EXPECT_EQ(raw.SignalAfterTheWorker(), SIGKILL);
  std::unique_ptr<HostProcess> host;
  std::thread([&host] {
    auto started = HostProcess::Start({kProgram, "opencl", {kLibrary}});
    if (started.ok()) host = *std::move(started);
  }).join();
  ASSERT_NE(host, nullptr);
  uint32_t count = 0;
  HostCall call(*host, 0);
  call.Fixed().In(nullptr, 0).Out(&count, sizeof count);
  EXPECT_EQ(call.Send(), HostCall::Result::kDone);
}

TEST_F(VendorHostWithOpenCl, TheWorkerSaysInOneLineThatItsHostEnded) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    HostCall call(*host_, /*function=*/1000);
    EXPECT_EQ(call.Send(), HostCall::Result::kLost);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "opencl: the vendor host got a request that it does not understand\n");
  EXPECT_TRUE(host_->is_lost());
}

TEST_F(VendorHostWithOpenCl, OfALostHostNeitherFilesNorMemoryStay) {
  const auto files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto areas = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("memfd:runnel-vendor-host") != std::string::npos;
    return count;
  };
  const auto files_before = files();
  const int areas_before = areas();
  auto host = HostProcess::Start({kProgram, "opencl", {kLibrary}});
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_GT(files(), files_before);
  EXPECT_EQ(areas(), areas_before + 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(HostCall(**host, /*function=*/1000).Send(), HostCall::Result::kLost);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(files(), files_before);
  EXPECT_EQ(areas(), areas_before);
  // Bytes of later calls go nowhere.
  uint64_t bytes = 1;
  HostCall call(**host, 0);
  call.In(&bytes, sizeof bytes).Out(&bytes, sizeof bytes);
  EXPECT_EQ(call.Send(), HostCall::Result::kLost);
}

TEST_F(VendorHostWithOpenCl, HandlesThatAreNoneAreRefused) {
  uint64_t platform = 0;
  {
    HostCall call(*host_, 0);
    call.Fixed().Out(&platform, sizeof platform).In(nullptr, 0);
    ASSERT_EQ(call.Send(), HostCall::Result::kDone);
    if (call.reply().result != 0) GTEST_SKIP() << "no OpenCL driver";
  }
  const auto ask = [&](uint64_t number, uint32_t function) {
    char name[64] = {};
    HostCall call(*host_, function);
    call.Number(number).Number(CL_PLATFORM_NAME).Fixed().Out(name, sizeof name).In(nullptr, 0);
    const HostCall::Result result = call.Send();
    return result == HostCall::Result::kDone && name[0] == 0 ? HostCall::Result::kLost : result;
  };
  EXPECT_EQ(ask(platform, 1), HostCall::Result::kDone);
  EXPECT_EQ(ask(platform + 1, 1), HostCall::Result::kRefused);
  EXPECT_EQ(ask(platform + (uint64_t{1} << 32), 1), HostCall::Result::kRefused);
  EXPECT_EQ(ask(UINT64_MAX, 1), HostCall::Result::kRefused);
  EXPECT_EQ(ask(platform, 3), HostCall::Result::kRefused) << "a platform is no device";
  EXPECT_EQ(ask(platform, 1), HostCall::Result::kDone) << "the host goes on";
}

TEST_F(VendorHostWithOpenCl, BytesThatDoNotFitAreNotSent) {
  const std::string large(kHostAreaBytes + 1, 'x');
  {
    HostCall call(*host_, 14);
    call.Number(0).Fixed().In(large.data(), large.size()).Fixed().Fixed();
    EXPECT_EQ(call.Send(), HostCall::Result::kTooLarge);
  }
  EXPECT_FALSE(host_->is_lost());
}

// The functions under OpenCL's own names.
class HostedOpenCl : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status used = UseHost(kProgram, {kLibrary});
    if (!used.ok()) GTEST_SKIP() << "no OpenCL here: " << used.message();
    const auto devices = ListDevices();
    if (!devices.ok()) GTEST_SKIP() << "no OpenCL here: " << devices.status().message();
  }
};

TEST_F(HostedOpenCl, IsNamedAndSharesNoMemory) {
  const DeviceInfo device = ListDevices()->front();
  EXPECT_THAT(DescriptionOf(device), HasSubstr(", by vendor host with libOpenCL.so.1)"));
  EXPECT_FALSE(device.shares_memory);
}

TEST_F(HostedOpenCl, CountsTheBytesThatItCopies) {
  auto backend = MakeBackendWith({.programs = ""});
  ASSERT_TRUE(backend.ok()) << backend.status();
  // More than the area holds at once.
  constexpr int64_t kBytes = 40 << 20;
  auto memory = (*backend)->Allocate(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const int64_t before = UseOfHost().copied_bytes;
  {
    auto mapping = Mapping::Of(**memory, MapAccess::kReadWrite);
    ASSERT_TRUE(mapping.ok());
    for (int64_t i = 0; i < kBytes; ++i) mapping->data()[i] = static_cast<std::byte>(i % 251);
  }
  EXPECT_EQ(UseOfHost().copied_bytes - before, 2 * kBytes) << "in and out";
  auto mapping = Mapping::Of(**memory, MapAccess::kRead);
  ASSERT_TRUE(mapping.ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < kBytes; ++i)
    wrong += mapping->data()[i] != static_cast<std::byte>(i % 251);
  EXPECT_EQ(wrong, 0);
}

TEST_F(HostedOpenCl, AHostThatIsKilledIsALostDeviceAndTheNextBackendHasAnother) {
  auto backend = MakeBackendWith({.programs = ""});
  ASSERT_TRUE(backend.ok()) << backend.status();
  auto memory = (*backend)->Allocate(1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const pid_t pid = UseOfHost().pid;
  testing::internal::CaptureStderr();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const absl::Status lost = (*memory)->Map(MapAccess::kRead).status();
  EXPECT_EQ(LostBackendOf(lost), "opencl") << lost;
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr(" is lost: clEnqueueMapBuffer: CL_DEVICE_NOT_AVAILABLE"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "opencl: the vendor host was ended by signal 9\n");
  auto next = MakeBackendWith({.programs = ""});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_NE(UseOfHost().pid, pid);
  EXPECT_TRUE((*next)->Allocate(1000).ok());
  // Handles of the lost host are none of the new one's.
  memory->reset();
  backend->reset();
  EXPECT_TRUE((*next)->Allocate(1000).ok());
}

}  // namespace
}  // namespace runnel::opencl::opencl_host_test
