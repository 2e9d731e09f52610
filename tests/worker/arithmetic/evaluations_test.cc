// Evaluations between steps, behind a check-point that is loaded, and behind a move of layers: they give
// what a stage gives that never saw other weights, instruction by instruction, in a memory where no two
// values share a byte; and the training goes on as if there had been none.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "tests/kernels/rearranged_backend.h"
#include "tests/worker/arithmetic/drawn_model.h"
#include "tests/worker/arithmetic/drawn_training.h"

namespace runnel::evaluations_test {
namespace {

constexpr int64_t kSteps = 4;

DrawnTraining DrawHistory(uint64_t seed) {
  DrawnTraining drawn = DrawTraining(seed, {.large = seed % 3 == 0});
  drawn.drains = true;
  drawn.steps = kSteps;
  drawn.training.dataset_samples = kSteps * drawn.training.batch_size;
  return drawn;
}

// The same training on other stages, each with one micro-batch in flight or several.
DrawnTraining Moved(DrawnTraining drawn, Draws& draws) {
  const int layers = drawn.model.layer_count();
  drawn.starts = {0};
  if (const auto start = static_cast<int>(draws.Below(layers)); start > 0)
    drawn.starts.push_back(start);
  drawn.caps.assign(drawn.starts.size(), draws.Between(1, 2));
  drawn.deferred.assign(drawn.starts.size(), 0);
  drawn.training.clip_norm = 0;
  return drawn;
}

class History {
 public:
  History(uint64_t seed, Backend& trains, Backend& apart)
      : drawn_(DrawHistory(seed)), draws_(seed, 77), trains_(trains), apart_(apart) {
    drawn_.training.clip_norm = 0;  // a move may cut what one stage clips by itself
    run_ = Made(drawn_, trains_);
    check_point_ = *run_->ExportState();
  }

  void Act() {
    switch (draws_.Below(4)) {
      case 0:
      case 1:
        if (step_ < kSteps) {
          NamedBytes seen;
          const absl::Status status = run_->Train(step_, step_ + 1, seen);
          EXPECT_TRUE(status.ok()) << status;
          ++step_;
        }
        break;
      case 2:  // back to a check-point, by the stages that are there or by others
        if (draws_.Chance(50)) Move();
        EXPECT_TRUE(run_->ImportState(check_point_).ok());
        break;
      default: {
        const ModelState state = *run_->ExportState();
        if (draws_.Chance(50)) check_point_ = state;
        Move();
        EXPECT_TRUE(run_->ImportState(state).ok());
      }
    }
    // What another stage keeps of its weights is in nobody's way.
    if (draws_.Chance(30)) {
      const auto other = Made(drawn_, trains_);
      NamedBytes seen;
      EXPECT_TRUE(other->Evaluate(Size(), 5, seen).ok());
    }
  }

  // Empty: as an evaluation of these weights alone.
  std::string Check() {
    const auto alone = Made(drawn_, apart_);
    EXPECT_TRUE(alone->ImportState(*run_->ExportState()).ok());
    NamedBytes wanted, got;
    for (const uint64_t stream : {1, 1, 2}) {
      EXPECT_TRUE(run_->Evaluate(Size(), stream, got).ok());
      EXPECT_TRUE(alone->Evaluate(Size(), stream, wanted).ok());
    }
    return FirstDifference(wanted, got);
  }

  std::string text() const { return absl::StrCat(drawn_.text(), ", step ", step_); }

 private:
  int64_t Size() const { return drawn_.training.eval_batch_size; }
  static std::unique_ptr<TrainingRun> Made(const DrawnTraining& drawn, Backend& backend) {
    auto run = TrainingRun::Create(drawn, backend);
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  void Move() {
    run_ = Made(Moved(drawn_, draws_), trains_);
    run_->SkipTo(step_);
  }

  DrawnTraining drawn_;
  Draws draws_;
  Backend& trains_;
  Backend& apart_;
  std::unique_ptr<TrainingRun> run_;
  ModelState check_point_;
  int64_t step_ = 0;
};

TEST(Evaluations, FollowTheWeightsThroughStepsCheckPointsAndMoves) {
  const std::vector<std::string> sets = CpuInstructionSets();
  for (const uint64_t seed : SeedsOf(30)) {
    const std::string set = sets[seed % sets.size()];
    const auto fused = *MakeCappedCpuBackend(set, static_cast<int>(1 + seed % 2), true);
    const auto plain = *MakeCappedCpuBackend(set, 1, false);
    RearrangedBackend spread(*plain, {.rewrite = [seed](const Program& program) {
      return Rearrange(program, Arrangement::kSpread, seed);
    }});
    History history(seed, *fused, spread);
    SCOPED_TRACE(absl::StrCat(history.text(), ", ", set));
    for (int action = 0; action < 6; ++action) {
      ASSERT_EQ(history.Check(), "") << "action " << action;
      history.Act();
    }
    ASSERT_EQ(history.Check(), "");
  }
}

// Evaluations and moves between steps change no byte of the training.
TEST(Evaluations, LeaveNoTraceInTheTraining) {
  for (const uint64_t seed : SeedsOf(20)) {
    const DrawnTraining drawn = DrawHistory(seed);
    SCOPED_TRACE(drawn.text());
    const auto cpu = *MakeCappedCpuBackend(CpuInstructionSets().front(), 1, true);
    const auto once = *TrainingRun::Create(drawn, *cpu),
               evaluated = *TrainingRun::Create(drawn, *cpu);
    NamedBytes wanted, got, evaluations;
    for (int64_t step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(once->Train(step, step + 1, wanted).ok());
      ASSERT_TRUE(evaluated->Evaluate(drawn.training.eval_batch_size, 9, evaluations).ok());
      ASSERT_TRUE(evaluated->Train(step, step + 1, got).ok());
    }
    ASSERT_EQ(FirstDifference(wanted, got), "");
  }
}

}  // namespace
}  // namespace runnel::evaluations_test
