// Real workers whose stages run on several processors: the bytes of the CPU's, whatever runs where,
// and the listing of who runs what.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/process/central_runs.h"

namespace runnel::co_schedule_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "8", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b",
                    "--micro-batches", "2", "--max-batches", "4"};
// clang-format on

std::string CpuWeights() {
  return Weights(With(kRun, {"--backend", "cpu", "--local-workers", "0"}));
}

bool Has(const char* backend) { return testing::Matches(Contains(backend))(BackendNames()); }

TEST(CoSchedule, EveryAssignmentGivesTheWeightsOfTheCpu) {
  const std::string cpu = CpuWeights();
  EXPECT_EQ(cpu.size(), 64u);
  std::vector<std::string> names = {"cpu,ref", "cpu,ref@alternate"};
  if (Has("hexagon")) names.push_back("cpu,hexagon@alternate");
  if (Has("opencl")) {
    names.push_back("cpu,opencl@alternate");
    names.push_back("cpu,opencl");
  }
  for (const std::string& name : names) {
    EXPECT_EQ(Weights(With(kRun, {"--backend", name, "--local-workers", "1"})), cpu) << name;
    EXPECT_EQ(Weights(With(kRun, {"--backend", name, "--local-workers", "2"})), cpu) << name;
  }
}

TEST(CoSchedule, AWorkerMayHaveSeveralProcessorsOfItsOwn) {
  ExpectWeightsOfPlainLoops(kRun, "cpu,ref@alternate");
}

TEST(CoSchedule, CentralAsksForProcessorsThatAWorkerHas) {
  Process central(With({"runnel-central"}, With(kRun, {"--backend", "cpu,warp@alternate"})));
  EXPECT_EQ(central.Wait(60), 2);
  EXPECT_THAT(central.err(), HasSubstr("--backend cpu,warp@alternate: worker local-000 has cpu"));
}

std::string Listing(const Words& words, int exit_code = 0) {
  Process worker(With({"runnel-worker", "program"}, words));
  EXPECT_EQ(worker.Wait(60), exit_code) << worker.err();
  return worker.out() + worker.err();
}

TEST(CoSchedule, AListingSaysWhatRunsWhere) {
  const std::string near =
      Listing({"lenet", "--processors", "ref,cpu", "--counted", "--switch-ms", "cpu=0"});
  EXPECT_THAT(near, testing::ContainsRegex("layers 0 to 5, micro-batches of 64 samples on ref "
                                           "\\(counted\\) at [0-9.e-]+ mJ a sample, cpu"));
  EXPECT_THAT(near, testing::ContainsRegex("forward +2.0 +int8_conv_forward +cpu "));
  EXPECT_THAT(near, testing::ContainsRegex("forward: [0-9.]+ ms, 2 switches, 1[0-9] on cpu"));
  const std::string far =
      Listing({"lenet", "--processors", "ref,cpu", "--counted", "--switch-ms", "cpu=10000"});
  EXPECT_THAT(far, testing::ContainsRegex("forward: [0-9.]+ ms, 0 switches, 1[0-9] on ref"));
  EXPECT_THAT(Listing({"lenet", "--recipe", "fp32"}), HasSubstr("cpu (counted)"));
  EXPECT_THAT(Listing({"lenet"}), HasSubstr("cpu (measured)"));
}

// What a processor takes for a sample by the listing's first line.
double MillijoulesOn(const std::string& processor, const std::string& listing) {
  const size_t at = listing.find(processor + " (counted) at ");
  if (at == std::string::npos) return 0;
  return std::atof(listing.c_str() + at + processor.size() + 14);
}

TEST(CoSchedule, ADspTakesLessEnergyThanTheProcessor) {
  const std::string alone = Listing({"lenet", "--counted"});
  ASSERT_GT(MillijoulesOn("cpu", alone), 0) << alone;
  EXPECT_NEAR(MillijoulesOn(
                  "cpu", Listing({"lenet", "--counted", "--backend-option", "cpu.mac_pj=1000000"})),
              // Forward, both gradients but the input-gradient of the first layer.
              (3 * (288000 + 1600000 + 400000 + 5000) - 288000) * 1e-3, 1);
  Process there(
      {"runnel-worker", "program", "lenet", "--processors", "cpu,hexagon@*=hexagon", "--counted"});
  if (there.Wait(60) != 0) GTEST_SKIP() << there.err();
  const double on_dsp = MillijoulesOn("hexagon", there.out());
  EXPECT_GT(on_dsp, 0) << there.out();
  EXPECT_LT(on_dsp + MillijoulesOn("cpu", there.out()), MillijoulesOn("cpu", alone) / 3);
}

