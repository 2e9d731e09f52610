// The DSP as a process: what becomes of a program that ends, hangs or answers nonsense, and of
// weights that change. Skipped where there is no emulator.

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/lost_backend.h"
#include "tests/kernels/op_harness.h"

namespace runnel::hexagon::hexagon_session_test {
namespace {

using ::testing::HasSubstr;

// Processes that this one started.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  const std::string path = absl::StrCat("/proc/self/task/", getpid(), "/children");
  std::ifstream file(path);
  for (pid_t pid; file >> pid;) children.push_back(pid);
  return children;
}

class HexagonSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto command = FindEmulator();
    if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
    options_.command = *std::move(command);
    options_.shared_bytes = 16 << 20;
    options_.private_bytes = 16 << 20;
  }

  std::unique_ptr<DspSession> Open() {
    auto session = OpenEmulatedSession(options_);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  // A copy of 64 bytes.
  static DspOp CopyOp(DspSession& session, std::unique_ptr<Memory>& area) {
    area = *session.memory()->Allocate(256);
    DspOp op;
    op.code = DspCode::kCopy;
    op.in[0] = {.data = session.memory()->OffsetOf(area->address()), .elements = 64, .bytes = 1};
    op.out[0] = {.data = op.in[0].data + 128, .elements = 64, .bytes = 1};
    return op;
  }

  EmulatedSessionOptions options_;
};

TEST_F(HexagonSessionTest, RunsListsAndCountsThem) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area);
  std::memset(area->address(), 7, 64);
  for (int i = 0; i < 3; ++i) {
    const std::vector<DspOp> ops(5, op);
    ASSERT_TRUE(session->Submit(ops).ok());
    ASSERT_TRUE(session->Wait().ok());
    ASSERT_EQ(session->counts().size(), 5u);
    EXPECT_GT(session->counts()[4].packets, 0u);
    EXPECT_EQ(session->counts()[3].packets, session->counts()[4].packets);
  }
  EXPECT_EQ(static_cast<int>(area->address()[128 + 63]), 7);
  EXPECT_EQ(static_cast<int>(area->address()[128 + 64]), 0);
}

TEST_F(HexagonSessionTest, AKilledProgramIsOneClearErrorForGood) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area);
  const std::vector<pid_t> children = Children();
  ASSERT_EQ(children.size(), 1u);
  kill(children[0], SIGKILL);
  absl::Status status = session->Submit({&op, 1});
  if (status.ok()) status = session->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("was ended by signal 9"));
  EXPECT_EQ(LostBackendOf(status), "hexagon");
  EXPECT_EQ(session->Submit({&op, 1}), status);
  EXPECT_TRUE(Children().empty());
}

TEST_F(HexagonSessionTest, AStoppedProgramIsGivenUpAndLeavesNothingBehind) {
  options_.stall_seconds = 1;
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area);
  const std::vector<pid_t> children = Children();
  ASSERT_EQ(children.size(), 1u);
  kill(children[0], SIGSTOP);
  ASSERT_TRUE(session->Submit({&op, 1}).ok());
  const absl::Status status = session->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("hangs"));
  EXPECT_TRUE(Children().empty());
}

TEST_F(HexagonSessionTest, AnOperationThatNobodyKnowsEndsTheSession) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  std::vector<DspOp> ops(2, CopyOp(*session, area));
  ops[1].code = static_cast<DspCode>(999);
  ASSERT_TRUE(session->Submit(ops).ok());
  EXPECT_THAT(session->Wait().message(), HasSubstr("refused operation 1 of 2"));
}

TEST_F(HexagonSessionTest, WithoutMemoryForAnOperationTheSessionGoesOn) {
  options_.private_bytes = 64 << 10;
  auto session = Open();
  ASSERT_NE(session, nullptr);
  auto area = *session->memory()->Allocate(4 << 20);
  const uint32_t at = session->memory()->OffsetOf(area->address());
  DspOp op;
  op.code = DspCode::kConvForward;
  op.x = {8, 16, 64, 64};
  op.y = {8, 1, 32, 32};
  op.window.sh = op.window.sw = 2;  // so that the images are laid out anew
  op.in[0] = {.data = at, .tail = at + 1024, .elements = 1 << 19, .bytes = 1};
  op.in[1] = {.data = at, .tail = at + 1024, .elements = 16, .bytes = 1};
  op.out[0] = {.data = at + (1 << 20), .tail = at + (2 << 20), .elements = 1 << 13, .bytes = 4};
  ASSERT_TRUE(session->Submit({&op, 1}).ok());
  const absl::Status status = session->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LostBackendOf(status), "hexagon") << "the stage does not fit";
  std::unique_ptr<Memory> small;
  const DspOp copy = CopyOp(*session, small);
  ASSERT_TRUE(session->Submit({&copy, 1}).ok());
  EXPECT_TRUE(session->Wait().ok());
}

