// What the feeder needs to fill a micro-batch, with and without augmentation, beside copying as
// many floats: images as CIFAR-10's, signals as UCI HAR's.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "central/data/batch_source.h"
#include "central/data/memory_datasets.h"

namespace runnel {
namespace {

constexpr int64_t kSamples = 10'000;
constexpr int64_t kBatch = 64;

data::ImageDataset Images() {
  std::vector<uint8_t> pixels(kSamples * 3072);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  const std::vector<data::ChannelScale> scales = {{.4914, .247}, {.4822, .243}, {.4465, .261}};
  return data::ImageDataset(Shape{3, 32, 32}, 10, scales, std::move(pixels),
                            std::vector<uint8_t>(kSamples));
}

data::SignalDataset Signals() {
  return data::SignalDataset(Shape{9, 128}, 6, std::vector<float>(kSamples * 9 * 128, 0.5f),
                             std::vector<uint8_t>(kSamples));
}

// Nanoseconds a sample, the least of nine epochs.
template <typename Fill>
double NanosPerSample(const Fill& fill) {
  double least = 1e18;
  for (int64_t epoch = 0; epoch < 9; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t first = 0; first + kBatch <= kSamples; first += kBatch) fill(epoch, first);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / static_cast<double>(kSamples / kBatch * kBatch));
  }
  return least;
}

double FillNanos(const Dataset& dataset, absl::string_view augmentation) {
  BatchSource source(dataset, 1, Augmentation::Parse(augmentation).value());
  std::vector<float> samples(kBatch * dataset.sample_shape().elements());
  return NanosPerSample([&](int64_t epoch, int64_t first) {
    MicroBatch place;
    place.epoch = epoch;
    place.first_sample = first;
    place.samples = kBatch;
    source.Fill(place, absl::MakeSpan(samples), {});
  });
}

// Of samples that lie in memory as floats, in an epoch's order.
double CopyNanos(const Dataset& dataset) {
  const int64_t elements = dataset.sample_shape().elements();
  const std::vector<float> from(kSamples * elements, 1.0f);
  std::vector<float> to(kBatch * elements);
  const std::vector<int64_t> order = EpochPermutation(kSamples, 1, 0);
  return NanosPerSample([&](int64_t, int64_t first) {
    for (int64_t i = 0; i < kBatch; ++i) {
      std::memcpy(&to[i * elements], &from[order[first + i] * elements], elements * sizeof(float));
    }
  });
}

void Print(const char* name, const Dataset& dataset, absl::string_view augmentation) {
  const double plain = FillNanos(dataset, "off");
  const double augmented = FillNanos(dataset, augmentation);
  std::printf("%-8s %-10s off %8.0f ns a sample  on %8.0f ns  more %8.0f ns  copy %8.0f ns\n", name,
              std::string(augmentation).c_str(), plain, augmented, augmented - plain,
              CopyNanos(dataset));
}

}  // namespace
}  // namespace runnel

int main() {
  const runnel::data::ImageDataset images = runnel::Images();
  runnel::Print("cifar10", images, "crop");
  runnel::Print("cifar10", images, "flip");
  runnel::Print("cifar10", images, "crop,flip");
  runnel::Print("ucihar", runnel::Signals(), "shift");
}
