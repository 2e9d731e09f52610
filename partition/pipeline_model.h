#pragma once

// Cost model of a pipeline on given devices and links, shared by the policy `runnel`, the simulator
// and `plan --what-if`. Pure data and functions of it.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "partition/cost_model.h"
#include "partition/schedule.h"
#include "partition/simulator.h"
#include "proto/base/plan/link_rate.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

// One direction between two devices.
// Devices on one radio share its air: of all directions on a medium only one sends a frame at a
// time. `medium` tells which directions share; the numbers have no other meaning. A rate measured
// while nobody else sent is right with hops 1, also through an access point: it includes the time
// of both hops.
struct LinkSpeed {
  LinkRate rate;  // not set: unlimited
  double delay_seconds = 0;
  int medium = -1;  // -1: the way has its rate to itself
  // How often a frame is on the medium: 1 from device to device, 2 through an access point (`rate`
  // is then the rate of each hop).
  int hops = 1;
  // Both ends are on one host: no network is between them (DeviceCost::within_host).
  bool within_host = false;

  // Seconds for which these bytes occupy the direction, or its medium.
  double SendSeconds(double bytes) const { return hops * rate.Seconds(bytes); }

  friend bool operator==(const LinkSpeed&, const LinkSpeed&) = default;
};

// Bytes and coding work of a pair of codecs on a link.
struct CodecCost {
  CodecSchedule forward;
  CodecSchedule backward;
  // Bytes of a frame with a layer's output, by layer, header included; the most where sizes vary, and
  // the share of them that is expected: memory counts the former, links carry the latter.
  std::vector<int64_t> down_bytes;
  std::vector<int64_t> up_bytes;
  double down_share = 1;
  double up_share = 1;
  // What each end keeps of the samples, by layer, with the copies of barriers; empty: nothing.
  std::vector<int64_t> kept_bytes = {};
  // Whether coding takes time at all.
  bool forward_works = false;
  bool backward_works = false;
  // What the link's coding adds to the noise of gradients, as a share of the noise that mini-batches
  // have anyway, and how many of its directions lose something: 0 to 2.
  double noise = 0;
  std::vector<double> noise_behind = {};  // by layer; empty: `noise` behind all of them
  int lossy_directions = 0;

  double NoiseBehind(int layer) const {
    return noise_behind.empty() ? noise : noise_behind[static_cast<size_t>(layer)];
  }

  int64_t KeptBytes(int layer) const {
    return kept_bytes.empty() ? 0 : kept_bytes[static_cast<size_t>(layer)];
  }
};

// Processor seconds of an end for a frame and its acknowledgement, and for each byte of it.
struct FrameCost {
  double frame_seconds = 0;
  double byte_seconds = 0;

  double Seconds(double bytes) const { return frame_seconds + bytes * byte_seconds; }
  friend bool operator==(const FrameCost&, const FrameCost&) = default;
};

struct DeviceCost {
  // Shares of a stage's seconds, of which only the sum is measured; the rest is weight-gradient and
  // update. A convolution or linear layer multiplies as often in each of the three.
  double forward_share = 1.0 / 3;
  double input_gradient_share = 1.0 / 3;
  double codec_seconds_per_byte = 0;  // to encode or decode a byte of the FP32 tensor
  int64_t memory_limit_bytes = 0;     // limit of one stage; 0: no limit
  // If coding and transport have no processor of their own, they take time from the computation:
  // coding its own time; the transport these times for each frame that leaves or arrives: to and
  // from other hosts, within its host, and from central on another host; the rest of a worker takes
  // a time for each micro-batch.
  bool shares_processor = false;
  double micro_batch_seconds = 0;
  FrameCost network;
  FrameCost within_host;
  FrameCost feed;
  // Within its host also a time for each byte of the tensor itself, whatever codec it passes: it comes
  // from memory, and no cache holds it.
  double tensor_byte_seconds = 0;
  // Devices with the same number >= 0 share the processors of PipelineModel::host_processors; -1:
  // nobody else computes on this device's.
  int host = -1;
  // The share of a processor with which CostModel's seconds were taken, over the share that it gets
  // alone on its host (above 1: it had more then). Alone, the device needs that part of them.
  double measured_share = 1;

