#pragma once

// The journal: central's ordered record of every decision that depends on time or measurement, with
// the barrier from which it holds. A file of JSON lines, one record a
// line, each with "record" (its kind) and "version"; `replay` reads it back.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/settings/run_settings.h"
#include "proto/base/figures/class_counts.h"
#include "proto/base/plan/device_costs.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/layer_range.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

// Of the records that are written. Since version 2 there is "recovered"; older ones are read too.
inline constexpr int64_t kJournalVersion = 2;
inline constexpr int64_t kOldestJournalVersion = 1;

// "run_started": the first record of every journal, and only that.
struct RunStarted {
  RunSettings settings;
  std::string model;         // name
  std::string model_sha256;  // ModelSha256 (central/records/checkpoint.h)
  TrainingSettings training;

  friend bool operator==(const RunStarted&, const RunStarted&) = default;
};

// "run_resumed": what follows continues from this check-point; records of later steps before it are
// void.
struct RunResumed {
  int64_t step = 0;
  std::string checkpoint;  // path
  int64_t epochs = 0;      // of the run from here on; 0, absent: as before

  friend bool operator==(const RunResumed&, const RunResumed&) = default;
};

struct JournalDevice {
  std::string name;
  std::string numerics_class;
  // What the plan was made from: as measured or predicted, later corrected by what stages took;
  // empty: nothing was measured. "layer_seconds" or "range_seconds".
  DeviceTimes times = {};
  double processor_share = 1;        // what its computing thread got of a processor
  DeviceCosts costs = {};            // "costs"; absent: not measured
  std::string backend_options = {};  // as BackendOptions::text; absent: none
  bool on_host = false;              // on central's host; absent: no

  friend bool operator==(const JournalDevice&, const JournalDevice&) = default;
};

// "links": what was known of the ways between devices when the first plan was made, by what the
// user gave and by probes.
struct LinksKnown {
  struct Way {
    DeviceId from;
    DeviceId to;
    double mbps = 0;                 // that frames get; 0: not known
    std::optional<double> delay_ms;  // none: not known; -1 in the file
    bool given = false;              // by the user

    friend bool operator==(const Way&, const Way&) = default;
  };
  // Devices whose links with central's host share their bandwidth; of a radio, both ways together.
  struct Medium {
    std::vector<DeviceId> devices;
    double mbps = 0;
    bool half_duplex = false;

    friend bool operator==(const Medium&, const Medium&) = default;
  };
  std::vector<Way> ways;
  std::vector<Medium> media = {};

  friend bool operator==(const LinksKnown&, const LinksKnown&) = default;
};

// "plan": holds from optimizer step from_step on.
struct PlanDecided {
  int64_t from_step = 0;
  Plan plan;
  std::vector<JournalDevice> devices;  // by device number

  friend bool operator==(const PlanDecided&, const PlanDecided&) = default;
};

// "training_change": what was decided of the training at a barrier. The dial's name is the key of
// its value. Written before any stage is granted the steps from change.from_step on.
struct TrainingChanged {
  TrainingChange change;
  std::string why;  // for people

  friend bool operator==(const TrainingChanged&, const TrainingChanged&) = default;
};

// "measurement": sub-models of a device, from which its times are predicted.
struct SubModelsMeasured {
  struct SubModel {
    LayerRange range;
    double seconds = 0;

    friend bool operator==(const SubModel&, const SubModel&) = default;
  };
  int64_t step = 0;  // barrier at which it was measured
  DeviceId device;
  std::string name;
  std::vector<SubModel> sub_models;

  friend bool operator==(const SubModelsMeasured&, const SubModelsMeasured&) = default;
};

// "barrier": all stages have drained after `step` steps.
struct BarrierPassed {
  int64_t step = 0;

  friend bool operator==(const BarrierPassed&, const BarrierPassed&) = default;
};

// "checkpoint"
struct CheckpointWritten {
  int64_t step = 0;
  std::string path;

  friend bool operator==(const CheckpointWritten&, const CheckpointWritten&) = default;
};

// "evaluation". A figure that is not finite is written as null and read as NaN.
struct EvaluationRecorded {
  int64_t step = 0;
  double accuracy = 0;  // in [0, 1]
  double loss = 0;
  ClassCounts counts = {};  // for the summary: no line of a journal has them

  friend bool operator==(const EvaluationRecorded&, const EvaluationRecorded&) = default;
};

// What the codecs of one way of a link add to the noise of gradients, or of both ways where the codec
// of activations needs the gradients.
struct WayNoise {
  int link = 0;   // position in Plan::links
  int layer = 0;  // behind which the tensors cross
  bool forward = false;
  bool backward = false;
  std::string codecs;  // for people
  double by_table = 0;
  double added = 0;
  bool measured = false;  // in a dry run of its own; else its share of what all of them added

