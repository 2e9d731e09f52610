#pragma once

// The part of a worker that computes: profiling layers and building stages. BackendArithmetic runs
// the real backends; the simulator of the whole cluster has a fake.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/tensor/payload.h"
#include "proto/transport/control/control.h"
#include "worker/measure/profiler.h"
#include "worker/stage/stage_engine.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

// For one thread at a time: Prepare before anything else, then the workshop's lane.
class DeviceArithmetic {
 public:
  virtual ~DeviceArithmetic() = default;
  // Makes ready what "auto" stands for. Errors: it cannot be had here.
  virtual absl::Status Prepare() = 0;
  // Replaces a backend whose device is lost by another one of this device from now on. Does not
  // touch stages that stand on it.
  virtual void DoWithout(const std::string& backend) = 0;
  // Class of the backend that was asked for last.
  virtual std::string numerics_class() const = 0;
  // Profiles as ProfileRanges does, on the backend that the request names.
  virtual absl::StatusOr<std::vector<RangeTime>> Profile(
      const ProfileRequest& request, const ProfileOptions& options,
      const std::function<void(double share)>& on_progress) = 0;
  // The backend of the last Profile.
  virtual MeasuredOn measured_on() const { return {}; }
  // The request was answered by what an earlier run measured: stages go by its choice, and nothing
  // is measured again for it.
  virtual void Adopt(const ProfileRequest& /*request*/, const MeasuredOn& /*on*/) {}
  // Facts of the backends' processors, as far as they are known; an unopened backend is only listed
  // as present. Opens none.
  virtual std::vector<ProcessorFacts> processors() { return {}; }
  // Lists as ListProgram does, on the backend that the request names.
  virtual absl::StatusOr<ProgramListing> List(const ProgramRequest& request) = 0;
  // Makes the engine of a stage without a state, on the backend of this name, for "auto" on the
  // best one that has all parts. `pool` outlives the engine, and so does this. InvalidArgument /
  // Unimplemented: the stage does not fit.
  virtual absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) = 0;
};

}  // namespace runnel
