#pragma once

// The arithmetic of the backends that this program has.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "proto/base/clock.h"
#include "worker/core/device_arithmetic.h"

namespace runnel {

class BackendArithmetic final : public DeviceArithmetic {
 public:
  // backend: what "auto" stands for; "auto": the best one that has all that is needed. threads: of
  // a backend. `clock` outlives this.
  BackendArithmetic(std::string backend, int threads, const Clock* clock)
      : usual_(std::move(backend)), threads_(threads), clock_(clock) {}

  absl::Status Prepare() override { return BackendFor(NamesOf("auto").front()).status(); }
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
  absl::StatusOr<Backend*> BackendFor(const std::string& name);
  std::vector<std::string> NamesOf(const std::string& name) const;
  // Calls `use` with the backend of this name; for "auto" with one after the other, the best first,
  // until one has all that is needed.
  absl::Status WithBackend(const std::string& name,
                           const std::function<absl::Status(Backend*)>& use);

  const std::string usual_;
  const int threads_;
  const Clock* clock_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by name; a stage may use any
  Backend* backend_ = nullptr;                                // the last one asked for
};

}  // namespace runnel
