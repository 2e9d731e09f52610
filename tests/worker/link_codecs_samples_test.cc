// Codecs that keep samples: both ends of a link remember, and go on wherever a state moves.

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/model/model_state.h"
#include "proto/base/random.h"
#include "proto/base/training/epoch_order.h"
#include "proto/base/training/training.h"
#include "tests/base/codecs.h"
#include "tests/worker/seeded_links.h"
#include "worker/link_codecs.h"

namespace runnel::link_codecs_samples_test {
namespace {

constexpr uint64_t kSeed = 5;
constexpr int64_t kSamples = 10;  // epochs of three micro-batches: 4, 4 and 2 samples
constexpr int64_t kElements = 96;

Batching Epochs() { return Batching::Create(kSamples, 4, 1, 1).value(); }

// Three stages of one layer each.
Plan PlanWith(absl::string_view forward) {
  Plan plan;
  for (int i = 0; i < 3; ++i) plan.stages.push_back({{Seat{DeviceId(i)}}, i, i, 3 - i});
  plan.links.assign(2, {Codecs(forward), Codecs("identity")});
  return plan;
}

std::unique_ptr<LinkCodecs> Make(const Plan& plan, int stage, const NumberFormat& format = {}) {
  return SeededLinks(plan, stage, kSeed, format, kSamples).value();
}

// Of this micro-batch: each sample's settle as epochs pass.
std::vector<float> Activations(const MicroBatch& place, int link) {
  const std::vector<int64_t> order = EpochPermutation(kSamples, kSeed, place.epoch);
  std::vector<float> values;
  for (int64_t i = 0; i < place.samples; ++i) {
    const auto sample = static_cast<uint64_t>(order[place.first_sample + i]);
    const CounterRandom random(kSeed, RandomPurpose::kTest, static_cast<uint64_t>(link), sample);
    for (int64_t e = 0; e < kElements; ++e) values.push_back(static_cast<float>(random.Normal(e)));
  }
  return values;
}

// Sends a micro-batch over link `link`: what arrives, and its relative error.
struct Arrived {
  std::vector<std::byte> payload;
  std::vector<float> values;
  double error = 0;
};

Arrived Cross(LinkCodecs& sender, LinkCodecs& receiver, int link, int64_t sequence) {
  const MicroBatch place = Epochs().Locate(Sequence(sequence));
  const Shape shape = {place.samples, kElements};
  const std::vector<float> x = Activations(place, link);
  Arrived arrived;
  arrived.payload.resize(
      static_cast<size_t>(sender.EncodedBytes(Direction::kForward, place, shape)));
  arrived.values.resize(x.size());
  EXPECT_TRUE(sender
                  .Encode(Direction::kForward, place, shape, ViewOf(x, shape).bytes,
                          absl::MakeSpan(arrived.payload))
                  .ok());
  const absl::Status decoded =
      receiver.Decode(Direction::kForward, place, arrived.payload, shape,
                      MutableViewOf(absl::MakeSpan(arrived.values), shape).bytes);
  EXPECT_TRUE(decoded.ok()) << decoded;
  double power = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    arrived.error += (x[e] - arrived.values[e]) * (x[e] - arrived.values[e]);
    power += x[e] * x[e];
  }
  arrived.error /= power;
  return arrived;
}

constexpr int64_t kBarrier = 8;  // in the third epoch

struct Stages {
  explicit Stages(const Plan& plan) {
    for (int i = 0; i < 3; ++i) stage.push_back(Make(plan, i));
  }
  Arrived Run(int64_t sequence) {
    Cross(*stage[0], *stage[1], 0, sequence);
    return Cross(*stage[1], *stage[2], 1, sequence);
  }
  std::vector<std::unique_ptr<LinkCodecs>> stage;
};

TEST(LinkCodecsSamples, WhatSettlesArrivesExactly) {
  Stages stages(PlanWith("aqsgd:2"));
  const double first = stages.Run(0).error;
  for (int64_t sequence = 1; sequence < 12; ++sequence) stages.Run(sequence);
  const double fifth = stages.Run(12).error;
  EXPECT_GT(first, 0.03);
  EXPECT_LT(fifth, 1e-3 * first);
}

// A barrier's state, whichever end it is from, makes both ends anew: with the same bits the bytes
// are those without the move; with others the samples are kept.
TEST(LinkCodecsSamples, EitherEndsStateServesBoth) {
  Stages stayed(PlanWith("aqsgd:2"));
  for (int64_t sequence = 0; sequence < kBarrier; ++sequence) stayed.Run(sequence);
  const std::vector<EncoderState> above = stayed.stage[0]->SaveStates();
  const std::vector<EncoderState> below = stayed.stage[2]->SaveStates();
  std::vector<EncoderState> states = above;
  states.insert(states.end(), below.begin(), below.end());
  Stages moved(PlanWith("aqsgd:2")), finer(PlanWith("aqsgd:3"));
  for (Stages* stages : {&moved, &finer}) {
    for (const auto& stage : stages->stage) ASSERT_TRUE(stage->RestoreStates(states).ok());
  }
  const auto middle = moved.stage[1]->SaveStates();
  EXPECT_EQ(middle, stayed.stage[1]->SaveStates());
  for (int64_t sequence = kBarrier; sequence < kBarrier + 5; ++sequence) {
    const Arrived expected = stayed.Run(sequence), arrived = moved.Run(sequence);
    EXPECT_EQ(arrived.payload, expected.payload) << sequence;
    EXPECT_EQ(arrived.values, expected.values) << sequence;
    EXPECT_LT(finer.Run(sequence).error, 0.5 * expected.error) << sequence;
  }
}

TEST(LinkCodecsSamples, AScheduleKeepsThemWhereBitsChange) {
  Stages stages(PlanWith("0:aqsgd:2,2:aqsgd:3,3:identity,4:aqsgd:2"));
  std::vector<double> errors;
  for (int64_t sequence = 0; sequence < 15; ++sequence)
    errors.push_back(stages.Run(sequence).error);
  EXPECT_LT(errors[6], 0.5 * errors[3]);  // goes on
  EXPECT_EQ(errors[9], 0);
  EXPECT_GT(errors[12], 0.03);  // anew
}

// Before and behind epochs in which samples are kept, the receiving end's state does not take the
// place of the encoder's, whoever's comes last.
TEST(LinkCodecsSamples, AnotherCodecsStateIsTheEncoders) {
  for (const char* codecs : {"0:mbq:2,2:aqsgd:2", "0:aqsgd:2,1:mbq:2"}) {
    Stages stayed(PlanWith(codecs));
    for (const int64_t barrier : {2, 5}) {
      SCOPED_TRACE(absl::StrCat(codecs, ", ", barrier));
      const int64_t done = barrier == 2 ? 0 : 3;
      for (int64_t sequence = done; sequence < barrier; ++sequence) stayed.Run(sequence);
      ModelState state;
      for (const auto& stage : stayed.stage) Merge({{}, stage->SaveStates()}, state);
      Stages moved(PlanWith(codecs));
      for (const auto& stage : moved.stage) ASSERT_TRUE(stage->RestoreStates(state.encoders).ok());
      EXPECT_EQ(moved.Run(barrier).payload, stayed.Run(barrier).payload);
    }
  }
}

TEST(LinkCodecsSamples, ADryRunLeavesNoTrace) {
  Stages with(PlanWith("aqsgd:2")), without(PlanWith("aqsgd:2"));
  for (int64_t sequence = 0; sequence < kBarrier; ++sequence) {
    for (const auto& stage : with.stage) ASSERT_TRUE(stage->BeginDryRun().ok());
    with.Run(sequence);
    with.Run(sequence + 1);
    for (const auto& stage : with.stage) stage->EndDryRun();
    EXPECT_EQ(with.Run(sequence).payload, without.Run(sequence).payload) << sequence;
    EXPECT_EQ(with.stage[1]->SaveStates(), without.stage[1]->SaveStates()) << sequence;
  }
}

// A stage that has lost what it kept is told so by an error.
TEST(LinkCodecsSamples, EndsThatDifferAreFound) {
  Stages stages(PlanWith("aqsgd:2"));
  for (int64_t sequence = 0; sequence < 3; ++sequence) stages.Run(sequence);
  const auto fresh = Make(PlanWith("aqsgd:2"), 2);
  const MicroBatch place = Epochs().Locate(Sequence(3));
  const Shape shape = {place.samples, kElements};
  const std::vector<float> x = Activations(place, 1);
  std::vector<std::byte> payload(
      static_cast<size_t>(stages.stage[1]->EncodedBytes(Direction::kForward, {.epoch = 1}, shape)));
  ASSERT_TRUE(stages.stage[1]
                  ->Encode(Direction::kForward, place, shape, ViewOf(x, shape).bytes,
                           absl::MakeSpan(payload))
                  .ok());
  std::vector<float> out(x.size());
  const absl::Status decoded = fresh->Decode(Direction::kForward, place, payload, shape,
                                             MutableViewOf(absl::MakeSpan(out), shape).bytes);
  EXPECT_EQ(decoded.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.message()), testing::HasSubstr("is a difference to something"));
}

}  // namespace
}  // namespace runnel::link_codecs_samples_test
