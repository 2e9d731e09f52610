// What ends of links keep of the data set: what is refused, and that plans count it.

#include "central/planning/kept_samples.h"

#include "central/planning/plan_maker.h"
#include "central/run/run_planning.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/base/codecs.h"

namespace runnel::kept_samples_test {
namespace {

using ::testing::HasSubstr;

std::string RefusalOf(const std::string& codec, int64_t samples, const std::string& augment = "off",
                      bool is_session = false) {
  const ModelSpec model = MakeModel("lenet").value();
  const CodecSchedule codecs = Codecs(codec);
  const absl::Status status = CheckKeptSamples({model, codecs, samples}, augment, is_session);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  const std::string text(status.message());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return text;
}

TEST(KeptSamples, SaysWhatCannotBeKept) {
  EXPECT_EQ(RefusalOf("aqsgd:2", 60'000), "");
  EXPECT_THAT(RefusalOf("aqsgd:2", 60'000, "crop,flip"),
              HasSubstr("--codec-forward aqsgd:2: sends how a sample differs"));
  EXPECT_THAT(RefusalOf("0:eden:2,3:aqsgd:2", 60'000, "mixup"), HasSubstr("add --augment off"));
  EXPECT_THAT(RefusalOf("aqsgd:2", 60'000, "off", true), HasSubstr("sessions of learning"));
  EXPECT_THAT(RefusalOf("aqsgd:2", 50'000'000), HasSubstr("at most 800 are"));
  for (const char* codec : {"identity", "eden:2", "mbq:2"})
    EXPECT_EQ(RefusalOf(codec, 50'000'000, "crop", true), "") << codec;
}

TEST(KeptSamples, ThePlansLinksCount) {
  const ModelSpec model = MakeModel("lenet").value();
  Plan plan;
  for (int i = 0; i < 2; ++i) plan.stages.push_back({{Seat{DeviceId(i)}}, 3 * i, 3 * i + 2, 2 - i});
  plan.links = {{Codecs("aqsgd:2"), Codecs("identity")}};
  EXPECT_TRUE(CheckKeptSamples(plan, model, 60'000).ok());
  EXPECT_THAT(std::string(CheckKeptSamples(plan, model, 50'000'000).message()),
              HasSubstr("at each end of the link after layer 2, at most 800"));
  plan.links[0].codec_forward = Codecs("eden:2");
  EXPECT_TRUE(CheckKeptSamples(plan, model, 50'000'000).ok());
  // Five stages, each link within its limit.
  plan.stages[0].last_layer = 1;
  plan.stages.resize(1);
  for (int i = 1; i < 5; ++i) plan.stages.push_back({{Seat{DeviceId(i)}}, i + 1, i + 1, 5 - i});
  plan.links.assign(4, {Codecs("aqsgd:2"), Codecs("identity")});
  EXPECT_TRUE(CheckKeptSamples(plan, model, 100'000).ok());
  EXPECT_THAT(std::string(CheckKeptSamples(plan, model, 110'000).message()),
              HasSubstr("samples on 4 links, at most 1600 are in all"));
}

// A worker that has room for its stage but not for what it would keep is told so.
TEST(KeptSamples, PlansCountThemAsMemory) {
  const auto plan_with = [](const std::string& codec, int64_t limit_bytes) {
    RunSettings settings;
    settings.model = "lenet";
    settings.dataset = "synthetic_digits";
    settings.local_workers = 2;
    settings.policy = "uniform";
    settings.codec_forward = Codecs(codec);
    RunSetup setup = SetUpRun(settings).value();
    EXPECT_TRUE(SetTrainingSamples(60'000, setup).ok());
    const PlanMaker maker(MakePlanningInputs(setup, 100).value());
    MeasuredCluster cluster;
    for (const char* name : {"a", "b"}) {
      DeviceMemory& device = cluster.memory.emplace_back();
      device.name = name;
      device.may_take_bytes = limit_bytes;
    }
    return maker.MakePlan({0, 1}, cluster).status();
  };
  constexpr int64_t kEnough = 110'000'000;
  EXPECT_TRUE(plan_with("eden:2", kEnough).ok()) << plan_with("eden:2", kEnough);
  EXPECT_THAT(std::string(plan_with("aqsgd:2", kEnough).message()),
              HasSubstr("it may take 110 MB"));
  EXPECT_TRUE(plan_with("aqsgd:2", 2'000'000'000).ok());
}

}  // namespace
}  // namespace runnel::kept_samples_test
