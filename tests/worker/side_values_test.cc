// Values beside a boundary tensor: two rows that only this test has travel beside the exponent.

#include "proto/base/model/side_values.h"

#include <cstring>
#include <limits>

#include "compress/bit_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "tests/base/codecs.h"
#include "tests/worker/seeded_links.h"
#include "worker/link_codecs.h"
#include "worker/measure/random_tensors.h"
#include "worker/not_finite.h"
#include "worker/stage/stage_executor.h"

namespace runnel::side_values_test {
namespace {

using ::testing::HasSubstr;

// Down: a probability a sample. Up: two counts of overflows.
constexpr SideValue kRows[] = {kScaleExponent,
                               {.name = "gate",
                                .type = DType::kFloat32,
                                .count = [](const Shape& tensor) { return tensor[0]; },
                                .forward = true,
                                .least = 0,
                                .most = 1},
                               {.name = "overflows",
                                .type = DType::kInt32,
                                .count = [](const Shape&) -> int64_t { return 2; },
                                .backward = true,
                                .least = 0,
                                .most = 1000}};
const Shape kShape = {3, 5, 7};
constexpr float kGates[] = {0.25F, 1, 0};
constexpr int32_t kOverflows[] = {7, 1000};

// fp16: activations of two bytes, gradients of four.
NumberFormat FormatWith(absl::string_view recipe, absl::Span<const SideValue> beside) {
  NumberFormat format = recipe == "fp16" ? NumberFormat{.activation = DType::kFloat16}
                                         : ParseRecipeName(recipe)->family->format;
  format.beside = beside;
  return format;
}

struct Case {
  std::string recipe;
  std::string codec;
};
const Case kCases[] = {{"fp32", "identity"}, {"fp32", "mbq:4"}, {"fp16", "identity"},
                       {"fp16", "int8"},     {"niti", "int8"},  {"niti", "mbq:4"}};

// One link, both ways.
class Link {
 public:
  Link(const Case& one, absl::Span<const SideValue> beside)
      : format_(FormatWith(one.recipe, beside)) {
    Plan plan;
    plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, 1, 1}};
    plan.links = {{Codecs(one.codec), Codecs(one.codec)}};
    for (int stage = 0; stage < 2; ++stage) ends_.push_back(*SeededLinks(plan, stage, 77, format_));
  }

  // A tensor with values beside it, where the format has rows for them.
  Payload Tensor(Direction direction) {
    Payload tensor = RandomBoundary(pool_, format_, direction, kShape, 3);
    for (const SidePlace& place : SidePlaces(format_, kShape, direction)) {
      const void* values = direction == Direction::kForward ? static_cast<const void*>(kGates)
                                                            : static_cast<const void*>(kOverflows);
      std::memcpy(tensor.mutable_bytes().data() + place.memory_offset, values, place.bytes);
    }
    return tensor;
  }
  size_t payload_bytes(Direction direction) {
    return static_cast<size_t>(sender(direction).EncodedBytes(direction, {}, kShape));
  }
  absl::StatusOr<Payload> Send(Direction direction, const Payload& tensor) {
    Payload payload = pool_.Allocate(payload_bytes(direction));
    const absl::StatusOr<size_t> sent = sender(direction).Encode(
        direction, place_, kShape, tensor.bytes(), payload.mutable_bytes());
    if (!sent.ok()) return sent.status();
    EXPECT_EQ(*sent, payload.size());
    return payload;
  }
  absl::StatusOr<Payload> Receive(Direction direction, absl::Span<const std::byte> payload) {
    LinkCodecs& receiver = *ends_[direction == Direction::kForward ? 1 : 0];
    Payload tensor = pool_.Allocate(static_cast<size_t>(receiver.TensorBytes(direction, kShape)));
    RUNNEL_RETURN_IF_ERROR(
        receiver.Decode(direction, place_, payload, kShape, tensor.mutable_bytes()));
    return tensor;
  }
  LinkCodecs& sender(Direction direction) {
    return *ends_[direction == Direction::kForward ? 0 : 1];
  }
  const NumberFormat& format() const { return format_; }
  BufferPool& pool() { return pool_; }

 private:
  const NumberFormat format_;
  BufferPool pool_;
  std::vector<std::unique_ptr<LinkCodecs>> ends_;
  const MicroBatch place_ = {.sequence = Sequence(0), .first_in_epoch = true};
};

