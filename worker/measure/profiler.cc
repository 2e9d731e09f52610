#include "worker/measure/profiler.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/processor_time.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "worker/measure/clock_probe.h"
#include "worker/stage_executor.h"

namespace runnel {
namespace {

// Ranges that are measured in turns, and limits on the sums of their layers and of their state:
// each holds the memory of its stage until all are measured.
constexpr size_t kTurns = 12;
constexpr int kTurnLayers = 12;
constexpr int64_t kTurnBytes = int64_t{32} << 20;
// Time between two probes of the processor's clock within one measurement.
constexpr int64_t kSliceNs = 5'000'000;
// Random weights repeat after this many elements: to draw millions takes longer than to measure.
constexpr uint64_t kDistinctWeights = 4096;
// As in a pipeline, inputs and gradients rotate through enough tensors to overflow the caches of
// one processor (kColdBytes), one that does alone, but at most kMostTensors: there an input was
// written by another thread or long ago, and an output is kept until it is acknowledged.
constexpr int64_t kColdBytes = 4 << 20;
constexpr int64_t kMostTensors = 16;
constexpr int64_t kLabelTensors = 16;  // with different contents
// Steps of an integer range until its weights are restored. On random labels LeNet's gradients are
// all zero after 55 to 83 steps, and zero gradients are cheaper to apply.
constexpr int64_t kStepsPerRestore = 16;

// Evicts the caches between forward and backward, as a neighbour on the same core would. Its own
// processor time is subtracted from the measurement.
class CachePolluter {
 public:
  explicit CachePolluter(bool active) : bytes_(active ? kColdBytes : 0) {}

  void Pollute() {
    if (bytes_.empty()) return;
    const int64_t begin_ns = ThreadProcessorNs();
    for (size_t i = 0; i < bytes_.size(); i += kLineBytes) ++bytes_[i];
    processor_ns_ += ThreadProcessorNs() - begin_ns;
  }
  int64_t processor_ns() const { return processor_ns_; }

 private:
  static constexpr size_t kLineBytes = 32;  // the shortest cache line of any device
  std::vector<unsigned char> bytes_;
  int64_t processor_ns_ = 0;
};

int64_t TensorsFor(int64_t bytes, bool as_in_pipeline) {
  if (!as_in_pipeline || bytes >= kColdBytes) return 1;
  return std::clamp<int64_t>(kColdBytes / std::max<int64_t>(bytes, 1) + 1, 2, kMostTensors);
}

Payload RandomTensor(BufferPool& pool, int64_t elements, uint64_t stream) {
  Payload payload = pool.Allocate(static_cast<size_t>(elements) * sizeof(float));
  float* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < elements; ++i)
    values[i] = random.Uniform(static_cast<uint64_t>(i)) - 0.5f;
  return payload;
}

std::byte RandomMantissa(const CounterRandom& random, uint64_t element) {
  return static_cast<std::byte>(static_cast<int>(random.Below(element, 255)) - 127);
}

// Random labels, new ones for each micro-batch: INT8 training fits labels that repeat within a
// burst, after which all gradients are zero and cheaper to apply than in training.
Payload RandomLabels(BufferPool& pool, int64_t samples, int64_t classes, uint64_t micro_batch) {
  Payload payload = pool.Allocate(static_cast<size_t>(samples) * sizeof(int32_t));
  auto* labels = reinterpret_cast<int32_t*>(payload.mutable_bytes().data());
  const CounterRandom random(1, RandomPurpose::kTest, micro_batch, 2);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<int32_t>(
        random.Below(static_cast<uint64_t>(i), static_cast<uint32_t>(classes)));
  }
  return payload;
}

// A random boundary tensor: FP32, or mantissas of all sizes with their exponent.
Payload RandomBoundary(BufferPool& pool, const NumberFormat& format, const Shape& shape,
                       uint64_t stream) {
  if (!format.integer_boundaries()) return RandomTensor(pool, shape.elements(), stream);
  Payload payload = pool.Allocate(static_cast<size_t>(BoundaryBytes(format, shape)));
  const absl::Span<std::byte> bytes = payload.mutable_bytes();
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < shape.elements(); ++i)
    bytes[i] = RandomMantissa(random, static_cast<uint64_t>(i));
  TailOf(bytes.data(), format.activation, shape).exponent = -7;
  return payload;
}

