#pragma once

// The arithmetic of the backends that this program has. Those that need more than a processor are
// checked before they compute (worker/measure/backend_verdicts.h).

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "worker/core/device_arithmetic.h"
#include "worker/measure/backend_verdicts.h"
#include "worker/tune/tuning_store.h"

namespace runnel {

struct BackendArithmeticOptions {
  std::string backend = "auto";   // what "auto" stands for; "auto": the best one that has all
  int threads = 1;                // of a backend
  std::string state_folder = {};  // BackendVerdicts' and TuningStore's
  Logger* logger = nullptr;       // may be null
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
  absl::StatusOr<ProgramListing> List(const ProgramRequest& request) override;
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(const std::string& backend,
                                                          const StageExecutorOptions& options,
                                                          BufferPool* pool) override;

 private:
  absl::StatusOr<std::unique_ptr<Backend>> MakeAdmitted(const std::string& name) const;
  // Each one of several is checked by itself.
  absl::Status AdmitProcessors(const std::string& names) const;
  absl::StatusOr<Backend*> BackendFor(const std::string& name);
  std::vector<std::string> NamesOf(const std::string& name) const;
  // Calls `use` with the backend of this name; for "auto" with one after the other, the best first,
  // until one has all that is needed.
  absl::Status WithBackend(const std::string& name,
                           const std::function<absl::Status(Backend*)>& use);

  const BackendArithmeticOptions options_;
  const BackendVerdicts verdicts_;
  const TuningStore tunings_;
  const Clock* clock_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by name; a stage may use any
  std::set<std::string> without_;
  Backend* backend_ = nullptr;  // the last one asked for
};

}  // namespace runnel
