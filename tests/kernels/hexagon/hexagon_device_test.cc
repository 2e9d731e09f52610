// The DSP of a device, with a double of the vendor's library: the real shared object for devices
// runs under qemu-hexagon, and its memory is another one than the host's, so that a change that is
// not passed on shows. Skipped where there is no emulator. Says nothing of hardware.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/lost_backend.h"
#include "tests/kernels/dsp_device/device_double.h"
#include "tests/support/scratch.h"
#include "worker/measure/backend_check.h"

namespace runnel::hexagon::hexagon_device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An environment variable for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

Variable Fault(const std::string& name) { return {"RUNNEL_DOUBLE_FAULT", name}; }

TEST(RangeSet, JoinsWhatTouchesInWholeLines) {
  RangeSet set;
  set.Add(1000, 10);
  set.Add(5, 1);
  set.Add(1030, 100);
  set.Add(300, 0);
  auto ranges = set.ranges();
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].offset, 0u);
  EXPECT_EQ(ranges[0].bytes, 128u);
  EXPECT_EQ(ranges[1].offset, 896u);
  EXPECT_EQ(ranges[1].bytes, 256u);
  set.Add(128, 768);
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set.ranges()[0].bytes, 1152u);
}

TEST(RangeSet, JoinsOverTheSmallestGapsFirst) {
  RangeSet set;
  for (uint32_t offset : {0, 256, 4096, 4480, 102400, 204800}) set.Add(offset, 128);
  set.JoinTo(4);
  const auto ranges = set.ranges();
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].bytes, 384u);
  EXPECT_EQ(ranges[1].offset, 4096u);
  EXPECT_EQ(ranges[1].bytes, 512u);
  EXPECT_EQ(ranges[3].bytes, 128u);
  // Equal gaps: no more go than have to.
  RangeSet even;
  for (uint32_t i = 0; i < 10; ++i) even.Add(i * 1024, 128);
  even.JoinTo(7);
  EXPECT_EQ(even.size(), 7u);
}

TEST(DspObject, IsTheNewestThatTheDspCanRun) {
  ScratchDir dir;
  for (const char* name : {"librunnel_dsp_v66.so", "librunnel_dsp_v73.so", "librunnel_dsp_vx.so",
                           "libother_v68.so", "librunnel_dsp_v69.txt"}) {
    std::ofstream(dir / name) << "";
  }
  EXPECT_EQ(*ChooseDspObject(dir.path(), 66), "librunnel_dsp_v66.so");
  EXPECT_EQ(*ChooseDspObject(dir.path(), 72), "librunnel_dsp_v66.so");
  EXPECT_EQ(*ChooseDspObject(dir.path(), 81), "librunnel_dsp_v73.so");
  const absl::Status status = ChooseDspObject(dir.path(), 65).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("for a DSP of version 65"));
}

TEST(VendorLibrary, OneThatIsNotThereIsNamed) {
  const Variable library("RUNNEL_DSP_LIBRARY", "/nowhere/libcdsprpc.so");
  const BackendOptions options = *BackendOptions::Parse("hexagon.dsp=device");
  const absl::Status status = MakeHexagonBackend({.options = options}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "backend hexagon: no DSP here: /nowhere/libcdsprpc.so is not there; take --backend "
            "cpu");
  EXPECT_FALSE(IsHexagonInstalled("hexagon", options));
  EXPECT_FALSE(HasHexagonDevice({}));
}

