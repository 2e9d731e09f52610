// A stage whose state lies on a device trains as on the host, to the bit: the worker touches that
// state only where it is mapped.

#include <cstring>
#include <deque>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "tests/kernels/device_backend.h"
#include "worker/stage/stage_executor.h"

namespace runnel::device_memory_test {
namespace {

constexpr int64_t kSamples = 2;

struct Schedule {
  const char* name;
  const char* recipe;
  const char* backend;
  int64_t cap;
  int64_t micro_batches = 1;
  double look_ahead = 0;
  int64_t aggregate_every = 0;
  const char* rescale = "dynamic";
};
void PrintTo(const Schedule& schedule, std::ostream* out) { *out << schedule.name; }

StageExecutorOptions OptionsOf(const Schedule& schedule) {
  StageExecutorOptions options;
  options.model = MakeModel("lenet").value();
  options.last_layer = options.model.layer_count() - 1;
  options.training.dataset_samples = 100;
  options.training.batch_size = kSamples * schedule.micro_batches;
  options.training.micro_batches = schedule.micro_batches;
  options.training.learning_rate = 0.01;
  options.training.momentum = 0.9;
  options.training.look_ahead = schedule.look_ahead;
  options.training.aggregate_every = schedule.aggregate_every;
  options.training.rescale = schedule.rescale;
  options.training.eval_batch_size = options.eval_samples = kSamples;
  options.recipe = FindRecipe(schedule.recipe).value();
  options.cap = options.usual_cap = schedule.cap;
  options.one_in_flight = schedule.cap == 1;
  return options;
}

Payload Samples(BufferPool& pool, const ModelSpec& model, uint64_t sequence) {
  const auto elements = static_cast<size_t>(kSamples * model.input.elements());
  Payload payload = pool.Allocate(elements * sizeof(float));
  auto* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
  const CounterRandom random(3, RandomPurpose::kTest, sequence, 0);
  for (size_t i = 0; i < elements; ++i) values[i] = random.Uniform(i) - 0.5f;
  return payload;
}

Payload Labels(BufferPool& pool, uint64_t sequence) {
  Payload payload = pool.Allocate(kSamples * sizeof(int32_t));
  auto* labels = reinterpret_cast<int32_t*>(payload.mutable_bytes().data());
  for (int64_t i = 0; i < kSamples; ++i) labels[i] = static_cast<int32_t>(sequence + i) % 10;
  return payload;
}

// `cap` forwards are ahead of the backwards; the state that twelve micro-batches come to and
// the loss of an evaluation.
absl::StatusOr<ModelState> Train(const Schedule& schedule, Backend& backend, double* loss) {
  const StageExecutorOptions options = OptionsOf(schedule);
  const absl::StatusOr<Batching> batching = MakeBatching(options.training);
  BufferPool pool;
  absl::StatusOr<std::unique_ptr<StageExecutor>> stage =
      StageExecutor::Create(options, &backend, &pool);
  if (!stage.ok()) return stage.status();
  absl::StatusOr<ModelState> state = (*stage)->ExportState();
  if (!state.ok()) return state.status();
  uint64_t stream = 0;
  for (LayerState& layer : state->layers) {
    for (TensorData& tensor : layer.tensors) {
      const CounterRandom random(5, RandomPurpose::kTest, stream++, 0);
      for (size_t i = 0; i < static_cast<size_t>(tensor.shape.elements()); ++i) {
        const float value = (random.Uniform(i) - 0.5f) * 0.2f;
        if (tensor.dtype == DType::kFloat32) {
          std::memcpy(tensor.bytes.data() + i * sizeof(float), &value, sizeof(float));
        } else if (tensor.dtype == DType::kInt8) {
          tensor.bytes[i] = static_cast<char>(static_cast<int>(random.Below(i, 255)) - 127);
        }
      }
    }
  }
  if (const absl::Status status = (*stage)->ImportState(*state); !status.ok()) return status;
  int64_t next = 0;
  for (int64_t backward = 0; backward < 12; ++backward) {
    for (; next < 12 && next < backward + schedule.cap; ++next) {
      const auto output =
          (*stage)->Forward(batching->Locate(Sequence(next)),
                            Samples(pool, options.model, static_cast<uint64_t>(next)),
                            Labels(pool, static_cast<uint64_t>(next)));
      if (!output.ok()) return output.status();
    }
    const MicroBatch place = batching->Locate(Sequence(backward));
    if (const auto done = (*stage)->InputGradient(place, Payload()); !done.ok())
      return done.status();
    if (const auto done = (*stage)->WeightGradient(place, place.last_in_step); !done.ok())
      return done;
  }
  const auto evaluated =
      (*stage)->Evaluate(kSamples, Samples(pool, options.model, 77), Labels(pool, 77));
  if (!evaluated.ok()) return evaluated.status();
  *loss = evaluated->loss_sum;
  return (*stage)->ExportState();
}

class DeviceMemoryTest : public ::testing::TestWithParam<Schedule> {};

TEST_P(DeviceMemoryTest, AStageTrainsToTheSameBytes) {
  double host_loss = 0, device_loss = 0;
  const std::unique_ptr<Backend> host = MakeBackend(GetParam().backend, 1).value();
  const std::unique_ptr<Backend> device =
      MakeDeviceBackend(MakeBackend(GetParam().backend, 1).value());
  const absl::StatusOr<ModelState> expected = Train(GetParam(), *host, &host_loss);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const absl::StatusOr<ModelState> state = Train(GetParam(), *device, &device_loss);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state, *expected);
  EXPECT_EQ(device_loss, host_loss);
}

constexpr Schedule kSchedules[] = {
    {"async", "fp32", "ref", 3},
    {"look_ahead", "fp32", "ref", 3, 1, 0.5},
    {"aggregation", "fp32", "ref", 3, 1, 0, 4},
    {"both", "fp32", "cpu", 4, 1, 1, 2},
    {"one_in_flight", "fp32", "cpu", 1},
    {"micro_batches", "fp32", "cpu", 2, 2},
    {"integers", "niti", "cpu", 3},
    {"integers_look_ahead", "niti", "cpu", 3, 1, 1},
    {"kept_scales", "niti", "cpu", 3, 1, 0, 0, "adaptive:3"},
};
INSTANTIATE_TEST_SUITE_P(Schedules, DeviceMemoryTest, ::testing::ValuesIn(kSchedules),
                         [](const auto& info) { return info.param.name; });

// The test's own backend: what is not mapped cannot be touched.
TEST(DeviceBackendDeathTest, MemoryIsThereOnlyWhileItIsMapped) {
  const std::unique_ptr<Backend> device = MakeDeviceBackend(MakeBackend("ref", 1).value());
  const std::unique_ptr<Memory> memory = device->Allocate(64).value();
  std::byte* mapped = memory->Map(MapAccess::kReadWrite).value();
  mapped[0] = std::byte{7};
  memory->Unmap();
  EXPECT_EQ(memory->Map(MapAccess::kRead).value()[0], std::byte{7});
  memory->Unmap();
  EXPECT_DEATH(*const_cast<volatile std::byte*>(memory->address()) = std::byte{1}, "");
}

}  // namespace
}  // namespace runnel::device_memory_test
