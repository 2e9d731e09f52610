#include "central/data/batch_source.h"

#include <algorithm>
#include <thread>

#include "central/data/memory_datasets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/mixed_label.h"

namespace runnel::batch_source_test {
namespace {

using ::testing::ElementsAre;

// Sample i is (i, -i) with label i mod 7.
data::SignalDataset Numbered(int64_t size) {
  std::vector<float> values;
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(static_cast<float>(-i));
    labels.push_back(static_cast<uint8_t>(i % 7));
  }
  return data::SignalDataset(Shape{1, 2}, 7, values, labels);
}

// The same, read sample by sample.
class InFiles final : public Dataset {
 public:
  explicit InFiles(data::SignalDataset all) : all_(std::move(all)) {}
  int64_t size() const override { return all_.size(); }
  const Shape& sample_shape() const override { return all_.sample_shape(); }
  int64_t classes() const override { return all_.classes(); }
  bool reads_files() const override { return true; }
  int32_t label(int64_t index) const override { return all_.label(index); }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    all_.CopySample(index, out);
  }

 private:
  data::SignalDataset all_;
};

TEST(EpochPermutation, IsAPermutationAndAFunctionOfSeedAndEpoch) {
  const std::vector<int64_t> order = EpochPermutation(1000, 42, 3);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_EQ(order, EpochPermutation(1000, 42, 3));
  EXPECT_NE(order, EpochPermutation(1000, 42, 4));
  EXPECT_NE(order, EpochPermutation(1000, 43, 3));
  EXPECT_NE(order, sorted);
}

// Every run on record depends on this order.
TEST(EpochPermutation, Golden) {
  EXPECT_THAT(EpochPermutation(10, 1, 0), ElementsAre(7, 3, 9, 0, 8, 4, 1, 5, 6, 2));
  EXPECT_THAT(EpochPermutation(10, 1, 1), ElementsAre(5, 0, 3, 9, 8, 6, 4, 2, 7, 1));
}

// Over 6000 permutations of 4 every first and every last element is about equally frequent.
TEST(EpochPermutation, FavoursNobody) {
  int64_t counts[4][4] = {};
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    const std::vector<int64_t> order = EpochPermutation(4, 9, epoch);
    for (int place = 0; place < 4; ++place) ++counts[place][order[place]];
  }
  for (const auto& row : counts) {
    for (int64_t count : row) EXPECT_NEAR(count, 1500, 150);  // 4.5 standard deviations
  }
}

TEST(BatchSource, AnEpochVisitsEverySampleOnce) {
  const data::SignalDataset dataset = Numbered(103);
  const auto batching = Batching::Create(103, 16, 3, 1);
  ASSERT_TRUE(batching.ok());
  BatchSource source(dataset, 7);
  const std::vector<int64_t> order = EpochPermutation(103, 7, 1);
  std::vector<int64_t> visited;
  const int64_t per_epoch = batching->sequences_per_epoch();
  for (int64_t s = per_epoch; s < 2 * per_epoch; ++s) {
    const MicroBatch place = batching->Locate(Sequence(s));
    std::vector<float> x(place.samples * 2);
    std::vector<int32_t> y(place.samples);
    source.Fill(place, absl::MakeSpan(x), absl::MakeSpan(y));
    for (int64_t i = 0; i < place.samples; ++i) {
      visited.push_back(static_cast<int64_t>(x[2 * i]));
      EXPECT_EQ(x[2 * i + 1], -x[2 * i]);
      EXPECT_EQ(y[i], visited.back() % 7);
    }
  }
  EXPECT_EQ(visited, order);
}

TEST(BatchSource, FillsAgainInAnyOrder) {
  const data::SignalDataset dataset = Numbered(50);
  const auto batching = Batching::Create(50, 8, 2, 1);
  ASSERT_TRUE(batching.ok());
  BatchSource forward(dataset, 7);
  BatchSource jumping(dataset, 7);
  for (int64_t s : {0, 40, 3, 90, 41, 0}) {
    const MicroBatch place = batching->Locate(Sequence(s));
    std::vector<float> a(place.samples * 2);
    std::vector<float> b(place.samples * 2);
    std::vector<int32_t> labels(place.samples);
    jumping.Fill(place, absl::MakeSpan(a), {});
    BatchSource fresh(dataset, 7);
    fresh.Fill(place, absl::MakeSpan(b), absl::MakeSpan(labels));
    EXPECT_EQ(a, b);
    std::vector<int32_t> only(place.samples);
    forward.Fill(place, {}, absl::MakeSpan(only));
    EXPECT_EQ(only, labels);
  }
}

