// What frozen layers save of a training step: the step of the rewritten model beside the step of its
// frozen front alone, the step of the rest alone, the step of the whole model unfrozen, and the
// forward of the same front unfrozen.
// Processor time of one thread, medians in turns, random values; energy by the model of
// worker/stage/counts/work_energy.h.
//
// bench_freeze [--model vgg11] [--layers 6] [--recipe fp32] [--backend cpu] [--batch 64] [--runs 9]

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

// Layers of a model as one stage, and the times of its micro-batches, each a step.
class Piece {
 public:
  static absl::StatusOr<Piece> Make(const ModelSpec& model, int first, int last,
                                    const Recipe* recipe, int64_t batch, Backend* backend,
                                    BufferPool* pool) {
    StageExecutorOptions options;
    options.model = model;
    options.first_layer = first;
    options.last_layer = last;
    options.recipe = recipe;
    options.one_in_flight = true;
    options.training.batch_size = batch;
    options.training.dataset_samples = batch * 1000;
    RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
    Piece piece(batching);
    RUNNEL_ASSIGN_OR_RETURN(piece.executor_, StageExecutor::Create(options, backend, pool));
    RUNNEL_RETURN_IF_ERROR(piece.executor_->DrawState());
    const Shape input = piece.executor_->input_shape(batch);
    piece.input_ = first == 0
                       ? RandomTensor(*pool, input.elements(), 0)
                       : RandomBoundary(*pool, recipe->numbers, Direction::kForward, input, 0);
    if (last + 1 == model.layer_count()) {
      piece.labels_ = RandomLabels(*pool, batch, model.classes, 0);
    } else if (model.frozen_front() <= last) {
      piece.gradient_ = RandomBoundary(*pool, recipe->numbers, Direction::kBackward,
                                       piece.executor_->output_shape(batch), 0);
    }
    return piece;
  }

  absl::Status Step() {
    const MicroBatch place = batching_.Locate(Sequence(step_++));
    const double begin = CpuMs();
    RUNNEL_RETURN_IF_ERROR(executor_->Forward(place, input_, labels_).status());
    forward_ms_.push_back(CpuMs() - begin);
    RUNNEL_RETURN_IF_ERROR(executor_->InputGradient(place, gradient_).status());
    RUNNEL_RETURN_IF_ERROR(executor_->WeightGradient(place, /*step=*/true));
    ms_.push_back(CpuMs() - begin);
    return absl::OkStatus();
  }

  double MedianMs() const { return Median({ms_.begin() + 1, ms_.end()}); }  // the first is cold
  double MedianForwardMs() const { return Median({forward_ms_.begin() + 1, forward_ms_.end()}); }
  int64_t memory_bytes() const { return executor_->memory_bytes(); }
  double StepJoules(int64_t batch) const { return executor_->ModelJoules(batch); }

 private:
  explicit Piece(const Batching& batching) : batching_(batching) {}

  Batching batching_;
  std::unique_ptr<StageExecutor> executor_;
  Payload input_, labels_, gradient_;
  int64_t step_ = 0;
  std::vector<double> ms_, forward_ms_;
};

absl::Status Run(const Flags& flags) {
  int layers = 0, runs = 0;
  int64_t batch = 0;
  if (!absl::SimpleAtoi(flags.at("--layers"), &layers) ||
      !absl::SimpleAtoi(flags.at("--runs"), &runs) ||
      !absl::SimpleAtoi(flags.at("--batch"), &batch))
    return absl::InvalidArgumentError("--layers, --runs and --batch are numbers");
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec whole, MakeModel(flags.at("--model")));
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec frozen,
                          Rewrite(whole, {absl::StrCat("freeze:", layers)}));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(flags.at("--recipe")));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(flags.at("--backend"), 1));
  BufferPool pool;
  const int last = whole.layer_count() - 1;
  std::vector<std::pair<const char*, Piece>> pieces;
  const auto add = [&](const char* name, const ModelSpec& model, int from, int to) -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(Piece piece,
                            Piece::Make(model, from, to, recipe, batch, backend.get(), &pool));
    pieces.emplace_back(name, std::move(piece));
    return absl::OkStatus();
  };
  RUNNEL_RETURN_IF_ERROR(add("unfrozen model, step", whole, 0, last));
  RUNNEL_RETURN_IF_ERROR(add("frozen model, step", frozen, 0, last));
  RUNNEL_RETURN_IF_ERROR(add("front alone, step", frozen, 0, layers - 1));
  RUNNEL_RETURN_IF_ERROR(add("rest alone, step", frozen, layers, last));
  RUNNEL_RETURN_IF_ERROR(add("front unfrozen, step", whole, 0, layers - 1));
  for (int run = 0; run <= runs; ++run) {
    for (auto& [name, piece] : pieces) RUNNEL_RETURN_IF_ERROR(piece.Step());
  }
  std::printf("%s, %s, layers 0 to %d frozen, %s, batch %d, median of %d\n",
              backend->traits().numerics_class.c_str(), flags.at("--model").c_str(), layers - 1,
              flags.at("--recipe").c_str(), static_cast<int>(batch), runs);
  for (const auto& [name, piece] : pieces)
    std::printf("%-22s %9.1f ms %9.1f MB %10.4f mJ\n", name, piece.MedianMs(),
                static_cast<double>(piece.memory_bytes()) * 1e-6, 1e3 * piece.StepJoules(batch));
  const double front = pieces[2].second.MedianMs(), rest = pieces[3].second.MedianMs();
  std::printf("%-22s %9.1f ms\n", "front unfrozen, forward", pieces[4].second.MedianForwardMs());
  std::printf("(frozen step - front) / rest: %.3f\n", (pieces[1].second.MedianMs() - front) / rest);
  return absl::OkStatus();
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {{"--model", "vgg11"}, {"--layers", "6"}, {"--recipe", "fp32"},
                         {"--backend", "cpu"}, {"--batch", "64"}, {"--runs", "9"}};
  if (!runnel::ReadFlags(argc, argv, flags)) {
    std::cerr << "usage: bench_freeze [--model M] [--layers N] [--recipe R] [--backend B] "
                 "[--batch N] [--runs N]\n";
    return 2;
  }
  const absl::Status status = runnel::Run(flags);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
