#pragma once

// What a stage counts and measures while it trains. Each member but `generation`,
// `energy_source` and `gates` is a row of the table in figure_fields.h, which says where people see it.

#include <cstdint>
#include <vector>

#include "proto/base/figures/gate_choices.h"
#include "proto/base/figures/histogram.h"
#include "proto/base/host/energy_source.h"
#include "proto/base/ids.h"

namespace runnel {

// Sent a few times a second, before each BarrierReached, and after a stage's first backward, so
// that central knows at once that a plan works. Sums since the stage was prepared.
struct Telemetry {
  Generation generation;
  int64_t forwards = 0;
  int64_t backwards = 0;
  int64_t busy_ns = 0;  // compute lane at work on training
  int64_t wait_ns = 0;  // compute lane idle between a grant and its barrier
  int64_t codec_ns = 0;
  // Of busy_ns, an action each: forwards, gradients of inputs and of weights, updates of weights
  // where they are apart from the gradients. Of codec_ns: its two halves. Of wait_ns: each pause.
  Histogram forward_times = {};
  Histogram backward_times = {};
  Histogram update_times = {};
  Histogram encode_times = {};
  Histogram decode_times = {};
  Histogram wait_times = {};
  // What a frame that comes in takes of its link: its bytes over the rate that the link is measured
  // to have. Of activations from the stage before, and of gradients from the next one.
  Histogram activation_times = {};
  Histogram gradient_times = {};
  int64_t queue_length = 0;  // tensors that have come and wait to be begun
  // Of memory_bytes: activations of micro-batches in flight, and weights that are not the newest.
  int64_t stash_bytes = 0;
  // Processor time: of the computing thread in busy_ns, and of the whole worker between grants and
  // their barriers. Where a device gives a worker less than a processor, the wall clock says too
  // little: what a thread did not use while it waited it catches up at full speed.
  int64_t busy_processor_ns = 0;
  int64_t processor_ns = 0;
  // When the last backward ended, by the worker's monotonic clock; 0: none yet.
  int64_t last_backward_ns = 0;
  int64_t peak_rss_bytes = 0;
  // What the plan of the stage's memory takes: weight versions, optimizer, gradients, statistics,
  // stashes, scratch. The rest of peak_rss_bytes is the program, temporaries of kernels, what comes
  // and goes on links, and a copy of the state while it is sent.
  int64_t memory_bytes = 0;
  // Of the links that this stage sends on: down to the next stage, up to the one before. Header +
  // payload.
  int64_t frames_down = 0;
  int64_t frames_up = 0;
  int64_t bytes_down = 0;
  int64_t bytes_up = 0;
  int64_t raw_bytes_down = 0;  // of the tensors, in FP32, before encoding
  int64_t raw_bytes_up = 0;
  int64_t resent_frames_down = 0;  // after a connection broke
  int64_t resent_frames_up = 0;
  int64_t stale_frames_dropped = 0;
  // Of what the links carry towards this stage, from the one before and from the next, as their
  // frames show (bandwidth.h); 0: not measured yet.
  double upstream_bytes_per_second = 0;
  double downstream_bytes_per_second = 0;
  // Of those links, there and back (round_trip.h); 0: not measured yet.
  int64_t upstream_round_trip_ns = 0;
  int64_t downstream_round_trip_ns = 0;
  // Used between grants and their barriers: by the worker's share of the device, or by the model.
  double joules = 0;
  EnergySource energy_source = EnergySource::kModel;
  // Of the device and of the worker's process (worker/limits/device_figures.h); 0: not known.
  double celsius = 0;               // of its hottest part
  double battery_charge = 0;        // 0 to 1
  int64_t certificate_until_s = 0;  // since 1970
  int64_t resident_bytes = 0;
  int64_t process_ns = 0;  // processor time since the process began
  // Of recipe fp16: gradient values that were made, those of them that are beyond the largest value
  // or became 0, and activations beyond the largest value.
  int64_t gradient_values = 0;
  int64_t gradients_saturated = 0;
  int64_t gradient_underflows = 0;
  int64_t activations_saturated = 0;
  // Of recipes with grids: multiply-adds of training, a product of a bits by b bits as a/32 * b/32.
  double effective_macs = 0;
  int64_t clipped_steps = 0;  // whose gradient was larger than --clip-norm
  double macs_done = 0;  // of models with gates: multiply-adds of training, counted by the kernels
  std::vector<GateChoices> gates;  // of the stage, by layer
  // Where the loss is.
  double loss_sum = 0;
  int64_t correct = 0;  // labels
  int64_t loss_samples = 0;
};

}  // namespace runnel
