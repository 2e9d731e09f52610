#pragma once

// A drawn training: a model, its cut into stages, a recipe, batches, an order of the stages' actions with
// several micro-batches in flight, and evaluations between steps; and the run of it by the executors that
// train in production. Whatever backend and memory plan it runs on, its bytes have names that two runs
// can be compared by. One thread (a backend may have more).

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

// What is drawn of.
struct TrainingDraw {
  std::vector<std::string> recipes;  // empty: all kinds
  bool large =
      true;  // batches and planes of several blocks; else so small that any backend is fast
  bool plain = false;  // no option that only backends cpu and ref have
  // Nets of images and batches that fused steps take in several blocks, one step of one micro-batch.
  bool blocks = false;
};

struct DrawnTraining {
  uint64_t seed = 0;
  ModelSpec model;
  std::string recipe;
  TrainingSettings training;
  std::vector<int> starts;        // first layer of each stage
  std::vector<int64_t> caps;      // micro-batches in flight, by stage
  std::vector<int64_t> deferred;  // weight-gradients that may wait, by stage
  bool drains = true;             // between steps
  int64_t steps = 2;

  int stages() const { return static_cast<int>(starts.size()); }
  int last_layer(int stage) const {
    return stage + 1 < stages() ? starts[static_cast<size_t>(stage) + 1] - 1
                                : model.layer_count() - 1;
  }
  std::string text() const;  // for people, to draw it again
};

// 1 to CaseCount(usual), or RUNNEL_DRAWN_SEED alone where that is set: a failure names its seed.
std::vector<uint64_t> SeedsOf(uint64_t usual);

// A pure function of its arguments; a training that CompileStage takes.
DrawnTraining DrawTraining(uint64_t seed, const TrainingDraw& draw = {});

// Bytes by name, in the order in which they were there first.
class NamedBytes {
 public:
  void Add(std::string name, std::string bytes);
  const std::vector<std::pair<std::string, std::string>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

// The name of what differs first, and how much; empty: nothing.
std::string FirstDifference(const NamedBytes& a, const NamedBytes& b);

class TrainingRun {
 public:
  // Backends outlive it. All stages have initial state.
  static absl::StatusOr<std::unique_ptr<TrainingRun>> Create(const DrawnTraining& drawn,
                                                             Backend& backend);

  // As if the steps before this one had been trained.
  void SkipTo(int64_t step);
  // Trains steps [first, last), drained at both ends. What crosses boundaries, losses, and the state
  // behind it.
  absl::Status Train(int64_t first, int64_t last, NamedBytes& seen);
  // Of samples that `stream` and their number say.
  absl::Status Evaluate(int64_t samples, uint64_t stream, NamedBytes& seen);
  absl::StatusOr<ModelState> ExportState();
  absl::Status ImportState(const ModelState& state);

 private:
  struct Stage {
    std::unique_ptr<StageExecutor> executor;
    int64_t forwards = 0, input_gradients = 0, weight_gradients = 0;  // done
    std::map<int64_t, Payload> inputs, gradients;                     // that have come, by sequence
  };
  enum class Action : uint8_t { kForward, kInputGradient, kWeightGradient };

  TrainingRun(const DrawnTraining& drawn, Batching batching)
      : drawn_(drawn), batching_(std::move(batching)) {}
  absl::Status MakeStages(Backend& backend);
  std::vector<std::pair<int, Action>> Legal(int64_t end, int64_t barrier) const;
  absl::Status Do(int stage, Action action, NamedBytes& seen);
  Payload Samples(uint64_t stream, int64_t samples);
  Payload Labels(uint64_t stream, int64_t samples);
  bool IsAlone(size_t stage) const {
    return drawn_.caps[stage] == 1 && drawn_.deferred[stage] == 0;
  }

  const DrawnTraining drawn_;
  const Batching batching_;
  BufferPool pool_;
  std::vector<Stage> stages_;
};

// A whole training from its initial state, with evaluations behind each drained step.
absl::StatusOr<NamedBytes> RunTraining(const DrawnTraining& drawn, Backend& backend);
// The sizes that it evaluates.
std::vector<int64_t> EvaluatedSizes(const DrawnTraining& drawn);

}  // namespace runnel
