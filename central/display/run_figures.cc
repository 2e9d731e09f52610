#include "central/display/run_figures.h"

namespace runnel {

RunFigures FiguresOf(const Plan& plan, const std::vector<StageStatus>& stages,
                     int64_t training_ns) {
  RunFigures figures;
  for (size_t i = 0; i < plan.links.size() && i + 1 < stages.size(); ++i) {
    const Telemetry& above = stages[i].telemetry;      // sends activations
    const Telemetry& below = stages[i + 1].telemetry;  // sends gradients
    LinkSummary link;
    link.codec_forward = plan.links[i].codec_forward.text();
    link.codec_backward = plan.links[i].codec_backward.text();
    link.bytes_forward = above.bytes_down;
    link.bytes_backward = below.bytes_up;
    link.raw_bytes_forward = above.raw_bytes_down;
    link.raw_bytes_backward = below.raw_bytes_up;
    link.frames = above.frames_down + below.frames_up;
    link.bandwidth_forward_bytes_per_s = below.upstream_bytes_per_second;
    link.bandwidth_backward_bytes_per_s = above.downstream_bytes_per_second;
    link.relayed = stages[i + 1].relayed;
    figures.links.push_back(link);
  }
  const double training = training_ns > 0 ? static_cast<double>(training_ns) : 1.0;
  for (const StageStatus& stage : stages) {
    StageSummary summary;
    summary.busy_share = static_cast<double>(stage.telemetry.busy_ns) / training;
    summary.wait_share = static_cast<double>(stage.telemetry.wait_ns) / training;
    summary.busy_processor_share =
        static_cast<double>(stage.telemetry.busy_processor_ns) / training;
    summary.processor_share = static_cast<double>(stage.telemetry.processor_ns) / training;
    summary.peak_rss_bytes = stage.telemetry.peak_rss_bytes;
    summary.memory_bytes = stage.telemetry.memory_bytes;
    summary.joules = stage.telemetry.joules;
    summary.energy_source = stage.telemetry.energy_source;
    figures.stages.push_back(summary);
  }
  return figures;
}

}  // namespace runnel
