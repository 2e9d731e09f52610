#include "worker/replication/replica_store.h"

#include "gtest/gtest.h"

namespace runnel::replica_store_test {
namespace {

// Of a stage 1 that holds copies of stage 0.
void AddOwn(ReplicaStore& store, const ReplicaId& id, std::shared_ptr<const SummedState> state) {
  store.Add(id, 1, true, std::move(state));
}
void AddUpstream(ReplicaStore& store, const ReplicaId& id,
                 std::shared_ptr<const SummedState> state) {
  store.Add(id, 0, false, std::move(state));
}

ReplicaId At(int64_t sequence, int32_t generation = 1) {
  return {Generation(generation), Sequence(sequence)};
}

// Layers first..last; `mark` tells whose and when.
std::shared_ptr<const SummedState> State(int first, int last, const std::string& mark) {
  ModelState state;
  for (int layer = first; layer <= last; ++layer)
    state.layers.push_back({layer, {{"w", DType::kInt8, Shape(), mark}}, {}});
  state.encoders = {{last, Direction::kForward, "mbq:2", mark},
                    {first - 1, Direction::kBackward, "mbq:2", mark}};
  return std::make_shared<const SummedState>(state);
}

std::string Marks(const ModelState& state) {
  std::string marks;
  for (const LayerState& layer : state.layers)
    marks += std::to_string(layer.layer) + layer.tensors[0].bytes + " ";
  for (const EncoderState& encoder : state.encoders)
    marks += (encoder.direction == Direction::kForward ? "f" : "b") +
             std::to_string(encoder.boundary) + encoder.state + " ";
  return marks;
}

std::string MarksOf(const ReplicaStore& store, const ReplicaId& id, int first, int last) {
  return Marks(store.CopiesAt(id).LayersOf({first, last}).value());
}

TEST(ReplicaStore, GivesLayersAndTheEncodersOfWhatTheySend) {
  ReplicaStore store;
  AddOwn(store, At(40), State(2, 3, "o"));
  AddUpstream(store, At(40), State(0, 1, "u"));
  EXPECT_EQ(MarksOf(store, At(40), 0, 5), "0u 1u 2o 3o f1u b-1u f3o b1o ");
  // The receiver's side of a boundary too, which may keep the same.
  EXPECT_EQ(MarksOf(store, At(40), 2, 2), "2o f1u b1o ");
  // Not the last layer: what goes down from there is another's.
  EXPECT_EQ(MarksOf(store, At(40), 1, 2), "1u 2o f1u b1o ");
  EXPECT_EQ(MarksOf(store, At(80), 0, 5), "");
}

// Of the own stage it is news, of another's nothing to train on with.
TEST(ReplicaStore, OthersValuesMustBeFinite) {
  ModelState bad;
  bad.layers = {{0, {{"w", DType::kFloat32, Shape(), std::string("\0\0\x80\x7f", 4)}}, {}}};
  const auto infinite = std::make_shared<const SummedState>(bad);
  ReplicaStore store;
  AddOwn(store, At(40), infinite);
  EXPECT_EQ(store.CopiesAt(At(40)).LayersOf({0, 0}).value().layers.size(), 1u);
  AddUpstream(store, At(80), infinite);
  EXPECT_EQ(store.CopiesAt(At(80)).LayersOf({0, 0}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store.CopiesAt(At(80)).LayersOf({1, 1}).ok()) << "not asked for";
}

// A recovery that goes on from other bytes would make other weights without a word.
TEST(ReplicaStore, ACopyThatChangedInMemoryIsNone) {
  const auto state = std::make_shared<SummedState>(*State(0, 2, "own"));
  ReplicaStore store;
  AddOwn(store, At(40), state);
  state->state.layers[1].tensors[0].bytes[2] ^= 1;
  const absl::Status changed = store.CopiesAt(At(40)).LayersOf({0, 2}).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(changed.message(),
            "the copy of layer 1 at micro-batch 40 of plan 1 has changed since it was made");
  EXPECT_TRUE(store.CopiesAt(At(40)).LayersOf({0, 0}).ok()) << "not asked for";
  state->state.encoders[0].state[0] ^= 1;
  EXPECT_EQ(store.CopiesAt(At(40)).LayersOf({0, 0}).status().message(),
            "the copy of encoders at micro-batch 40 of plan 1 has changed since it was made");
}

// A barrier is of use only when everybody has it: until then the one before is needed.
TEST(ReplicaStore, KeepsTheCommittedBarrierAndOneAfterIt) {
  ReplicaStore store;
  AddOwn(store, At(40), State(2, 3, "a"));
  AddUpstream(store, At(40), State(0, 1, "a"));
  store.Commit(At(40));
  AddOwn(store, At(80), State(2, 3, "b"));
  EXPECT_EQ(MarksOf(store, At(40), 2, 2), "2a f1a b1a ");
  // Never committed; the next one takes its place.
  AddOwn(store, At(120), State(2, 3, "c"));
  EXPECT_EQ(MarksOf(store, At(80), 2, 2), "");
  EXPECT_EQ(MarksOf(store, At(40), 2, 2), "2a f1a b1a ");
  store.Commit(At(120));
  EXPECT_EQ(MarksOf(store, At(40), 0, 5), "");
  EXPECT_EQ(MarksOf(store, At(120), 2, 2), "2c b1c ");
}

TEST(ReplicaStore, APlanEndsWhatWasNotCommitted) {
  ReplicaStore store;
  AddOwn(store, At(40), State(2, 3, "a"));
  store.Commit(At(40));
  AddOwn(store, At(80), State(2, 3, "b"));
  store.DropUncommitted();
  EXPECT_EQ(MarksOf(store, At(80), 2, 2), "");
  EXPECT_EQ(MarksOf(store, At(40), 2, 2), "2a b1a ");
  // The same barrier by the next plan is another replica, and a later one.
  AddOwn(store, At(40, 2), State(0, 3, "c"));
  store.Commit(At(40, 2));
  EXPECT_EQ(MarksOf(store, At(40), 2, 2), "");
}

TEST(ReplicaStore, ACommitThatComesLateChangesNothing) {
  ReplicaStore store;
  store.Commit(At(80));
  AddUpstream(store, At(80), State(0, 1, "b"));
  store.Commit(At(40));
  EXPECT_EQ(store.committed(), At(80));
  AddUpstream(store, At(120), State(0, 1, "c"));
  EXPECT_EQ(MarksOf(store, At(80), 0, 0), "0b b-1b ");
}

TEST(ReplicaStore, SaysWhichLayerIsMissing) {
  ReplicaStore store;
  AddOwn(store, At(40), State(2, 3, "o"));
  EXPECT_EQ(Marks(store.CopiesAt(At(40)).AllLayersOf({{2, 2}, {3, 3}}).value()), "2o 3o b1o f3o ");
  const absl::Status missing = store.CopiesAt(At(40)).AllLayersOf({{1, 3}}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "has no copy of layer 1 at micro-batch 40 of plan 1");
  // From elsewhere, and ahead of a copy.
  EXPECT_EQ(Marks(store.CopiesAt(At(40)).AllLayersOf({{1, 3}}, State(1, 2, "g")->state).value()),
            "1g 2g 3o f3o b1o f2g b0g ");
}

// What was asked for stays, whatever the store drops meanwhile.
TEST(ReplicaStore, CopiesOutliveTheStoresOwn) {
  ReplicaStore store;
  AddOwn(store, At(40), State(2, 3, "o"));
  const ReplicaCopies copies = store.CopiesAt(At(40));
  store.Commit(At(80));
  EXPECT_EQ(MarksOf(store, At(40), 0, 5), "");
  EXPECT_EQ(Marks(copies.LayersOf({2, 2}).value()), "2o b1o ");
}

}  // namespace
}  // namespace runnel::replica_store_test
