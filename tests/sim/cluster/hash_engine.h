#pragma once

// A stage whose arithmetic is a chain of hashes, layer by layer: a layer's weights are a hash of
// the history of the samples that were applied to it, whatever the cut. What is lost, applied twice
// or applied in another order shows in the weights for ever.

#include <cstdint>
#include <deque>
#include <vector>

#include "proto/base/model/model_spec.h"
#include "worker/stage/stage_engine.h"

namespace runnel {

struct LayerHash {
  uint64_t weights = 0;
  uint64_t momentum = 0;
  friend bool operator==(const LayerHash&, const LayerHash&) = default;
};

// `layers` linear layers of this width; what a sample has of values.
inline constexpr int64_t kHashWidth = 4;
ModelSpec HashModel(int layers);
// Of layer `layer`, before training.
LayerHash InitialHash(uint64_t seed, int layer);
LayerHash HashOfState(const LayerState& layer);
uint64_t HashOfBytes(const Payload& payload);

// Bugs that the arithmetic has (planted_bugs.h).
struct HashEngineBugs {
  bool forgets_momentum = false;
  bool keeps_accumulated = false;
};

class HashEngine;
// The engines that exist, oldest first; it outlives them.
using HashEngines = std::vector<HashEngine*>;

class HashEngine final : public StageEngine {
 public:
  struct Options {
    int first_layer = 0;
    int last_layer = 0;
    bool has_loss = false;
    int64_t most_in_flight = 1;
    uint64_t seed = 0;
    const ModelState* zeros = nullptr;  // of the whole model, with bytes; outlives the engine
    HashEngineBugs bugs;
  };
  HashEngine(const Options& options, HashEngines* all);
  ~HashEngine() override;

  absl::StatusOr<Output> Forward(const MicroBatch& place, Payload input, Payload labels) override;
  absl::StatusOr<Output> InputGradient(const MicroBatch& place, Payload output_gradient) override;
  absl::Status WeightGradient(const MicroBatch& place, bool step) override;
  absl::StatusOr<std::vector<double>> GradientSquares() override;
  absl::Status Step(const MicroBatch& place, double gradient_square) override;
  absl::StatusOr<Output> Evaluate(int64_t samples, Payload input, Payload labels) override;
  absl::Status ImportState(const ModelState& state) override;
  absl::Status DrawState() override;
  absl::StatusOr<ModelState> ExportState() const override;
  void ChangeTraining(const TrainingChange&) override {}
  std::string numerics_class() const override { return "hash chain"; }
  const NumberFormat& numbers() const override { return numbers_; }
  int64_t memory_bytes() const override { return 1024; }
  double ModelJoules(int64_t) const override { return 0; }
  Shape input_shape(int64_t samples) const override { return Shape{samples, kHashWidth}; }
  Shape output_shape(int64_t samples) const override { return Shape{samples, kHashWidth}; }

  int first_layer() const { return options_.first_layer; }
  std::vector<LayerHash>& layers() { return layers_; }
  // Micro-batches below are applied; -1: none was.
  int64_t reached() const { return reached_; }
  // More micro-batches were in flight than the plan allows.
  bool overfull() const { return overfull_; }
  // The last micro-batch is applied once more (a planted bug).
  void ApplyLastAgain();

 private:
  struct InFlight {
    Sequence sequence;
    std::vector<uint64_t> weights, inputs, gradients;  // by layer
    uint64_t output = 0, labels = 0;
  };

  // square: of the whole gradient, where it is clipped.
  void StepBy(uint64_t square);

  const Options options_;
  HashEngines* const all_;
  const NumberFormat numbers_;
  std::vector<LayerHash> layers_;
  std::vector<uint64_t> accumulated_;
  std::deque<InFlight> in_flight_;
  size_t with_gradient_ = 0;  // the oldest ones, whose input-gradient has run
  int64_t reached_ = -1;
  bool overfull_ = false;
};

}  // namespace runnel
