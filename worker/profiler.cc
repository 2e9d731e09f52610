#include "worker/profiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "worker/stage_executor.h"

namespace runnel {
namespace {

Payload RandomTensor(BufferPool& pool, int64_t elements, uint64_t stream) {
  Payload payload = pool.Allocate(static_cast<size_t>(elements) * sizeof(float));
  float* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < elements; ++i)
    values[i] = random.Uniform(static_cast<uint64_t>(i)) - 0.5f;
  return payload;
}

// What crosses the boundary between two layers: FP32, or mantissas of all sizes and their exponent.
Payload RandomBoundary(BufferPool& pool, const NumberFormat& format, const Shape& shape,
                       uint64_t stream) {
  if (!format.scaled()) return RandomTensor(pool, shape.elements(), stream);
  Payload payload = pool.Allocate(static_cast<size_t>(BoundaryBytes(format, shape)));
  const absl::Span<std::byte> bytes = payload.mutable_bytes();
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const auto mantissa = static_cast<int>(random.Below(static_cast<uint64_t>(i), 255)) - 127;
    bytes[i] = static_cast<std::byte>(mantissa);
  }
  TailOf(bytes.data(), format.activation, shape).exponent = -7;
  return payload;
}

absl::StatusOr<double> ProfileLayer(StageExecutorOptions options, Backend& backend,
                                    int64_t repetitions, const Clock& clock) {
  BufferPool pool;
  const int64_t samples = options.training.batch_size;
  const int first_layer = options.first_layer;
  const bool has_loss = options.last_layer + 1 == options.model.layer_count();
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<StageExecutor> executor,
                          StageExecutor::Create(std::move(options), &backend, &pool));
  const NumberFormat format = executor->recipe().format();
  const Shape input_shape = executor->input_shape(samples);
  const Payload input = first_layer == 0 ? RandomTensor(pool, input_shape.elements(), 0)
                                         : RandomBoundary(pool, format, input_shape, 0);
  Payload labels;
  Payload gradient;
  if (has_loss) {
    const std::vector<int32_t> zeros(static_cast<size_t>(samples), 0);
    labels = Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(zeros.data()),
                                                 zeros.size() * sizeof(int32_t)));
  } else {
    gradient = RandomBoundary(pool, format, executor->output_shape(samples), 1);
  }
  std::vector<double> seconds;
  for (int64_t repetition = 0; repetition <= repetitions; ++repetition) {
    const MicroBatch place = batching.Locate(Sequence(repetition));
    const int64_t begin_ns = clock.NowNanos();
    RUNNEL_RETURN_IF_ERROR(executor->Forward(place, input, labels).status());
    RUNNEL_RETURN_IF_ERROR(executor->InputGradient(place, gradient).status());
    RUNNEL_RETURN_IF_ERROR(executor->WeightGradient(place, /*step=*/true));
    if (repetition > 0) seconds.push_back(static_cast<double>(clock.NowNanos() - begin_ns) * 1e-9);
  }
  const auto median = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median;
}

}  // namespace

absl::StatusOr<std::vector<double>> ProfileLayers(const ModelSpec& model, const Recipe& recipe,
                                                  Backend& backend, int64_t samples,
                                                  int64_t repetitions, const Clock& clock) {
  if (samples < 1 || repetitions < 1 || repetitions > 1000) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile of ", samples, " samples, ", repetitions, " repetitions: both must be 1 or more"));
  }
  std::vector<double> layer_seconds;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    StageExecutorOptions options;
    options.model = model;
    options.first_layer = options.last_layer = layer;
    options.training.dataset_samples = options.training.batch_size = samples;
    options.training.learning_rate = 1e-6;
    options.recipe = &recipe;
    RUNNEL_ASSIGN_OR_RETURN(const double seconds,
                            ProfileLayer(std::move(options), backend, repetitions, clock));
    layer_seconds.push_back(seconds);
  }
  return layer_seconds;
}

}  // namespace runnel
