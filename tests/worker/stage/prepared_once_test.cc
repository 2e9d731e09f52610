// A program is made ready once for its instructions, shapes and batch, and kept: steps after the
// first one prepare nothing and allocate nothing (Mandheling, section 3.6).

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "partition/zoo/zoo.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel::prepared_once_test {
namespace {

constexpr int64_t kSamples = 4;

struct Counts {
  int prepared = 0;
  int allocated = 0;
};

// Another backend, whose calls are counted.
class CountingBackend final : public Backend {
 public:
  CountingBackend(std::unique_ptr<Backend> backend, Counts* counts)
      : backend_(std::move(backend)), counts_(*counts) {}

  BackendTraits traits() const override { return backend_->traits(); }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    ++counts_.allocated;
    return backend_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    ++counts_.prepared;
    return backend_->Prepare(program);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  Counts& counts_;
};

// What is counted after each of some steps of LeNet.
std::vector<std::pair<int, int>> CountsByStep(Backend& backend, const Counts& counts) {
  StageExecutorOptions options;
  options.model = MakeModel("lenet").value();
  options.last_layer = options.model.layer_count() - 1;
  options.training.batch_size = 2 * kSamples;
  options.training.micro_batches = 2;
  options.training.dataset_samples = 8 * kSamples;
  options.recipe = FindRecipe("niti").value();
  options.one_in_flight = true;
  BufferPool pool;
  const Batching batching = MakeBatching(options.training).value();
  const auto executor = *StageExecutor::Create(options, &backend, &pool);
  EXPECT_TRUE(executor->DrawState().ok());
  std::vector<std::pair<int, int>> result;
  for (int64_t sequence = 0; sequence < 8; ++sequence) {
    const MicroBatch place = batching.Locate(Sequence(sequence));
    const auto stream = static_cast<uint64_t>(sequence);
    const int64_t elements = executor->input_shape(kSamples).elements();
    const auto forward =
        executor->Forward(place, RandomTensor(pool, elements, stream),
                          RandomLabels(pool, kSamples, options.model.classes, stream));
    EXPECT_TRUE(forward.ok()) << forward.status();
    EXPECT_TRUE(executor->InputGradient(place, Payload()).ok());
    EXPECT_TRUE(executor->WeightGradient(place, sequence % 2 == 1).ok());
    if (sequence % 2 == 1) result.emplace_back(counts.prepared, counts.allocated);
  }
  return result;
}

void ExpectNothingAfterTheFirstStep(const std::vector<std::pair<int, int>>& counts) {
  EXPECT_GT(counts.front().first, 0);
  EXPECT_GT(counts.front().second, 0);
  EXPECT_THAT(counts, testing::Each(counts.front()));
}

TEST(PreparedOnce, OnEachBackend) {
  int tried = 0;
  for (const std::string& name : BackendNames()) {
    if (name == "torch" || name == "small") continue;  // no integers
    SCOPED_TRACE(name);
    auto backend = MakeBackend(name, 1);
    ASSERT_TRUE(backend.ok()) << backend.status();
    Counts counts;
    CountingBackend counting(*std::move(backend), &counts);
    ExpectNothingAfterTheFirstStep(CountsByStep(counting, counts));
    ++tried;
  }
  EXPECT_GE(tried, 2);
}

// Each segment of a mixed program is a program of its own.
TEST(PreparedOnce, OnSeveralProcessors) {
  Counts counts;
  std::vector<std::unique_ptr<Backend>> processors;
  for (const char* name : {"cpu", "ref"})
    processors.push_back(std::make_unique<CountingBackend>(*MakeBackend(name, 1), &counts));
  const auto mixed = *MakeCoScheduler(std::move(processors), {.rule = "alternate"});
  const auto by_step = CountsByStep(*mixed, counts);
  ExpectNothingAfterTheFirstStep(by_step);
  EXPECT_GT(by_step.front().first, 20) << "segments";
}

// What a backend keeps of weights for evaluations goes with them: after another state, and after a
// step, an evaluation gives what an executor gives that never saw other weights.
TEST(PreparedOnce, EvaluationsFollowTheWeights) {
  const auto backend = *MakeBackend("cpu", 1);
  BufferPool pool;
  StageExecutorOptions options;
  options.model = MakeModel("lenet").value();
  options.last_layer = options.model.layer_count() - 1;
  options.training.batch_size = options.training.eval_batch_size = kSamples;
  options.training.dataset_samples = options.eval_samples = 8 * kSamples;
  options.recipe = FindRecipe("fp32").value();
  options.one_in_flight = true;
  const Payload input = RandomTensor(pool, kSamples * options.model.input.elements(), 7);
  const Payload labels = RandomLabels(pool, kSamples, options.model.classes, 7);
  const auto create = [&] { return *StageExecutor::Create(options, backend.get(), &pool); };
  const auto loss = [&](StageExecutor& executor) {
    return executor.Evaluate(kSamples, input, labels)->loss_sum;
  };
  const auto other = create();
  EXPECT_TRUE(other->DrawState().ok());
  EXPECT_TRUE(other->ChangeState([](int, TensorData& tensor) { FillWeights(tensor, 3); }).ok());
  const ModelState state = *other->ExportState();
  const auto executor = create();
  EXPECT_TRUE(executor->DrawState().ok());
  const double drawn = loss(*executor);
  EXPECT_EQ(loss(*executor), drawn);
  EXPECT_TRUE(executor->ImportState(state).ok());
  const double imported = loss(*executor);
  EXPECT_NE(imported, drawn);
  EXPECT_EQ(imported, loss(*other));
  options.training.learning_rate = 0.1;
  const MicroBatch place = MakeBatching(options.training)->Locate(Sequence(0));
  const auto trained = create();
  EXPECT_TRUE(trained->ImportState(state).ok());
  EXPECT_EQ(loss(*trained), imported);
  EXPECT_TRUE(trained->Forward(place, input, labels).ok());
  EXPECT_TRUE(trained->InputGradient(place, Payload()).ok());
  EXPECT_TRUE(trained->WeightGradient(place, true).ok());
  const double after = loss(*trained);
  EXPECT_NE(after, imported);
  EXPECT_TRUE(executor->ImportState(*trained->ExportState()).ok());
  EXPECT_EQ(loss(*executor), after);
}

}  // namespace
}  // namespace runnel::prepared_once_test