// 40 images without a black pixel; the label is the number.
data::ImageDataset Images() {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 40 * 3 * 8 * 8; ++i) pixels.push_back(static_cast<uint8_t>(i * 37 % 251 + 1));
  const std::vector<data::ChannelScale> scales = {{.1, .2}, {.2, .3}, {.3, .4}};
  std::vector<uint8_t> labels;
  for (uint8_t i = 0; i < 40; ++i) labels.push_back(i);
  return data::ImageDataset(Shape{3, 8, 8}, 40, scales, pixels, labels);
}

// All of epoch 1, filled by `micro_batches` parts a step.
std::vector<float> EpochOf(const Dataset& dataset, const Augmentation& augmentation,
                           int64_t micro_batches) {
  const Batching batching = Batching::Create(dataset.size(), 8, micro_batches, 1).value();
  BatchSource source(dataset, 7, augmentation);
  std::vector<float> all;
  const int64_t per_epoch = batching.sequences_per_epoch();
  for (int64_t s = per_epoch; s < 2 * per_epoch; ++s) {
    const MicroBatch place = batching.Locate(Sequence(s));
    std::vector<float> samples(place.samples * dataset.sample_shape().elements());
    source.Fill(place, absl::MakeSpan(samples), {});
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

TEST(BatchSource, AugmentsBySampleAndEpochHoweverTheBatchIsCut) {
  const data::ImageDataset dataset = Images();
  const Augmentation augmentation = Augmentation::Parse("crop,flip").value();
  const std::vector<float> whole = EpochOf(dataset, augmentation, 1);
  EXPECT_EQ(EpochOf(dataset, augmentation, 4), whole);
  EXPECT_NE(EpochOf(dataset, {}, 1), whole);
  const std::vector<int64_t> order = EpochPermutation(40, 7, 1);
  const std::vector<float> black = {dataset.outside(0), dataset.outside(1), dataset.outside(2)};
  EXPECT_FLOAT_EQ(black[1], -.2f / .3f);
  std::vector<float> sample(192);
  std::vector<float> expected(192);
  for (int64_t i = 0; i < 40; ++i) {
    dataset.CopySample(order[i], absl::MakeSpan(sample));
    CopyImage(dataset.sample_shape(), DrawPlacement(augmentation, 7, 1, order[i]), black, sample,
              absl::MakeSpan(expected));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), whole.begin() + i * 192)) << i;
  }
}

TEST(BatchSource, ErasesAndMixesHoweverTheBatchIsCut) {
  const data::ImageDataset dataset = Images();
  const Augmentation augmentation = Augmentation::Parse("crop,flip,erase,mixup").value();
  const std::vector<float> whole = EpochOf(dataset, augmentation, 1);
  EXPECT_EQ(EpochOf(dataset, augmentation, 4), whole);
  const std::vector<float> black = {dataset.outside(0), dataset.outside(1), dataset.outside(2)};
  const Shape& shape = dataset.sample_shape();
  const auto transformed = [&](int64_t index) {
    std::vector<float> sample(192), out(192);
    dataset.CopySample(index, absl::MakeSpan(sample));
    CopyImage(shape, DrawPlacement(augmentation, 7, 1, index), black, sample, absl::MakeSpan(out));
    const Rectangle hole = DrawErasure(shape, 7, 1, index);
    for (int64_t i = 0; i < 192; ++i) {
      const int64_t y = i / 8 % 8 - hole.top, x = i % 8 - hole.left;
      if (y >= 0 && y < hole.height && x >= 0 && x < hole.width)
        out[static_cast<size_t>(i)] = black[static_cast<size_t>(i / 64)];
    }
    return out;
  };
  const Batching batching = Batching::Create(40, 40, 1, 1).value();
  std::vector<int32_t> labels(40);
  BatchSource(dataset, 7, augmentation)
      .Fill(batching.Locate(Sequence(1)), {}, absl::MakeSpan(labels));
  const std::vector<int64_t> order = EpochPermutation(40, 7, 1);
  for (size_t i = 0; i < 40; ++i) {
    const Mix mix = DrawMix(40, 7, 1, order[i]);
    const MixedLabel label = UnpackLabel(labels[i]);
    EXPECT_EQ(label.first, dataset.label(order[i]));
    EXPECT_EQ(label.second, dataset.label(mix.other));
    EXPECT_EQ(label.parts, mix.parts);
    const std::vector<float> own = transformed(order[i]), other = transformed(mix.other);
    for (size_t e = 0; e < 192; ++e) {
      EXPECT_NEAR(whole[i * 192 + e], label.share() * own[e] + (1 - label.share()) * other[e],
                  1e-6);
    }
  }
}

