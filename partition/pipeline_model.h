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
#include "proto/base/plan/link_rate.h"
#include "proto/base/training/codec_schedule.h"

namespace runnel {

// One way between two devices.
//
// Devices on one radio share its air: of all ways on a medium one frame is sent at a time,
// whichever way it goes. Who knows which ways share says so here, way by way. The numbers of media
// mean nothing but who shares with whom. A rate that was measured while nobody else sent is the
// right one, with hops 1, on a path through an access point too: the time on the air is counted in
// it.
struct LinkSpeed {
  LinkRate rate;  // not set: unlimited
  double delay_seconds = 0;
  int medium = -1;  // -1: the way has its rate to itself
  // How often a frame is on the medium: 1 from device to device, 2 through an access point, `rate`
  // then being that of each hop.
  int hops = 1;

  // That the way, or its medium, is taken by so many bytes.
  double SendSeconds(double bytes) const { return hops * rate.Seconds(bytes); }
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
  int64_t copy_bytes = 0;     // kept of barriers, where the stage has a neighbour (replication)

  LayerMemory& operator+=(const LayerMemory& other) {
    state_bytes += other.state_bytes;
    version_bytes += other.version_bytes;
    stash_bytes += other.stash_bytes;
    copy_bytes += other.copy_bytes;
    return *this;
  }
};

struct PipelineModel {
  const CostModel* compute = nullptr;  // borrowed; devices() of it are positions in `devices`
  std::vector<DeviceCost> devices;
  std::vector<std::vector<LinkSpeed>> speeds;  // [from][to]
  std::vector<CodecCost> codecs;               // the most exact one first
  std::vector<int64_t> raw_bytes;  // by layer: of its output for one micro-batch, not coded
  int64_t input_bytes = 0;         // of a micro-batch's samples, as central feeds them
  int64_t label_bytes = 0;
  std::vector<LayerMemory> memory;  // by layer
  int default_codec = 0;            // of `codecs`: what the user asked for
  int64_t max_cap = 16;             // upper limit of every cap
  // Whether forwards use weights ahead of the newest ones, so that each micro-batch in flight has
  // its own: at stages with the usual caps N - i, and at those with raised ones.
  bool looks_ahead = false;
  bool raised_looks_ahead = false;
  DeferredFn deferred = nullptr;  // ScheduleRow's
  int64_t drain_every = 0;        // micro-batches of a synchronous step; 0: asynchronous
  // Micro-batches from one barrier, at which the pipeline is empty, to the next; 0: there is none.
  int64_t barrier_every = 0;
  double barrier_pause_seconds = 0;  // from the last end before a barrier to the first beginning
  // Shares of the period that count as its cost (ChargedPeriod).
  //
  // For each micro-batch in flight at stage 0 beyond one a stage, on asynchronous schedules: at
  // caps 10,6,1 instead of 3,2,1 a network that was trained with all remedies was wrong in 10.7
  // instead of 10.0 % of the cases. Seven more in flight cost 7 % of what is learnt, so one costs a
  // hundredth.
  double staleness_charge = 0.01;
  // For each device beyond the first: predicted periods are right to a few percent, so that a gain
  // below that may be none; and each device is one more that can fail.
  double device_charge = 0.04;

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

// A stage by what it keeps; codecs are positions in PipelineModel::codecs, -1 where there is no
// link.
struct StageEnds {
  int first_layer = 0;
  int last_layer = 0;
  int codec_above = -1;  // of the link to the stage before
  int codec_below = -1;
};
// The sums over its layers, and for each micro-batch the decoded input and one frame each way on
// each of its links: they wait for their turn, or for their acknowledgement.
struct StageHold {
  LayerMemory layers;
  int64_t input_bytes = 0;
  int64_t frame_bytes = 0;
};
StageHold HoldOf(const PipelineModel& model, const StageEnds& ends);

// What the stage takes with `order` (`usual_cap`: N - i): its state, the weight versions, stashes
// and inputs of all micro-batches that it keeps, and the frames of those in flight; for each
// deferred weight-gradient also the gradients inside the stage, taken to be as large as what its
// operators put out. Within a synchronous step weights have one version. A stage that has a link
// keeps copies of barriers as well. An upper estimate.
int64_t StageMemoryBytes(const PipelineModel& model, const StageHold& hold, const StageOrder& order,
                         int64_t usual_cap);
// Whether every stage keeps within its device's limit.
bool FitsMemory(const PipelineModel& model, const Placement& placement);

// The placement for the simulator; micro_batches and drains are left to the caller.
SimulatedPipeline ToPipeline(const PipelineModel& model, const Placement& placement);

// Seconds a micro-batch by simulation: from one drain to the next, pauses included, or of the
// steady pipeline where there is none.
absl::StatusOr<double> SimulatedPeriod(const PipelineModel& model, const Placement& placement);

// What `runnel` minimises: the period, with staleness_charge of it for every micro-batch in flight
// at stage 0 beyond one a stage, and device_charge, compounded, for every device beyond the first.
double ChargedPeriod(const PipelineModel& model, const Placement& placement, double period_seconds);

// InvalidArgument names what is missing or does not fit together.
absl::Status CheckPipelineModel(const PipelineModel& model);

}  // namespace runnel
