// What kernels read from memory and write to it at the layers of VGG-11, in bytes a multiply-add: the
// emulator with a model of the DSP's L2 cache (l2_model.cc), which each operation finds empty. They
// may not rise by more than 2 % over what is written here. Skipped where there is no emulator.
//
// RUNNEL_DSP_BYTES_BATCH=N: prints them at another batch, which are held against nothing.
// RUNNEL_DSP_PROGRAM=FILE: of another build of the DSP's program.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "tests/kernels/hexagon/l2_counts.h"
#include "tests/kernels/hexagon/vgg_layers.h"

namespace runnel::hexagon::hexagon_bytes_test {
namespace {

// The counts of an emulator that is started with the arguments of Plugin().
class CountedMemory {
 public:
  explicit CountedMemory(uint32_t vtcm_bytes) : vtcm_bytes_(vtcm_bytes) {
    file_ = memfd_create("counts", 0);
    if (file_ < 0 || ftruncate(file_, sizeof(L2Counts)) != 0) return;
    void* at = mmap(nullptr, sizeof(L2Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (at != MAP_FAILED) counts_ = static_cast<L2Counts*>(at);
  }
  ~CountedMemory() {
    if (counts_ != nullptr) munmap(counts_, sizeof(L2Counts));
    if (file_ >= 0) close(file_);
  }

  L2Counts* counts() const { return counts_; }
  // For the emulator's -plugin.
  std::string Plugin() const {
    const auto library =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
        "libdsp_l2_model.so";
    return absl::StrCat("file=", library.string(), ",counts=/proc/", getpid(), "/fd/", file_,
                        ",vtcm_bytes=", vtcm_bytes_);
  }

 private:
  const uint32_t vtcm_bytes_;
  int file_ = -1;
  L2Counts* counts_ = nullptr;
};

struct Row {
  Layer layer;
  Pass pass;
  int batch;
  double most;  // bytes a thousand multiply-adds
};

// clang-format off
constexpr Row kRows[] = {
    {kC2, Pass::kForward, 16, 8.17},
    {kC2, Pass::kInputGradient, 16, 5.61},
    {kC2, Pass::kWeightGradient, 16, 8.41},
    {kC4, Pass::kForward, 16, 3.68},
    {kC4, Pass::kInputGradient, 16, 3.65},
    {kC4, Pass::kWeightGradient, 16, 6.38},
    {kC5, Pass::kForward, 32, 5.88},
    {kC5, Pass::kInputGradient, 32, 4.35},
    {kC5, Pass::kWeightGradient, 32, 10.25},
    {kC6, Pass::kForward, 32, 4.58},
    {kC6, Pass::kInputGradient, 32, 4.57},
    {kC6, Pass::kWeightGradient, 32, 12.40},
    {kC7, Pass::kForward, 64, 6.29},
    {kC7, Pass::kInputGradient, 64, 6.25},
    {kC7, Pass::kWeightGradient, 64, 19.91},
    {kLinear, Pass::kForward, 64, 27.55},
};
// clang-format on

class HexagonBytes : public testing::TestWithParam<Row> {};

TEST_P(HexagonBytes, DoNotRise) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  EmulatedSessionOptions options = {.command = *std::move(command), .shared_bytes = 512 << 20};
  const CountedMemory counted(options.vtcm_bytes);
  ASSERT_NE(counted.counts(), nullptr);
  if (const char* program = std::getenv("RUNNEL_DSP_PROGRAM")) options.command.back() = program;
  const std::vector<std::string> plugin = {"-plugin", counted.Plugin()};
  options.command.insert(options.command.begin() + 1, plugin.begin(), plugin.end());
  auto session = OpenEmulatedSession(std::move(options));
  ASSERT_TRUE(session.ok()) << session.status();
  const auto& [layer, pass, usual_batch, most] = GetParam();
  const char* asked = std::getenv("RUNNEL_DSP_BYTES_BATCH");
  const int batch = asked == nullptr ? usual_batch : std::atoi(asked);
  LayerBench bench(*(*session)->memory());
  const DspOp op = bench.MakeOp(layer, pass, batch);
  const DspOp small = bench.MakeOp(layer, pass, 1);
  // The first one packs the weights.
  ASSERT_TRUE((*session)->Submit({small}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  ++counted.counts()->resets;
  ASSERT_TRUE((*session)->Submit({op}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const int window = layer.side == 0 ? 1 : 9, plane = layer.side == 0 ? 1 : layer.side * layer.side;
  const double macs = 1.0 * batch * plane * layer.in * layer.out * window;
  const L2Counts& counts = *counted.counts();
  const double bytes = static_cast<double>(counts.MemoryBytes());
  const double per_thousand = bytes / macs * 1000;
  std::printf(
      "%s %s, batch %d: %.3f MB from memory, %.3f MB to it, %.2f bytes a thousand "
      "multiply-adds; %.1f MB of VTCM; %u packets\n",
      layer.name, kPassNames[static_cast<int>(pass)], batch,
      static_cast<double>(counts.loaded_lines) * kL2LineBytes * 1e-6,
      static_cast<double>(counts.written_lines + counts.dirty_lines) * kL2LineBytes * 1e-6,
      per_thousand, static_cast<double>(counts.vtcm_bytes) * 1e-6, (*session)->counts()[0].packets);
  EXPECT_GT(counts.vtcm_bytes.load(), 0u) << "the model does not see where VTCM is";
  // Each operand crosses once at least.
  EXPECT_GE(bytes, op.in[0].elements + op.in[1].elements + 4.0 * op.out[0].elements);
  if (asked != nullptr) return;
  EXPECT_LE(per_thousand, most * 1.02);
  EXPECT_GE(per_thousand, most * 0.98) << "better, write the new count here";
}

INSTANTIATE_TEST_SUITE_P(Layers, HexagonBytes, testing::ValuesIn(kRows), [](const auto& info) {
  return std::string(info.param.layer.name) + "_" + kPassNames[static_cast<int>(info.param.pass)];
});

}  // namespace
}  // namespace runnel::hexagon::hexagon_bytes_test
