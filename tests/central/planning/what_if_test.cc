// `plan --what-if`: answers from what was measured, and leaves the inputs as they are.

#include "central/planning/what_if.h"

#include <fstream>
#include <string>

#include "central/planning/plan_maker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/profile_file.h"

namespace runnel::what_if_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// LeNet with 8 samples, 2 ms a layer.
DeviceProfile Board() {
  DeviceProfile profile;
  profile.name = profile.family = profile.host = profile.date = profile.numerics_class = "board";
  profile.batch = 8;
  profile.repetitions = 1;
  for (int first = 0; first < 6; ++first) {
    for (int last = first; last < 6; ++last) {
      const double seconds = 0.002 * (last - first + 1);
      profile.sub_models.push_back({"lenet", {first, last}, 8, seconds, 0.01, 0, 0});
    }
  }
  return profile;
}

// LeNet on three devices alike, 4 ms a layer, links of 20 Mbps.
class WhatIfTest : public ::testing::Test {
 protected:
  WhatIfTest() {
    inputs_.model = MakeModel("lenet").value();
    inputs_.policy = FindPolicy("dp").value();
    inputs_.schedule = FindSchedule("async_1f1b").value();
    inputs_.batch_size = inputs_.micro_batch_size = 16;
    inputs_.links.given.rate = LinkRate::Mbps(20);
    inputs_.caps = {3, 2, 1};
    for (const char* name : {"a", "b", "c"}) {
      decided_.devices.push_back({name, "class"});
      decided_.devices.back().times = DeviceTimes::ByLayer(std::vector<double>(6, 0.004));
    }
    std::vector<DeviceTimes> times(3, decided_.devices[0].times);
    decided_.plan = PlanMaker(inputs_).MakePlan({0, 1, 2}, {.times = times}).value();
  }

  std::string Ask(const std::string& text) const {
    const absl::StatusOr<Assumption> assumption = ParseAssumption(text, decided_.devices, usable_);
    if (!assumption.ok()) return std::string(assumption.status().message());
    MeasuredCluster cluster = host_;
    cluster.rates = rates_;
    const absl::StatusOr<std::string> answer =
        WhatIf(inputs_, decided_, cluster, usable_, *assumption);
    return answer.ok() ? *answer : std::string(answer.status().message());
  }

  PlanningInputs inputs_;
  PlanDecided decided_;
  LinkRates rates_;
  MeasuredCluster host_;  // what is known of central's
  std::vector<bool> usable_ = std::vector<bool>(3, true);
};

TEST_F(WhatIfTest, OneMoreDeviceLikeAnother) {
  const std::string answer = Ask("add:d=b");
  EXPECT_THAT(answer, StartsWith("what if add:d=b: 0."));
  EXPECT_THAT(answer, HasSubstr(": d, layers "));
  EXPECT_THAT(Ask("add:b=c"), HasSubstr("device 'b' is there already"));
  EXPECT_THAT(Ask("add:d=e"), HasSubstr("device 'e' is not there, there are a, b, c"));
  EXPECT_THAT(Ask("add:d"), HasSubstr("says nothing of how fast it is"));
  EXPECT_THAT(Ask("add:../x=b"), HasSubstr("what-if add"));
  EXPECT_THAT(Ask("add:d=/nowhere.profile"), HasSubstr("/nowhere.profile"));
}

// A device that was lost is in the plan's list, and in no plan; one of its name may be back.
TEST_F(WhatIfTest, LostDevicesArePlannedNoMore) {
  usable_[1] = false;
  inputs_.caps.clear();
  decided_.plan =
      PlanMaker(inputs_)
          .MakePlan({0, 2}, {.times = std::vector<DeviceTimes>(3, decided_.devices[0].times)})
          .value();
  EXPECT_THAT(Ask("mbps:20"), testing::Not(HasSubstr(": b, layers")));
  EXPECT_THAT(Ask("leave:b"), HasSubstr("device 'b' is not there, there are a, c"));
  decided_.devices.push_back(decided_.devices[1]);
  usable_.push_back(true);
  EXPECT_THAT(Ask("add:d=b"), StartsWith("what if add:d=b: 0."));
  // Who joined since is in none of the plan's lists yet.
  rates_.assign(5, std::vector<WayFigures>(5, {LinkRate::Mbps(20), 0.0}));
  EXPECT_THAT(Ask("add:d=b"), StartsWith("what if add:d=b: 0."));
  EXPECT_THAT(Ask("a\nb"), testing::Not(HasSubstr("\n")));
}

// A second one like b is behind a link of its own: at 1 Mbps it brings nothing.
TEST_F(WhatIfTest, OneMoreBehindASlowLinkBringsNothing) {
  inputs_.policy = FindPolicy("runnel").value();
  inputs_.caps.clear();
  rates_.assign(3, std::vector<WayFigures>(3, {LinkRate::Mbps(1000), 0.0}));
  for (int i : {0, 1}) rates_[i][2] = rates_[2][i] = {LinkRate::Mbps(0.01), 0.0};
  decided_.plan =
      PlanMaker(inputs_)
          .MakePlan({0, 1, 2}, {.times = std::vector<DeviceTimes>(3, decided_.devices[0].times),
                                .rates = rates_})
          .value();
  EXPECT_THAT(Ask("add:d=c"), HasSubstr("d would bring nothing: the plan leaves it out"));
  EXPECT_THAT(Ask("add:d=b"), testing::Not(HasSubstr("would bring nothing")));
}

