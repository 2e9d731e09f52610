#pragma once

// The arithmetic of the backends that this program has. Those that need more than a processor are
// checked before they compute (worker/measure/backend_verdicts.h).

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/plan/processor_facts.h"
#include "worker/core/backend_choice.h"
#include "worker/core/device_arithmetic.h"
#include "worker/measure/backend_verdicts.h"
#include "worker/tune/tuning_store.h"

namespace runnel {

struct BackendArithmeticOptions {
  std::string backend = "auto";  // meaning of "auto"; "auto": the best backend that has all parts
  BackendSettings settings = {};
  std::vector<std::string> offered = {};  // WorkerHello's backends: installed, not found wrong
  std::string state_folder = {};          // BackendVerdicts' and TuningStore's
  Logger* logger = nullptr;               // may be null
};

class BackendArithmetic final : public DeviceArithmetic {
 public:
  // `clock` outlives this.
  BackendArithmetic(BackendArithmeticOptions options, const Clock* clock)
      : options_(std::move(options)),
        verdicts_(options_.state_folder),
        tunings_(options_.state_folder),
        clock_(clock) {}

  // InvalidArgument: it is not there, or computes wrong.
  absl::Status Prepare() override;
  // Then its processor computes, as "auto".
  void DoWithout(const std::string& backend) override { without_.insert(backend); }
  std::string numerics_class() const override {
    return backend_ == nullptr ? "" : backend_->numerics_class();
  }
  absl::StatusOr<std::vector<RangeTime>> Profile(
      const ProfileRequest& request, const ProfileOptions& options,
      const std::function<void(double share)>& on_progress) override;
  MeasuredOn measured_on() const override { return measured_on_; }
  void Adopt(const ProfileRequest& request, const MeasuredOn& on) override;
  std::vector<ProcessorFacts> processors() override;
  absl::StatusOr<ProgramListing> List(const ProgramRequest& request) override;
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(const std::string& backend,
                                                          const StageExecutorOptions& options,
                                                          BufferPool* pool) override;

 private:
  // Profile on the processors that are left.
  absl::StatusOr<std::vector<RangeTime>> ProfileOn(
      const ProfileRequest& request, const Recipe& recipe, const ProfileOptions& options,
      const std::function<void(double share)>& on_progress);
  absl::StatusOr<std::unique_ptr<Backend>> MakeAdmitted(const std::string& name);
  // Each one of several is checked by itself.
  absl::Status AdmitProcessors(const std::string& names);
  absl::StatusOr<Backend*> BackendFor(const std::string& name);
  std::vector<std::string> NamesOf(const std::string& name) const;
  // A computation that backends are chosen for.
  struct Work {
    const ModelSpec& model;
    LayerRange layers;
    const Recipe& recipe;
    int64_t samples = 0;  // samples of a micro-batch
  };
  // Calls `use` with the backend of this name; for "auto" with one after the other, the best first,
  // until one has all that is needed.
  absl::Status WithBackend(const std::string& name, const Work& work,
                           const std::function<absl::Status(Backend*)>& use);
  // NamesOf, after the one that was measured to be the fastest: of "auto", where there is more than
  // the processor and bytes do not depend on the choice. Measured once for a model and recipe.
  absl::StatusOr<std::vector<std::string>> NamesFor(const std::string& name, const Work& work);
  // On the first of NamesOf that can run it.
  absl::StatusOr<std::unique_ptr<inference::GraphRunner>> MakeGraphRunnerFor(
      const std::string& name, const inference::Int8Graph& graph);
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeInferenceStage(
      const std::string& backend, const StageExecutorOptions& options, BufferPool* pool);
  void Say(const std::string& line) const;
  // Logs the result of --batch-split auto.
  void SaySlices(const StageExecutor& executor, const Backend& backend) const;
  BackendCandidate Measure(const std::string& name, const Work& work);

  const BackendArithmeticOptions options_;
  const BackendVerdicts verdicts_;
  const TuningStore tunings_;
  const Clock* clock_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by name; a stage may use any
  std::set<std::string> without_;
  std::map<std::string, BackendChoice> chosen_;   // by model and recipe: what "auto" takes
  std::map<std::string, ProcessorFacts> opened_;  // by row: what was found
  MeasuredOn measured_on_;
  Backend* backend_ = nullptr;  // the last one asked for
  std::string used_;            // its name
};

}  // namespace runnel
