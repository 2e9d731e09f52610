#pragma once

// Members of a run: workers join, are refused, leave. Workers that central started itself and
// workers that dial in have seats of their own, so that no stranger can take the seat of the local
// worker, which alone may see raw samples. Pure: events in, effects out.
// || While a run trains, a lost worker takes its seat and its device number back, and an unknown
// one gets the next number. A worker that leaves keeps its number until its stage has moved; a
// drained one comes back only when it is started again.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/codecs/codec_id.h"

namespace runnel {

// A worker that takes part.
struct Device {
  ConnectionId connection;
  WorkerHello hello;
  bool local = false;
  double processor_share = 1;  // processor share of its computing thread at the last profile
  DeviceCosts costs = {};      // as last reported
  // Backend that its layers were measured on, and the reason, if central and the worker leave it
  // open; empty: nothing was measured yet.
  std::string measured_backend = {};
  // Of the backend that computes its stage; before there is one, of what its layers were measured
  // on. Empty: neither is known.
  std::string numerics_class = {};
  std::string backend_choice = {};
  bool leaving = false;   // no plan may use it
  bool released = false;  // it has left in order, and has not come back
  bool barred = false;    // it failed; no plan may use it until it is started again

  bool stays() const { return !leaving && !barred; }
};

struct RosterOptions {
  int local_workers = 0;                   // seats of workers that central started
  int dialling_workers = 0;                // seats of workers that dial in
  std::optional<int> least_dialling = {};  // the run may begin with so many of them; none: with all
  // There is no run: whoever dials in is taken, and waits.
  bool is_waiting_room = false;
  // Central listens on the loopback interface: everybody is on this host. Else workers that dial in
  // must be where other hosts reach them.
  bool loopback_only = true;
  // Requirements of every worker.
  std::string recipe;
  std::string backend = "auto";
  std::vector<CodecId> codecs;
  // Welcome's.
  std::string run = {};
  int64_t life = 0;

  int workers() const { return local_workers + dialling_workers; }
  int least_workers() const { return local_workers + least_dialling.value_or(dialling_workers); }
};

// "cpu:avx2,opencl@alternate": cpu, opencl.
std::vector<std::string> BackendFamilies(const std::string& backend);

// Whether the two compute alike, so that what was measured of one holds for the other.
bool AreAlike(const WorkerHello& a, const WorkerHello& b);

class Roster {
 public:
  explicit Roster(RosterOptions options) : options_(std::move(options)) {}

  // A worker said hello. `local`: central started it. Refuses a worker of another protocol version,
  // with another's name, without a part that the run needs, at an address that no other host
  // reaches, or without a free seat of its kind. True: it took the last seat. All workers then have
  // their numbers, local ones first, then by name, so that the same workers make the same pipeline;
  // Welcome tells them. InvalidArgument: a worker of our own lacks a part that the run needs, and
  // no other will come.
  absl::StatusOr<bool> Join(ConnectionId connection, const WorkerHello& hello, bool local,
                            RunEffects& effects);
  // The stream of the worker that says this hello, if central still takes an earlier one of it for
  // whole: it was started again, or its connection has broken, and nobody has noticed.
  std::optional<ConnectionId> StreamOf(const WorkerHello& hello) const;
  // A dialling worker said hello while the run trains. Its number: the one that it had, or the
  // next; where there is no next one, that of a lost worker on a device alike without a stage
  // (`has_stage` says who has one). Welcome tells it. None: it is refused, as Join refuses.
  std::optional<int> Enter(ConnectionId connection, const WorkerHello& hello,
                           absl::FunctionRef<bool(int)> has_stage, RunEffects& effects);
  // No plan may use the device any more; or again.
  void SetLeaving(int number, bool leaving) {
    devices_[static_cast<size_t>(number)].leaving = leaving;
  }
  // It failed: no plan may use it. False: it is the last one on central's host, which plans need.
  bool Bar(int number);
  // No plan may use the device from now on; without a stage it goes at once.
  // FailedPrecondition: it cannot, why.
  absl::Status BeginLeaving(int number, bool has_stage, const std::string& reason,
                            RunEffects& effects);
  // Names of those that leave and have a stage of this plan.
  std::vector<std::string> LeavingStages(const Plan& plan) const;
  // Tells a device without a stage to go.
  void Release(int number, RunEffects& effects);
  // Releases the leaving devices that have no stage in the current plan.
  void ReleaseLeft(const Plan& plan, RunEffects& effects);
  // A stream ended, or its worker is lost. The number of the device that is lost now; none: nobody
  // who takes part, somebody who was lost before, or a worker before the run began, whose seat is
  // free again; one of this host is started again.
  std::optional<int> Leave(ConnectionId connection, RunEffects& effects);
  // A local worker said hello when all seats were taken: it takes the seat of the lost worker of
  // its name, and Welcome tells it its number. None: there is no such seat. InvalidArgument: it
  // lacks a part that the run needs.
  absl::StatusOr<std::optional<int>> Return(ConnectionId connection, const WorkerHello& hello,
                                            RunEffects& effects);
  // A plan holds whose stages are computed as its devices say: from now on the roster knows it.
  // Warns once if that is of several numerics classes and bytes depend on the class (`exact`:
  // they do not).
  void SetClasses(const PlanDecided& decided, bool exact, RunEffects& effects);
  // The run is over: tells all who are still there.
  void ReleaseAll(RunEffects& effects) const;

