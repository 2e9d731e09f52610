#include "worker/replication/replica_stream.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"

namespace runnel::replica_stream_test {
namespace {

using ::testing::HasSubstr;

constexpr int kFirst = 1;
constexpr int kLast = 3;

ModelState StageState(const ModelSpec& model) {
  ModelState state = Slice(InitialState(model, 7).value(), kFirst, kLast);
  for (LayerState& layer : state.layers) {
    if (!layer.slots.empty()) layer.slots[0].bytes[5] = 'm';
  }
  state.encoders = {{kLast, Direction::kForward, "mbq:4", "state of it"},
                    {kFirst - 1, Direction::kBackward, "topk:0.1", ""}};
  return state;
}

std::vector<std::byte> BytesOf(const ModelState& state, const SummedState* base = nullptr) {
  ReplicaWriter writer(std::make_shared<const SummedState>(state), base);
  std::vector<std::byte> bytes(static_cast<size_t>(writer.left()));
  writer.Read(absl::MakeSpan(bytes));
  EXPECT_EQ(writer.left(), 0);
  return bytes;
}

ReplicaReader ReaderOf(const ModelSpec& model, int64_t max_encoder_bytes = 1000) {
  return ReplicaReader::Create(model, kFirst, kLast, {}, max_encoder_bytes).value();
}

TEST(ReplicaStream, ComesOutAsItWentInWhateverThePieces) {
  const ModelSpec model = MakeModel("lenet").value();
  const ModelState state = StageState(model);
  const std::vector<std::byte> whole = BytesOf(state);
  for (const size_t piece : {size_t{1000}, size_t{7}, whole.size()}) {
    ReplicaWriter writer(std::make_shared<const SummedState>(state));
    ReplicaReader reader = ReaderOf(model);
    while (writer.left() > 0) {
      EXPECT_FALSE(reader.whole());
      std::vector<std::byte> bytes(std::min(piece, static_cast<size_t>(writer.left())));
      writer.Read(absl::MakeSpan(bytes));
      ASSERT_TRUE(reader.Add(bytes).ok());
    }
    ASSERT_TRUE(reader.whole()) << piece;
    const SummedState taken = reader.Take();
    EXPECT_TRUE(taken.state == state) << piece;
    EXPECT_TRUE(taken.sums == SummedState(state).sums) << piece;
  }
}

// An encoder's state that both ends have from before goes as what has changed of it.
TEST(ReplicaStream, OfEncodersWhatHasChanged) {
  const ModelSpec model = MakeModel("lenet").value();
  ModelState state = StageState(model);
  state.encoders[0].state = std::string(100'000, 'a');
  const auto base = std::make_shared<const SummedState>(state);
  state.encoders[0].state[50'000] = 'b';
  state.encoders[0].state += "a row more";
  state.encoders[1].state = "no changes are smaller";
  const auto reader = [&](std::shared_ptr<const SummedState> of, int64_t most = 101'000) {
    return ReplicaReader::Create(model, kFirst, kLast, {}, most, std::move(of)).value();
  };
  const std::vector<std::byte> changes = BytesOf(state, base.get());
  EXPECT_LT(changes.size() + 90'000, BytesOf(state).size());
  ReplicaReader with_base = reader(base);
  ASSERT_TRUE(with_base.Add(changes).ok());
  ASSERT_TRUE(with_base.whole());
  const SummedState taken = with_base.Take();
  EXPECT_TRUE(taken.state == state);
  EXPECT_EQ(SumOf(taken.state.encoders), taken.sums.encoders);

  EXPECT_THAT(reader(nullptr).Add(changes).message(), HasSubstr("a state that is not here"));
  EXPECT_THAT(reader(base, 100'000).Add(changes).message(), HasSubstr("states are too large"));
  // Of another codec nothing is taken.
  ModelState other = state;
  other.encoders[0].codec = "mbq:2";
  EXPECT_GT(BytesOf(other, base.get()).size(), BytesOf(state).size() - 100);
}

TEST(ReplicaStream, NoMoreThanTheStateHas) {
  const ModelSpec model = MakeModel("lenet").value();
  const std::vector<std::byte> whole = BytesOf(StageState(model));
  const std::byte more[1] = {};
  ReplicaReader reader = ReaderOf(model);
  ASSERT_TRUE(reader.Add(whole).ok());
  EXPECT_THAT(reader.Add(more).message(), HasSubstr("behind its end"));

  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{});
  EXPECT_THAT(ReaderOf(model).Add(longer).message(), HasSubstr("behind their end"));

  EXPECT_THAT(ReaderOf(model, 10).Add(whole).message(), HasSubstr("more than 10 bytes"));
}

TEST(ReplicaStream, BrokenEncodersAreRefused) {
  const ModelSpec model = MakeModel("lenet").value();
  ModelState state = StageState(model);
  state.encoders.clear();
  const size_t ahead = BytesOf(state).size();
  const std::vector<std::byte> whole = BytesOf(StageState(model));
  // Of the first one: boundary, direction, length of the codec's name.
  for (const size_t at : {size_t{2}, size_t{4}, size_t{8 + 1}}) {
    std::vector<std::byte> bytes = whole;
    bytes[ahead + at] = std::byte{0x7f};
    EXPECT_THAT(ReaderOf(model).Add(bytes).message(), HasSubstr("replica: encoders")) << at;
  }
}

TEST(ReplicaStream, LayersThatTheModelHasNot) {
  const ModelSpec model = MakeModel("lenet").value();
  EXPECT_EQ(ReplicaReader::Create(model, 2, 6, {}, 10).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace runnel::replica_stream_test
