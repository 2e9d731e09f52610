// The OpenCL backend's device: which one is taken and why not, kernels that do not compile, memory
// that is not there, a device that is lost, products that are cut into slices. Skipped where there
// is no device. Under PoCL, which computes on the CPU: correctness only.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/device/session.h"
#include "kernels/backends/opencl/device/tile.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/opencl/opencl_faults.h"
#include "tests/kernels/opencl/uneven_conv.h"
#include "tests/support/scratch.h"

namespace runnel::opencl::opencl_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

DeviceInfo Gpu() {
  DeviceInfo device;
  device.type = CL_DEVICE_TYPE_GPU;
  device.platform_name = "Platform";
  device.name = "Some GPU";
  device.language = "OpenCL C 1.2";
  device.has_compiler = device.is_little_endian = true;
  device.max_work_group = 256;
  device.local_bytes = 32 << 10;
  return device;
}

TEST(OpenClDevice, AGpuComesFirstAndANameIsObeyed) {
  DeviceInfo processor = Gpu();
  processor.type = CL_DEVICE_TYPE_CPU;
  processor.name = "Some CPU";
  EXPECT_EQ(ChooseDevice({processor, Gpu()}, "")->name, "Some GPU");
  EXPECT_EQ(ChooseDevice({processor, Gpu()}, "some cpu")->name, "Some CPU");
  EXPECT_EQ(ChooseDevice({Gpu(), processor}, "platform/some c")->name, "Some CPU");
  EXPECT_THAT(std::string(ChooseDevice({processor, Gpu()}, "mali").status().message()),
              HasSubstr("'mali' in its name; there is Platform/Some GPU, Platform/Some CPU"));
}

TEST(OpenClDevice, WhatADeviceLacksIsSaid) {
  EXPECT_TRUE(CheckDevice(Gpu()).ok());
  const auto refusal = [](auto change) {
    DeviceInfo device = Gpu();
    change(device);
    return std::string(CheckDevice(device).message());
  };
  EXPECT_THAT(refusal([](DeviceInfo& d) { d.max_work_group = 16; }),
              HasSubstr("Some GPU is too small: work-groups of 16, needs 64"));
  EXPECT_THAT(refusal([](DeviceInfo& d) { d.local_bytes = 1024; }), HasSubstr("local memory"));
  EXPECT_THAT(refusal([](DeviceInfo& d) { d.has_compiler = false; }), HasSubstr("no compiler"));
  EXPECT_THAT(refusal([](DeviceInfo& d) { d.language = "OpenCL C 1.1"; }), HasSubstr("needs 1.2"));
  EXPECT_THAT(refusal([](DeviceInfo& d) { d.is_little_endian = false; }), HasSubstr("endian"));
}

TEST(OpenClDevice, TheDotProductIsTheOneThatTheDeviceIsFastAt) {
  DeviceInfo device = Gpu();
  const auto chosen = [&](const char* wanted) {
    return std::string(ChooseDots(device, wanted)->front()->name);
  };
  EXPECT_EQ(chosen(""), "widened");
  EXPECT_EQ(chosen("mad24"), "mad24");
  device.extensions = "cl_khr_fp16 cl_khr_integer_dot_product";
  EXPECT_EQ(chosen(""), "widened") << "an emulated dot product is not taken";
  EXPECT_EQ(chosen("khr"), "khr") << "unless it is asked for";
  device.accelerates_dot = true;
  EXPECT_EQ(chosen(""), "khr");
  device = Gpu();
  device.extensions = "cl_arm_integer_dot_product_int8";
  EXPECT_EQ(chosen(""), "arm");
  device.extensions = "cl_arm_integer_dot_product_int8_not";
  EXPECT_EQ(chosen(""), "widened");
  device.nvidia_capability = 60;
  EXPECT_EQ(chosen(""), "widened");
  device.nvidia_capability = 61;
  EXPECT_EQ(chosen(""), "nvidia");
  EXPECT_THAT(std::string(ChooseDots(device, "arm").status().message()),
              HasSubstr("opencl.dot 'arm': device Some GPU has nvidia, mad24, widened"));
}

