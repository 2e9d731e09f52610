#pragma once

// What tests of the user's own data ask of a data set, or of the line that refuses it.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "central/data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {

inline std::vector<float> Sample(const Dataset& data, int64_t index) {
  std::vector<float> sample(static_cast<size_t>(data.sample_shape().elements()));
  data.CopySample(index, absl::MakeSpan(sample));
  return sample;
}

// The message, which is one line.
inline std::string Refusal(const absl::StatusOr<DatasetSplits>& splits) {
  const std::string message(splits.status().message());
  EXPECT_THAT(message, testing::Not(testing::HasSubstr("\n")));
  return message;
}

}  // namespace runnel
