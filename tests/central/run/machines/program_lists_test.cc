// What the stages of a plan would run, and what central counts on a worker with several processors
// for.

#include "central/run/machines/program_lists.h"

#include "central/run/machines/roster_facts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramListsTest : public ::testing::Test {
 protected:
  // Three layers on w2, the others on w0.
  ProgramListsTest() : roster_(FullRoster(3)), plan_(PlanOf({2, 0}, {2, 5})) {
    ProfileRequest common;
    common.recipe = "niti";
    common.backend = "cpu,opencl";
    common.micro_batch_size = 16;
    TrainingSettings training;
    training.micro_batches = 4;
    training.rescale = "speculate";
    lists_.Begin(plan_, common, training, roster_, effects_);
  }

  static ProgramReport ReportOf(int first_layer) {
    ProgramReport report;
    report.generation = Generation(1);
    report.listing.first_layer = first_layer;
    return report;
  }

  Roster roster_;
  const Plan plan_;
  RunEffects effects_;
  ProgramLists lists_;
};

TEST_F(ProgramListsTest, EachStagesWorkerIsAskedForItsLayers) {
  EXPECT_THAT(ReceiversOf<ProgramRequest>(effects_), ElementsAre(2, 0));
  const ProgramRequest request = MessagesOf<ProgramRequest>(effects_)[1].second;
  EXPECT_TRUE(request.layers == (LayerRange{3, 5}));
  EXPECT_EQ(request.backend, "cpu,opencl");
  EXPECT_EQ(request.micro_batch_size, 16);
  EXPECT_TRUE(request.accumulates);
  EXPECT_EQ(request.rescale, "speculate");
}

TEST_F(ProgramListsTest, ListingsAreKeptByStage) {
  EXPECT_FALSE(*lists_.Add(0, ReportOf(3), roster_));
  EXPECT_FALSE(*lists_.Add(1, ReportOf(9), roster_)) << "has no stage";
  EXPECT_FALSE(*lists_.Add(0, ReportOf(8), roster_)) << "has answered";
  ProgramReport old = ReportOf(7);
  old.generation = Generation(9);
  EXPECT_FALSE(*lists_.Add(2, old, roster_)) << "of another plan";
  EXPECT_TRUE(*lists_.Add(2, ReportOf(0), roster_));
  EXPECT_EQ(lists_.listings()[0].first_layer, 0);
  EXPECT_EQ(lists_.listings()[1].first_layer, 3);
}

TEST_F(ProgramListsTest, AWorkerThatCannotIsNamed) {
  ProgramReport report = ReportOf(0);
  report.failure = "no OpenCL here";
  const absl::Status status = lists_.Add(2, report, roster_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), AllOf(HasSubstr("w2"), HasSubstr("no OpenCL here")));
}

// A stage on two processors is planned with a third of what the worker may take.
TEST(RosterFacts, CopiesBetweenProcessorsAreCountedOn) {
  const auto memory_with = [](const std::string& backend, int64_t processors) {
    RosterOptions options;
    options.local_workers = 1;
    options.recipe = "fp32";
    options.backend = backend;
    Roster roster(options);
    WorkerHello hello = SampleHello("a");
    hello.backends = {"cpu", "opencl"};
    hello.memory_bytes = 3000;
    hello.processors = processors;
    RunEffects effects;
    EXPECT_TRUE(*roster.Join(ConnectionId(1), hello, /*local=*/true, effects));
    return FactsOf(roster, {})[0].memory_bytes;
  };
  EXPECT_EQ(memory_with("auto", 1), 3000);
  EXPECT_EQ(memory_with("auto", 2), 1000);
  EXPECT_EQ(memory_with("cpu", 2), 3000);
  EXPECT_EQ(memory_with("cpu,opencl", 1), 1000);
  EXPECT_EQ(memory_with("cpu:avx2,opencl@alternate", 1), 1000);
}

}  // namespace
}  // namespace runnel