  friend bool operator==(const DeviceCost&, const DeviceCost&) = default;
};

// Bytes that a layer takes on the device that has it.
struct LayerMemory {
  int64_t state_bytes = 0;    // parameters, their gradients, optimizer state, statistics
  int64_t version_bytes = 0;  // one more weight version
  int64_t stash_bytes = 0;    // kept for the backward of one micro-batch
  int64_t copy_bytes = 0;     // kept of barriers, where the stage has a neighbour (replication)
  // While its backward runs; layers take turns, so that a stage takes the most of them.
  int64_t working_bytes = 0;
  // Kept from its input-gradients to its weight-gradients, where the stage passes a gradient on.
  int64_t between_bytes = 0;

  LayerMemory& operator+=(const LayerMemory& other) {
    state_bytes += other.state_bytes;
    version_bytes += other.version_bytes;
    stash_bytes += other.stash_bytes;
    copy_bytes += other.copy_bytes;
    working_bytes = std::max(working_bytes, other.working_bytes);
    between_bytes += other.between_bytes;
    return *this;
  }
};

struct PipelineModel {
  const CostModel* compute = nullptr;  // borrowed; devices() of it are positions in `devices`
  std::vector<DeviceCost> devices;
  std::vector<double> host_processors;         // by DeviceCost::host
  std::vector<std::vector<LinkSpeed>> speeds;  // [from][to]
  std::vector<CodecCost> codecs;               // the most exact one first
  std::vector<int64_t> raw_bytes;  // by layer: of its output for one micro-batch, not coded
  int64_t input_bytes = 0;         // a micro-batch's samples, as central feeds them
  int64_t label_bytes = 0;
  std::vector<LayerMemory> memory;  // by layer
  int default_codec = 0;            // position in `codecs` of the user's choice
  int frozen_front = 0;             // ModelSpec::frozen_front: these layers run forwards only
  int64_t max_cap = 16;             // upper limit of every cap
  // Whether forwards use weights ahead of the newest ones, so that each micro-batch in flight has
  // its own: at stages with the usual caps N - i, and at those with raised ones.
  bool looks_ahead = false;
  bool raised_looks_ahead = false;
  DeferredFn deferred = nullptr;  // ScheduleRow's
  int64_t drain_every = 0;        // micro-batches of a synchronous step; 0: asynchronous
  int64_t step_every = 1;         // micro-batches of any step
  // Those of an epoch's last step where it has fewer; 0: all steps are alike.
  int64_t short_step = 0;
  // Micro-batches from one barrier, at which the pipeline is empty, to the next; 0: there is none.
  int64_t barrier_every = 0;
  // from the last end before a barrier to the first start behind it
  double barrier_pause_seconds = 0;
  // Shares of the period that are charged to it (ChargedPeriod).
  // For each step that stage 0's gradients are old, half for the first, on asynchronous schedules.
  // Over one device's epochs to 90 % of its accuracy, with one cycle of the rate, MobileNetV2 takes
  // 1.18, 1.10 and 1.17 times as many where gradients are one, two and three steps old, the HAR CNN
  // 1.26, 1.59 and 1.93, and about 3 with nine.
  double staleness_charge = 0.2;
  // For each device beyond the first: predictions are right to a few percent, so a smaller gain may
  // be none, and each device is one more that can fail.
  double device_charge = 0.04;
  // For each direction of a link that loses something, beside what it adds to the noise: a gain that
  // small may be none.
  double loss_charge = 0.01;
  // Placements whose AddedNoise is larger are not taken: their charge is infinite.
  double noise_budget = std::numeric_limits<double>::infinity();

  int layers() const { return static_cast<int>(raw_bytes.size()); }
};

// Assigns layers to devices. Positions are those in PipelineModel::devices.
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
  double send = 0;  // seconds for which the bandwidth is occupied
  double delay = 0;
  double decode = 0;
  // If an end shares its processor: coding time taken from its computation, part of the transfer;
  // and transport time taken from it, which runs beside the transfer.
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

