#include <algorithm>
#include <map>

#include "partition/simulator.h"

namespace runnel {

namespace {

// A stage does not notice others on a host that has a processor for each.
std::map<int32_t, int> StagesByHost(const SimulatedPipeline& pipeline) {
  std::map<int32_t, int> stages;
  for (const StageTimes& stage : pipeline.stages) {
    if (stage.host >= 0) ++stages[stage.host];
  }
  return stages;
}

double BusiestHostNs(const SimulatedPipeline& pipeline) {
  std::vector<double> work(pipeline.host_processors.size(), 0);
  double busiest = 0;
  for (const StageTimes& stage : pipeline.stages) {
    if (stage.host < 0) continue;
    double& sum = work[stage.host];
    sum += static_cast<double>(stage.total_ns());
    busiest = std::max(busiest, sum / pipeline.host_processors[stage.host]);
  }
  return busiest;
}

}  // namespace

double ResourceBoundNs(const SimulatedPipeline& pipeline) {
  int64_t bound = 0;
  std::vector<int64_t> codec(pipeline.stages.size(), 0);
  std::map<int32_t, int64_t> media;
  for (size_t i = 0; i < pipeline.links.size(); ++i) {
    const LinkTimes& link = pipeline.links[i];
    codec[i] += link.down.encode_ns + link.up.decode_ns;
    codec[i + 1] += link.down.decode_ns + link.up.encode_ns;
    for (const WayTimes& way : {link.down, link.up}) {
      bound = std::max(bound, way.medium < 0 ? way.send_ns : media[way.medium] += way.send_ns);
    }
  }
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    bound = std::max({bound, pipeline.stages[i].total_ns(), codec[i]});
  }
  return std::max(static_cast<double>(bound), BusiestHostNs(pipeline));
}

bool BoundIsExact(const SimulatedPipeline& pipeline) {
  if (pipeline.stages.front().forward_only) return false;
  for (const auto& [host, stages] : StagesByHost(pipeline)) {
    if (stages > pipeline.host_processors[host]) return false;
  }
  std::vector<int> jobs(pipeline.stages.size(), 0);
  std::map<int32_t, int> media;
  for (size_t i = 0; i < pipeline.links.size(); ++i) {
    const LinkTimes& link = pipeline.links[i];
    jobs[i] += (link.down.encode_ns > 0 ? 1 : 0) + (link.up.decode_ns > 0 ? 1 : 0);
    jobs[i + 1] += (link.down.decode_ns > 0 ? 1 : 0) + (link.up.encode_ns > 0 ? 1 : 0);
    for (const WayTimes& way : {link.down, link.up}) {
      if (way.medium >= 0 && way.send_ns > 0 && ++media[way.medium] > 1) return false;
    }
  }
  return *std::max_element(jobs.begin(), jobs.end()) <= 1;
}

double BoundNs(const SimulatedPipeline& pipeline) {
  double bound = ResourceBoundNs(pipeline);
  const size_t stages = pipeline.stages.size();
  for (size_t i = 0; i < stages; ++i) {
    // Path from i's forward to the end of its backward, turning at j. Only at j and i is the
    // weight-gradient in the way: j's lane must be free for the next forward.
    int64_t path = 0;
    if (pipeline.stages[i].forward_only) {
      const LinkTimes& link = pipeline.links[i];
      const int64_t there = pipeline.stages[i].forward_ns + link.down.total_ns() + link.up.delay_ns;
      bound = std::max(bound, static_cast<double>(there) / static_cast<double>(pipeline.caps[i]));
      continue;
    }
    for (size_t j = i; j < stages; ++j) {
      const StageTimes& times = pipeline.stages[j];
      const int64_t there_and_back =
          path + times.forward_ns + times.input_gradient_ns + pipeline.stages[i].weight_gradient_ns;
      bound = std::max(bound, static_cast<double>(there_and_back) /
                                  static_cast<double>(pipeline.caps[i] - pipeline.caps[j] + 1));
      if (j + 1 < stages) {
        path += times.forward_ns + times.input_gradient_ns + pipeline.links[j].down.total_ns() +
                pipeline.links[j].up.total_ns();
      }
    }
  }
  return bound;
}

}  // namespace runnel
