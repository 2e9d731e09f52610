#include "central/data/read_ahead.h"

#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace runnel {
namespace {

std::vector<int64_t> From(int64_t first, size_t count) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

TEST(ReadAhead, GivesWhatIsReadWhetherItWasWantedOrNot) {
  ReadAhead<std::string> ahead([](int64_t index) { return std::to_string(index); });
  EXPECT_EQ(*ahead.Get(7), "7");
  ahead.Want(From(0, 50));
  for (const int64_t index : {0, 49, 3, 3, 100, 48}) {
    EXPECT_EQ(*ahead.Get(index), std::to_string(index));
  }
}

// Who wants nothing any more is not waited for; what is under way may end later.
TEST(ReadAhead, ForgetsWhatIsNotWanted) {
  std::atomic<int> reads = 0;
  ReadAhead<int64_t> ahead([&](int64_t index) {
    ++reads;
    return index;
  });
  for (int64_t first = 0; first < 500; first += 5) {
    ahead.Want(From(first, 20));
    EXPECT_EQ(*ahead.Get(first + 2), first + 2);
  }
  ahead.Want({});
  EXPECT_EQ(*ahead.Get(3), 3);
  EXPECT_GE(reads, 101);
}

// A value that is wanted is made once.
TEST(ReadAhead, ReadsOnce) {
  std::atomic<int> reads = 0;
  ReadAhead<int64_t> ahead([&](int64_t index) {
    ++reads;
    return index;
  });
  const std::vector<int64_t> indices = From(0, 300);
  for (size_t i = 0; i < indices.size(); i += 10) {
    ahead.Want(absl::MakeConstSpan(indices).subspan(i));
    for (size_t k = i; k < i + 10; ++k) EXPECT_EQ(*ahead.Get(indices[k]), indices[k]);
  }
  EXPECT_EQ(reads, 300);
}

TEST(ReadInOrder, GivesThemOneAfterTheOther) {
  std::vector<int64_t> indices = From(0, 200);
  std::reverse(indices.begin(), indices.end());
  ReadInOrder<std::string> reader(indices, [](int64_t index) { return std::to_string(index); });
  for (const int64_t index : indices) EXPECT_EQ(*reader.Next(), std::to_string(index));
}

}  // namespace
}  // namespace runnel