// Random weights: kernels can be faster on zeros than on the values of a training.
void FillWeights(TensorData& tensor, uint64_t stream) {
  const CounterRandom random(1, RandomPurpose::kTest, stream, 1);
  const auto elements = static_cast<uint64_t>(tensor.shape.elements());
  if (tensor.dtype == DType::kInt8) {
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.bytes[i] = i < kDistinctWeights ? static_cast<char>(RandomMantissa(random, i))
                                             : tensor.bytes[i - kDistinctWeights];
    }
    return;
  }
  if (tensor.dtype != DType::kFloat32) return;
  const bool weight = absl::EndsWith(tensor.name, "weight");
  if (!weight && !absl::EndsWith(tensor.name, "scale")) return;
  const auto fan_in = static_cast<float>(tensor.shape.elements() / tensor.shape[0]);
  float* values = reinterpret_cast<float*>(tensor.bytes.data());
  for (uint64_t i = 0; i < elements; ++i) {
    if (i >= kDistinctWeights) {
      values[i] = values[i - kDistinctWeights];
    } else {
      values[i] = weight ? (random.Uniform(i) - 0.5f) * 4.0f / std::sqrt(fan_in) : 1.0f;
    }
  }
}

// One range as a stage of its own, which is run and timed again and again.
class RangeStage {
 public:
  static absl::StatusOr<RangeStage> Create(const ModelSpec& model, const LayerRange& range,
                                           std::optional<int64_t> in_flight, const Recipe& recipe,
                                           Backend& backend, const ProfileOptions& asked,
                                           BufferPool& pool) {
    StageExecutorOptions options;
    options.model = model;
    options.first_layer = range.first_layer;
    options.last_layer = range.last_layer;
    options.training.dataset_samples = options.training.batch_size = asked.samples;
    options.training.learning_rate = 1e-6;
    options.recipe = &recipe;
    RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
    RangeStage stage(batching, in_flight, asked.shared_caches);
    RUNNEL_ASSIGN_OR_RETURN(stage.executor_,
                            StageExecutor::Create(std::move(options), &backend, &pool));
    RUNNEL_RETURN_IF_ERROR(stage.DrawWeights());
    stage.FillPayloads(model, range, asked.samples, pool);
    return stage;
  }