TEST(VendorLibrary, AFileThatIsNoLibraryIsRefused) {
  ScratchDir dir;
  std::ofstream(dir / "libcdsprpc.so") << "no library";
  const Variable library("RUNNEL_DSP_LIBRARY", dir / "libcdsprpc.so");
  EXPECT_TRUE(IsHexagonInstalled("hexagon", {}));
  EXPECT_TRUE(HasHexagonDevice({}));
  EXPECT_FALSE(HasHexagonDevice(*BackendOptions::Parse("hexagon.dsp=emulated")));
  EXPECT_THAT(std::string(MakeHexagonBackend({}).status().message()),
              AllOf(StartsWith("backend hexagon: no DSP here: "), HasSubstr("cannot be loaded: ")));
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status status = HasDouble(); !status.ok())
      GTEST_SKIP() << "no DSP here: " << status.message();
  }

  // stall_seconds: short only where something hangs; a busy machine is slow.
  std::unique_ptr<DspSession> Open(const std::string& variant = "", int stall_seconds = 100) {
    DeviceSessionOptions options = DoubleOptions(variant);
    options.stall_seconds = stall_seconds;
    options.link.greeting = greeting_;
    auto session = OpenDeviceSession(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  std::chrono::seconds greeting_ = std::chrono::seconds(100);

  // A copy of 64 bytes within an area of 4 KiB, which the host has filled with `value`.
  static DspOp CopyOp(DspSession& session, std::unique_ptr<Memory>& area, int value) {
    area = *session.memory()->Allocate(4096);
    std::memset(Mapping::Of(*area, MapAccess::kReadWrite)->data(), value, 64);
    DspOp op;
    op.code = DspCode::kCopy;
    op.in[0] = {.data = session.memory()->OffsetOf(area->address()), .elements = 64, .bytes = 1};
    op.out[0] = {.data = op.in[0].data + 2048, .elements = 64, .bytes = 1};
    return op;
  }

  static absl::Status Run(DspSession& session, absl::Span<const DspOp> ops) {
    const absl::Status status = session.Submit(ops);
    return status.ok() ? session.Wait() : status;
  }
};

TEST_F(DeviceTest, OpensWhatTheDspIsAndGivesAllBack) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  EXPECT_STREQ(session->name(), "v66-device");
  EXPECT_EQ(session->description(),
            "v66, 4 vector units, 256 KiB VTCM, by packet queue with librunnel_dsp_v66.so, not "
            "verified on hardware");
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_EQ(static_cast<int>(area->address()[2048 + 63]), 7);
  EXPECT_EQ(static_cast<int>(area->address()[2048 + 64]), 0);
  ASSERT_EQ(session->counts().size(), 1u);
  EXPECT_EQ(session->counts()[0].packets, 0u) << "a device counts nothing";
  EXPECT_EQ(StatisticsOfDouble().powered, 1u);
  EXPECT_EQ(StatisticsOfDouble().mapped, 1u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 1u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_bytes, 0u) << "others may have it between lists";
  session.reset();
  EXPECT_EQ(StatisticsOfDouble().powered, 0u);
  EXPECT_EQ(StatisticsOfDouble().mapped, 0u);
}

TEST_F(DeviceTest, OnlyWhatChangedPasses) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  auto large = *session->memory()->Allocate(8 << 20);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  const DoubleStatistics before = StatisticsOfDouble();
  EXPECT_GT(before.bytes_in, 8 << 20);
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  const DoubleStatistics after = StatisticsOfDouble();
  EXPECT_LT(after.bytes_in - before.bytes_in, 1024) << "the list alone";
  EXPECT_LT(after.bytes_out - before.bytes_out, 1280) << "64 bytes, and the slack behind them";
  // Reading is no change.
  EXPECT_TRUE(Mapping::Of(*large, MapAccess::kRead).ok());
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_LT(StatisticsOfDouble().bytes_in - after.bytes_in, 1024);
  std::memset(Mapping::Of(*area, MapAccess::kReadWrite)->data(), 9, 64);
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_EQ(static_cast<int>(area->address()[2048]), 9);
}

// The program may keep no line of the list in its cache: it would be written back over the next.
TEST_F(DeviceTest, TheListIsTheHosts) {
  const Variable fault = Fault("lenient");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  DspOp op = CopyOp(*session, area, 7);
  op.packed_key = 1;
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  op.packed_key = 2;
  ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  const auto& desk = *reinterpret_cast<const DspDesk*>(session->memory()->base());
  EXPECT_EQ(desk.ops[0].packed_key, 2u) << "a field of the list before came back";
}

TEST_F(DeviceTest, AListThatWritesToManyPlacesGoesInPieces) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  constexpr int kOps = 100;
  constexpr uint32_t kApart = 4096;
  auto area = *session->memory()->Allocate(int64_t{kOps} * 2 * kApart);
  std::vector<DspOp> ops(kOps);
  {
    const auto mapping = Mapping::Of(*area, MapAccess::kReadWrite);
    for (uint32_t i = 0; i < kOps; ++i) {
      mapping->data()[i * kApart] = static_cast<std::byte>(i + 1);
      ops[i].code = DspCode::kCopy;
      const uint32_t at = session->memory()->OffsetOf(area->address()) + i * kApart;
      ops[i].in[0] = {.data = at, .elements = 64, .bytes = 1};
      ops[i].out[0] = {.data = at + kOps * kApart, .elements = 64, .bytes = 1};
    }
  }
  ASSERT_TRUE(Run(*session, ops).ok());
  EXPECT_EQ(StatisticsOfDouble().lists, 4);
  for (uint32_t i = 0; i < kOps; ++i) {
    ASSERT_EQ(static_cast<uint32_t>(area->address()[(kOps + i) * kApart]), i + 1);
  }
  // Operations are counted over all pieces.
  ops[70].code = static_cast<DspCode>(999);
  EXPECT_THAT(std::string(Run(*session, ops).message()), HasSubstr("refused operation 70 of 100"));
}

