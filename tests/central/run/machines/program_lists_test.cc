// What the stages of a plan would run, and what central counts on a worker with several processors
// for.

#include "central/run/machines/program_lists.h"

#include "central/run/machines/roster_facts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::program_lists_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramListsTest : public ::testing::Test {
 protected:
  // Three layers on w2, the others on w0.
  ProgramListsTest() : roster_(FullRoster(3)), plan_(PlanOf({2, 0}, {2, 5})) {
    plan_.stages[1].recompute = true;
    ProfileRequest common;
    common.model.layers.resize(6);
    common.recipe = "niti";
    common.backend = "cpu,opencl";
    common.micro_batch_size = 16;
    training_.micro_batches = 4;
    training_.precision = "fixed:8/8";
    lists_.Begin(plan_, common, training_, roster_, effects_);
  }

  static ProgramReport ReportOf(int first_layer) {
    ProgramReport report;
    report.generation = Generation(1);
    report.listing.first_layer = first_layer;
    return report;
  }

  Roster roster_;
  Plan plan_;
  TrainingSettings training_;
  RunEffects effects_;
  ProgramLists lists_;
};

TEST_F(ProgramListsTest, EachStagesWorkerIsAskedForItsLayers) {
  EXPECT_THAT(ReceiversOf<ProgramRequest>(effects_), ElementsAre(2, 0));
  const ProgramRequest request = MessagesOf<ProgramRequest>(effects_)[1].second;
  EXPECT_TRUE(request.layers == (LayerRange{3, 5}));
  ASSERT_EQ(request.model.layers.size(), 6u);
  EXPECT_FALSE(request.model.layers[2].recompute);
  EXPECT_TRUE(request.model.layers[3].recompute);
  EXPECT_EQ(request.backend, "cpu,opencl");
  EXPECT_EQ(request.micro_batch_size, 16);
  EXPECT_TRUE(request.training == training_);
  EXPECT_EQ(request.one_in_flight, plan_.stages[1].order() == StageOrder());
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
  const auto memory_with = [](const std::string& backend, const std::string& own) {
    RosterOptions options;
    options.local_workers = 1;
    options.recipe = "fp32";
    options.backend = backend;
    Roster roster(options);
    WorkerHello hello = SampleHello("a");
    hello.backends = {"cpu", "opencl"};
    hello.memory_bytes = 3000;
    hello.backend = own;
    RunEffects effects;
    EXPECT_TRUE(*roster.Join(ConnectionId(1), hello, /*local=*/true, effects));
    return FactsOf(roster, {})[0].memory_bytes;
  };
  EXPECT_EQ(memory_with("auto", "auto"), 3000);
  EXPECT_EQ(memory_with("auto", "cpu,opencl"), 1000);
  EXPECT_EQ(memory_with("cpu", "cpu,opencl"), 3000);
  EXPECT_EQ(memory_with("cpu,opencl", "auto"), 1000);
  EXPECT_EQ(memory_with("cpu:avx2,opencl@alternate", "auto"), 1000);
}

class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() {
    WorkerHello hello = SampleHello("a");
    hello.backends = {"cpu", "opencl", "hexagon"};
    hello.memory_bytes = 3000;
    hello.processor_list = {{.backend = "cpu", .state = ProcessorState::kReady},
                            {.backend = "opencl"},
                            {.backend = "hexagon", .is_emulated = true}};
    RosterOptions options;
    options.local_workers = 1;
    options.recipe = "fp32";
    roster_.emplace(options);
    EXPECT_TRUE(*roster_->Join(ConnectionId(1), hello, /*local=*/true, effects_));
  }
  DeviceFacts Facts() { return FactsOf(*roster_, {})[0]; }
  void Measure(const std::string& backend, const std::string& choice) {
    ProfileReport report;
    report.backend = backend;
    report.choice = choice;
    roster_->SetMeasured(0, report);
  }
  std::string Line() {
    Plan plan;
    plan.stages = {{{Seat{DeviceId(0)}}, 0, 2, 1}};
    return ProcessorLines(*roster_, plan, /*all=*/true)[0];
  }

  RunEffects effects_;
  std::optional<Roster> roster_;
};

// The limit is that of the memory where the stage lies.
TEST_F(ProcessorsTest, ADevicesMemoryLimitsItsStage) {
  EXPECT_EQ(Facts().memory_bytes, 3000);
  EXPECT_EQ(Facts().memory_of, "");
  Measure("opencl", "it is fast");
  EXPECT_EQ(Facts().memory_bytes, 3000) << "nothing is known of the device yet";
  roster_->SetProcessors(0, {{{.backend = "opencl", .memory_bytes = 700}}});
  EXPECT_EQ(Facts().memory_bytes, 700);
  EXPECT_EQ(Facts().memory_of, "the memory of its opencl device");
  Measure("cpu,opencl", "both are fast");
  EXPECT_EQ(Facts().memory_bytes, 700);
  roster_->SetProcessors(0, {{{.backend = "opencl", .memory_bytes = 70'000}}});
  EXPECT_EQ(Facts().memory_bytes, 1000) << "of the host's a third";
  EXPECT_EQ(Facts().memory_of, "");
  Measure("cpu", "opencl is slow");
  EXPECT_EQ(Facts().memory_bytes, 3000);
}

TEST_F(ProcessorsTest, APlanSaysWhatComputesAndWhy) {
  EXPECT_EQ(Line(), "a: layers 0 to 2 on cpu: nothing was measured beside it");
  EXPECT_TRUE(ProcessorLines(*roster_, Plan(), /*all=*/false).empty());
  Measure("cpu", "opencl 3.1x slower: left out");
  EXPECT_EQ(Line(), "a: layers 0 to 2 on cpu: opencl 3.1x slower: left out");
  Measure("cpu,hexagon", "");
  EXPECT_THAT(Line(), AllOf(HasSubstr("on cpu,hexagon"), HasSubstr("hexagon is emulated: ")));
}

}  // namespace
}  // namespace runnel::program_lists_test