  // One forward and one backward; in the first run also the further forwards of in_flight_.
  absl::Status Run() {
    polluter_.Pollute();
    const int64_t forward_begin_ns = ThreadProcessorNs();
    int64_t forward_count = 0;
    for (; forwards_ < backwards_ + in_flight_; ++forwards_, ++forward_count) {
      const Payload& input = inputs_[static_cast<size_t>(forwards_) % inputs_.size()];
      const MicroBatch place = batching_.Locate(Sequence(forwards_));
      const Payload labels =
          labels_.empty() ? Payload() : labels_[static_cast<size_t>(forwards_) % labels_.size()];
      RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                              executor_->Forward(place, input, labels));
      if (!outputs_.empty())
        outputs_[static_cast<size_t>(forwards_) % outputs_.size()] = std::move(output.tensor);
    }
    const int64_t forward_end_ns = ThreadProcessorNs();
    polluter_.Pollute();
    const int64_t backward_begin_ns = ThreadProcessorNs();
    Payload gradient;
    if (!gradients_.empty())
      gradient = gradients_[static_cast<size_t>(backwards_) % gradients_.size()];
    const MicroBatch place = batching_.Locate(Sequence(backwards_++));
    RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                            executor_->InputGradient(place, std::move(gradient)));
    input_gradients_[static_cast<size_t>(place.sequence.value()) % input_gradients_.size()] =
        std::move(output.tensor);
    const int64_t input_gradient_end_ns = ThreadProcessorNs();
    RUNNEL_RETURN_IF_ERROR(executor_->WeightGradient(place, /*step=*/true));
    forward_ns_ += (forward_end_ns - forward_begin_ns) / forward_count;
    input_gradient_ns_ += input_gradient_end_ns - backward_begin_ns;
    weight_gradient_ns_ += ThreadProcessorNs() - input_gradient_end_ns;
    return absl::OkStatus();
  }

  // The first run. long_ns: a later warm-up is left out if this run takes so long; 0: never.
  absl::Status WarmUp(int64_t long_ns, const Clock& clock) {
    const int64_t begin_ns = clock.NowNanos();
    RUNNEL_RETURN_IF_ERROR(Run());
    is_long_ = long_ns > 0 && clock.NowNanos() - begin_ns >= long_ns;
    return absl::OkStatus();
  }

  // Whether its measurements have taken so long together; 0: never.
  bool HasEnough(int64_t ns) const { return ns > 0 && clock_ns_ >= static_cast<double>(ns); }

  // One measurement: the mean over as many runs as fill the burst.
  absl::Status Measure(int64_t burst_ns, double nominal_step_ns, const Clock& clock) {
    RUNNEL_RETURN_IF_ERROR(Prepare());
    const bool probes = nominal_step_ns > 0;
    Runs burst;
    double step_ns = probes ? MeasureClockStepNs() : 0;
    int64_t probe_count = 1;
    do {
      RUNNEL_RETURN_IF_ERROR(
          RunFor(probes ? std::min(burst_ns, kSliceNs) : burst_ns, clock, burst));
      if (!probes) continue;
      step_ns += MeasureClockStepNs();
      ++probe_count;
    } while (burst.clock_ns < burst_ns);
    clock_ns_ += static_cast<double>(burst.clock_ns);
    processor_ns_ += static_cast<double>(burst.processor_ns);
    processor_seconds_.push_back(burst.SecondsEach(burst.processor_ns));
    double seconds = burst.SecondsEach(burst.clock_ns);
    if (probes) seconds *= nominal_step_ns * static_cast<double>(probe_count) / step_ns;
    seconds_.push_back(seconds);
    return absl::OkStatus();
  }

  RangeTime Result() {
    std::sort(seconds_.begin(), seconds_.end());
    const size_t count = seconds_.size();
    const double median = seconds_[count / 2];
    const double quartiles = seconds_[count - 1 - count / 4] - seconds_[count / 4];
    std::sort(processor_seconds_.begin(), processor_seconds_.end());
    const auto all_ns = static_cast<double>(
        std::max<int64_t>(1, forward_ns_ + input_gradient_ns_ + weight_gradient_ns_));
    return {median,
            median > 0 ? quartiles / median : 0,
            processor_seconds_[count / 2],
            clock_ns_ * 1e-9,
            processor_ns_ * 1e-9,
            static_cast<double>(forward_ns_) / all_ns,
            static_cast<double>(input_gradient_ns_) / all_ns};
  }

 private:
  // Number and time of the runs of one measurement.
  struct Runs {
    int64_t count = 0;
    int64_t clock_ns = 0;
    int64_t processor_ns = 0;
    int64_t polluter_ns = 0;  // part of both times above that is not the range's

    double SecondsEach(int64_t ns) const {
      return static_cast<double>(ns - polluter_ns) * 1e-9 / static_cast<double>(count);
    }
  };

  // Restores integer weights, and brings the range's data into the caches by a run that is not
  // counted: other ranges have used the caches since this range's last turn. To a long run the
  // caches do not matter.
  absl::Status Prepare() {
    if (integer()) RUNNEL_RETURN_IF_ERROR(DrawWeights());
    steps_since_restore_ = 0;
    return is_long_ ? absl::OkStatus() : Run();
  }

  // Runs for at least slice_ns and at least once.
  absl::Status RunFor(int64_t slice_ns, const Clock& clock, Runs& runs) {
    const int64_t until_ns = runs.clock_ns + slice_ns;
    do {
      if (integer() && steps_since_restore_ >= kStepsPerRestore) RUNNEL_RETURN_IF_ERROR(Prepare());
      const int64_t counted_ns = runs.clock_ns;
      const int64_t begin_ns = clock.NowNanos();
      const int64_t processor_begin_ns = ThreadProcessorNs();
      const int64_t polluter_begin_ns = polluter_.processor_ns();
      do {
        RUNNEL_RETURN_IF_ERROR(Run());
        ++runs.count;
        ++steps_since_restore_;
        runs.clock_ns = counted_ns + clock.NowNanos() - begin_ns;
      } while (runs.clock_ns < until_ns &&
               !(integer() && steps_since_restore_ >= kStepsPerRestore));
      runs.processor_ns += ThreadProcessorNs() - processor_begin_ns;
      runs.polluter_ns += polluter_.processor_ns() - polluter_begin_ns;
    } while (runs.clock_ns < until_ns);
    return absl::OkStatus();
  }

  bool integer() const { return executor_->recipe().numbers.integer_parameters(); }

  RangeStage(Batching batching, std::optional<int64_t> in_flight, bool shared_caches)
      : batching_(std::move(batching)),
        as_in_pipeline_(in_flight.has_value()),
        in_flight_(in_flight.value_or(1)),
        polluter_(as_in_pipeline_ && shared_caches) {}

  // Sets the weights to the same random values each time. Integer weights change by a whole step at
  // every update, however small the rate, so they cannot simply be left alone (see
  // kStepsPerRestore).
  absl::Status DrawWeights() {
    return executor_->ChangeState(
        [](int layer, TensorData& tensor) { FillWeights(tensor, static_cast<uint64_t>(layer)); });
  }

  void FillPayloads(const ModelSpec& model, const LayerRange& range, int64_t samples,
                    BufferPool& pool) {
    const NumberFormat format = executor_->recipe().numbers;
    const Shape input = executor_->input_shape(samples);
    const int64_t inputs =
        std::max(in_flight_, TensorsFor(BoundaryBytes(format, input), as_in_pipeline_));
    input_gradients_.resize(static_cast<size_t>(inputs));
    for (int64_t i = 0; i < inputs; ++i) {
      inputs_.push_back(range.first_layer == 0 ? RandomTensor(pool, input.elements(), 0)
                                               : RandomBoundary(pool, format, input, 0));
    }
    if (range.last_layer + 1 < model.layer_count()) {
      const Shape output = executor_->output_shape(samples);
      for (int64_t i = TensorsFor(BoundaryBytes(format, output), as_in_pipeline_); i > 0; --i)
        gradients_.push_back(RandomBoundary(pool, format, output, 1));
      outputs_.resize(gradients_.size());
      return;
    }
    for (int64_t i = 0; i < kLabelTensors; ++i)
      labels_.push_back(RandomLabels(pool, samples, model.classes, static_cast<uint64_t>(i)));
  }

  Batching batching_;
  bool as_in_pipeline_;
  int64_t in_flight_;
  CachePolluter polluter_;
  std::unique_ptr<StageExecutor> executor_;
  std::vector<Payload> inputs_;
  std::vector<Payload> input_gradients_;
  std::vector<Payload> labels_;     // of a range with the loss
  std::vector<Payload> gradients_;  // of a range without the loss
  std::vector<Payload> outputs_;
  int64_t forwards_ = 0;
  int64_t backwards_ = 0;
  int64_t steps_since_restore_ = 0;
  bool is_long_ = false;
  int64_t forward_ns_ = 0;  // of one micro-batch in each run; processor time
  int64_t input_gradient_ns_ = 0;
  int64_t weight_gradient_ns_ = 0;
  std::vector<double> seconds_;  // of a run, by measurement
  std::vector<double> processor_seconds_;
  double clock_ns_ = 0;
  double processor_ns_ = 0;
};