// By the functions of the DSP's system, with the object's own stacks.
TEST_F(DeviceTest, AConvolutionRunsOnAThreadAVectorUnit) {
  std::vector<std::byte> alone;
  for (uint32_t threads : {1u, 0u}) {
    DeviceSessionOptions options = DoubleOptions();
    options.threads = threads;
    auto session = OpenDeviceSession(options);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto area = *(*session)->memory()->Allocate(1 << 20);
    {
      const auto mapping = Mapping::Of(*area, MapAccess::kReadWrite);
      for (int i = 0; i < 1 << 16; ++i) mapping->data()[i] = static_cast<std::byte>(i * 77 % 251);
      std::memset(mapping->data() + (1 << 16), 0, 128);  // tails
    }
    const uint32_t at = (*session)->memory()->OffsetOf(area->address());
    DspOp op;
    op.code = DspCode::kConvForward;
    op.x = {4, 32, 12, 12};
    op.y = {4, 48, 12, 12};
    op.window = {3, 3, 1, 1, 1, 1};
    op.in[0] = {.data = at, .tail = at + (1 << 16), .elements = 18432, .bytes = 1};
    op.in[1] = {.data = at + 18432, .tail = at + (1 << 16), .elements = 13824, .bytes = 1};
    op.out[0] = {.data = at + (1 << 17), .tail = at + (1 << 19), .elements = 27648, .bytes = 4};
    ASSERT_TRUE(Run(**session, {&op, 1}).ok());
    EXPECT_EQ(StatisticsOfDouble().threads, threads == 1 ? 0u : 3u) << "beside the first one";
    const std::byte* result = area->address() + (1 << 17);
    std::vector<std::byte> bytes(result, result + 27648 * 4);
    if (threads == 1) alone = bytes;
    ASSERT_TRUE(bytes == alone);
  }
}

TEST_F(DeviceTest, WithoutMemoryForAnOperationTheSessionGoesOn) {
  DeviceSessionOptions options = DoubleOptions();
  options.link.private_bytes = 64 << 10;
  auto opened = OpenDeviceSession(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  DspSession& session = **opened;
  auto area = *session.memory()->Allocate(4 << 20);
  const uint32_t at = session.memory()->OffsetOf(area->address());
  DspOp op;
  op.code = DspCode::kConvForward;
  op.x = {8, 16, 64, 64};
  op.y = {8, 1, 32, 32};
  op.window.sh = op.window.sw = 2;
  op.in[0] = {.data = at, .tail = at + 1024, .elements = 1 << 19, .bytes = 1};
  op.in[1] = {.data = at, .tail = at + 1024, .elements = 16, .bytes = 1};
  op.out[0] = {.data = at + (1 << 20), .tail = at + (2 << 20), .elements = 1 << 13, .bytes = 4};
  const absl::Status status = Run(session, {&op, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LostBackendOf(status), "hexagon") << "the stage does not fit";
  std::unique_ptr<Memory> small;
  const DspOp copy = CopyOp(session, small, 3);
  EXPECT_TRUE(Run(session, {&copy, 1}).ok());
}

// A convolution that is worth threads, in a batch of `batch` samples; it reads what is there.
DspOp ConvOp(DspSession& session, std::unique_ptr<Memory>& area, int batch) {
  area = *session.memory()->Allocate(4 << 20);
  const uint32_t at = session.memory()->OffsetOf(area->address());
  DspOp op;
  op.code = DspCode::kConvForward;
  op.x = op.y = {batch, 64, 16, 16};
  op.window = {3, 3, 1, 1, 1, 1};
  const auto pixels = static_cast<uint32_t>(batch) * 64 * 256;
  op.in[0] = {.data = at, .tail = at + (1 << 19), .elements = pixels, .bytes = 1};
  op.in[1] = {.data = at, .tail = at + (1 << 19), .elements = 64 * 576, .bytes = 1};
  op.out[0] = {.data = at + (1 << 20), .tail = at + (3 << 20), .elements = pixels, .bytes = 4};
  return op;
}

TEST_F(DeviceTest, VtcmIsAskedForOnce) {
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_EQ(StatisticsOfDouble().vtcm_asks, 1u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 5u) << "for a list";
  EXPECT_EQ(StatisticsOfDouble().vtcm_waits, 0u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_returned, 0u);
}

TEST_F(DeviceTest, AnotherProgramOfEqualPriorityHasVtcmBetweenLists) {
  const Variable fault = Fault("vtcm_shared:2");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_EQ(StatisticsOfDouble().vtcm_shared, 4u) << "before each list but the first";
  EXPECT_EQ(StatisticsOfDouble().vtcm_waits, 4u) << "once a list";
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 5u);
}

// As where the manager takes no unsigned programs.
TEST_F(DeviceTest, AManagerThatLendsNothingIsNotWaitedForAndSoonNotAsked) {
  const Variable fault = Fault("manager_mute");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Run(*session, {&op, 1}).ok());
  EXPECT_EQ(StatisticsOfDouble().vtcm_asks, 3u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_waits, 0u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 6u);
}