absl::Span<const std::byte> First(const Payload& tensor, int64_t bytes) {
  return tensor.bytes().first(static_cast<size_t>(bytes));
}

TEST(SideValues, TravelBehindTheTensorAndChangeNothingOfIt) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.recipe + " " + one.codec);
    Link plain(one, kSideValues), link(one, kRows);
    for (Direction direction : kDirections) {
      const auto sent = link.Send(direction, link.Tensor(direction));
      ASSERT_TRUE(sent.ok()) << sent.status();
      const auto bare = plain.Send(direction, plain.Tensor(direction));
      const size_t beside = direction == Direction::kForward ? 3 * 4 : 2 * 4;
      ASSERT_EQ(sent->size(), bare->size() + beside);
      EXPECT_EQ(First(*sent, static_cast<int64_t>(bare->size())), bare->bytes());

      const auto got = link.Receive(direction, sent->bytes());
      ASSERT_TRUE(got.ok()) << got.status();
      const auto expected = plain.Receive(direction, bare->bytes());
      EXPECT_EQ(First(*got, ValueBytes(link.format().boundary(direction), kShape)),
                expected->bytes());
      const SidePlace place = SidePlaces(link.format(), kShape, direction).at(0);
      EXPECT_EQ(place.memory_offset % 64, 0u);
      const void* values = direction == Direction::kForward ? static_cast<const void*>(kGates)
                                                            : static_cast<const void*>(kOverflows);
      EXPECT_EQ(std::memcmp(got->bytes().data() + place.memory_offset, values, beside), 0);
    }
  }
}

TEST(SideValues, LimitsAndPlansCountThem) {
  for (const Case& one : kCases) {
    Link link(one, kRows);
    for (Direction direction : kDirections) {
      LinkCodecs& receiver = link.sender(direction == Direction::kForward ? Direction::kBackward
                                                                          : Direction::kForward);
      // Without a codec a tensor is sent as it lies in memory, with the gap behind its 420 bytes.
      const auto raw = static_cast<size_t>(receiver.TensorBytes(direction, kShape));
      EXPECT_EQ(receiver.MaxReceivedBytes(direction, kShape),
                one.codec == "identity" ? raw : link.payload_bytes(direction));
      const auto planned = MeanEncodedBytes(Codecs(one.codec), 1, link.format(), direction);
      EXPECT_EQ((*planned)(kShape).value(), link.payload_bytes(direction));
    }
  }
}

TEST(SideValues, WhatDoesNotFitIsRefusedByName) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.recipe + " " + one.codec);
    Link link(one, kRows);
    const auto refused = [&link](Direction direction, absl::Span<const std::byte> payload) {
      return std::string(link.Receive(direction, payload).status().message());
    };
    const auto down = *link.Send(Direction::kForward, link.Tensor(Direction::kForward));
    const auto up = *link.Send(Direction::kBackward, link.Tensor(Direction::kBackward));
    // The last value, as another one.
    const auto with = [](const Payload& payload, auto value) {
      Payload changed = Payload::CopyOf(payload.bytes());
      std::memcpy(changed.mutable_bytes().last(4).data(), &value, 4);
      return changed;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(refused(Direction::kForward, with(down, nan).bytes()), "gate nan is not in 0..1");
    EXPECT_EQ(refused(Direction::kForward, with(down, 1.5F).bytes()), "gate 1.5 is not in 0..1");
    EXPECT_EQ(refused(Direction::kBackward, with(up, int32_t{-1}).bytes()),
              "overflows -1 is not in 0..1000");
    // A value too few, one too many.
    EXPECT_THAT(refused(Direction::kForward, down.bytes().first(down.size() - 4)),
                HasSubstr(", 12 of them gate"));
    Payload longer = link.pool().Allocate(up.size() + 4);
    std::copy(up.bytes().begin(), up.bytes().end(), longer.mutable_bytes().begin());
    EXPECT_THAT(refused(Direction::kBackward, longer.bytes()), HasSubstr(", 8 of them overflows"));
    // Nor are they sent.
    Payload tensor = link.Tensor(Direction::kForward);
    std::memcpy(tensor.mutable_bytes().last(4).data(), &nan, 4);
    EXPECT_EQ(link.Send(Direction::kForward, tensor).status().message(), "gate nan is not in 0..1");
  }
}

