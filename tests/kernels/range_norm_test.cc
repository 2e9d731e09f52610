// Batch norm by ranges (recipe sbm_range): its estimate, its gradient, and whole models.

#include "kernels/backends/host/range_norm.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::range_norm_test {
namespace {

// sigma of one channel of standard normal values, in 16 chunks of `size`.
double EstimateOf(int64_t size, uint64_t stream) {
  Tensor x = Normal({16, 1, size}, stream, 1), y = Zeros({16, 1, size}), stats = Zeros({2});
  Tensor scale = Floats({1}, {1}), shift = Zeros({1}), mean = Zeros({1}), var = Zeros({1});
  mean.storage = var.storage = Storage::kStatistics;
  EXPECT_TRUE(RunOp(OpCode::kRangeNormForward, {.kind = OpKind::kBatchNorm}, {&x, &scale, &shift},
                    {&y, &stats, &mean, &var}, {}, 0, 0, nullptr, {}, {.bits = 16})
                  .ok());
  const double sigma = 1 / stats.data()[1] - 1e-5;
  EXPECT_NEAR(*var.data(), 0.1 * sigma * sigma, 1e-4);
  return sigma;
}

TEST(RangeNorm, EstimatesAreTheSheetsFigures) {
  for (const auto& [size, want] :
       {std::pair<int64_t, double>(64, 0.877), {256, 0.917}, {1024, 0.942}, {4096, 0.963}}) {
    double sum = 0;
    const int runs = 8192 / static_cast<int>(size) + 2;
    for (int i = 0; i < runs; ++i) sum += EstimateOf(size, static_cast<uint64_t>(i));
    EXPECT_NEAR(sum / runs, want, 0.012) << size;
  }
}

// The norm of one channel without grids, in double.
std::vector<double> SlowNorm(const std::vector<double>& x, double scale, double shift) {
  const size_t chunks = 16, size = x.size() / chunks;
  double sum = 0, ranges = 0;
  for (const double value : x) sum += value;
  for (size_t c = 0; c < chunks; ++c) {
    const auto [least, largest] =
        std::minmax_element(x.begin() + c * size, x.begin() + (c + 1) * size);
    ranges += *largest - *least;
  }
  const double mean = sum / static_cast<double>(x.size());
  const double fix = 0.540208 / std::sqrt(2 * std::log(static_cast<double>(size)));
  std::vector<double> y;
  for (const double value : x)
    y.push_back((value - mean) / (ranges / chunks * fix + 1e-5) * scale + shift);
  return y;
}

// Grids of 16 bits are too fine to matter.
TEST(RangeNorm, TheGradientIsThatOfASlowReference) {
  constexpr int64_t kCount = 128;
  Tensor x = Normal({8, 1, 16}, 1, 1), dy = Normal({8, 1, 16}, 1, 2), y = Zeros({8, 1, 16});
  Tensor scale = Floats({1}, {1.5f}), shift = Floats({1}, {0.25f}), stats = Zeros({2});
  Tensor mean = Zeros({1}), var = Zeros({1}), dx = Zeros({8, 1, 16}), sums = Zeros({2});
  mean.storage = var.storage = Storage::kStatistics;
  const OpSpec norm = {.kind = OpKind::kBatchNorm};
  ASSERT_TRUE(RunOp(OpCode::kRangeNormForward, norm, {&x, &scale, &shift},
                    {&y, &stats, &mean, &var}, {}, 0, 0, nullptr, {}, {.bits = 16})
                  .ok());
  ASSERT_TRUE(RunOp(OpCode::kRangeNormInputGradient, norm, {&dy, &x, &scale, &stats}, {&dx, &sums},
                    {}, 0, 0, nullptr, {}, {.bits = 16})
                  .ok());
  const std::vector<double> at(x.data(), x.data() + kCount);
  const std::vector<double> want = SlowNorm(at, 1.5, 0.25);
  const auto loss = [&](const std::vector<double>& values, double s, double b) {
    double sum = 0;
    const std::vector<double> norms = SlowNorm(values, s, b);
    for (int64_t i = 0; i < kCount; ++i) sum += norms[i] * dy.data()[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(y.data()[i], want[i], 1e-3) << i;
    std::vector<double> up = at, down = at;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope = (loss(up, 1.5, 0) - loss(down, 1.5, 0)) / (2 * kStep);
    EXPECT_NEAR(dx.data()[i], slope, 2e-3) << i;
  }
  EXPECT_NEAR(sums.data()[0], loss(at, 2.5, 0) - loss(at, 1.5, 0), 1e-2);
  EXPECT_NEAR(sums.data()[1], loss(at, 1.5, 1) - loss(at, 1.5, 0), 1e-2);
}

TEST(RangeNorm, OneElementAndEqualOnesStayFinite) {
  for (const Shape& shape : {Shape({1, 3}), Shape({5, 2, 7})}) {
    Tensor x = Zeros(shape), y = Zeros(shape), stats = Zeros({2 * shape[1]});
    Tensor scale = Zeros({shape[1]}), shift = Zeros({shape[1]});
    Tensor mean = Zeros({shape[1]}), var = Zeros({shape[1]});
    mean.storage = var.storage = Storage::kStatistics;
    ASSERT_TRUE(RunOp(OpCode::kRangeNormForward, {.kind = OpKind::kBatchNorm}, {&x, &scale, &shift},
                      {&y, &stats, &mean, &var}, {}, 0, 0, nullptr, {}, {.bits = 8})
                    .ok());
    EXPECT_THAT(ValuesOf(y), testing::Each(0.0f));
  }
}

TEST(RangeNorm, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("resnet8", "sbm_range:8,8,8", /*other=*/"sbm:8,8,8");
}

TEST(RangeNorm, ResNet8LearnsOnBothBackends) {
  ExpectBothBackendsLearn("resnet8", "sbm_range:8,8,8", 8);
}

}  // namespace
}  // namespace runnel::range_norm_test
