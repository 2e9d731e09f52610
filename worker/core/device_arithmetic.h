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

// One thread at a time: Prepare before anything else is under way, then the workshop's lane.
class DeviceArithmetic {
 public:
  virtual ~DeviceArithmetic() = default;
  // Makes ready what "auto" stands for. Errors: it cannot be had here.
  virtual absl::Status Prepare() = 0;
  // From now on another backend of this device computes what this one was asked for: its device is
  // lost. Stages that stand on it are not touched.
  virtual void DoWithout(const std::string& backend) = 0;
  // Of what was asked for last.
  virtual std::string numerics_class() const = 0;
  // As ProfileRanges, on the backend that the request names.
  virtual absl::StatusOr<std::vector<RangeTime>> Profile(
      const ProfileRequest& request, const ProfileOptions& options,
      const std::function<void(double share)>& on_progress) = 0;
  // What the last Profile measured on.
  virtual MeasuredOn measured_on() const { return {}; }
  // The request was answered by what an earlier run measured: stages go by its choice, and nothing
  // is measured again for it.
  virtual void Adopt(const ProfileRequest& /*request*/, const MeasuredOn& /*on*/) {}
  // What the backends compute on, as far as it is known: of those that nothing has opened, that
  // they are there. Opens none.
  virtual std::vector<ProcessorFacts> processors() { return {}; }
  // As ListProgram, on the backend that the request names.
  virtual absl::StatusOr<ProgramListing> List(const ProgramRequest& request) = 0;
  // Of a stage without a state yet; on the backend of this name, for "auto" on the best one that
  // has all that is needed. `pool` outlives the engine, and so does this. InvalidArgument /
  // Unimplemented: the stage does not fit.
  virtual absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) = 0;
};

}  // namespace runnel
