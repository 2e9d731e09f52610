// What a worker tells central of its device, with a profiler of the test's own.

#include "worker/measure/self_measurement.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/support/scratch.h"

namespace runnel::self_measurement_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RecordingLogger final : public Logger {
 public:
  void Log(Severity, absl::string_view text) override { lines.emplace_back(text); }
  std::vector<std::string> lines;
};

ProfileRequest Request(int64_t micro_batch_size) {
  ProfileRequest request;
  request.model = MakeModel("lenet").value();
  request.micro_batch_size = micro_batch_size;
  request.accepts_kept = true;
  return request;
}

class SelfMeasurementTest : public ::testing::Test {
 protected:
  SelfMeasurement Make(const std::string& folder) {
    return SelfMeasurement({folder, "device"}, nullptr, &clock_, &logger_, processors_);
  }
  // The profiler measures `times_` and tells twice how far it is.
  absl::StatusOr<ProfileReport> Ask(SelfMeasurement& measurement, const ProfileRequest& request) {
    return measurement.Answer(
        request,
        [this](const ProfileOptions& options, const std::function<void(double)>& on_progress)
            -> absl::StatusOr<std::vector<RangeTime>> {
          asked_.push_back(options);
          on_progress(0.5);
          on_progress(1);
          return times_;
        },
        [](const ProfileProgress&) {});
  }

  const ScratchDir dir_;
  MonotonicClock clock_;
  RecordingLogger logger_;
  double processors_ = 2;
  std::vector<RangeTime> times_ = {{0.5, 0.1, 0.5, 2, 2}};
  std::vector<ProfileOptions> asked_;
};

TEST_F(SelfMeasurementTest, AKeptAnswerIsNotMeasured) {
  SelfMeasurement measurement = Make(dir_ / "state");
  EXPECT_FALSE(Ask(measurement, Request(8))->kept);
  SelfMeasurement next_run = Make(dir_ / "state");
  EXPECT_TRUE(Ask(next_run, Request(8))->kept);
  EXPECT_THAT(asked_, SizeIs(1));
  EXPECT_FALSE(Ask(next_run, Request(9))->kept);
  EXPECT_THAT(logger_.lines, IsEmpty());
}

TEST_F(SelfMeasurementTest, WhatCannotBeKeptIsSaidOnceWithTheFix) {
  std::ofstream(dir_ / "file") << "";
  SelfMeasurement measurement = Make(dir_ / "file/state");
  EXPECT_TRUE(Ask(measurement, Request(8)).ok());
  EXPECT_TRUE(Ask(measurement, Request(9)).ok());
  ASSERT_THAT(logger_.lines, SizeIs(1));
  EXPECT_THAT(logger_.lines[0], HasSubstr("--state-dir"));
  EXPECT_THAT(logger_.lines[0], HasSubstr(dir_ / "file/state"));
}

// A worker that got less than it has alone is measured again when others have gone.
TEST_F(SelfMeasurementTest, WhatWasMeasuredBesideOtherWorkIsNotKept) {
  times_ = {{0.9, 0.1, 0.2, 3, 1.2}};
  SelfMeasurement measurement = Make(dir_ / "state");
  EXPECT_DOUBLE_EQ(Ask(measurement, Request(8))->processor_share, 0.4);
  EXPECT_THAT(logger_.lines, ElementsAre(HasSubstr("with 40 % of a processor in place of 100 %")));
  times_ = {{0.5, 0.1, 0.5, 2, 2}};
  SelfMeasurement next_run = Make(dir_ / "state");
  EXPECT_FALSE(Ask(next_run, Request(8))->kept);
  EXPECT_TRUE(Ask(next_run, Request(8))->kept);
}

// Four on two processors: half of one each is what there is.
TEST_F(SelfMeasurementTest, NeighboursThatMeasureTooAreNoOtherWork) {
  times_ = {{0.9, 0.1, 0.2, 3, 1.4}};
  ProfileRequest request = Request(8);
  request.neighbours = 3;
  SelfMeasurement measurement = Make(dir_ / "state");
  EXPECT_FALSE(Ask(measurement, request)->kept);
  EXPECT_TRUE(Ask(measurement, request)->kept);
  EXPECT_THAT(logger_.lines, IsEmpty());
}

// Its processor is shared: half of the wall time was another's.
TEST_F(SelfMeasurementTest, ASharedProcessorIsFoundKeptAndTakenIntoAccount) {
  processors_ = 0.5;
  times_ = {{0.9, 0.1, 0.2, 3, 1}, {0.1, 0.1, 0.1, 1, 1}};
  SelfMeasurement measurement = Make(dir_ / "state");
  const absl::StatusOr<ProfileReport> report = Ask(measurement, Request(8));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_DOUBLE_EQ(report->processor_share, 0.5);
  EXPECT_THAT(report->layer_seconds, ElementsAre(0.4, 0.2)) << "processor time over the share";
  EXPECT_TRUE(measurement.shares_processor());
  SelfMeasurement next_run = Make(dir_ / "state");
  EXPECT_TRUE(Ask(next_run, Request(8))->kept);
  EXPECT_TRUE(next_run.shares_processor()) << "as when it was measured";
  Ask(next_run, Request(9)).IgnoreError();
  EXPECT_TRUE(asked_.back().shared_caches);
}

