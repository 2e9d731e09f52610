// What lies beside a boundary tensor's elements: values from a link without a codec are checked
// before a stage reads them, and gaps that such a link sends are zeros, whatever the memory held.

#include "worker/stage/boundary_memory.h"

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/training/batching.h"
#include "tests/worker/stage/gated_stage.h"
#include "worker/measure/random_tensors.h"

namespace runnel::boundary_memory_test {
namespace {

using ::testing::HasSubstr;

// Elements of a tensor end between two multiples of 64 bytes.
constexpr int64_t kSamples = kGatedSamples;

// Layers between two links.
class Stage : public LoneStage {
 public:
  using LoneStage::LoneStage;
  explicit Stage(const std::string& recipe) : Stage(MakeModel("lenet").value(), 1, 2, {recipe}) {}
  Shape ShapeOf(Direction direction) {
    return direction == Direction::kForward ? (*this)->input_shape(kSamples)
                                            : (*this)->output_shape(kSamples);
  }
  // What a neighbour sends.
  Payload Tensor(Direction direction) {
    return RandomBoundary(pool(), (*this)->numbers(), direction, ShapeOf(direction), 3);
  }
  absl::StatusOr<StageCompute::Output> Forward(Payload input) {
    return (*this)->Forward(place_, std::move(input), Payload());
  }
  absl::StatusOr<StageCompute::Output> Backward(Payload gradient) {
    return (*this)->InputGradient(place_, std::move(gradient));
  }
  // The next tensors lie in memory that held these bytes.
  void Poison(int byte) {
    for (size_t bytes = 64; bytes <= size_t{1} << 16; bytes *= 2) {
      std::vector<Payload> blocks;
      for (int i = 0; i < 4; ++i) {
        blocks.push_back(pool().Allocate(bytes));
        std::memset(blocks.back().mutable_bytes().data(), byte, bytes);
      }
    }
  }

