#include "worker/measure/range_stage.h"

#include <algorithm>

#include "proto/base/host/caches.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/status_macros.h"
#include "worker/measure/clock_probe.h"
#include "worker/measure/random_tensors.h"

namespace runnel {
namespace {

// Time between two probes of the processor's clock within one measurement.
constexpr int64_t kSliceNs = 5'000'000;
// As in a pipeline, inputs and gradients rotate through enough tensors to overflow the caches of
// one processor (ColdBytes), one that does alone, but at most kMostTensors.
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

RangeTensors RangeTensors::Make(const ModelSpec& model, const LayerRange& range,
                                const StageExecutor& executor, int64_t samples, int64_t in_flight,
                                bool as_in_pipeline, BufferPool& pool) {
  RangeTensors made;
  const NumberFormat& format = executor.numbers();
  const Shape input = executor.input_shape(samples);
  const int64_t inputs =
      std::max(in_flight, TensorsFor(BoundaryBytes(format, input), as_in_pipeline));
  made.input_gradients_.resize(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < inputs; ++i) {
    if (range.first_layer > 0) {
      made.inputs_.push_back(RandomBoundary(pool, format, Direction::kForward, input, 0));
    } else if (model.tokens() > 0) {
      made.inputs_.push_back(RandomLabels(pool, input.elements(), model.tokens(), 0));
    } else {
      made.inputs_.push_back(RandomTensor(pool, input.elements(), 0));
    }
  }
  if (range.last_layer + 1 < model.layer_count()) {
    const Shape output = executor.output_shape(samples);
    for (int64_t i =
             TensorsFor(BoundaryBytes(format, output, Direction::kBackward), as_in_pipeline);
         i > 0; --i)
      made.gradients_.push_back(RandomBoundary(pool, format, Direction::kBackward, output, 1));
    made.outputs_.resize(made.gradients_.size());
    return made;
  }
  const int64_t labels = samples * LabelsPerSample(executor.output_shape(1));
  for (int64_t i = 0; i < kLabelTensors; ++i)
    made.labels_.push_back(RandomLabels(pool, labels, model.classes, static_cast<uint64_t>(i)));
  return made;
}

void RangeRuns::Add(const Burst& burst, double clock_scale) {
  clock_ns += static_cast<double>(burst.clock_ns);
  processor_ns += static_cast<double>(burst.processor_ns);
  processor_seconds.push_back(burst.SecondsEach(burst.processor_ns));
  seconds.push_back(burst.SecondsEach(burst.clock_ns) * clock_scale);
}

RangeTime RangeRuns::Result(double samples_share) {
  std::sort(seconds.begin(), seconds.end());
  const size_t count = seconds.size();
  const double median = seconds[count / 2];
  const double quartiles = seconds[count - 1 - count / 4] - seconds[count / 4];
  std::sort(processor_seconds.begin(), processor_seconds.end());
  const auto all_ns = static_cast<double>(
      std::max<int64_t>(1, forward_ns + input_gradient_ns + weight_gradient_ns));
  return {median / samples_share,
          median > 0 ? quartiles / median : 0,
          processor_seconds[count / 2] / samples_share,
          clock_ns * 1e-9,
          processor_ns * 1e-9,
          static_cast<double>(forward_ns) / all_ns,
          static_cast<double>(input_gradient_ns) / all_ns};
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
  stage.tensors_ = RangeTensors::Make(model, range, *stage.executor_, samples, stage.in_flight_,
                                      in_flight.has_value(), pool);
  stage.samples_share_ = static_cast<double>(samples) / static_cast<double>(asked.samples);
  return stage;
}

absl::Status RangeStage::Run() {
  polluter_.Pollute();
  const int64_t forward_begin_ns = ThreadProcessorNs();
  int64_t forward_count = 0;
  for (; forwards_ < backwards_ + in_flight_; ++forwards_, ++forward_count) {
    RUNNEL_ASSIGN_OR_RETURN(
        StageCompute::Output output,
        executor_->Forward(batching_.Locate(Sequence(forwards_)), tensors_.Input(forwards_),
                           tensors_.Labels(forwards_)));
    tensors_.KeepOutput(forwards_, std::move(output.tensor));
  }
  const int64_t forward_end_ns = ThreadProcessorNs();
  polluter_.Pollute();
  const int64_t backward_begin_ns = ThreadProcessorNs();
  const MicroBatch place = batching_.Locate(Sequence(backwards_));
  RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                          executor_->InputGradient(place, tensors_.Gradient(backwards_)));
  tensors_.KeepInputGradient(backwards_++, std::move(output.tensor));
  const int64_t input_gradient_end_ns = ThreadProcessorNs();
  RUNNEL_RETURN_IF_ERROR(executor_->WeightGradient(place, /*step=*/true));
  runs_.forward_ns += (forward_end_ns - forward_begin_ns) / forward_count;
  runs_.input_gradient_ns += input_gradient_end_ns - backward_begin_ns;
  runs_.weight_gradient_ns += ThreadProcessorNs() - input_gradient_end_ns;
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
  RangeRuns::Burst burst;
  double step_ns = probes ? MeasureClockStepNs() : 0;
  int64_t probe_count = 1;
  do {
    RUNNEL_RETURN_IF_ERROR(RunFor(probes ? std::min(burst_ns, kSliceNs) : burst_ns, clock, burst));
    if (!probes) continue;
    step_ns += MeasureClockStepNs();
    ++probe_count;
  } while (burst.clock_ns < burst_ns);
  runs_.Add(burst, probes ? nominal_step_ns * static_cast<double>(probe_count) / step_ns : 1);
  return absl::OkStatus();
}

absl::Status RangeStage::Prepare() {
  if (integer()) RUNNEL_RETURN_IF_ERROR(DrawWeights());
  steps_since_restore_ = 0;
  return is_long_ ? absl::OkStatus() : Run();
}

absl::Status RangeStage::RunFor(int64_t slice_ns, const Clock& clock, RangeRuns::Burst& burst) {
  const int64_t until_ns = burst.clock_ns + slice_ns;
  do {
    if (integer() && steps_since_restore_ >= kStepsPerRestore) RUNNEL_RETURN_IF_ERROR(Prepare());
    const int64_t counted_ns = burst.clock_ns;
    const int64_t begin_ns = clock.NowNanos();
    const int64_t processor_begin_ns = ThreadProcessorNs();
    const int64_t polluter_begin_ns = polluter_.processor_ns();
    do {
      RUNNEL_RETURN_IF_ERROR(Run());
      ++burst.count;
      ++steps_since_restore_;
      burst.clock_ns = counted_ns + clock.NowNanos() - begin_ns;
    } while (burst.clock_ns < until_ns && !(integer() && steps_since_restore_ >= kStepsPerRestore));
    burst.processor_ns += ThreadProcessorNs() - processor_begin_ns;
    burst.polluter_ns += polluter_.processor_ns() - polluter_begin_ns;
  } while (burst.clock_ns < until_ns);
  return absl::OkStatus();
}

absl::Status RangeStage::DrawWeights() {
  return executor_->ChangeState(
      [](int layer, TensorData& tensor) { FillWeights(tensor, static_cast<uint64_t>(layer)); });
}

}  // namespace runnel