// The system's thread may be the faster one.
TEST_F(DeviceTest, VtcmThatIsWantedAsSoonAsItIsLentIsGivenBack) {
  const Variable fault = Fault("vtcm_asked_early");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  ASSERT_TRUE(Run(*session, {op, op, op}).ok());
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 3u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_returned, 3u);
}

TEST_F(DeviceTest, VtcmThatAnotherProgramWantsIsGivenBackBetweenOperations) {
  const Variable fault = Fault("vtcm_asked");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = ConvOp(*session, area, 2);
  ASSERT_TRUE(Run(*session, {op, op, op}).ok());
  EXPECT_GT(StatisticsOfDouble().threads, 0u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_returned, 3u) << "the last time after the list";
  EXPECT_EQ(StatisticsOfDouble().vtcm_taken, 3u);
  EXPECT_EQ(StatisticsOfDouble().vtcm_bytes, 0u);
}

// What was done of the list cannot be done again.
TEST_F(DeviceTest, AListWhoseVtcmDoesNotComeBackIsTheDspsLast) {
  const Variable fault = Fault("vtcm_gone");
  auto session = Open();
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = ConvOp(*session, area, 2);
  const absl::Status status = Run(*session, {op, op});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gave its VTCM back before operation 1 of 2"));
  EXPECT_TRUE(session->lost());
}

// By what requests travel: the fault that forbids the queue, the library, and the reason given.
struct Way {
  const char* name;
  const char* variant;
  const char* fault;
  const char* described;
};
constexpr Way kWays[] = {
    {"queue", "", "", "by packet queue with"},
    {"no_queue_made", "", "queue",
     "by remote calls (no packet queue: no queue can be made: error 0x14 (not supported)) with"},
    {"silent_queue", "", "silent",
     "by remote calls (no packet queue: the DSP answers no packet) with"},
    {"library_without_queues", "_without_queues", "",
     "by remote calls (no packet queue: the library has no queues) with"},
    {"old_system", "", "old_system",
     "by remote calls (no packet queue: the DSP takes no queue: error 0x14 (not supported)) with"},
    {"vtcm_refused_once", "", "vtcm_once:2", "by packet queue with"},
    {"vtcm_short", "", "vtcm_short_once:1", "by packet queue with"},
    {"vtcm_short_and_asked_back", "", "vtcm_short_once:1+vtcm_once:3", "by packet queue with"},
    {"vtcm_asked_back", "", "vtcm_asked", "by packet queue with"},
    {"vtcm_shared", "", "vtcm_shared", "by packet queue with"},
    {"vtcm_unmanaged", "", "unmanaged", "by packet queue with"},
    {"vtcm_unmanaged_refused_once", "", "unmanaged+vtcm_once:2", "by packet queue with"},
    {"vtcm_unmanaged_short_once", "", "unmanaged+vtcm_short_once:3", "by packet queue with"},
};

class WayTest : public DeviceTest, public ::testing::WithParamInterface<Way> {};