TEST_F(WhatIfTest, OneMoreByAProfile) {
  DeviceProfile profile = Board();
  const std::string path = testing::TempDir() + "/what_if_board.profile";
  std::ofstream(path) << FormatProfile(profile);
  // Twice the samples take twice the time: as fast as the others.
  const std::string answer = Ask("add:d=" + path), like = Ask("add:d=c");
  ASSERT_THAT(answer, HasSubstr(": 0."));
  EXPECT_EQ(answer.substr(answer.find(": 0.")), like.substr(like.find(": 0.")));
  for (SubModelTime& time : profile.sub_models) time.model = "vgg11";
  std::ofstream(path) << FormatProfile(profile);
  EXPECT_THAT(Ask("add:d=" + path), HasSubstr("has no times of lenet"));
}

// All three are on central's host and take turns on its processor. A configuration brings its own.
TEST_F(WhatIfTest, AConfigurationIsNotOnCentralsHost) {
  inputs_.policy = FindPolicy("runnel").value();
  inputs_.caps.clear();
  inputs_.links.given.rate = LinkRate::Mbps(10'000);
  host_.processor_shares.assign(3, 0.5);
  host_.on_host.assign(3, true);
  host_.host_processors = 1;
  const std::string path = testing::TempDir() + "/what_if_other_host.profile";
  std::ofstream(path) << FormatProfile(Board());
  const auto seconds = [](const std::string& answer) {
    return std::stod(answer.substr(answer.find(": 0.") + 2));
  };
  const std::string other = Ask("add:d=" + path), like = Ask("add:d=c");
  ASSERT_THAT(other, HasSubstr(": 0."));
  ASSERT_THAT(like, HasSubstr(": 0."));
  EXPECT_THAT(other, HasSubstr(": d, layers "));
  // 12 ms of processor time without it.
  EXPECT_GT(seconds(like), 0.0119);
  EXPECT_LT(seconds(other), 0.0119);
}

TEST_F(WhatIfTest, TheSameBandwidthChangesNothing) {
  const std::string answer = Ask("mbps:20");
  const size_t seconds = answer.find("0.");
  ASSERT_NE(seconds, std::string::npos);
  EXPECT_THAT(answer, HasSubstr("(now " + answer.substr(seconds, 6) + " s"));
  EXPECT_THAT(answer, HasSubstr("with the plan as it is: " + answer.substr(seconds, 6) + " s"));
}

// A number for --links and an assumption are of one unit: what a network carries, headers included.
TEST_F(WhatIfTest, AnAssumedBandwidthHasItsHeadersInItAsAPlansHas) {
  inputs_.links.frame_share = 0.5;
  inputs_.links.given.rate = LinkRate::Mbps(2 * 0.5);
  const std::string answer = Ask("mbps:2");
  const std::string now = answer.substr(answer.find("(now ") + 5, 6);
  EXPECT_THAT(answer, HasSubstr("with the plan as it is: " + now + " s"));
}

TEST_F(WhatIfTest, WhatIsKnownOfLinksCounts) {
  const std::string before = Ask("leave:b");
  rates_.assign(3, std::vector<WayFigures>(3, {LinkRate::Mbps(0.5), 0.01}));
  EXPECT_NE(Ask("leave:b"), before);
}

TEST_F(WhatIfTest, ADeviceThatSlowsTheRunDownIsNamed) {
  decided_.devices[1].times = decided_.devices[1].times.Scaled(100);
  std::vector<DeviceTimes> times;
  for (const JournalDevice& device : decided_.devices) times.push_back(device.times);
  decided_.plan = PlanMaker(inputs_).MakePlan({0, 1, 2}, {.times = times}).value();
  EXPECT_THAT(Ask("leave:b"), HasSubstr("without b it would be faster"));
  EXPECT_THAT(Ask("leave:c"), testing::Not(HasSubstr("without c")));
}

// Each assumption stands for itself: the inputs are those of the run afterwards.
TEST_F(WhatIfTest, AnAssumptionDoesNotStay) {
  const std::string slow = Ask("mbps:0.5");
  EXPECT_NE(slow, Ask("mbps:20"));
  const std::string now = slow.substr(slow.find("(now"), 12);
  for (const char* text : {"leave:b", "link:a,b:1", "mbps:20"})
    EXPECT_THAT(Ask(text), HasSubstr(now)) << text;
  EXPECT_EQ(Ask("mbps:0.5"), slow);
}

// The caps of the run are for three devices; two are left.
TEST_F(WhatIfTest, WithoutADeviceTheOthersHaveItsLayers) {
  const std::string answer = Ask("leave:b");
  EXPECT_THAT(answer, StartsWith("what if leave:b: "));
  EXPECT_THAT(answer, HasSubstr("\nstage 1: c, layers"));
  EXPECT_THAT(answer, testing::Not(HasSubstr(": b, layers")));
}

TEST_F(WhatIfTest, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(Ask("leave:a"), HasSubstr("the first device has the data and stays"));
  EXPECT_THAT(Ask("leave:x"), HasSubstr("device 'x' is not there, there are a, b, c"));
  EXPECT_THAT(Ask("mbps:-1"), HasSubstr("'-1' is no bandwidth"));
  EXPECT_THAT(Ask("link:a,a:4"), HasSubstr("a link has two ends"));
  decided_.devices[1].times = DeviceTimes();
  EXPECT_THAT(Ask("mbps:4"), HasSubstr("measures nothing to predict from"));
}

}  // namespace
}  // namespace runnel::what_if_test
