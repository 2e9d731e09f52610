#pragma once

// A stage's time of a micro-batch since the last report, from the sums of its telemetry.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "proto/transport/control/control.h"

namespace runnel {

// Watches one stage of one plan. One thread.
class StagePace {
 public:
  // For a plan whose training began at this sequence: telemetry counts micro-batches over the run,
  // but time since the plan began.
  explicit StagePace(int64_t first_sequence = 0) : backwards_(first_sequence) {}

  struct Figures {
    int64_t micro_batches = 0;
    double busy_seconds = 0;  // seconds of the compute lane for a micro-batch
    // seconds of the pipeline for a micro-batch, between grants and their barriers
    double all_seconds = 0;
  };
  // The figures since the last report; none if fewer than `least` micro-batches were seen, which
  // then count for the next report. processor_share: the device's share of a processor. Under a CPU
  // quota a stage catches up in bursts, so wall time under-states the cost of any stage but the
  // slowest: the larger of wall time and (processor time / share) counts. least_speed: of a
  // whole processor, what the stage has while all stages on its host compute. Predictions add the
  // wait for one another, so that below 1 wall time counts as far as such waits cannot explain it.
  std::optional<Figures> Report(const Telemetry& telemetry, double processor_share,
                                double least_speed, int64_t least) {
    const int64_t done = telemetry.backwards - backwards_;
    const int64_t busy_ns = telemetry.busy_ns - busy_ns_;
    const int64_t processor_ns = telemetry.busy_processor_ns - busy_processor_ns_;
    const int64_t wait_ns = telemetry.wait_ns - wait_ns_;
    if (done < least || busy_ns <= 0) return std::nullopt;
    *this = StagePace(telemetry.backwards);
    busy_ns_ = telemetry.busy_ns;
    busy_processor_ns_ = telemetry.busy_processor_ns;
    wait_ns_ = telemetry.wait_ns;
    const double of_share_ns = static_cast<double>(processor_ns) / processor_share;
    auto wall_ns = static_cast<double>(busy_ns);
    // No processor time: nobody counted it.
    if (least_speed < 1 && processor_ns > 0) wall_ns *= least_speed / processor_share;
    const double compute_ns = std::max(wall_ns, of_share_ns);
    const double scale = 1e-9 / static_cast<double>(done);
    return Figures{done, compute_ns * scale, static_cast<double>(busy_ns + wait_ns) * scale};
  }

 private:
  int64_t backwards_ = 0;
  int64_t busy_ns_ = 0;
  int64_t busy_processor_ns_ = 0;
  int64_t wait_ns_ = 0;
};

}  // namespace runnel