// A convolution and a product, two steps, against ref.
TEST_P(WayTest, TrainsWithTheBytesOfRef) {
  const Variable fault = Fault(GetParam().fault);
  if (std::string(GetParam().fault) == "silent") greeting_ = std::chrono::seconds(1);
  auto session = Open(GetParam().variant);
  ASSERT_NE(session, nullptr);
  EXPECT_THAT(session->description(), HasSubstr(GetParam().described));
  const auto backend = MakeBackendOn(std::move(session));
  EXPECT_TRUE(backend->traits().rates.is_timed) << "as a device is, even this one";
  EXPECT_TRUE(CheckBackend(*backend).ok()) << CheckBackend(*backend);
  EXPECT_GT(StatisticsOfDouble(GetParam().variant).lists, 7);
}

INSTANTIATE_TEST_SUITE_P(Ways, WayTest, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

struct OpeningFault {
  const char* name;
  const char* variant;
  const char* error;
};
constexpr OpeningFault kOpeningFaults[] = {
    {"unsigned", "", "the DSP takes no unsigned modules"},
    {"refuse_unsigned", "", "the DSP refuses unsigned modules: error 0x14 (not supported)"},
    {"open", "", "the DSP does not open librunnel_dsp_v66.so of "},
    {"memory", "", "MiB to share with the DSP"},
    {"invoke", "", "takes no remote call: error 0x72 (connection refused)"},
    {"symbol", "_without_open", "libcdsprpc_double_without_open.so has no remote_handle64_open"},
};

class OpeningFaultTest : public DeviceTest, public ::testing::WithParamInterface<OpeningFault> {};

TEST_P(OpeningFaultTest, IsOneClearLine) {
  const Variable fault = Fault(GetParam().name);
  const Variable library("RUNNEL_DSP_LIBRARY", DoublePath(GetParam().variant));
  const absl::Status status = MakeHexagonBackend({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, AllOf(StartsWith("backend hexagon: no DSP here: "),
                             HasSubstr(GetParam().error), HasSubstr("; take --backend cpu")));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Faults, OpeningFaultTest, ::testing::ValuesIn(kOpeningFaults),
                         [](const auto& info) { return info.param.name; });

// From the second list on.
struct RunningFault {
  const char* name;
  const char* variant;  // of the library
  const char* fault;
  const char* error;
};
constexpr RunningFault kRunningFaults[] = {
    {"invoke", "", "invoke:2", "'s queue takes no packet: error 0x72 (connection refused)"},
    {"invoke_by_calls", "_without_queues", "invoke:2",
     " takes no remote call: error 0x72 (connection refused)"},
    {"length", "", "length:2", "answered with a message of a wrong length"},
    {"nonsense", "", "nonsense:2", "answered nonsense"},
    {"nonsense_by_calls", "_without_queues", "nonsense:2", "answered nonsense"},
    {"hang", "", "hang:2", "hangs: nothing done for 1 s"},
    {"hang_by_calls", "_without_queues", "hang:2", "hangs: nothing done for 1 s"},
    {"vtcm", "", "vtcm:2", "got no VTCM (256 KiB): another program on the DSP has it"},
    {"vtcm_unmanaged", "", "unmanaged+vtcm:2",
     "got no VTCM (256 KiB): another program on the DSP has it"},
};

class RunningFaultTest : public DeviceTest, public ::testing::WithParamInterface<RunningFault> {};

TEST_P(RunningFaultTest, IsOneClearErrorForGoodAndTheNextSessionWorks) {
  {
    const Variable fault = Fault(GetParam().fault);
    const bool hangs = std::string(GetParam().fault).rfind("hang", 0) == 0;
    auto session = Open(GetParam().variant, hangs ? 1 : 100);
    ASSERT_NE(session, nullptr);
    std::unique_ptr<Memory> area;
    const DspOp op = CopyOp(*session, area, 7);
    ASSERT_TRUE(Run(*session, {&op, 1}).ok());
    const absl::Status status = Run(*session, {&op, 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("backend hexagon: the DSP program"), HasSubstr(GetParam().error)));
    EXPECT_EQ(LostBackendOf(status), "hexagon");
    EXPECT_TRUE(session->lost());
    EXPECT_EQ(session->Submit({&op, 1}), status);
  }
  auto session = Open(GetParam().variant);
  ASSERT_NE(session, nullptr);
  std::unique_ptr<Memory> area;
  const DspOp op = CopyOp(*session, area, 7);
  EXPECT_TRUE(Run(*session, {&op, 1}).ok());
}

INSTANTIATE_TEST_SUITE_P(Faults, RunningFaultTest, ::testing::ValuesIn(kRunningFaults),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace runnel::hexagon::hexagon_device_test
