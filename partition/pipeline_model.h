#pragma once

// What a pipeline costs on given devices and links: the common ground of the policy `runnel`, the
// simulator and `plan --what-if`. Pure data and functions of it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "partition/cost_model.h"
#include "partition/schedule.h"
#include "partition/simulator.h"
#include "proto/base/training/codec_schedule.h"
#include "proto/base/training/link_rate.h"

namespace runnel {

// One way between two devices.
struct LinkSpeed {
  LinkRate rate;  // not set: unlimited
  double delay_seconds = 0;
};

// What a pair of codecs puts on a link.
struct CodecCost {
  CodecSchedule forward;
  CodecSchedule backward;
  // By layer, of its output: bytes of a frame, header included.
  std::vector<int64_t> down_bytes;
  std::vector<int64_t> up_bytes;
  // Whether coding takes time at all.
  bool forward_works = false;
  bool backward_works = false;
};

struct DeviceCost {
  // Of a stage's seconds, of which only the sum is measured; the rest is weight-gradient and
  // update. A convolution or linear layer multiplies as often in each of the three.
  double forward_share = 1.0 / 3;
  double input_gradient_share = 1.0 / 3;
  double codec_seconds_per_byte = 0;  // of the FP32 tensor, to encode or decode it
  int64_t memory_limit_bytes = 0;     // for one stage; 0: no limit
  // Where coding and the transport have no processor of their own they take time from the
  // computation: coding what it costs, the transport this much for a frame that leaves or comes in,
  // for a byte of it on a link, and for one of what central feeds; the rest of a worker takes some
  // for each micro-batch.
  bool shares_processor = false;
  double micro_batch_seconds = 0;
  double frame_seconds = 0;
  double link_byte_seconds = 0;
  double feed_byte_seconds = 0;
};

// Bytes that a layer takes on the device that has it.
struct LayerMemory {
  int64_t state_bytes = 0;    // parameters, their gradients, optimizer state, statistics
  int64_t version_bytes = 0;  // of one more weight version
  int64_t stash_bytes = 0;    // kept for the backward of one micro-batch
};

struct PipelineModel {
  const CostModel* compute = nullptr;  // borrowed; devices() of it are positions in `devices`
  std::vector<DeviceCost> devices;
  std::vector<std::vector<LinkSpeed>> speeds;  // [from][to]
  bool half_duplex = false;
  std::vector<CodecCost> codecs;   // the most exact one first
  std::vector<int64_t> raw_bytes;  // by layer: FP32 bytes of its output for one micro-batch
  int64_t input_bytes = 0;         // of a micro-batch's samples, as central feeds them
  int64_t label_bytes = 0;
  std::vector<LayerMemory> memory;  // by layer
  int default_codec = 0;            // of `codecs`: what the user asked for
  int64_t max_cap = 16;             // upper limit of every cap
  // Whether forwards use weights ahead of the newest ones, so that each micro-batch in flight has
  // its own: at stages with the usual caps N - i, and at those with raised ones.
  bool looks_ahead = false;
  bool raised_looks_ahead = false;
  DeferredFn deferred = nullptr;    // ScheduleRow's
  int64_t drain_every = 0;          // micro-batches of a synchronous step; 0: asynchronous
  double staleness_charge = 0.001;  // of the period, for each micro-batch in flight at stage 0
                                    // beyond one a stage

  int layers() const { return static_cast<int>(raw_bytes.size()); }
};

// Which device runs what. Positions are those in PipelineModel::devices.
struct Placement {
  std::vector<int> order;       // by stage: the device
  std::vector<int> last_layer;  // by stage
  std::vector<int64_t> caps;    // by stage
  std::vector<int> codecs;      // by link: position in PipelineModel::codecs

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Seconds of one way over a link.
struct WaySeconds {
  double encode = 0;
  double send = 0;  // that the bandwidth is taken
  double delay = 0;
  double decode = 0;
  // Where the ends share a processor: coding that their computation gives way to, which is part of
  // the way, and what the transport takes from it meanwhile, which is not.
  double sender_codes = 0;
  double receiver_codes = 0;
  double sender_takes = 0;
  double receiver_takes = 0;

  double total() const { return encode + send + delay + decode; }
};
// The output of `layer` from device `from` to device `to`; backward its gradient, from `to` to
// `from`.
WaySeconds WayCost(const PipelineModel& model, int codec, int layer, int from, int to,
                   Direction direction);

// What a stage's computation gives up for a micro-batch wherever the model is cut: the worker's own
// work, and that of feeding, samples to the first stage, labels to the last. Central is on the
// first device of `devices`, so that one sends and receives.
double OverheadSeconds(const PipelineModel& model, int device, bool is_first, bool is_last);

// What the stage takes with `order` (`usual_cap`: N - i): its state, and the weight versions and
// stashes of all micro-batches that it keeps; for each deferred weight-gradient also the gradients
// inside the stage, taken to be as large as what its operators put out. An upper estimate.
int64_t StageMemoryBytes(const PipelineModel& model, int first_layer, int last_layer,
                         const StageOrder& order, int64_t usual_cap);

// The placement for the simulator; micro_batches and drains are left to the caller.
SimulatedPipeline ToPipeline(const PipelineModel& model, const Placement& placement);

// Seconds a micro-batch by simulation: of the steady pipeline, or of a step with its drain where
// drain_every says so.
absl::StatusOr<double> SimulatedPeriod(const PipelineModel& model, const Placement& placement);

// What `runnel` minimises: the period, and staleness_charge of it for every micro-batch in flight
// at stage 0 beyond one a stage.
double ChargedPeriod(const PipelineModel& model, const Placement& placement, double period_seconds);

// InvalidArgument names what is missing or does not fit together.
absl::Status CheckPipelineModel(const PipelineModel& model);

}  // namespace runnel