TEST_F(SelfMeasurementTest, CostsAreMeasuredWhenAskedForAndKept) {
  times_ = {{0.5, 0.1, 0.5, 2, 2, 0.2, 0.5}, {0.5, 0.1, 0.5, 2, 2, 0.4, 0.3}};
  SelfMeasurement measurement = Make(dir_ / "state");
  ProfileRequest request = Request(8);
  EXPECT_EQ(Ask(measurement, request)->costs.coder_seconds_per_byte, 0);
  request.cost_codecs = {"stochastic:4"};
  const absl::StatusOr<ProfileReport> report = Ask(measurement, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->costs.coder_seconds_per_byte, 0);
  EXPECT_DOUBLE_EQ(report->costs.forward_share, 0.3);
  EXPECT_DOUBLE_EQ(report->costs.input_gradient_share, 0.4);
  SelfMeasurement next_run = Make(dir_ / "state");
  EXPECT_EQ(Ask(next_run, request)->costs, report->costs);
}

TEST_F(SelfMeasurementTest, ACodecThatIsNotKnownCostsAWarning) {
  SelfMeasurement measurement = Make("");
  ProfileRequest request = Request(8);
  request.cost_codecs = {"zip:4"};
  const absl::StatusOr<ProfileReport> report = Ask(measurement, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->costs.coder_seconds_per_byte, 0);
  EXPECT_THAT(logger_.lines, Contains(HasSubstr("the cost of coding is not known")));
}

TEST_F(SelfMeasurementTest, ATrainIsAnsweredWhenItIsComplete) {
  SelfMeasurement measurement = Make("");
  std::vector<ProbePiece> train = MakeProbeTrain(64 * 1024, 256 * 1024);
  for (size_t i = 0; i + 1 < train.size(); ++i)
    EXPECT_THAT(measurement.Answer(train[i]), IsEmpty());
  const std::vector<WorkerMessage> answer = measurement.Answer(train.back());
  ASSERT_THAT(answer, SizeIs(1 + train.size()));
  EXPECT_TRUE(std::holds_alternative<WayMeasured>(answer[0]));
  ASSERT_TRUE(std::holds_alternative<ProbePiece>(answer[1]));
  EXPECT_EQ(std::get<ProbePiece>(answer[1]).padding.size(), 256u * 1024 / train.size());

  train = MakeProbeTrain(64 * 1024);
  for (size_t i = 0; i + 1 < train.size(); ++i) measurement.Answer(train[i]);
  EXPECT_THAT(measurement.Answer(train.back()), SizeIs(1)) << "no train was asked for";
}

TEST_F(SelfMeasurementTest, APingIsAnsweredAtOnce) {
  SelfMeasurement measurement = Make("");
  const std::vector<WorkerMessage> answer = measurement.Answer({.count = 1});
  ASSERT_THAT(answer, SizeIs(1));
  EXPECT_TRUE(std::get<ProbePiece>(answer[0]).is_ping());
}

TEST_F(SelfMeasurementTest, WhatMoreNeighboursThanProcessorsLeaveSaysNothingOfTheDevice) {
  SelfMeasurement measurement = Make("");
  times_ = {{0.5, 0.1, 0.2, 2, 0.8}};
  ProfileRequest request = Request(4);
  request.neighbours = 2;
  const ProfileReport crowded = Ask(measurement, request).value();
  EXPECT_DOUBLE_EQ(crowded.processor_share, 0.4);
  EXPECT_DOUBLE_EQ(crowded.layer_seconds[0], 0.2 / 0.4) << "by the processor all the same";
  EXPECT_FALSE(measurement.shares_processor());
  request.neighbours = 1;
  EXPECT_TRUE(Ask(measurement, request).ok());
  EXPECT_TRUE(measurement.shares_processor());
}

TEST_F(SelfMeasurementTest, ASecondMeasurementDoesNotChangeTheViewOfTheProcessor) {
  SelfMeasurement measurement = Make("");
  times_ = {{0.5, 0.1, 0.2, 2, 0.8}};
  ProfileRequest request = Request(4);
  request.ranges = {{0, 2}};
  request.accepts_kept = false;
  EXPECT_DOUBLE_EQ(Ask(measurement, request)->processor_share, 0.4);
  EXPECT_FALSE(measurement.shares_processor());
  request.cost_codecs = {"identity"};
  EXPECT_TRUE(Ask(measurement, request).ok());
  EXPECT_TRUE(measurement.shares_processor()) << "a check of one range";
}

}  // namespace
}  // namespace runnel::self_measurement_test
