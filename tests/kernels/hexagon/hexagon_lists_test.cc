// Lists that the DSP keeps: what is sent when they come again, and what is refused. The sessions
// are skipped where there is no emulator.

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/hexagon/dsp/kept_lists.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/hexagon/list_sender.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"

namespace runnel::hexagon::hexagon_lists_test {
namespace {

bool AreEqual(const DspOp* a, const std::vector<DspOp>& b) {
  return a != nullptr && std::memcmp(a, b.data(), b.size() * sizeof(DspOp)) == 0;
}

class ListsTest : public testing::Test {
 protected:
  DspRequest Write(uint64_t key, const std::vector<DspOp>& ops) {
    DspRequest request;
    sender_.Write(key, ops, *desk_, &request);
    return request;
  }
  const DspOp* Send(uint64_t key, const std::vector<DspOp>& ops) {
    return program_->Find(Write(key, ops), *desk_);
  }

  std::unique_ptr<DspDesk> desk_ = std::make_unique<DspDesk>();
  std::unique_ptr<KeptLists> program_ = std::make_unique<KeptLists>();
  ListSender sender_;
};

TEST_F(ListsTest, OneWordOfAllOperationsIsOneChange) {
  std::vector<DspOp> ops(20);
  ASSERT_TRUE(AreEqual(Send(7, ops), ops));
  EXPECT_EQ(sender_.traffic().bytes, 20 * 256);
  for (DspOp& op : ops) op.sequence[0] = 5;
  ops[3].shift = 2;
  const DspRequest request = Write(7, ops);
  EXPECT_EQ(request.change_count, 2u);
  EXPECT_EQ(request.revision, 2u);
  // The operations on the desk are another list's by now.
  desk_->ops[0].shift = 99;
  EXPECT_TRUE(AreEqual(program_->Find(request, *desk_), ops));
  EXPECT_EQ(sender_.traffic().bytes, 20 * 256 + 16);
  EXPECT_EQ(sender_.traffic().whole_lists, 1);
  EXPECT_TRUE(AreEqual(Send(7, ops), ops)) << "nothing changed";
  EXPECT_EQ(sender_.traffic().bytes, 20 * 256 + 16);
  EXPECT_TRUE(AreEqual(Send(0, ops), ops)) << "not kept";
  EXPECT_EQ(sender_.traffic().whole_lists, 2);
}

// Values that swap, or that become another one's old value, in words that many operations share.
TEST_F(ListsTest, ThreeThousandRandomListsArriveAsTheyAre) {
  std::mt19937 random(20261127);
  const auto pick = [&](uint32_t most) { return random() % (most + 1); };
  std::map<uint64_t, std::vector<DspOp>> lists;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t key = pick(400);  // more than are kept
    std::vector<DspOp>& ops = lists[key];
    if (ops.empty() || pick(50) == 0) ops.assign(1 + pick(pick(9) == 0 ? kMaxOps - 1 : 30), {});
    for (uint32_t changes = pick(40); changes > 0; --changes) {
      DspOp& op = ops[pick(static_cast<uint32_t>(ops.size()) - 1)];
      reinterpret_cast<uint32_t*>(&op)[8 + pick(2)] = pick(3);
    }
    ASSERT_TRUE(AreEqual(Send(key, ops), ops)) << i;
  }
  EXPECT_LT(sender_.traffic().whole_lists, 3000);
  EXPECT_GT(sender_.traffic().whole_lists, 400);
}

TEST_F(ListsTest, AListThatFillsTheMemoryDrivesOthersOut) {
  const std::vector<DspOp> small(3), large(kMaxOps);
  for (uint64_t key : {1, 2, 3, 4, 3, 4, 1}) {
    const std::vector<DspOp>& ops = key == 1 ? small : large;
    ASSERT_TRUE(AreEqual(Send(key, ops), ops)) << key;
  }
  // 2 goes for 4 at the latest, and 3 and 4 leave no room for 1.
  EXPECT_GE(sender_.traffic().whole_lists, 5);
}

struct BadRequest {
  const char* name;
  void (*spoil)(DspRequest&, DspDesk&);
};
constexpr BadRequest kBadRequests[] = {
    {"list_out_of_bounds", [](DspRequest& r, DspDesk&) { r.list = kMaxKeptLists + 1; }},
    {"list_that_is_not_kept", [](DspRequest& r, DspDesk&) { r.list = 9; }},
    {"another_count", [](DspRequest& r, DspDesk&) { r.op_count = 19; }},
    {"too_many_operations", [](DspRequest& r, DspDesk&) { r.op_count = kMaxOps + 1; }},
    {"a_lost_revision", [](DspRequest& r, DspDesk&) { ++r.revision; }},
    {"a_repeated_revision", [](DspRequest& r, DspDesk&) { --r.revision; }},
    {"too_many_changes", [](DspRequest& r, DspDesk&) { r.change_count = kMaxChanges + 1; }},
    {"change_of_no_operation", [](DspRequest&, DspDesk& d) { d.changes[0].op = 20; }},
    {"change_of_no_word", [](DspRequest&, DspDesk& d) { d.changes[0].word = kOpWords; }},
    {"place_out_of_bounds",
     [](DspRequest& r, DspDesk&) {
       r.revision = 1;
       r.list_place = kMaxKeptOps - 19;
     }},
    {"place_beyond_all_bounds",
     [](DspRequest& r, DspDesk&) {
       r.revision = 1;
       r.list_place = ~uint32_t{0};
     }},
};

class BadRequestTest : public ListsTest, public testing::WithParamInterface<BadRequest> {};

TEST_P(BadRequestTest, IsRefusedAndTheListForgotten) {
  std::vector<DspOp> ops(20);
  for (int i = 0; i < 2; ++i) {
    ops[0].shift = i;
    ASSERT_TRUE(AreEqual(Send(7, ops), ops));
  }
  ops[0].shift = 2;
  const DspRequest request = Write(7, ops);
  DspRequest bad = request;
  GetParam().spoil(bad, *desk_);
  EXPECT_EQ(program_->Find(bad, *desk_), nullptr);
  if (bad.list != request.list || bad.op_count > kMaxOps) return;
  EXPECT_EQ(program_->Find(request, *desk_), nullptr) << "half of its changes may be there";
}

INSTANTIATE_TEST_SUITE_P(Requests, BadRequestTest, testing::ValuesIn(kBadRequests),
                         [](const auto& info) { return info.param.name; });

ModelSpec FourConvolutions() {
  std::vector<std::vector<OpSpec>> layers;
  for (int channels : {8, 16, 16, 32}) {
    layers.push_back({ConvOp(channels, {3, 1, 1}), ReluOp(), MaxPoolOp({2, 2}, 2)});
  }
  layers.push_back({OpOf(OpKind::kFlatten, {0}), LinearOp(10, {1})});
  return ModelOf({3, 16, 16}, 10, std::move(layers));
}

// Weights in the DSP's memory, as a worker has them, so that their packed forms have versions.
TEST(TrainedLists, AreSentOnceAndThenAsChanges) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto opened = OpenEmulatedSession({.command = *std::move(command)});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const DspSession* session = opened->get();
  const auto backend = MakeBackendOn(*std::move(opened));
  auto net = *IntegerPipeline::Make(FourConvolutions(), {}, 2, backend.get(), **FindRecipe("niti"));
  IntegerStage& stage = net.stages[0];
  const auto weights = *backend->Allocate(stage.program.state.parameter_bytes);
  stage.bindings[Storage::kParameters] = weights->address();
  stage.bindings[Storage::kNewParameters] = weights->address();
  ListTraffic first;
  constexpr int kSteps = 6;
  for (int step = 0; step < kSteps; ++step) {
    StepContext context;
    context.gradient_bits = {3, 4};
    context.sequence = Sequence(step);
    const std::vector<float> x = RandomValues(5, step, 2 * 3 * 16 * 16);
    const std::vector<int32_t> labels = RandomLabels(5, step, 2, 10);
    ASSERT_TRUE(net.ForwardBackward(x.data(), labels.data(), context).ok());
    ASSERT_TRUE(net.Update(context).ok());
    if (step == 0) first = session->traffic();
  }
  const ListTraffic all = session->traffic();
  const int64_t lists = all.lists - first.lists;
  EXPECT_EQ(all.whole_lists, first.whole_lists) << "later steps send changes alone";
  const int64_t before = (all.operations - first.operations) * 256, after = all.bytes - first.bytes;
  std::printf("%.1f operations a list: %.0f bytes a list whole, %.1f as changes\n",
              1.0 * (all.operations - first.operations) / lists, 1.0 * before / lists,
              1.0 * after / lists);
  EXPECT_LE(after * 50, before);
}

}  // namespace
}  // namespace runnel::hexagon::hexagon_lists_test
