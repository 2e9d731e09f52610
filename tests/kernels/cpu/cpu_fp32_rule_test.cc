// The bytes of FP32 convolutions and linear layers against checksums of summation rule
// kFp32Rule (kernels/backends/cpu/fp32/summation_rule.h). A release whose kernels give other bytes has
// another rule: raise the number and write the file anew with RUNNEL_WRITE_GOLDEN=1.

#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/cpu/fp32/summation_rule.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"
#include "tests/support/case_count.h"

namespace runnel::cpu_fp32_rule_test {
namespace {

const char kFile[] = RUNNEL_SOURCE_DIR "/tests/golden/fp32_rule.json";

struct ConvCase {
  int64_t batch, in_channels;
  std::vector<int64_t> image;  // one or two sizes
  int64_t out_channels, kernel, stride, padding, groups;

  std::string ToString() const {
    return absl::StrCat(batch, "x", in_channels, "x", image[0], image.size() > 1 ? "x" : "",
                        image.size() > 1 ? absl::StrCat(image[1]) : "", " to ", out_channels,
                        " kernel ", kernel, " stride ", stride, " padding ", padding, " groups ",
                        groups);
  }
};

// Planes smaller than the kernel and larger, more than one block of images, few and many channels,
// strides, groups, more padding than image.
const ConvCase kCases[] = {
    {9, 64, {2, 2}, 96, 3, 1, 1, 1},    {70, 33, {2, 2}, 40, 3, 1, 1, 1},
    {40, 64, {4, 4}, 130, 3, 1, 1, 1},  {5, 48, {8, 8}, 64, 3, 1, 1, 1},
    {3, 3, {32, 32}, 64, 3, 1, 1, 1},   {2, 20, {17, 19}, 24, 3, 2, 1, 1},
    {4, 16, {9, 7}, 31, 5, 1, 2, 1},    {3, 7, {11, 13}, 18, 5, 3, 2, 1},
    {2, 24, {6, 6}, 24, 3, 1, 1, 3},    {2, 40, {12, 12}, 40, 3, 2, 1, 40},
    {6, 32, {10, 10}, 64, 1, 1, 0, 1},  {6, 32, {10, 10}, 64, 1, 2, 0, 1},
    {8, 9, {128}, 32, 5, 2, 2, 1},      {4, 20, {1, 1}, 20, 3, 1, 1, 1},
    {3, 18, {3, 3}, 20, 2, 2, 2, 1},    {2, 128, {14, 14}, 128, 3, 1, 1, 1},
    {16, 512, {2, 2}, 128, 3, 1, 1, 1}, {2, 16, {5, 5}, 16, 7, 1, 3, 1},
    {6, 32, {10, 10}, 64, 1, 1, 1, 1},
};

std::string Checksum(Tensor& tensor) {
  // A zero's sign says nothing of the order of a sum.
  for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) tensor.data()[i] += 0.0f;
  return absl::StrFormat("%08x", crc32(0, reinterpret_cast<const Bytef*>(tensor.bytes.data()),
                                       static_cast<uInt>(tensor.bytes.size())));
}

std::string DigestOf(const OpSpec& op, const Shape& x_shape, const Shape& y_shape,
                     const Shape& weight_shape, Backend* backend) {
  const bool conv = op.kind == OpKind::kConv;
  Tensor x = Normal(x_shape, 1, 0), weight = Normal(weight_shape, 1, 1);
  Tensor dy = Normal(y_shape, 1, 2), y = Zeros(y_shape), dx = Zeros(x_shape);
  Tensor dw = Normal(weight_shape, 1, 3), db = Normal({y_shape[1]}, 1, 4);
  StepContext adds;
  adds.accumulate = true;
  const auto run = [&](OpCode code, std::vector<Tensor*> in, std::vector<Tensor*> out) {
    const absl::Status status = RunOp(code, op, std::move(in), std::move(out), adds, 0, 0, backend);
    EXPECT_TRUE(status.ok()) << status;
  };
  run(conv ? OpCode::kConvForward : OpCode::kLinearForward, {&x, &weight}, {&y});
  run(conv ? OpCode::kConvInputGradient : OpCode::kLinearInputGradient, {&dy, &weight}, {&dx});
  run(conv ? OpCode::kConvWeightGradient : OpCode::kLinearWeightGradient, {&dy, &x}, {&dw, &db});
  return absl::StrCat(Checksum(y), " ", Checksum(dx), " ", Checksum(dw), " ", Checksum(db));
}

std::map<std::string, std::string> DigestsOf(Backend* backend) {
  std::map<std::string, std::string> digests;
  for (const ConvCase& c : absl::MakeSpan(kCases).first(CaseCount(std::size(kCases)))) {
    OpSpec op = OpOf(OpKind::kConv, {0});
    op.out_channels = c.out_channels;
    op.groups = c.groups;
    std::vector<int64_t> x = {c.batch, c.in_channels}, y = {c.batch, c.out_channels};
    std::vector<int64_t> weight = {c.out_channels, c.in_channels / c.groups};
    for (size_t axis = 0; axis < c.image.size(); ++axis) {
      op.kernel[axis] = c.kernel;
      op.stride[axis] = c.stride;
      op.padding[axis] = c.padding;
      x.push_back(c.image[axis]);
      y.push_back((c.image[axis] + 2 * c.padding - c.kernel) / c.stride + 1);
      weight.push_back(c.kernel);
    }
    digests[c.ToString()] =
        DigestOf(op, *Shape::Create(x), *Shape::Create(y), *Shape::Create(weight), backend);
  }
  OpSpec linear = LinearOp(300);
  digests["linear 150 of 700 to 300"] =
      DigestOf(linear, {150, 700}, {150, 300}, {300, 700}, backend);
  return digests;
}

// Rows that have a fused multiply-add round alike, the portable one rounds twice.
std::string ArithmeticOf(Backend* backend) {
  return absl::StrContains(backend->numerics_class(), "portable") ? "two roundings" : "fused";
}

class CpuFp32Rule : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(CpuFp32Rule, BytesAreTheRules) {
  const auto& [name, threads] = GetParam();
  auto backend = MakeCappedCpuBackend(name, threads);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const std::map<std::string, std::string> got = DigestsOf(backend->get());
  std::ifstream file(kFile);
  nlohmann::json golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const bool is_written = std::getenv("RUNNEL_WRITE_GOLDEN") != nullptr;
  if (is_written) {
    if (!golden.is_object() || golden["rule"] != fp32::kFp32Rule)
      golden = {{"rule", fp32::kFp32Rule}};
    golden["digests"][ArithmeticOf(backend->get())] = got;
    std::ofstream(kFile) << golden.dump(1) << "\n";
  }
  ASSERT_TRUE(golden.is_object()) << kFile;
  ASSERT_EQ(golden["rule"], fp32::kFp32Rule);
  const nlohmann::json& digests = golden["digests"][ArithmeticOf(backend->get())];
  for (const auto& [key, digest] : got) EXPECT_EQ(digest, digests.value(key, "")) << key;
}

INSTANTIATE_TEST_SUITE_P(Rows, CpuFp32Rule,
                         testing::Combine(testing::ValuesIn(CpuInstructionSets()),
                                          testing::Values(1, 3)),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param), "_threads",
                                               std::get<1>(row.param));
                         });

TEST(NumericsClass, HasTheRulesNumber) {
  auto backend = MakeCpuBackend(1);
  ASSERT_TRUE(backend.ok());
  EXPECT_TRUE(absl::EndsWith((*backend)->numerics_class(), absl::StrCat("/rule", fp32::kFp32Rule)))
      << (*backend)->numerics_class();
}

}  // namespace
}  // namespace runnel::cpu_fp32_rule_test
