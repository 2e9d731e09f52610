#pragma once

// The plan: which device runs which layers, in which order, what crosses each link and how much is
// in flight. Made by partition/, journalled by central, carried out by workers.

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/next_action.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

// A device's place at a stage, with what belongs to the device and not to the stage.
struct Seat {
  DeviceId device;

  friend bool operator==(const Seat&, const Seat&) = default;
};

// One stage. Layers first_layer..last_layer, both included, 0-based.
struct StagePlan {
  std::vector<Seat> seats;  // one, as CheckPlan demands: messages and files name one device a stage
  int first_layer = 0;
  int last_layer = 0;
  int64_t cap = 1;                        // in-flight micro-batches, c_i
  int64_t deferred_weight_gradients = 0;  // StageOrder
  bool recompute = false;                 // all its layers are as LayerSpec::recompute has them

  StageOrder order() const { return {cap, deferred_weight_gradients}; }

  // Number of the device of the stage's one seat. Each caller, of sole_devices() and OfSoleDevice()
  // too, must be thought about before a stage has several seats.
  int sole_device() const {
    assert(seats.size() == 1);
    return seats.front().device.value();
  }
  // Gives the stage one seat, for this device.
  void GiveTo(int device) { seats = {Seat{DeviceId(device)}}; }

  friend bool operator==(const StagePlan&, const StagePlan&) = default;
};

// One link, from stage i to stage i + 1.
struct LinkPlan {
  CodecSchedule codec_forward;
  CodecSchedule codec_backward;

  const CodecSchedule& codec(Direction direction) const {
    return direction == Direction::kForward ? codec_forward : codec_backward;
  }

  friend bool operator==(const LinkPlan&, const LinkPlan&) = default;
};

// A seat as the plan numbers it.
struct PlanSeat {
  size_t stage = 0;
  int device = 0;
};

struct Plan {
  Generation generation;
  std::string schedule;           // name, for people
  bool drains_each_step = false;  // sync_1f1b, gpipe: one optimizer step per drained mini-batch
  std::vector<StagePlan> stages;  // in pipeline order
  std::vector<LinkPlan> links;    // stages.size() - 1

  // All seats, stage by stage.
  std::vector<PlanSeat> seats() const;
  // Numbers of the devices that take part, stage by stage.
  std::vector<int> devices() const;
  // By stage: StagePlan::sole_device.
  std::vector<int> sole_devices() const;
  // The stage that the device serves; none: the plan does not use the device.
  std::optional<size_t> StageOf(int device) const;
  bool Uses(int device) const { return StageOf(device).has_value(); }

  friend bool operator==(const Plan&, const Plan&) = default;
};

// What a list by device number has of the stage's sole device.
template <typename List>
auto& OfSoleDevice(const StagePlan& stage, List& by_device) {
  return by_device[static_cast<size_t>(stage.sole_device())];
}

// InvalidArgument unless the stages cover the model's layers in order without gap, each has one
// seat and at least one layer, caps are >= 1 and do not grow from stage to stage, no stage defers less than 0
// weight-gradients, and links fit.
absl::Status CheckPlan(const Plan& plan, const ModelSpec& model);

// The model as the plan's stages train it: with `recompute` in the layers of those that have it.
ModelSpec WithRecompute(ModelSpec model, const Plan& plan);

// One line a stage: "stage 0: local-000, layers 0-2 (conv1..conv2), cap 3"; with ", 2
// weight-gradients deferred" where a stage defers some, and "made again in the backward for want of
// memory" where it recomputes. No line end behind the last. device_names:
// by device number; "device 0" for one that has none.
std::string ToString(const Plan& plan, const ModelSpec& model,
                     absl::Span<const std::string> device_names);

}  // namespace runnel
