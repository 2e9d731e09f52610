// How long the simulator takes for a million micro-batches over 16 stages that never drain.

#include <chrono>
#include <cstdio>

#include "partition/simulator.h"

int main() {
  runnel::SimulatedPipeline pipeline;
  for (int64_t i = 0; i < 16; ++i) {
    pipeline.stages.push_back({9'000 + 70 * i, 11'000 - 50 * i, 10'000 + 30 * i});
    pipeline.caps.push_back(2 * (16 - i));
    if (i > 0) pipeline.links.push_back({{0, 8'000 + i, 500, 0}, {0, 7'000 - i, 500, 0}});
  }
  pipeline.micro_batches = 1'000'000;
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<runnel::SimulatedRun> run = runnel::Simulate(pipeline);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!run.ok()) {
    std::fprintf(stderr, "%s\n", std::string(run.status().message()).c_str());
    return 1;
  }
  std::printf("1000000 micro-batches over 16 stages: %.2f s; simulated %.1f s, bound %.1f s\n",
              took.count(), static_cast<double>(run->total_ns) * 1e-9,
              runnel::BoundNs(pipeline) * 1e-3);
  return 0;
}