TEST(SideValues, CrossInEvaluationsToo) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.recipe + " " + one.codec);
    Link link(one, kRows);
    LinkCodecs& codecs = link.sender(Direction::kForward);
    const Payload tensor = link.Tensor(Direction::kForward);
    const auto packed = codecs.PackEvaluation(kShape, tensor, link.pool());
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ(static_cast<int64_t>(packed->size()), codecs.EvaluationBytes(kShape));
    const auto got = codecs.UnpackEvaluation(kShape, *packed, link.pool());
    ASSERT_TRUE(got.ok()) << got.status();
    const auto gates = [](const Payload& from) { return from.bytes().last(sizeof(kGates)); };
    EXPECT_EQ(gates(*got), gates(tensor));
    EXPECT_EQ(First(*got, kShape.elements()), First(tensor, kShape.elements()));
    Payload bad = Payload::CopyOf(packed->bytes());
    std::memset(bad.mutable_bytes().last(4).data(), 0xFF, 4);
    EXPECT_THAT(std::string(codecs.UnpackEvaluation(kShape, bad, link.pool()).status().message()),
                HasSubstr("gate"));
    EXPECT_FALSE(
        codecs.UnpackEvaluation(kShape, Payload::CopyOf(packed->bytes().subspan(4)), link.pool())
            .ok());
  }
}

// Training that diverged in a gate alone has a tensor of numbers and a state of none.
TEST(SideValues, AreNumbersLikeTheTensor) {
  Link link({"fp32", "identity"}, kRows);
  const auto is_finite = [&link](Direction direction, absl::Span<const std::byte> tensor) {
    return HasNumbers(link.format(), direction, kShape, tensor);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(is_finite(Direction::kForward, {}));
  Payload down = link.Tensor(Direction::kForward);
  EXPECT_TRUE(is_finite(Direction::kForward, down.bytes()));
  std::memcpy(down.mutable_bytes().last(4).data(), &nan, 4);
  EXPECT_FALSE(is_finite(Direction::kForward, down.bytes()));
  Payload up = link.Tensor(Direction::kBackward);
  std::memcpy(up.mutable_bytes().last(4).data(), &nan, 4);
  EXPECT_TRUE(is_finite(Direction::kBackward, up.bytes())) << "a count is an integer";
  std::memcpy(up.mutable_bytes().data(), &nan, 4);
  EXPECT_FALSE(is_finite(Direction::kBackward, up.bytes()));
}

// Compiled stages leave room for the values and compute what they did.
TEST(SideValues, StagesHaveRoomForThem) {
  constexpr int64_t kSamples = 4;
  BufferPool pool;
  for (const char* name : {"fp32", "niti"}) {
    SCOPED_TRACE(name);
    const Recipe plain = *FindRecipe(name).value();
    Recipe with = plain;
    with.numbers.beside = kRows;
    const auto output = [&pool](const Recipe& recipe, int64_t* gradient_bytes) {
      StageExecutorOptions options;
      options.model = MakeModel("lenet").value();
      options.first_layer = 1;
      options.last_layer = 2;
      options.training.batch_size = kSamples;
      options.training.dataset_samples = 8 * kSamples;
      options.recipe = &recipe;
      const auto backend = *MakeRefBackend(1);
      const auto executor = *StageExecutor::Create(options, backend.get(), &pool);
      EXPECT_TRUE(executor->DrawState().ok());
      const MicroBatch place = MakeBatching(options.training).value().Locate(Sequence(0));
      const NumberFormat& format = recipe.numbers;
      const auto forward = executor->Forward(
          place,
          RandomBoundary(pool, format, Direction::kForward, executor->input_shape(kSamples), 1),
          Payload());
      EXPECT_TRUE(forward.ok()) << forward.status();
      const Shape shape = executor->output_shape(kSamples);
      EXPECT_EQ(forward->tensor.size(), BoundaryBytes(format, shape));
      const auto backward = executor->InputGradient(
          place, RandomBoundary(pool, format, Direction::kBackward, shape, 2));
      EXPECT_TRUE(backward.ok()) << backward.status();
      *gradient_bytes = static_cast<int64_t>(backward->tensor.size());
      return Payload::CopyOf(
          forward->tensor.bytes().first(static_cast<size_t>(ValueBytes(format.activation, shape))));
    };
    int64_t bare = 0, roomy = 0;
    EXPECT_EQ(output(with, &roomy).bytes(), output(plain, &bare).bytes());
    EXPECT_GE(roomy, bare + 8);
  }
}

}  // namespace
}  // namespace runnel::side_values_test