  // Central starts workers of its own. False in tests only, where all dial in.
  bool has_local_seats() const { return options_.local_workers > 0; }
  // The lost local worker with the lowest number, one that was drained last of all, if no other one
  // is there to stay: no plan has a stage 0 without it.
  std::optional<int> MissingLocal() const;
  // A lost local worker that did not leave in order.
  std::optional<int> LostLocal() const;
  // Local, and no other local worker is there to stay.
  bool IsLastLocal(int number) const;
  // Whether all seats were taken, so that the run began.
  bool complete() const { return complete_; }
  // A worker of this name is there.
  bool IsPresent(absl::string_view name) const;
  // All local workers are there, and as many others as the run needs.
  bool has_least() const;
  // Workers of other hosts may come, or come back.
  bool takes_diallers() const { return options_.dialling_workers > 0; }
  // Of the seats for workers that dial in one is free, or its worker failed.
  bool has_free_seat() const { return dialling_workers() < options_.dialling_workers; }
  // The run begins with those that are there: as when the last seat is taken (Join).
  void Complete(RunEffects& effects);
  // DeadlineExceeded: too few have joined in so many seconds.
  absl::Status TimeoutError(int64_t waited_s) const;
  // "2 of 4 workers are there (local-000, pi-1), 3 are needed; pi-2 was there and is gone".
  std::string MissingText() const;

  // Devices by number, once complete; before in joining order.
  const std::vector<Device>& devices() const { return devices_; }
  const Device& device(int number) const { return devices_[static_cast<size_t>(number)]; }
  const std::string& name(int number) const { return device(number).hello.name; }
  // Takes a device's figures beside its layers' times. Costs of 0 were not asked for and change
  // nothing.
  void SetMeasured(int number, const ProfileReport& report);
  void SetProcessors(int number, const ProcessorList& list);
  int64_t dialling_workers() const;
  // InvalidArgument: what does not fit the device, which is the user's to change (`unfit`).
  // Aborted: what else failed there.
  absl::Status FailureOf(int number, absl::string_view reason, bool unfit) const;
  // Backend of a stage on this device, as far as it is known: the run's, else the worker's own,
  // else the one chosen when it was measured; "auto": not known.
  const std::string& BackendOf(int number) const;
  // Device::numerics_class; else what the worker has said of its own default, where the run does
  // not name another backend. Empty: not known yet.
  const std::string& ClassOf(int number) const;
  // Whether the run or the worker's user names what computes there.
  bool IsBackendNamed(int number) const;
  // Whether each device has left, by number.
  const std::vector<bool>& lost() const { return lost_; }
  std::optional<int> DeviceOf(ConnectionId connection) const;

 private:
  absl::Status CheckFits(const WorkerHello& hello) const;
  std::optional<Refused> ReasonToRefuse(const WorkerHello& hello, bool local) const;
  std::optional<Refused> ReasonToKeepOut(const WorkerHello& hello) const;
  // That this worker takes; devices_.size(): a new one. ResourceExhausted: there is none.
  absl::StatusOr<size_t> SeatOf(const WorkerHello& hello,
                                absl::FunctionRef<bool(int)> has_stage) const;
  void Refuse(ConnectionId connection, Refused refused, RunEffects& effects);
  int64_t CountPresent(bool local) const;
  // "2 of 3 are here", of the workers that dial in.
  std::string HereText() const;
  // To those that dialled in, before the run begins.
  void TellAwaiting(RunEffects& effects) const;
  Welcome WelcomeTo(int32_t number) const {
    return {DeviceId(number), options_.run, options_.life};
  }

  RosterOptions options_;
  std::vector<Device> devices_;
  std::vector<bool> lost_;
  bool complete_ = false;
  std::set<std::string> logged_refusals_;
  bool warned_of_classes_ = false;
  std::set<std::string> left_early_;  // names of those that left before the run began
};

}  // namespace runnel
