#pragma once

// Long work of a worker beside training: measuring, compiling a stage, copying a state and making
// messages of it, releasing a stage. It runs on a lane of its own, one piece after the other, so
// that the worker's loop always turns.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/control/control.h"
#include "worker/core/device_arithmetic.h"
#include "worker/host/stage_host.h"
#include "worker/lane.h"
#include "worker/measure/self_measurement.h"

namespace runnel {

class Workshop {
 public:
  struct Options {
    std::string state_folder = {};  // MeasurementStore's, and so is device
    std::string device = {};
    double processors = 0;  // SelfMeasurement's
  };
  // Borrowed; all outlive the workshop.
  struct Parts {
    EventLoop* loop = nullptr;
    BufferPool* pool = nullptr;
    Transport* transport = nullptr;
    FrameLimits* limits = nullptr;
    Logger* logger = nullptr;
    ReplicaStore* replicas = nullptr;
    DeviceArithmetic* arithmetic = nullptr;
    MakeLaneFn make_lane = nullptr;
    EnergyCounter* energy = nullptr;  // may be null
    // Called on the loop's thread ahead of an answer, when the processors differ from those
    // reported.
    std::function<void(std::vector<ProcessorFacts>)> on_processors = nullptr;
    SpanLog* spans = nullptr;  // StageEnvironment's
  };

  Workshop(Options options, const Parts& parts);
  // Waits for the piece that is under way. What waits behind it is dropped, and so are answers.
  ~Workshop();

  // Call these on the loop's thread, where the answers come too. Until an answer the stage is left
  // alone.

  // on_progress is called a few times a second. Errors as ProfileRanges.
  void Measure(ProfileRequest request, std::function<void(ProfileProgress)> on_progress,
               std::function<void(absl::StatusOr<ProfileReport>)> done);
  // Errors as DeviceArithmetic::List.
  void List(ProgramRequest request, std::function<void(absl::StatusOr<ProgramListing>)> done);
  // own: the stage that stands here, which has the layers that `stage` came without; null: `stage`
  // has all, or asks for a copy's. Errors as MakeStageHost, TakeSnapshot and ReplicaCopies.
  void Make(PrepareStage stage, StageHost* own, StageEvents events,
            std::function<void(absl::StatusOr<std::unique_ptr<StageHost>>)> done);
  // Gives the state that `take` takes to `hand_over`, both on the workshop's lane, and the result to
  // `done`. taken: it could not be taken.
  void TakeState(std::function<absl::StatusOr<ModelState>()> take,
                 std::function<absl::Status(ModelState)> hand_over,
                 std::function<void(const absl::Status& taken, const absl::Status& handed)> done);
  // As DeviceArithmetic::DoWithout, ahead of all later orders.
  void DoWithout(const std::string& backend);
  // Destroys the host after the work under way, so that the next one finds its memory free.
  void Retire(std::unique_ptr<StageHost> host);
  // DeviceArithmetic's, while nothing is under way; on_processors tells what differs later.
  std::vector<ProcessorFacts> processors() { return told_ = parts_.arithmetic->processors(); }
  std::vector<WorkerMessage> Answer(const ProbePiece& piece) { return measurement_.Answer(piece); }

  // kIdle: nothing is under way.
  WorkerPhase phase() const { return phase_; }
  int64_t progress() const { return progress_; }

 private:
  absl::StatusOr<std::unique_ptr<StageHost>> MakeHost(PrepareStage stage,
                                                      const ReplicaCopies& copies, StageHost* own,
                                                      StageEvents events);
  // Runs `work` on the lane and `done` with its result on the loop.
  template <typename Result>
  void Begin(WorkerPhase phase, std::function<Result()> work, std::function<void(Result)> done);

  const Options options_;
  const Parts parts_;
  WorkerPhase phase_ = WorkerPhase::kIdle;
  int64_t progress_ = 0;
  std::vector<ProcessorFacts> told_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // answers on their way check it
  SelfMeasurement measurement_;  // used by the lane while work is under way
  std::unique_ptr<Lane> lane_;   // last: joined before what its tasks use goes
};

}  // namespace runnel
