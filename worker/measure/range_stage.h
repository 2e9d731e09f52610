#pragma once

// One range of layers as a stage of its own, with random weights on random values, run and timed
// again and again. One thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/clock.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"
#include "proto/base/tensor/payload.h"
#include "worker/measure/profiler.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

// Evicts the caches between forward and backward, as a neighbour on the same core would. Its own
// processor time is subtracted from the measurement.
class CachePolluter {
 public:
  explicit CachePolluter(bool active);

  void Pollute();
  int64_t processor_ns() const { return processor_ns_; }

 private:
  std::vector<unsigned char> bytes_;
  int64_t processor_ns_ = 0;
};

// The tensors that runs of a range read and write, in turns.
class RangeTensors {
 public:
  // As in a pipeline, they overflow the caches of one processor: there an input was written by
  // another thread or long ago, and an output is kept until it is acknowledged. in_flight: inputs
  // at least.
  static RangeTensors Make(const ModelSpec& model, const LayerRange& range,
                           const StageExecutor& executor, int64_t samples, int64_t in_flight,
                           bool as_in_pipeline, BufferPool& pool);

  Payload Input(int64_t run) const { return At(inputs_, run); }
  // Empty for a range without the loss.
  Payload Labels(int64_t run) const { return At(labels_, run); }
  // Of the output; empty for a range with the loss.
  Payload Gradient(int64_t run) const { return At(gradients_, run); }
  void KeepOutput(int64_t run, Payload output) {
    if (!outputs_.empty()) outputs_[Turn(outputs_, run)] = std::move(output);
  }
  void KeepInputGradient(int64_t run, Payload gradient) {
    input_gradients_[Turn(input_gradients_, run)] = std::move(gradient);
  }

 private:
  static size_t Turn(const std::vector<Payload>& tensors, int64_t run) {
    return static_cast<size_t>(run) % tensors.size();
  }
  static Payload At(const std::vector<Payload>& tensors, int64_t run) {
    return tensors.empty() ? Payload() : tensors[Turn(tensors, run)];
  }

  std::vector<Payload> inputs_;
  std::vector<Payload> input_gradients_;
  std::vector<Payload> labels_;
  std::vector<Payload> gradients_;
  std::vector<Payload> outputs_;
};

// What the runs of a range took.
struct RangeRuns {
  // Number and time of the runs of one measurement.
  struct Burst {
    int64_t count = 0;
    int64_t clock_ns = 0;
    int64_t processor_ns = 0;
    int64_t polluter_ns = 0;  // part of both times above that is not the range's

    double SecondsEach(int64_t ns) const {
      return static_cast<double>(ns - polluter_ns) * 1e-9 / static_cast<double>(count);
    }
  };
  // clock_scale: of the processor's clock, from what it had to the nominal one.
  void Add(const Burst& burst, double clock_scale);
  // samples_share: share of the wanted samples that a run has, (0, 1].
  RangeTime Result(double samples_share);

  int64_t forward_ns = 0;  // forward time of one micro-batch in each run; processor time
  int64_t input_gradient_ns = 0;
  int64_t weight_gradient_ns = 0;
  double clock_ns = 0;  // of all measurements
  double processor_ns = 0;
  std::vector<double> seconds;  // seconds of a run, by measurement
  std::vector<double> processor_seconds;
};

class RangeStage {
 public:
  static absl::StatusOr<RangeStage> Create(const ModelSpec& model, const LayerRange& range,
                                           std::optional<int64_t> in_flight, const Recipe& recipe,
                                           Backend& backend, const ProfileOptions& asked,
                                           int64_t samples, BufferPool& pool);

  // Runs one forward and one backward; the first run also does the further forwards of in_flight_.
  absl::Status Run();

  // The first run; how long it took. long_ns: a later warm-up is left out if this run takes so
  // long; 0: never.
  absl::StatusOr<int64_t> WarmUp(int64_t long_ns, const Clock& clock);

  // Whether its measurements have taken so long together; 0: never.
  bool HasEnough(int64_t ns) const { return ns > 0 && runs_.clock_ns >= static_cast<double>(ns); }

  // Makes one measurement: the mean over as many runs as fill the burst.
  absl::Status Measure(int64_t burst_ns, double nominal_step_ns, const Clock& clock);

  RangeTime Result() { return runs_.Result(samples_share_); }

 private:
  // Restores integer weights, and brings the range's data into the caches by a run that is not
  // counted: other ranges have used the caches since this range's last turn. To a long run the
  // caches do not matter.
  absl::Status Prepare();

  // Runs for at least slice_ns and at least once.
  absl::Status RunFor(int64_t slice_ns, const Clock& clock, RangeRuns::Burst& burst);

  bool integer() const { return executor_->recipe().numbers.integer_parameters(); }

  RangeStage(Batching batching, std::optional<int64_t> in_flight, bool shared_caches)
      : batching_(std::move(batching)),
        in_flight_(in_flight.value_or(1)),
        polluter_(in_flight.has_value() && shared_caches) {}

  // Sets the weights to the same random values each time. Integer weights change by a whole step at
  // every update, however small the rate, so they cannot simply be left alone (see
  // kStepsPerRestore).
  absl::Status DrawWeights();

  Batching batching_;
  int64_t in_flight_;
  CachePolluter polluter_;
  double samples_share_ = 1;  // share of the wanted samples, (0, 1]
  std::unique_ptr<StageExecutor> executor_;
  RangeTensors tensors_;
  RangeRuns runs_;
  int64_t forwards_ = 0;
  int64_t backwards_ = 0;
  int64_t steps_since_restore_ = 0;
  bool is_long_ = false;
};

}  // namespace runnel