// Drivers of OpenCL 3.0 may call their language 1.2 where OpenCL C 3.0 is there too.
TEST(OpenClDevice, TheLanguageIsOneThatHasTheDotProduct) {
  DeviceInfo device = Gpu();
  device.extensions = "cl_khr_integer_dot_product cl_arm_integer_dot_product_int8";
  device.accelerates_dot = true;
  device.language = "OpenCL C 1.2 Some driver";
  const std::vector<const DotRow*> dots = *ChooseDots(device, "");
  ASSERT_EQ(dots.size(), 3u) << "khr, arm, widened";
  EXPECT_STREQ(LanguageOptionOf(device, *dots[0]), "-cl-std=CL1.2");
  device.takes_c3 = true;
  EXPECT_STREQ(LanguageOptionOf(device, *dots[0]), "-cl-std=CL3.0");
  EXPECT_STREQ(LanguageOptionOf(device, *dots[1]), "-cl-std=CL1.2");
}

class OpenClTest : public testing::Test {
 protected:
  void SetUp() override {
    auto session = Session::Open({});
    if (!session.ok()) GTEST_SKIP() << "no OpenCL here: " << session.status().message();
    session_ = *std::move(session);
  }
  void TearDown() override {
    LoseDeviceAfter(-1);
    LimitGroups(0);
  }

  std::shared_ptr<Session> session_;
};

TEST_F(OpenClTest, AKernelThatDoesNotCompileIsNamedByItsLine) {
  const absl::Status status =
      Compile(*session_, "__kernel void broken() { nonsense(; }", "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not compile kernels: CL_BUILD_"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("error"));
}

// The row is there by what the device says, and its compiler knows no arm_dot.
TEST_F(OpenClTest, ADotProductThatDoesNotCompileIsPassedOver) {
  ClaimExtension("cl_arm_integer_dot_product_int8");
  const auto session = Session::Open({});
  const auto forced = Session::Open({.dot = "arm"});
  ClaimExtension("");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->dot().name, "widened");
  EXPECT_THAT((*session)->rejected_dots(), AllOf(StartsWith("arm: device "), HasSubstr("arm_dot")));
  EXPECT_EQ((*session)->rejected_dots().find('\n'), std::string::npos);
  ASSERT_TRUE(forced.ok()) << "as asked for; it fails when it is built";
}

// So says a vendor host whose driver crashed over a program.
TEST_F(OpenClTest, ADeviceThatIsLostWhileItCompilesIsNoDotProductThatItDoesNotKnow) {
  ClaimExtension("cl_arm_integer_dot_product_int8");
  RefuseBuilds(CL_DEVICE_NOT_AVAILABLE);
  const absl::Status opened = Session::Open({}).status();
  const absl::Status built = session_->Build(kFloatElements);
  RefuseBuilds(CL_SUCCESS);
  ClaimExtension("");
  for (const absl::Status& lost : {opened, built}) {
    EXPECT_EQ(LostBackendOf(lost), "opencl") << lost;
    EXPECT_THAT(std::string(lost.message()),
                HasSubstr(" is lost: clBuildProgram: CL_DEVICE_NOT_AVAILABLE"));
  }
  EXPECT_FALSE(session_->lost().ok());
}

