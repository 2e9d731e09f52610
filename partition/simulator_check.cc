#include <algorithm>

#include "absl/strings/str_cat.h"
#include "partition/simulator.h"

namespace runnel {
namespace {

constexpr int64_t kMaxNs = int64_t{1} << 62;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("simulation: ", parts...));
}

// The longest that all of it could take, one after the other; -1 for a negative time.
absl::Status CheckTimes(const SimulatedPipeline& pipeline) {
  std::vector<int64_t> times;
  for (const StageTimes& stage : pipeline.stages) {
    times.insert(times.end(),
                 {stage.forward_ns, stage.input_gradient_ns, stage.weight_gradient_ns});
  }
  for (const LinkTimes& link : pipeline.links) {
    for (const WayTimes& way : {link.down, link.up}) {
      times.insert(times.end(), {way.encode_ns, way.send_ns, way.delay_ns, way.decode_ns});
    }
  }
  times.push_back(pipeline.drain_pause_ns);
  double sum = 0;
  for (int64_t ns : times) {
    if (ns < 0) return Wrong("a time of ", ns, " ns");
    sum += static_cast<double>(ns);
  }
  // Where stages share less than a processor, all of it takes so much longer.
  double least_processors = 1;
  for (const double processors : pipeline.host_processors)
    least_processors = std::min(least_processors, processors);
  const double longest = sum * static_cast<double>(pipeline.micro_batches) / least_processors;
  if (longest > static_cast<double>(kMaxNs)) {
    return Wrong(pipeline.micro_batches, " micro-batches of ", sum, " ns are too long");
  }
  return absl::OkStatus();
}

absl::Status CheckHosts(const SimulatedPipeline& pipeline) {
  for (const double processors : pipeline.host_processors) {
    if (!(processors >= kLeastProcessors)) {
      return Wrong("a host with ", processors, " processors, at least ", kLeastProcessors,
                   " are needed");
    }
  }
  for (const StageTimes& stage : pipeline.stages) {
    if (stage.host < -1 || stage.host >= static_cast<int>(pipeline.host_processors.size()))
      return Wrong("a stage on host ", stage.host, " of ", pipeline.host_processors.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPipeline(const SimulatedPipeline& pipeline) {
  if (pipeline.stages.empty()) return Wrong("no stage");
  if (pipeline.links.size() + 1 != pipeline.stages.size() ||
      pipeline.caps.size() != pipeline.stages.size()) {
    return Wrong(pipeline.stages.size(), " stages, ", pipeline.links.size(), " links and ",
                 pipeline.caps.size(), " caps do not fit");
  }
  for (size_t i = 0; i < pipeline.caps.size(); ++i) {
    if (pipeline.caps[i] < 1 || (i > 0 && pipeline.caps[i] > pipeline.caps[i - 1])) {
      return Wrong("caps must be at least 1 and not grow");
    }
  }
  const std::vector<int64_t>& deferred = pipeline.deferred_weight_gradients;
  if (!deferred.empty() && deferred.size() != pipeline.stages.size()) {
    return Wrong("deferred weight-gradients of ", deferred.size(), " stages, but there are ",
                 pipeline.stages.size());
  }
  for (int64_t of_stage : deferred) {
    if (of_stage < 0) return Wrong(of_stage, " deferred weight-gradients");
  }
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    const StageTimes& stage = pipeline.stages[i];
    if (stage.forward_only &&
        (i + 1 == pipeline.stages.size() || (i > 0 && !pipeline.stages[i - 1].forward_only) ||
         stage.input_gradient_ns + stage.weight_gradient_ns > 0)) {
      return Wrong("stage ", i, " cannot be one of forwards alone");
    }
  }
  if (pipeline.micro_batches < 1) return Wrong(pipeline.micro_batches, " micro-batches");
  if (pipeline.drain_every < 0) return Wrong("drains every ", pipeline.drain_every);
  if (absl::Status status = CheckHosts(pipeline); !status.ok()) return status;
  return CheckTimes(pipeline);
}

}  // namespace runnel