  friend bool operator==(const WayNoise&, const WayNoise&) = default;
};

// "gradient_noise": what codecs added to the noise of gradients, measured in a dry run at a barrier
// (proto/base/training/codecs/gradient_noise.h): by all codecs of the plan at once, or by those of `way`.
// Either way the record has all that is known: what was measured at once, and `ways`.
struct NoiseMeasured {
  int64_t step = 0;
  double added = 0;          // share of the noise that mini-batches have
  double by_table = 0;       // what the table of codecs says of the same codecs
  double scale_samples = 0;  // the gradient noise scale; 0: not known
  int64_t micro_batches = 0;
  double loss = 0;                  // mean over the training since the barrier before
  double seconds = 0;               // that training stood for it
  std::string codecs;               // for people
  std::vector<WayNoise> ways = {};  // empty in journals of earlier releases
  std::optional<int> way = {};      // position in `ways`

  friend bool operator==(const NoiseMeasured&, const NoiseMeasured&) = default;
};

// The way that was measured; null: all of them at once.
inline const WayNoise* WayOf(const NoiseMeasured& noise) {
  return noise.way.has_value() ? &noise.ways[static_cast<size_t>(*noise.way)] : nullptr;
}

// "worker_lost"
struct WorkerLost {
  int64_t step = 0;  // last barrier before it
  DeviceId device;
  std::string name;
  std::string reason;

  friend bool operator==(const WorkerLost&, const WorkerLost&) = default;
};

// "recovered": workers or backends were lost, and training goes on from the barrier at `step`.
// Records of later steps that stand before it are void. The plan that holds from there follows.
struct Recovered {
  int64_t step = 0;
  std::vector<std::string> workers;  // that were lost, by name; or "backend NAME of WORKER"

  friend bool operator==(const Recovered&, const Recovered&) = default;
};

// "stopped": the run ended before its end.
struct RunStopped {
  int64_t step = 0;
  std::string reason;

  friend bool operator==(const RunStopped&, const RunStopped&) = default;
};

// "finished"
struct RunFinished {
  int64_t step = 0;
  std::string weights_sha256;

  friend bool operator==(const RunFinished&, const RunFinished&) = default;
};

using JournalRecord =
    std::variant<RunStarted, RunResumed, LinksKnown, PlanDecided, TrainingChanged,
                 SubModelsMeasured, BarrierPassed, CheckpointWritten, EvaluationRecorded,
                 NoiseMeasured, WorkerLost, Recovered, RunStopped, RunFinished>;

// One line without its end. InvalidArgument of the reader names what is wrong.
std::string JournalLine(const JournalRecord& record);
absl::StatusOr<JournalRecord> ParseJournalLine(absl::string_view line);

struct Journal {
  std::vector<JournalRecord> records;  // never empty; the first is RunStarted
  // The last line had no end: the process died while it wrote. It is no record; this says so, with
  // its number. Empty: nothing was torn.
  std::string torn_line;
};

// Reads and checks a whole journal. NotFound, PermissionDenied; InvalidArgument "PATH:LINE: what"
// for a line that is no record of ours, a first record that is not run_started, a second one, steps
// or plans that go back without run_resumed or recovered.
absl::StatusOr<Journal> ReadJournal(const std::string& path);

// Appends records to a file, which is locked meanwhile. One thread at a time.
class JournalWriter {
 public:
  // Starts a journal. AlreadyExists if the file is there and not empty, because one journal holds
  // one run; or if another process writes it.
  static absl::StatusOr<JournalWriter> Create(const std::string& path);
  // Goes on with a run's journal; a torn last line is cut off. Errors as ReadJournal;
  // AlreadyExists: another process writes it.
  static absl::StatusOr<JournalWriter> Continue(const std::string& path);

  JournalWriter(JournalWriter&& other) noexcept;
  JournalWriter& operator=(JournalWriter&& other) noexcept;
  ~JournalWriter();

  // One write. Plans, barriers, check-points and the end are on the disk when this returns. After
  // an error that names path and cause the file holds whole records only; if not even that could be
  // had, every later call fails too.
  absl::Status Append(const JournalRecord& record);

  // What could not be written leaves the file in doubt: no later call will do.
  bool is_broken() const { return !broken_.ok(); }
  const std::string& path() const { return path_; }

 private:
  JournalWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Undo(int64_t size, absl::Status cause);

  std::string path_;
  int fd_ = -1;
  absl::Status broken_;
};

}  // namespace runnel
