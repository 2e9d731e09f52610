#pragma once

// Random networks of devices for the policy `runnel`.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "partition/policy.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/random.h"

namespace runnel {

// Draws of one seed, one after the other.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed, RandomPurpose::kTest, 2, 0) {}

  double Real(double low, double high) { return low + (high - low) * random_.Uniform(next_++); }
  double LogReal(double low, double high);
  int Int(int low, int high);  // both included
  bool Chance(double share) { return Real(0, 1) < share; }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

// Owns what the policies see of it. Does not move: `request` and `model` point into it.
struct RandomNetwork {
  PipelineModel model;
  PartitionRequest request;
  std::string about;  // for people, without the seed

  // The rest follows from `model` and the seconds of each device's layers.
  void Finish(const std::vector<std::vector<double>>& seconds);

 private:
  std::unique_ptr<MeasuredCost> cost_;
};

// Devices up to 1000 times as fast as one another; links each way apart, or media that they share,
// or sites; delays up to 200 ms; memory limits; slow coders; each kind of schedule; barriers after
// 1 to 100 micro-batches; the first devices on one host, whose processors they share.
std::unique_ptr<RandomNetwork> MakeNetwork(int layers, int devices, int64_t max_cap, uint64_t seed);
// 1 to 3 devices, few layers, caps up to 4: all placements can be tried.
std::unique_ptr<RandomNetwork> MakeSmallNetwork(uint64_t seed);
// 4 to 12 devices, up to 24 layers.
std::unique_ptr<RandomNetwork> MakeLargeNetwork(uint64_t seed);
// A central and `boards` boards on links that are all alike. Boards differ in speed only, by up to
// `spread` of it; those of fewer boards are the first of those of more. Some share central's host.
std::unique_ptr<RandomNetwork> MakeBoards(int boards, double spread, uint64_t seed);

}  // namespace runnel