 private:
  const MicroBatch place_ = MakeBatching(GatedSettings("")).value().Locate(Sequence(0));
};

// The second and third of three blocks, whose gates' LSTM hands its state on.
std::unique_ptr<Stage> GatedStage() {
  return std::make_unique<Stage>(GatedBlocks(3, 5, "lstm:3,4,8/6,6,8@beta:0.5"), 2, 3,
                                 LoneStage::Options{.cost_target = "0.5,2,4@1000,1,1"});
}

// The tensor with another last value of the row.
template <typename Value>
Payload With(Stage& stage, Direction direction, absl::string_view row, Value value) {
  Payload tensor = stage.Tensor(direction);
  bool is_found = false;
  for (const SidePlace& place : SidePlaces(stage->numbers(), stage.ShapeOf(direction), direction)) {
    if (place.value->name != row) continue;
    std::memcpy(tensor.mutable_bytes().data() + place.memory_offset + place.bytes - sizeof(value),
                &value, sizeof(value));
    is_found = true;
  }
  EXPECT_TRUE(is_found) << row;
  return tensor;
}

TEST(BoundaryMemory, ValuesBesideATensorAreCheckedBeforeTheyAreRead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  constexpr Direction kDown = Direction::kForward, kUp = Direction::kBackward;
  const std::string down = "activation of micro-batch 0: ", up = "gradient of micro-batch 0: ";
  const std::unique_ptr<Stage> gated = GatedStage();
  Stage& stage = *gated;
  const auto message = [](const absl::StatusOr<StageCompute::Output>& output) {
    EXPECT_TRUE(absl::IsInvalidArgument(output.status())) << output.status();
    return std::string(output.status().message());
  };
  EXPECT_EQ(message(stage.Forward(With(stage, kDown, "gate_cost", nan))),
            down + "gate_cost nan is not in 0..100.001");
  EXPECT_EQ(message(stage.Forward(With(stage, kDown, "gate_cost", 101.0F))),
            down + "gate_cost 101 is not in 0..100.001");
  EXPECT_THAT(message(stage.Forward(With(stage, kDown, "carried_state", -1e9F))),
              HasSubstr(down + "carried_state -1000000000 is not in -"));
  // Nothing of these was kept.
  ASSERT_TRUE(stage.Forward(stage.Tensor(kDown)).ok());
  EXPECT_EQ(message(stage.Backward(With(stage, kUp, "price_sign", int32_t{2}))),
            up + "price_sign 2 is not in -1..1");
  EXPECT_THAT(message(stage.Backward(With(stage, kUp, "carried_gradient", infinity))),
              HasSubstr(up + "carried_gradient inf is not in "));
  EXPECT_TRUE(stage.Backward(stage.Tensor(kUp)).ok());
}

// Integers cross without their codec in the first pass of a dry run.
TEST(BoundaryMemory, ScaledTensorsAreCheckedBeforeTheyAreRead) {
  Stage stage("niti");
  const auto with = [&](Direction direction, auto change) {
    Payload tensor = stage.Tensor(direction);
    change(tensor.mutable_bytes().data(), stage.ShapeOf(direction));
    return tensor;
  };
  const auto exponent = [](int32_t value) {
    return [value](std::byte* at, const Shape& shape) {
      TailOf(at, DType::kInt8, shape).exponent = value;
    };
  };
  const auto no_mantissa = [](std::byte* at, const Shape& shape) {
    at[shape.elements() - 1] = std::byte{0x80};
  };
  const auto message = [](const absl::StatusOr<StageCompute::Output>& output) {
    return std::string(output.status().message());
  };
  EXPECT_EQ(message(stage.Forward(with(Direction::kForward, exponent(1 << 15)))),
            "activation of micro-batch 0: exponent 32768 is not in -16384..16384");
  EXPECT_THAT(message(stage.Forward(with(Direction::kForward, no_mantissa))), HasSubstr("-128"));
  ASSERT_TRUE(stage.Forward(stage.Tensor(Direction::kForward)).ok());
  EXPECT_EQ(message(stage.Backward(
                with(Direction::kBackward, exponent(std::numeric_limits<int32_t>::min())))),
            "gradient of micro-batch 0: exponent -2147483648 is not in -16384..16384");
  EXPECT_THAT(message(stage.Backward(with(Direction::kBackward, no_mantissa))), HasSubstr("-128"));
  EXPECT_TRUE(stage.Backward(stage.Tensor(Direction::kBackward)).ok());
}

TEST(BoundaryMemory, EqualTensorsAreEqualBytes) {
  const std::vector<std::pair<std::string, std::function<std::unique_ptr<Stage>()>>> stages = {
      {"niti", [] { return std::make_unique<Stage>("niti"); }},
      {"fp16", [] { return std::make_unique<Stage>("fp16"); }},
      {"gates", GatedStage}};
  for (const auto& [name, make] : stages) {
    SCOPED_TRACE(name);
    const auto run = [&make = make](int byte) {
      const std::unique_ptr<Stage> stage = make();
      const Payload down = stage->Tensor(Direction::kForward);
      const Payload up = stage->Tensor(Direction::kBackward);
      stage->Poison(byte);
      const auto forward = stage->Forward(down);
      EXPECT_TRUE(forward.ok()) << forward.status();
      const auto backward = stage->Backward(up);
      EXPECT_TRUE(backward.ok()) << backward.status();
      return std::pair(
          std::vector(forward->tensor.bytes().begin(), forward->tensor.bytes().end()),
          std::vector(backward->tensor.bytes().begin(), backward->tensor.bytes().end()));
    };
    const auto [forward, backward] = run(0x00);
    const auto [forward_too, backward_too] = run(0xA5);
    EXPECT_EQ(forward, forward_too);
    EXPECT_EQ(backward, backward_too);
    EXPECT_FALSE(backward.empty());
  }
}

}  // namespace
}  // namespace runnel::boundary_memory_test