TEST_F(HexagonSessionTest, SharedMemoryIsGivenOutZeroedAndRunsOut) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  auto first = *session->memory()->Allocate(1000);
  auto second = *session->memory()->Allocate(1000);
  std::byte* address = first->address();
  std::memset(address, 1, 1000);
  first.reset();
  first = *session->memory()->Allocate(900);
  EXPECT_EQ(first->address(), address);
  EXPECT_EQ(static_cast<int>(first->address()[899]), 0);
  const auto more = session->memory()->Allocate(64 << 20);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LostBackendOf(more.status()), "hexagon");
  const uint64_t version = session->memory()->VersionOf(address);
  EXPECT_NE(version, 0u);
  EXPECT_TRUE(Mapping::Of(*first, MapAccess::kRead).ok());
  EXPECT_EQ(session->memory()->VersionOf(address), version);
  EXPECT_TRUE(Mapping::Of(*first, MapAccess::kReadWrite).ok());
  EXPECT_NE(session->memory()->VersionOf(address), version);
  // Areas may outlive the session.
  session.reset();
  second.reset();
}

// A worker outlives its runs: the next one does not find the program of the last one dead.
TEST_F(HexagonSessionTest, ABackendWhoseProgramWasLostStartsAnother) {
  auto backend = MakeHexagonBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_FALSE((*backend)->traits().rates.is_timed) << "an emulator's time says nothing";
  Program program;
  program.batch = 1;
  program.buffers = {{Storage::kInput, DType::kInt8, {1, 64}, 0, true},
                     {Storage::kOutput, DType::kInt8, {1, 64}, 0, true}};
  program.parts[0].push_back({OpCode::kInt8ReluForward, {0}, {1}});
  AlignedBytes input(128), output(128);
  std::memset(input.data(), 5, 64);
  Bindings bindings;
  bindings[Storage::kInput] = input.data();
  bindings[Storage::kOutput] = output.data();
  auto before = *(*backend)->Prepare(program);
  ASSERT_EQ(Children().size(), 1u);
  kill(Children()[0], SIGKILL);
  EXPECT_EQ(before->Run(Part::kForward, {}, bindings).code(), absl::StatusCode::kUnavailable);
  auto after = (*backend)->Prepare(program);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE((*after)->Run(Part::kForward, {}, bindings).ok());
  EXPECT_EQ(static_cast<int>(output.data()[63]), 5);
  EXPECT_EQ(before->Run(Part::kForward, {}, bindings).code(), absl::StatusCode::kUnavailable);
}

// Programs that are no DSP: they answer the opening as the script says.
struct Impostor {
  const char* name;
  const char* script;
  const char* error;
  // Seconds: a shell may take a while to start on a busy machine, and is no program that hangs.
  int stall_seconds = 60;
};
constexpr Impostor kImpostors[] = {
    {"ends", "exit 3", "ended with exit code 3"},
    {"short", "printf abc; exec sleep 100", "wrong length"},
    {"long", "printf 0123456789012345678901234567890123456789; exec sleep 100", "wrong length"},
    {"nonsense", "printf 0123456789012345; exec sleep 100", "answered nonsense"},
    {"silent", "exec sleep 100", "hangs", 1},
    // The right answer's first words, then a status that refuses.
    {"refuses",
     "printf 'X1DR\\001\\000\\000\\000\\001\\000\\000\\000\\000\\000\\000\\000'; exec sleep 100",
     "refused to open"},
    {"closes", "exec 0<&- 1>&-; exec sleep 100", "closed its end"},
};

class ImpostorTest : public testing::TestWithParam<Impostor> {};

TEST_P(ImpostorTest, IsOneClearError) {
  const auto session = OpenEmulatedSession({.command = {"/bin/sh", "-c", GetParam().script},
                                            .shared_bytes = 1 << 20,
                                            .stall_seconds = GetParam().stall_seconds});
  EXPECT_EQ(session.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(session.status().message(), HasSubstr(GetParam().error));
  EXPECT_THAT(session.status().message(), HasSubstr("backend hexagon"));
  EXPECT_TRUE(Children().empty());
}

INSTANTIATE_TEST_SUITE_P(Programs, ImpostorTest, testing::ValuesIn(kImpostors),
                         [](const auto& info) { return info.param.name; });

TEST(HexagonSession, AProgramThatIsNotThereIsNamed) {
  const auto session =
      OpenEmulatedSession({.command = {"/no/such/emulator"}, .shared_bytes = 1 << 20});
  EXPECT_THAT(session.status().message(), HasSubstr("/no/such/emulator"));
}

}  // namespace
}  // namespace runnel::hexagon::hexagon_session_test
