#pragma once

// What the page, its report and `runnel-central status` show of a run, as one JSON object. All keys
// but the first two are optional.
//
//   phase       waiting, preparing, training, evaluating, paused, done
//   unix_s      now; age_s: how old the rest is
//   doing, done_share   what training waits for
//   version, model, dataset, schedule, policy, recipe; layers: names
//   step, steps, epoch (from 1 on), epochs, samples_per_s, eta_s, learning_rate, train_loss,
//   accuracy, micro_batch_ms, predicted_ms, slow_because, recoveries
//   parts       of micro_batch_ms: {slowest, computing_ms, links_ms, bubble_ms, schedule_ms,
//               evaluation_ms, other_ms, helps: [{what, ms}]}; memory_ms: of these, for want of it
//   join        {commands: [each time, the first time], local_wanted, wanted, local_here, here}
//   workers     [{name, state, here, heard_s_ago, local, relayed, address, memory_bytes,
//                numerics_class, options, limits, processors: [{backend, usable, text}]}]
//   stages      [{device, first_layer, last_layer, cap, predicted_ms, measured_ms, figures}]
//   links       [{from, to, codec_forward, codec_backward, bits_forward, bits_backward,
//                expected_forward_bytes_per_s, expected_backward_bytes_per_s, relayed, figures}]
//   bubble_share   of the stages' time since the plan holds, in which they did not compute
//   plans       [the one that holds, the one before it]: {generation, from_step, why, links,
//               stages: [{device, first_layer, last_layer}]}
//   busy        [{end_s, seconds, generation, busy: [], forward: [], backward: [], wait: [],
//               send: []}]: slices of the training time, by stage
//   [grid_bits]  "3/6": of weights and activations / of gradients, at the step under way
//   gates, gate_targets   as precision.gates of the summary has its layers[] and cost_targets[]
//   losses      [[step, mean, lowest, highest]]; evaluations: [[step, accuracy, loss]]
//   events      [{kind, step, unix_s, what, why, remedy}], the newest last
//
// Stages and links have the figures that figure_fields.h shows on the page.

#include <string>

#include "central/display/run_history.h"

namespace runnel {

std::string StateJson(const ShownRun& run);

}  // namespace runnel