absl::Status CheckOptions(const ModelSpec& model, const ProfileOptions& options) {
  if (options.samples < 1 || options.repetitions < 1 || options.repetitions > 1000 ||
      options.burst_ms < 0 || options.nominal_step_ns < 0 || options.enough_ms < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile of ", options.samples, " samples, ", options.repetitions, " repetitions of ",
        options.burst_ms, " ms, clock steps of ", options.nominal_step_ns, " ns: out of range"));
  }
  for (const LayerRange& range : options.ranges) {
    if (range.first_layer >= 0 && range.first_layer <= range.last_layer &&
        range.last_layer < model.layer_count())
      continue;
    return absl::InvalidArgumentError(absl::StrCat("profile of layers ", range.first_layer, " to ",
                                                   range.last_layer, ": ", model.name,
                                                   " has layers 0 to ", model.layer_count() - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckInFlight(const ProfileOptions& options) {
  if (!options.in_flight.empty() && options.in_flight.size() != options.ranges.size()) {
    return absl::InvalidArgumentError(absl::StrCat("profile of ", options.ranges.size(),
                                                   " ranges with micro-batches in flight for ",
                                                   options.in_flight.size()));
  }
  for (const int64_t in_flight : options.in_flight) {
    if (in_flight >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("profile with ", in_flight, " micro-batches in flight; needs at least 1"));
  }
  return absl::OkStatus();
}

// The end of the group of ranges, from `begin` on, that are measured in turns.
size_t EndOfTurns(const std::vector<LayerRange>& ranges,
                  const std::vector<std::optional<int64_t>>& in_flight,
                  const std::vector<int64_t>& range_bytes, size_t begin) {
  int64_t layers = 0, bytes = 0;
  size_t end = begin;
  while (end < ranges.size() && end - begin < kTurns) {
    layers += in_flight[end].value_or(1) * (ranges[end].last_layer - ranges[end].first_layer + 1);
    bytes += range_bytes[end];
    if (end > begin && (layers > kTurnLayers || bytes > kTurnBytes)) break;
    ++end;
  }
  return end;
}

// About what the state of each range takes: its weights, their versions in flight, gradients and
// momentum.
absl::StatusOr<std::vector<int64_t>> StateBytes(const ModelSpec& model, const Recipe& recipe,
                                                const std::vector<LayerRange>& ranges,
                                                const std::vector<std::optional<int64_t>>& flying) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  const bool integer = recipe.numbers.integer_parameters();
  std::vector<int64_t> bytes(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t versions = flying[i].value_or(1);
    const int64_t each = integer ? versions + 4 : 4 * (versions + 2);
    for (int layer = ranges[i].first_layer; layer <= ranges[i].last_layer; ++layer) {
      for (const StateTensorSpec& tensor : infos[static_cast<size_t>(layer)].state)
        bytes[i] += tensor.shape.elements() * each;
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::vector<RangeTime>> ProfileRanges(
    const ModelSpec& model, const Recipe& recipe, Backend& backend, const ProfileOptions& options,
    const Clock& clock, const std::function<void(double share)>& on_progress) {
  RUNNEL_RETURN_IF_ERROR(CheckOptions(model, options));
  RUNNEL_RETURN_IF_ERROR(CheckInFlight(options));
  const std::vector<LayerRange> ranges =
      options.ranges.empty() ? EachLayer(model.layer_count()) : options.ranges;
  std::vector<std::optional<int64_t>> in_flight(ranges.size());
  std::copy(options.in_flight.begin(), options.in_flight.end(), in_flight.begin());
  const auto burst_ns = static_cast<int64_t>(options.burst_ms * 1e6);
  const auto enough_ns = static_cast<int64_t>(options.enough_ms * 1e6);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> range_bytes,
                          StateBytes(model, recipe, ranges, in_flight));
  std::vector<RangeTime> times;
  for (size_t begin = 0, end = 0; begin < ranges.size(); begin = end) {
    end = EndOfTurns(ranges, in_flight, range_bytes, begin);
    BufferPool pool;
    std::vector<RangeStage> stages;
    for (size_t i = begin; i < end; ++i) {
      RUNNEL_ASSIGN_OR_RETURN(RangeStage stage, RangeStage::Create(model, ranges[i], in_flight[i],
                                                                   recipe, backend, options, pool));
      RUNNEL_RETURN_IF_ERROR(stage.WarmUp(enough_ns > 0 ? burst_ns : 0, clock));
      stages.push_back(std::move(stage));
    }
    for (int64_t turn = 0; turn < options.repetitions; ++turn) {
      for (size_t i = 0; i < stages.size(); ++i) {
        if (!stages[i].HasEnough(enough_ns)) {
          RUNNEL_RETURN_IF_ERROR(stages[i].Measure(burst_ns, options.nominal_step_ns, clock));
        }
        if (on_progress == nullptr) continue;
        const double turns = static_cast<double>(turn) +
                             static_cast<double>(i + 1) / static_cast<double>(stages.size());
        const double done =
            static_cast<double>(begin) +
            turns * static_cast<double>(stages.size()) / static_cast<double>(options.repetitions);
        on_progress(done / static_cast<double>(ranges.size()));
      }
    }
    for (RangeStage& stage : stages) times.push_back(stage.Result());
  }
  return times;
}

}  // namespace runnel