TEST(BatchSource, ShiftsSignalsAndLeavesLabelsAndTestsAlone) {
  const data::SignalDataset dataset(Shape{1, 12}, 2, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,  //
                                                      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                                    {0, 1});
  const Augmentation augmentation = Augmentation::Parse("shift").value();
  BatchSource source(dataset, 7, augmentation);
  const Batching batching = Batching::Create(2, 2, 1, 1).value();
  std::vector<float> x(24);
  std::vector<int32_t> labels(2);
  std::vector<int32_t> plain_labels(2);
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const MicroBatch place = batching.Locate(Sequence(epoch));
    source.Fill(place, absl::MakeSpan(x), absl::MakeSpan(labels));
    BatchSource(dataset, 7).Fill(place, {}, absl::MakeSpan(plain_labels));
    EXPECT_EQ(labels, plain_labels);
    const int64_t later = DrawPlacement(augmentation, 7, epoch, labels[0]).later;
    EXPECT_EQ(x[0], std::max<float>(0, later)) << epoch;
    EXPECT_EQ(x[11], std::min<float>(11, 11 + later)) << epoch;
  }
  source.FillTest(0, 2, absl::MakeSpan(x), absl::MakeSpan(labels));
  for (int i = 0; i < 24; ++i) EXPECT_EQ(x[i], i % 12);
}

// What other threads read ahead is what was in the files, wherever the run goes next.
TEST(BatchSource, FilesAreReadAheadToTheSameBytes) {
  const data::SignalDataset dataset = Numbered(103);
  const InFiles files(Numbered(103));
  const auto batching = Batching::Create(103, 16, 3, 1);
  ASSERT_TRUE(batching.ok());
  for (const char* augment : {"off", "mixup"}) {
    const auto augmentation = Augmentation::Parse(augment);
    ASSERT_TRUE(augmentation.ok()) << augmentation.status();
    BatchSource whole(dataset, 7, *augmentation), ahead(files, 7, *augmentation);
    for (const int64_t sequence : {0, 1, 2, 3, 17, 18, 19, 5, 6, 40, 41}) {
      const MicroBatch place = batching->Locate(Sequence(sequence));
      std::vector<float> x(static_cast<size_t>(place.samples) * 2), y(x.size());
      whole.Fill(place, absl::MakeSpan(x), {});
      EXPECT_TRUE(whole.IsReady(place));
      while (sequence % 2 == 0 && !ahead.IsReady(place)) std::this_thread::yield();
      ahead.Fill(place, absl::MakeSpan(y), {});
      EXPECT_EQ(x, y) << augment << ", " << sequence;
    }
    std::vector<float> x(20), y(20);
    whole.FillTest(13, 10, absl::MakeSpan(x), {});
    while (!ahead.IsTestReady(13, 10)) std::this_thread::yield();
    ahead.FillTest(13, 10, absl::MakeSpan(y), {});
    EXPECT_EQ(x, y);
  }
}

TEST(BatchSource, TestsInTheDataSetsOrder) {
  const data::SignalDataset dataset = Numbered(20);
  BatchSource source(dataset, 7);
  std::vector<float> x(6);
  std::vector<int32_t> y(3);
  source.FillTest(13, 3, absl::MakeSpan(x), absl::MakeSpan(y));
  EXPECT_THAT(x, ElementsAre(13, -13, 14, -14, 15, -15));
  EXPECT_THAT(y, ElementsAre(6, 0, 1));
}

}  // namespace
}  // namespace runnel::batch_source_test
