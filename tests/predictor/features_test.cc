#include "predictor/fit/features.h"

#include <cmath>

#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/sub_models.h"

namespace runnel::features_test {
namespace {

double Of(const WorkVector& work, Work kind) { return work[static_cast<size_t>(kind)]; }

// LeNet: 1x28x28, conv 5x5 of 20 -> 24x24, pool -> 12x12, conv 5x5 of 50 -> 8x8,
// pool -> 4x4, linear 800 -> 500, linear 500 -> 10.
TEST(Features, LeNetByHand) {
  const absl::StatusOr<ModelSpec> model = MakeModel("lenet");
  ASSERT_TRUE(model.ok());
  const absl::StatusOr<ModelWork> work = ModelWork::Create(*model, 4);
  ASSERT_TRUE(work.ok()) << work.status();
  const WorkVector all = work->Of({0, model->layer_count() - 1});
  const double conv1 = 4 * 24 * 24 * 20 * 25.0, conv2 = 4 * 8 * 8 * 50 * 25 * 20.0;
  // The first convolution gets no gradient for the samples.
  EXPECT_EQ(Of(all, Work::kConvMacs), 2 * conv1 + 3 * conv2);
  EXPECT_EQ(Of(all, Work::kLinearMacs), 3 * 4 * (800 * 500.0 + 500 * 10.0));
  EXPECT_EQ(Of(all, Work::kDepthwiseMacs), 0);
  EXPECT_EQ(Of(all, Work::kPointwiseMacs), 0);
  EXPECT_EQ(Of(all, Work::kParameters), 430500);
  EXPECT_EQ(Of(all, Work::kBoundaryElements), 4 * 28 * 28 + 4 * 10);
  EXPECT_EQ(work->Macs({0, model->layer_count() - 1}), 4 * 2293000.0);
}

// Block 1 of MobileNetV2: depthwise 3x3 on 32x16x16, then 1x1 to 16 (expansion 1).
TEST(Features, MobileNetBlockByHand) {
  const absl::StatusOr<ModelSpec> model = MakeModel("mobilenet_v2");
  ASSERT_TRUE(model.ok());
  const absl::StatusOr<ModelWork> work = ModelWork::Create(*model, 2);
  ASSERT_TRUE(work.ok());
  const WorkVector block = work->Of({1, 1});
  EXPECT_EQ(Of(block, Work::kDepthwiseMacs), 3 * 2 * 32 * 16 * 16 * 9.0);
  EXPECT_EQ(Of(block, Work::kPointwiseMacs), 3 * 2 * 16 * 16 * 32 * 16.0);
  EXPECT_EQ(Of(block, Work::kConvMacs), 0);
  EXPECT_EQ(Of(block, Work::kBoundaryElements), 2 * (32 + 16) * 16 * 16.0);
}

// The counts of a range are the sums of its layers', for every model of the zoo.
TEST(Features, RangesAddUp) {
  for (const ModelRow& row : BuiltinModels()) {
    const ModelSpec model = row.make();
    const absl::StatusOr<ModelWork> work = ModelWork::Create(model, 3);
    ASSERT_TRUE(work.ok()) << row.name;
    const LayerRange range{model.layer_count() / 3, model.layer_count() - 1};
    WorkVector sum = {};
    double macs = 0;
    for (int l = range.first_layer; l <= range.last_layer; ++l) {
      const WorkVector one = work->Of({l, l});
      for (int k = 0; k < kWorkKinds; ++k) sum[size_t(k)] += one[size_t(k)];
      macs += work->Macs({l, l});
    }
    const WorkVector whole = work->Of(range);
    for (int k = 0; k < kWorkKinds; ++k) {
      if (k == static_cast<int>(Work::kBoundaryElements)) continue;
      EXPECT_DOUBLE_EQ(whole[size_t(k)], sum[size_t(k)]) << row.name << " kind " << k;
    }
    EXPECT_DOUBLE_EQ(work->Macs(range), macs);
    const absl::StatusOr<int64_t> counted = CountMacs(model);
    EXPECT_EQ(work->Macs({0, model.layer_count() - 1}), 3.0 * static_cast<double>(*counted));
  }
}

TEST(SubModels, TheTenOfAccEpt) {
  const absl::StatusOr<ModelSpec> model = MakeModel("mobilenet_v2");
  ASSERT_TRUE(model.ok());
  const absl::StatusOr<std::vector<LayerRange>> ranges =
      RepresentativeRanges(*model, int64_t{1} << 50);
  ASSERT_TRUE(ranges.ok());
  ASSERT_EQ(ranges->size(), 10u);
  // Of 210 sub-models the last has all the MACs, the first the fewest: the linear layer.
  EXPECT_EQ(ranges->back(), (LayerRange{0, 19}));
  EXPECT_EQ(ranges->front(), (LayerRange{19, 19}));
  const absl::StatusOr<ModelWork> work = ModelWork::Create(*model, 1);
  double before = 0;
  for (const LayerRange& range : *ranges) {
    EXPECT_GE(work->Macs(range), before);
    before = work->Macs(range);
  }
}

// A limit leaves out what is above it, but no single layer.
TEST(SubModels, LimitAndSample) {
  const absl::StatusOr<ModelSpec> model = MakeModel("resnet18");
  ASSERT_TRUE(model.ok());
  constexpr int64_t kLimit = 160'000'000;
  const absl::StatusOr<std::vector<LayerRange>> sample = ProfileSample(*model, kLimit, 3, 1);
  ASSERT_TRUE(sample.ok());
  const absl::StatusOr<ModelWork> work = ModelWork::Create(*model, 1);
  int singles = 0;
  for (const LayerRange& range : *sample) {
    if (range.first_layer == range.last_layer) ++singles;
    EXPECT_TRUE(range.first_layer == range.last_layer ||
                work->Macs(range) <= static_cast<double>(kLimit));
  }
  EXPECT_EQ(singles, model->layer_count());
  EXPECT_TRUE(std::is_sorted(sample->begin(), sample->end()));
  EXPECT_EQ(std::adjacent_find(sample->begin(), sample->end()), sample->end());
  EXPECT_EQ(*sample, *ProfileSample(*model, kLimit, 3, 1));
  EXPECT_NE(*sample, *ProfileSample(*model, kLimit, 3, 2));
}

}  // namespace
}  // namespace runnel::features_test