// Computation time that a stage gives up for a micro-batch wherever the model is cut: the worker's
// own work, and feeding (samples to the first stage, labels to the last). Central is on the first
// device of `devices`, which both sends and receives.
double OverheadSeconds(const PipelineModel& model, int device, bool is_first, bool is_last);

// Computation time of layers for a micro-batch on a processor of the device's own.
double ComputeSeconds(const PipelineModel& model, int device, int first_layer, int last_layer);

// The same of a stage. `frozen` is the forward of the frozen front's
// layers, 0 where nothing is frozen.
struct SplitSeconds {
  double frozen = 0;
  double trained = 0;

  double total() const { return frozen + trained; }
};
SplitSeconds StageSplitSeconds(const PipelineModel& model, int device, int first_layer,
                               int last_layer);

// Whether a stage that begins here gives a gradient to the one before.
bool PassesGradient(const PipelineModel& model, int first_layer);

// A stage, described by the data that it holds; codecs are positions in PipelineModel::codecs, -1
// where there is no link.
struct StageEnds {
  int first_layer = 0;
  int last_layer = 0;
  int codec_above = -1;  // codec of the link to the stage before
  int codec_below = -1;
};
// The sums over its layers (LayerMemory::operator+=), and for each micro-batch the decoded input and one frame each way on
// each of its links: they wait for their turn, or for their acknowledgement.
struct StageHold {
  LayerMemory layers;
  int64_t input_bytes = 0;
  int64_t frame_bytes = 0;
  int64_t kept_bytes = 0;  // CodecCost::kept_bytes of its links
};
StageHold HoldOf(const PipelineModel& model, const StageEnds& ends);

// Memory of the stage with `order` (`usual_cap`: N - i), an upper estimate: its state; the weight
// versions, stashes and inputs of all micro-batches that it keeps; the frames of those in flight;
// for each deferred weight-gradient the gradients inside the stage, counted as large as its
// operators' outputs. Within a synchronous step weights have one version. A stage with a link also
// keeps copies of barriers.
int64_t StageMemoryBytes(const PipelineModel& model, const StageHold& hold, const StageOrder& order,
                         int64_t usual_cap);
// Whether every stage keeps within its device's limit.
bool FitsMemory(const PipelineModel& model, const Placement& placement);

// The placement for the simulator; micro_batches and drains are left to the caller.
SimulatedPipeline ToPipeline(const PipelineModel& model, const Placement& placement);

// Seconds a micro-batch by simulation: from one drain to the next, pauses included, or of the
// steady pipeline where there is none.
absl::StatusOr<double> SimulatedPeriod(const PipelineModel& model, const Placement& placement);

// What the placement's codecs add to the noise of gradients: by link, and the sum. Errors of several
// links are drawn apart, so that their squares add up.
std::vector<double> NoiseByLink(const PipelineModel& model, const Placement& placement);
double AddedNoise(const PipelineModel& model, const Placement& placement);

// What more of micro-batches a plan needs for the same accuracy since stage 0's gradients are older
// than the weights that they meet, by (cap - 1) / (micro-batches of a step) optimizer steps:
// staleness_charge for each step, half of it for the first. 0 on synchronous schedules.
double StalenessCharge(const PipelineModel& model, const Placement& placement);

// The objective of `runnel`: period * (1 + StalenessCharge) *
// (1 + device_charge)^(devices - 1) * (1 + AddedNoise + loss_charge * directions that lose
// something); infinite beyond noise_budget. Where noise is what limits learning, a loss is reached
// in steps in proportion to it (McCandlish et al., "An empirical model of large-batch training",
// 2018); elsewhere it costs less, so the charge is an upper estimate.
double ChargedPeriod(const PipelineModel& model, const Placement& placement, double period_seconds);

// InvalidArgument names the member that is missing or inconsistent.
absl::Status CheckPipelineModel(const PipelineModel& model);

}  // namespace runnel