TEST(CoSchedule, AListingGoesByTheRescaling) {
  EXPECT_THAT(Listing({"lenet", "--counted", "--rescale", "speculate"}),
              HasSubstr("int8_conv_forward_rescaled"));
  EXPECT_THAT(Listing({"lenet", "--processors", "cpu,ref", "--counted", "--rescale", "adaptive"}),
              HasSubstr("int8_conv_forward_rescaled"));
  EXPECT_THAT(Listing({"lenet", "--rescale", "warp"}, 2), HasSubstr("warp"));
}

// As the program that trains: with one micro-batch in flight each tensor steps in the backward.
TEST(CoSchedule, AListingOfOneStageStepsInTheBackward) {
  EXPECT_THAT(Listing({"lenet", "--recipe", "fp32", "--counted"}),
              AllOf(HasSubstr("optimizer_update"),
                    testing::Not(testing::ContainsRegex("update +[0-9.]+ +optimizer_update"))));
}

TEST(CoSchedule, AListingHasTheSlicesOfProducts) {
  EXPECT_THAT(Listing({"lenet", "--counted", "--batch-split", "16"}),
              testing::ContainsRegex("int8_conv_weight_gradient +cpu .* in slices of 16"));
  EXPECT_THAT(Listing({"lenet", "--counted", "--batch-split", "auto"}),
              testing::Not(HasSubstr("in slices")));
  EXPECT_THAT(Listing({"lenet", "--batch-split", "auto"}), HasSubstr("cpu (measured)"));
  EXPECT_THAT(Listing({"lenet", "--batch-split", "some"}, 2),
              HasSubstr("--batch-split some: must"));
}

TEST(CoSchedule, APlanListsTheProgramsOfItsStages) {
  const auto plan = [](const std::string& backend, int exit_code) {
    Process central({"runnel-central", "plan", "--quick", "--model", "lenet", "--recipe", "niti",
                     "--local-workers", "2", "--backend", backend, "--program"});
    EXPECT_EQ(central.Wait(60), exit_code) << central.err();
    return central.out() + central.err();
  };
  const std::string listed = plan("cpu,ref@*=ref", 0);
  EXPECT_THAT(listed, HasSubstr("local-000: layers 0 to 2, micro-batches of 64 samples on cpu"));
  EXPECT_THAT(listed, HasSubstr("local-001: layers 3 to 5"));
  EXPECT_THAT(listed, testing::ContainsRegex("forward +2.0 +int8_conv_forward +ref "));
  EXPECT_THAT(listed, testing::ContainsRegex("update +5.0 +niti_update +ref "));
  EXPECT_THAT(plan("cpu,ref@warp=ref", 2),
              AllOf(HasSubstr("worker local-00"), HasSubstr("'warp=ref' is not")));
}

TEST(CoSchedule, AListingSaysWhatItCannotList) {
  EXPECT_THAT(Listing({"warp"}, 2), HasSubstr("warp"));
  EXPECT_THAT(Listing({"lenet", "--recipe", "warp"}, 2), HasSubstr("warp"));
  EXPECT_THAT(Listing({"lenet", "--processors", "cpu,ref", "--switch-ms", "ref=soon"}, 2),
              HasSubstr("--switch-ms ref=soon: give PROCESSOR=MS"));
  EXPECT_THAT(Listing({"mobilenet_v2"}, 2), HasSubstr("mobilenet_v2"));
  EXPECT_THAT(Listing({"lenet", "--processors", "cpu,warp"}, 2),
              AllOf(HasSubstr("--processors: "), HasSubstr("'warp' is not known")));
}

}  // namespace
}  // namespace runnel::co_schedule_test
