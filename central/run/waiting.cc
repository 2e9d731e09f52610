#include "central/run/waiting.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Denominator of a share.
constexpr int64_t kWhole = 1000;

std::string Count(size_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// Layers on their way from the stages: of each stage these ranges, unless they have come.
Waiting Collecting(const Coordinator& coordinator, CentralControl& server,
                   const std::vector<int64_t>& layer_bytes, bool of_a_move) {
  Waiting waiting{"collecting layers"};
  for (size_t i = 0; i < coordinator.stages().size(); ++i) {
    const StagePlan& stage = coordinator.plan().stages[i];
    const int device = stage.sole_device();
    const std::vector<LayerRange> ranges =
        of_a_move ? LayersLeaving({{stage.first_layer, stage.last_layer}, {device}},
                                  coordinator.move().plan())
                  : std::vector<LayerRange>{{stage.first_layer, stage.last_layer}};
    int64_t bytes = 0;
    for (const LayerRange& range : ranges) {
      bytes += std::accumulate(layer_bytes.begin() + range.first_layer,
                               layer_bytes.begin() + range.last_layer + 1, int64_t{0});
    }
    const ConnectionId stream = coordinator.devices()[static_cast<size_t>(device)].connection;
    const bool is_awaited =
        of_a_move ? coordinator.move().AwaitsLayers(device) : coordinator.AwaitsState(device);
    waiting.total += bytes;
    waiting.done += is_awaited ? std::min(server.Transfer(stream).received_bytes, bytes) : bytes;
  }
  return waiting;
}

Waiting Sending(const Coordinator& coordinator, CentralControl& server) {
  Waiting waiting{"sending layers"};
  for (const Device& device : coordinator.devices()) {
    const TransferProgress one = server.Transfer(device.connection);
    waiting.done += one.arrived_bytes;
    waiting.total += one.total_bytes;
  }
  return waiting;
}

}  // namespace

RunPhase PhaseOf(const Coordinator& coordinator, bool stages_evaluate, bool is_paused) {
  if (coordinator.joining()) return RunPhase::kWaiting;
  if (coordinator.running()) return stages_evaluate ? RunPhase::kEvaluating : RunPhase::kTraining;
  if (is_paused) return RunPhase::kPaused;
  if (coordinator.waits_for_evaluation()) return RunPhase::kEvaluating;
  return RunPhase::kPreparing;
}

Waiting EvaluationOf(const Feeder& feeder) {
  return {"evaluating", feeder.evaluated(), feeder.evaluation_micro_batches()};
}

Waiting WaitingOf(const Coordinator& coordinator, CentralControl& server,
                  const std::vector<int64_t>& layer_bytes) {
  const bool measures = coordinator.waits_to_measure();
  if (const LinkProbe& probe = coordinator.measuring().links(); measures && probe.under_way()) {
    return {absl::StrCat("measuring links to ", Count(probe.asked(), "worker")),
            static_cast<int64_t>(probe.done()), static_cast<int64_t>(probe.asked())};
  }
  if (const Measurement& measurement = coordinator.measuring().devices(); measures) {
    return {absl::StrCat("measuring ", Count(measurement.asked(), "device")),
            static_cast<int64_t>(static_cast<double>(kWhole) * measurement.Progress()), kWhole};
  }
  if (coordinator.move().fetching()) {
    const Waiting waiting = Collecting(coordinator, server, layer_bytes, /*of_a_move=*/true);
    // A stage's layers wait behind the state that it is sending for an evaluation.
    if (waiting.total > 0) return waiting;
  }
  if (coordinator.move().fetching() || coordinator.waits_for_states())
    return Collecting(coordinator, server, layer_bytes, /*of_a_move=*/false);
  if (coordinator.waits_for_evaluation()) return {"evaluating on this host", 0, kWhole};
  return Sending(coordinator, server);
}

}  // namespace runnel
