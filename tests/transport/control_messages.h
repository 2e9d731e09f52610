#pragma once

// Random valid control messages, for the tests of the control plane.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "proto/transport/control/control.h"

namespace runnel {

class RandomControlMessages {
 public:
  explicit RandomControlMessages(uint64_t seed) : engine_(seed) {}

  int64_t Below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_);
  }
  ModelSpec Model();
  // Of a model of this many layers.
  Plan PlanFor(int layers);
  ModelState State();
  std::vector<ProcessorFacts> Processors();
  Telemetry Figures(Generation generation);
  TrainingSettings Settings();
  // Of the variant's alternative `index`, every field set to something of its own.
  WorkerMessage FromWorker(size_t index);
  CentralMessage FromCentral(size_t index);

 private:
  double Real() { return std::uniform_real_distribution<double>(0.001, 0.999)(engine_); }
  std::string Text();
  std::string Bytes(size_t size);
  std::vector<std::string> Names();
  CodecId Codec();
  CodecSchedule Schedule();
  std::vector<CodecFamily> Families();
  std::vector<int64_t> Milestones();
  TensorData Tensor();
  OpSpec Op(OpKind kind, std::vector<int32_t> inputs);

  std::mt19937_64 engine_;
};

}  // namespace runnel