TEST_F(OpenClTest, TheSecondStartBuildsNothing) {
  ScratchDir dir;
  const Options options = {.programs = dir / "programs"};
  const auto builds = [&options](absl::Status* status) {
    const int before = SourcesBuilt();
    const auto session = Session::Open(options);
    const auto program = Compile(**session, "__kernel void one(__global int *x) { *x = 1; }", "");
    *status = program.status();
    cl_int code = CL_SUCCESS;
    if (program.ok()) Handle<cl_kernel>(clCreateKernel(program->get(), "one", &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return SourcesBuilt() - before;
  };
  absl::Status status;
  EXPECT_EQ(builds(&status), 1);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(builds(&status), 0);
  EXPECT_TRUE(status.ok()) << status;
  // Damaged: built again, and kept again.
  for (const auto& entry : std::filesystem::directory_iterator(dir / "programs")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file << "damaged";
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(builds(&status), 1);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("is damaged; its kernels are built again\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(builds(&status), 0);
}

TEST_F(OpenClTest, MemoryThatIsNotThereIsRefused) {
  auto backend = MakeBackendWith({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (int64_t bytes : {session_->device().max_allocation + 1, int64_t{1} << 60}) {
    const absl::Status status = (*backend)->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("backend opencl: no room for"));
    EXPECT_EQ(LostBackendOf(status), "opencl");
  }
  EXPECT_TRUE((*backend)->Allocate(0).ok());
}

TEST_F(OpenClTest, StateIsZeroAndKeepsWhatIsWritten) {
  auto backend = MakeBackendWith({});
  auto memory = (*backend)->Allocate(1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->bytes(), 1000);
  {
    auto mapping = Mapping::Of(**memory, MapAccess::kReadWrite);
    ASSERT_TRUE(mapping.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->data()) % 64, 0u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(static_cast<int>(mapping->data()[i]), 0);
    std::memset(mapping->data(), 7, 1000);
  }
  auto mapping = Mapping::Of(**memory, MapAccess::kRead);
  ASSERT_TRUE(mapping.ok());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(static_cast<int>(mapping->data()[i]), 7);
}

// x + x
absl::Status Add(Backend& backend) {
  Tensor x = ScaledTensor({4, 5}, DType::kInt8), y = ScaledTensor({4, 5}, DType::kInt8);
  std::fill_n(x.data<int8_t>(), 20, int8_t{3});
  const absl::Status status = RunOp(OpCode::kInt8Add, {}, {&x, &x}, {&y}, {}, 0, 0, &backend);
  EXPECT_EQ(y.data<int8_t>()[19], status.ok() ? 6 : 0);
  return status;
}

TEST_F(OpenClTest, ALostDeviceIsOneClearErrorUntilAStageIsMadeAnew) {
  auto backend = MakeBackendWith({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ASSERT_TRUE(Add(**backend).ok());
  auto memory = (*backend)->Allocate(64);
  ASSERT_TRUE(memory.ok());
  Program program;
  program.buffers.push_back({Storage::kStash, DType::kInt8, {8, 8}, 0, true});
  program.parts[0].push_back({OpCode::kInt8ReluForward, {0}, {0}});
  auto stage = (*backend)->Prepare(program);
  auto stash = (*backend)->Allocate(128);
  ASSERT_TRUE(stage.ok() && stash.ok());
  Bindings bindings;
  bindings[Storage::kStash] = (*stash)->address();
  ASSERT_TRUE((*stage)->Run(Part::kForward, {}, bindings).ok());
  LoseDeviceAfter(2);
  const absl::Status lost = Add(**backend);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("is lost: kernel add_sums: CL_OUT_OF_RESOURCES"));
  EXPECT_EQ(LostBackendOf(lost), "opencl");
  LoseDeviceAfter(-1);
  EXPECT_EQ((*stage)->Run(Part::kForward, {}, bindings), lost) << "what it had is gone";
  EXPECT_EQ((*memory)->Map(MapAccess::kRead).status(), lost);
  EXPECT_TRUE(Add(**backend).ok());
}

// Sums of products: of two slices at least, and beyond 32 bits.
TEST_F(OpenClTest, ALongSumIsCutIntoSlicesThatCannotOverflow) {
  OpSpec op;
  op.kind = OpKind::kConv;
  op.out_channels = 1;
  op.kernel = {1, 1};
  constexpr int64_t kLength = 150'000;
  Tensor dy = ScaledTensor({1, 1, kLength}, DType::kInt8), x = dy;
  std::fill_n(dy.data<int8_t>(), kLength, int8_t{127});
  std::fill_n(x.data<int8_t>(), kLength, int8_t{-127});
  Tensor sum = ScaledTensor({1, 1, 1}, DType::kInt64);
  auto backend = MakeBackendWith({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ASSERT_TRUE(
      RunOp(OpCode::kInt8ConvWeightGradient, op, {&dy, &x}, {&sum}, {}, 0, 0, backend->get()).ok());
  constexpr int64_t kSum = -kLength * 127 * 127;
  static_assert(kSum < -(int64_t{1} << 31));
  EXPECT_EQ(sum.data<int64_t>()[0], kSum);
  EXPECT_EQ(TailOf(sum.bytes.data(), DType::kInt64, sum.shape).max_abs, -kSum);
}

// A convolution whose sizes fill no tile, forward and backward, and the same as integers.
std::vector<std::vector<std::byte>> AllProducts(const Options& options) {
  auto backend = MakeBackendWith(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  const UnevenConv uneven;
  OpSpec op = uneven.op;
  op.bias = true;
  std::vector<std::vector<std::byte>> results;
  const auto run = [&](OpCode code, std::vector<Tensor*> inputs, std::vector<Tensor*> outputs) {
    const absl::Status status =
        RunOp(code, op, std::move(inputs), outputs, {}, 0, 0, backend->get());
    EXPECT_TRUE(status.ok()) << status;
    for (const Tensor* tensor : outputs) results.push_back(tensor->bytes);
  };
  Tensor x = Normal(uneven.x, 1, 1), weight = Normal(uneven.weight, 1, 2);
  Tensor bias = Normal({op.out_channels}, 1, 3), dy = Normal(uneven.y, 1, 4), y = dy;
  Tensor dx = x, dweight = weight, dbias = bias;
  run(OpCode::kConvForward, {&x, &weight, &bias}, {&y});
  run(OpCode::kConvInputGradient, {&dy, &weight}, {&dx});
  run(OpCode::kConvWeightGradient, {&dy, &x}, {&dweight, &dbias});
  const auto mantissas = [](Tensor& from) {
    Tensor to = ScaledTensor(from.shape, DType::kInt8);
    for (int64_t i = 0; i < from.shape.elements(); ++i)
      to.data<int8_t>()[i] = static_cast<int8_t>(from.data()[i] * 40);
    return to;
  };
  Tensor x8 = mantissas(x), weight8 = mantissas(weight), dy8 = mantissas(dy);
  Tensor y32 = ScaledTensor(y.shape, DType::kInt32), dx32 = ScaledTensor(x.shape, DType::kInt32);
  Tensor dweight64 = ScaledTensor(weight.shape, DType::kInt64);
  run(OpCode::kInt8ConvForward, {&x8, &weight8}, {&y32});
  run(OpCode::kInt8ConvInputGradient, {&dy8, &weight8}, {&dx32});
  run(OpCode::kInt8ConvWeightGradient, {&dy8, &x8}, {&dweight64});
  return results;
}

TEST_F(OpenClTest, TheTileCannotBeSeenInTheResult) {
  const auto by_rule = AllProducts({});
  // Builds take long under PoCL: some of them.
  int fitting = 0;
  for (size_t i = 1; i < Tiles().size(); i += 5) {
    const Tile& tile = Tiles()[i];
    if (!Fits(tile, session_->device())) continue;
    ++fitting;
    EXPECT_EQ(AllProducts({.tile = ToText(tile)}), by_rule) << ToText(tile);
  }
  EXPECT_GT(fitting, 1);
}

// Registers may leave a kernel smaller groups than the device has for others.
TEST_F(OpenClTest, ATileWhoseGroupsAreTooLargeGivesWayToASmallerOne) {
  const std::string large = "8x8 by 8x8, depth 8, vector 4";
  const auto by_rule = AllProducts({});
  LimitGroups(63);
  EXPECT_EQ(AllProducts({.tile = large}), by_rule);
  auto backend = MakeBackendWith({.tile = large});
  Tensor x = ScaledTensor({2, 12}, DType::kInt8), weight = ScaledTensor({3, 12}, DType::kInt8);
  Tensor y = ScaledTensor({2, 3}, DType::kInt32);
  OpSpec op = {.kind = OpKind::kLinear, .out_channels = 3};
  const auto run = [&] {
    return RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, backend->get());
  };
  EXPECT_TRUE(run().ok());
  EXPECT_THAT(
      (*backend)->description(),
      HasSubstr("no tile " + large + " (it runs product_forward in groups of 63, not of 64)"));
  LimitGroups(15);
  backend = MakeBackendWith({});
  const absl::Status none = run();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition) << none;
  EXPECT_THAT(
      std::string(none.message()),
      HasSubstr("runs product_forward in groups of 15, not of 16; there is no smaller tile"));
}

// Whatever address a micro-batch lies at.
TEST_F(OpenClTest, BuffersAreMadeForTheFirstMicroBatchAlone) {
  Program program;
  program.buffers = {{Storage::kInput, DType::kInt8, {8, 8}, 0, true},
                     {Storage::kOutput, DType::kInt8, {8, 8}, 0, true}};
  program.parts[0].push_back({OpCode::kInt8ReluForward, {0}, {1}});
  auto backend = MakeBackendWith({});
  auto stage = (*backend)->Prepare(program);
  ASSERT_TRUE(stage.ok()) << stage.status();
  int after_first = 0;
  for (int8_t value = 1; value < 5; ++value) {
    Tensor x = ScaledTensor({8, 8}, DType::kInt8), y = x;
    std::fill_n(x.data<int8_t>(), 64, value);
    Bindings bindings;
    bindings[Storage::kInput] = x.bytes.data();
    bindings[Storage::kOutput] = y.bytes.data();
    ASSERT_TRUE((*stage)->Run(Part::kForward, {}, bindings).ok());
    EXPECT_EQ(y.data<int8_t>()[63], value);
    if (value == 1) after_first = BuffersMade();
  }
  EXPECT_GT(after_first, 0);
  EXPECT_EQ(BuffersMade(), after_first);
}

// In the host's memory a weight at the end of a storage may end within a texel; copies do not.
TEST_F(OpenClTest, WeightsAreReadAsImagesWhereverTheyLie) {
  if (session_->device().image_texels == 0) GTEST_SKIP() << "no images";
  const auto by_rule = AllProducts({});
  for (const char* memory : {"shared", "copied"}) {
    if (!session_->device().shares_memory && memory == std::string("shared")) continue;
    for (const char* tile : {"4x4 by 8x8, depth 8, vector 4, weights image",
                             "4x1 by 8x8, depth 8, vector 1, weights image"})
      EXPECT_EQ(AllProducts({.memory = memory, .tile = tile}), by_rule) << memory << ", " << tile;
  }
}

TEST(TileTest, IsReadBackByItsTextOrRefused) {
  for (const Tile& tile : Tiles()) {
    EXPECT_EQ(ParseTile(ToText(tile)), tile);
    EXPECT_EQ(tile.rows % tile.vector + tile.columns % tile.vector, 0) << ToText(tile);
  }
  for (const char* text :
       {"", "4x4", "4x4 by 8x8, depth 8, vector 3", "4x4 by 8x8, depth 8, vector 1 "})
    EXPECT_EQ(ParseTile(text), std::nullopt) << text;
  DeviceInfo device = Gpu();
  EXPECT_TRUE(Fits({4, 4, 16, 16, 8, 4}, device));
  device.max_work_group = 128;
  EXPECT_FALSE(Fits({4, 4, 16, 16, 8, 4}, device));
  device = Gpu();
  device.local_bytes = 4 << 10;
  EXPECT_FALSE(Fits({4, 4, 16, 16, 8, 4}, device));
  device = Gpu();
  EXPECT_FALSE(Fits({4, 4, 8, 8, 8, 4, true}, device));
  device.image_texels = 1 << 16;
  EXPECT_TRUE(Fits({4, 4, 8, 8, 8, 4, true}, device));
  EXPECT_THAT(std::string(ForcedTiles("9x9", Gpu()).status().message()),
              HasSubstr("opencl.tile '9x9': device Some GPU has '4x4 by 8x8, depth 8, "));
}

}  // namespace
}  // namespace runnel::opencl::opencl_test
