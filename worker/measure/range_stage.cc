#include "worker/measure/range_stage.h"

#include <algorithm>

#include "proto/base/caches.h"
#include "proto/base/processor_time.h"
#include "proto/base/status_macros.h"
#include "worker/measure/clock_probe.h"
#include "worker/measure/random_tensors.h"

namespace runnel {
namespace {

// Time between two probes of the processor's clock within one measurement.
constexpr int64_t kSliceNs = 5'000'000;
// As in a pipeline, inputs and gradients rotate through enough tensors to overflow the caches of
// one processor (ColdBytes), one that does alone, but at most kMostTensors: there an input was
// written by another thread or long ago, and an output is kept until it is acknowledged.
constexpr int64_t kColdCaches = 4;  // second-level caches
constexpr int64_t kMostTensors = 16;
constexpr int64_t kLabelTensors = 16;  // of different contents
// Steps of an integer range until its weights are restored. On random labels LeNet's gradients are
// all zero after 55 to 83 steps, and zero gradients are cheaper to apply.
constexpr int64_t kStepsPerRestore = 16;

int64_t ColdBytes() { return kColdCaches * SecondLevelBytes(); }

int64_t TensorsFor(int64_t bytes, bool as_in_pipeline) {
  if (!as_in_pipeline || bytes >= ColdBytes()) return 1;
  return std::clamp<int64_t>(ColdBytes() / std::max<int64_t>(bytes, 1) + 1, 2, kMostTensors);
}

}  // namespace

CachePolluter::CachePolluter(bool active) : bytes_(active ? static_cast<size_t>(ColdBytes()) : 0) {}

void CachePolluter::Pollute() {
  constexpr size_t kLineBytes = 32;  // the shortest cache line of any device
  if (bytes_.empty()) return;
  const int64_t begin_ns = ThreadProcessorNs();
  for (size_t i = 0; i < bytes_.size(); i += kLineBytes) ++bytes_[i];
  processor_ns_ += ThreadProcessorNs() - begin_ns;
}

absl::StatusOr<RangeStage> RangeStage::Create(const ModelSpec& model, const LayerRange& range,
                                              std::optional<int64_t> in_flight,
                                              const Recipe& recipe, Backend& backend,
                                              const ProfileOptions& asked, int64_t samples,
                                              BufferPool& pool) {
  StageExecutorOptions options;
  options.model = model;
  options.first_layer = range.first_layer;
  options.last_layer = range.last_layer;
  options.training.dataset_samples = options.training.batch_size = samples;
  options.training.learning_rate = 1e-6;
  options.recipe = &recipe;
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
  RangeStage stage(batching, in_flight, asked.shared_caches);
  RUNNEL_ASSIGN_OR_RETURN(stage.executor_,
                          StageExecutor::Create(std::move(options), &backend, &pool));
  RUNNEL_RETURN_IF_ERROR(stage.DrawWeights());
  stage.FillPayloads(model, range, samples, pool);
  stage.samples_share_ = static_cast<double>(samples) / static_cast<double>(asked.samples);
  return stage;
}

absl::Status RangeStage::Run() {
  polluter_.Pollute();
  const int64_t forward_begin_ns = ThreadProcessorNs();
  int64_t forward_count = 0;
  for (; forwards_ < backwards_ + in_flight_; ++forwards_, ++forward_count) {
    const Payload& input = inputs_[static_cast<size_t>(forwards_) % inputs_.size()];
    const MicroBatch place = batching_.Locate(Sequence(forwards_));
    const Payload labels =
        labels_.empty() ? Payload() : labels_[static_cast<size_t>(forwards_) % labels_.size()];
    RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output, executor_->Forward(place, input, labels));
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

absl::StatusOr<int64_t> RangeStage::WarmUp(int64_t long_ns, const Clock& clock) {
  const int64_t begin_ns = clock.NowNanos();
  RUNNEL_RETURN_IF_ERROR(Run());
  const int64_t run_ns = clock.NowNanos() - begin_ns;
  is_long_ = long_ns > 0 && run_ns >= long_ns;
  return run_ns;
}

absl::Status RangeStage::Measure(int64_t burst_ns, double nominal_step_ns, const Clock& clock) {
  RUNNEL_RETURN_IF_ERROR(Prepare());
  const bool probes = nominal_step_ns > 0;
  Runs burst;
  double step_ns = probes ? MeasureClockStepNs() : 0;
  int64_t probe_count = 1;
  do {
    RUNNEL_RETURN_IF_ERROR(RunFor(probes ? std::min(burst_ns, kSliceNs) : burst_ns, clock, burst));
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

RangeTime RangeStage::Result() {
  std::sort(seconds_.begin(), seconds_.end());
  const size_t count = seconds_.size();
  const double median = seconds_[count / 2];
  const double quartiles = seconds_[count - 1 - count / 4] - seconds_[count / 4];
  std::sort(processor_seconds_.begin(), processor_seconds_.end());
  const auto all_ns = static_cast<double>(
      std::max<int64_t>(1, forward_ns_ + input_gradient_ns_ + weight_gradient_ns_));
  return {median / samples_share_,
          median > 0 ? quartiles / median : 0,
          processor_seconds_[count / 2] / samples_share_,
          clock_ns_ * 1e-9,
          processor_ns_ * 1e-9,
          static_cast<double>(forward_ns_) / all_ns,
          static_cast<double>(input_gradient_ns_) / all_ns};
}

absl::Status RangeStage::Prepare() {
  if (integer()) RUNNEL_RETURN_IF_ERROR(DrawWeights());
  steps_since_restore_ = 0;
  return is_long_ ? absl::OkStatus() : Run();
}

absl::Status RangeStage::RunFor(int64_t slice_ns, const Clock& clock, Runs& runs) {
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
    } while (runs.clock_ns < until_ns && !(integer() && steps_since_restore_ >= kStepsPerRestore));
    runs.processor_ns += ThreadProcessorNs() - processor_begin_ns;
    runs.polluter_ns += polluter_.processor_ns() - polluter_begin_ns;
  } while (runs.clock_ns < until_ns);
  return absl::OkStatus();
}

absl::Status RangeStage::DrawWeights() {
  return executor_->ChangeState(
      [](int layer, TensorData& tensor) { FillWeights(tensor, static_cast<uint64_t>(layer)); });
}

void RangeStage::FillPayloads(const ModelSpec& model, const LayerRange& range, int64_t samples,
                              BufferPool& pool) {
  const NumberFormat& format = executor_->recipe().numbers;
  const Shape input = executor_->input_shape(samples);
  const int64_t inputs =
      std::max(in_flight_, TensorsFor(BoundaryBytes(format, input), as_in_pipeline_));
  input_gradients_.resize(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < inputs; ++i) {
    if (range.first_layer > 0) {
      inputs_.push_back(RandomBoundary(pool, format, Direction::kForward, input, 0));
    } else if (model.tokens() > 0) {
      inputs_.push_back(RandomLabels(pool, input.elements(), model.tokens(), 0));
    } else {
      inputs_.push_back(RandomTensor(pool, input.elements(), 0));
    }
  }
  if (range.last_layer + 1 < model.layer_count()) {
    const Shape output = executor_->output_shape(samples);
    for (int64_t i =
             TensorsFor(BoundaryBytes(format, output, Direction::kBackward), as_in_pipeline_);
         i > 0; --i)
      gradients_.push_back(RandomBoundary(pool, format, Direction::kBackward, output, 1));
    outputs_.resize(gradients_.size());
    return;
  }
  const int64_t labels = samples * LabelsPerSample(executor_->output_shape(1));
  for (int64_t i = 0; i < kLabelTensors; ++i)
    labels_.push_back(RandomLabels(pool, labels, model.classes, static_cast<uint64_t>(i)));
}

}  // namespace runnel
