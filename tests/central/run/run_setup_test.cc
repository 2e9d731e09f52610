// What commands do before a run begins, and what they leave out.

#include "central/run/run_setup.h"

#include <string>

#include "central/run/rule_checks.h"
#include "central/run/run_planning.h"
#include "central/run/run_record.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel::run_setup_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunSettings OnTwoWorkers(const std::string& bits) {
  RunSettings settings;
  settings.dataset = "synthetic_digits";
  settings.local_workers = 2;
  settings.bits = bits;
  return settings;
}

RunSetup Prepared(const RunSettings& settings) {
  RunSetup setup = SetUpRun(settings).value();
  EXPECT_TRUE(SetTrainingSamples(1000, setup).ok());
  return setup;
}

TEST(RunSetup, TheDspTrainsIntegersAlone) {
  RunSettings settings;
  settings.backend = "hexagon";
  EXPECT_EQ(
      CheckTrainingBackend(settings, NumberFormat()).message(),
      "--backend hexagon: it trains integers alone, recipe fp32 has floats; take --recipe niti "
      "or --backend cpu");
  settings.recipe = "sbm:8,8,8";
  EXPECT_EQ(CheckTrainingBackend(settings, NumberFormat()).message(),
            "--backend hexagon: it trains integers alone, recipe sbm:8,8,8 has floats; take "
            "--backend cpu,hexagon, where the DSP has its products of codes");
  RunSettings niti = OnTwoWorkers("");
  niti.recipe = "niti";
  EXPECT_TRUE(CheckTrainingBackend(settings, Prepared(niti).format).ok());
  settings.backend = "cpu,hexagon";
  EXPECT_TRUE(CheckTrainingBackend(settings, NumberFormat()).ok());
}

// As training divides an epoch's last samples: evenly, a sample each at the least.
TEST(RunSetup, PlansKnowTheLastStepOfAnEpoch) {
  RunSettings settings = OnTwoWorkers("");
  settings.training.batch_size = 128;
  settings.training.micro_batches = 4;
  settings.schedule = "async_1f1b";
  const auto short_step = [&](int64_t samples) {
    RunSetup setup = SetUpRun(settings).value();
    EXPECT_TRUE(SetTrainingSamples(samples, setup).ok());
    return MakePlanningInputs(setup, 1000).value().short_step;
  };
  EXPECT_EQ(short_step(1280), 0);
  EXPECT_EQ(short_step(1280 + 96), 0) << "four micro-batches of 24";
  EXPECT_EQ(short_step(1280 + 3), 3);
  EXPECT_EQ(short_step(1280 + 1), 1);
  EXPECT_EQ(short_step(3), 0) << "the only step";
}

TEST(RunSetup, DevicesTimeTheCodecsThatTheyMayUse) {
  const auto timed = [](const std::string& bits) {
    RunSettings settings = OnTwoWorkers(bits);
    settings.policy = "runnel";
    const RunSetup setup = Prepared(settings);
    return MakeRunPlanner(setup, setup.stop_step).value()->profile_needs().cost_codecs;
  };
  EXPECT_THAT(timed("bandwidth"), ElementsAre("eden:4"));
  EXPECT_THAT(timed(""), ElementsAre("identity"));
  EXPECT_THAT(timed("3/4"), ElementsAre("mbq:3", "stochastic:4"));
}

// `eval` takes the settings of the run on one device.
TEST(RunSetup, EvaluationMeasuresNothingAndNeedsNoProfile) {
  for (const char* policy : {"uniform", "dp", "runnel"}) {
    RunSettings settings = OnTwoWorkers("bandwidth");
    settings.policy = policy;
    settings.local_workers = 0;
    const RunSetup setup = Prepared(settings);
    const auto planner = MakeRunPlanner(setup, setup.stop_step).value();
    EXPECT_FALSE(planner->profile_needs().devices) << policy;
    EXPECT_TRUE(planner->profile_needs().cost_codecs.empty()) << policy;
    const absl::StatusOr<Plan> plan = planner->FirstPlan({{"local"}}, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->stages.size(), 1u);
  }
}

// An epoch's first step already has the bits of its level, and the end those of the last step.
TEST(RunSetup, LinksAreShownWithTheBitsOfTheStepUnderWay) {
  TrainingSettings training;
  training.precision = "at:0:3/6,1:8/16,2:9/16";
  const LinkLevels levels = LinkLevels::Of("sbm:8,8,8", training, {}).value();
  const auto shown = [&levels](int64_t step) {
    RunView view;
    view.plan.links = {{CodecSchedule(RecipeCodec()), CodecSchedule(CodecId::Identity())}};
    view.links = {{8, 32}};
    view.progress.steps_per_epoch = 10;
    view.progress.steps = 20;
    view.progress.step = step;
    view.progress.epoch = step == 0 ? 0 : (step - 1) / 10;
    ShowLevelBits(levels, {}, view);
    EXPECT_EQ(view.links[0].bits_backward, 32);
    EXPECT_EQ(view.grid_bits.forward, view.links[0].bits_forward);
    return view.links[0].bits_forward;
  };
  EXPECT_EQ(shown(0), 3);
  EXPECT_EQ(shown(9), 3);
  EXPECT_EQ(shown(10), 8);
  EXPECT_EQ(shown(20), 8);
}

// The folder is not there: whoever loads notices.
TEST(RunSetup, SettingUpReadsNoData) {
  RunSettings settings = OnTwoWorkers("");
  settings.dataset = "mnist";
  settings.data_dir = "/no/such/folder";
  const RunSetup setup = Prepared(settings);
  EXPECT_EQ(setup.training.dataset_samples, 1000);
  EXPECT_FALSE(LoadData(setup, nullptr).ok());
  EXPECT_FALSE(SetUpAndLoad(settings, nullptr).ok());
}

TEST(RunSetup, DataMustFitTheModel) {
  RunSettings settings = OnTwoWorkers("");
  settings.dataset = "synthetic_har";
  const RunSetup setup = Prepared(settings);
  EXPECT_THAT(std::string(LoadData(setup, nullptr).status().message()),
              HasSubstr("--dataset synthetic_har: its samples are"));
}

TEST(RunSetup, LoadingSaysHowManySamplesThereAre) {
  RunSettings settings = OnTwoWorkers("");
  settings.training.batch_size = 10;
  settings.epochs = 2;
  const absl::StatusOr<LoadedRun> run = SetUpAndLoad(settings, nullptr);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->setup.training.dataset_samples, run->data.train->size());
  EXPECT_EQ(run->setup.total_steps, 2 * ((run->data.train->size() + 9) / 10));
}

TEST(RunSetup, ClippingNeedsASynchronousScheduleOrThePlainLoop) {
  RunSettings settings;
  settings.model = "lenet";
  settings.training.clip_norm = 0.5;
  EXPECT_THAT(std::string(SetUpRun(settings).status().message()),
              HasSubstr("--clip-norm 0.5: stages of schedule async_1f1b step before the whole "
                        "gradient is known; use --schedule sync_1f1b"));
  settings.schedule = "sync_1f1b";
  EXPECT_TRUE(SetUpRun(settings).ok()) << SetUpRun(settings).status();
  settings.schedule = RunSettings().schedule;
  settings.local_workers = 0;
  EXPECT_TRUE(SetUpRun(settings).ok()) << SetUpRun(settings).status();
}

// The text of what a run uses, or the error.
std::string AugmentationOf(const std::string& model, const std::string& dataset,
                           const std::string& text) {
  RunSettings settings;
  settings.model = model;
  settings.dataset = dataset;
  settings.training.augment = text;
  const absl::StatusOr<RunSetup> setup = SetUpRun(settings);
  if (!setup.ok()) return std::string(setup.status().message());
  EXPECT_EQ(setup->settings.training.augment, setup->augmentation.text());
  return setup->augmentation.text();
}

TEST(RunSetup, AugmentationIsTheDataSetsUnlessGiven) {
  EXPECT_EQ(AugmentationOf("mobilenet_v2", "", ""), "crop,flip");
  EXPECT_EQ(AugmentationOf("vgg11", "cifar10", "on"), "crop,flip");
  EXPECT_EQ(AugmentationOf("vgg11", "cifar10", "off"), "off");
  EXPECT_EQ(AugmentationOf("vgg11", "cifar10", "flip"), "flip");
  EXPECT_EQ(AugmentationOf("har_cnn", "ucihar", ""), "shift");
  EXPECT_EQ(AugmentationOf("har_cnn", "", ""), "shift");
  EXPECT_EQ(AugmentationOf("lenet", "mnist", ""), "off");
  EXPECT_EQ(AugmentationOf("lenet", "", "crop"), "crop");
  EXPECT_THAT(AugmentationOf("lenet", "mnist", "on"),
              HasSubstr("--augment on: data set mnist has no augmentation of its own"));
  EXPECT_THAT(AugmentationOf("har_cnn", "", "flip"),
              HasSubstr("--augment flip: flip is for images"));
  EXPECT_THAT(AugmentationOf("vgg11", "", "spin"),
              HasSubstr("--augment spin: 'spin' is not known"));
}

TEST(RunSetup, MixupNeedsALossOfFloats) {
  EXPECT_EQ(AugmentationOf("lenet", "", "mixup,erase"), "erase,mixup");
  EXPECT_EQ(AugmentationOf("har_cnn", "", "mixup"), "mixup");
  EXPECT_THAT(AugmentationOf("har_cnn", "", "erase"), HasSubstr("erase is for images"));
  RunSettings settings;
  settings.model = "lenet";
  settings.recipe = "niti";
  settings.training.augment = "mixup";
  EXPECT_THAT(std::string(SetUpRun(settings).status().message()),
              HasSubstr("--augment mixup: mixup: integer recipes have a loss of whole labels"));
}

// Of a record of a release without augmentation.
TEST(RunSetup, OlderRecordsTrainWithoutAugmentation) {
  const RunSettings settings = SettingsFromJson(R"({"model": "har_cnn"})").value();
  const RunSetup setup = Prepared(settings);
  EXPECT_TRUE(setup.augmentation.empty());
  EXPECT_EQ(setup.training.augment, "off");
}

TEST(RunSetup, ErrorsNameTheFlag) {
  RunSettings settings = OnTwoWorkers("");
  settings.local_workers = 9;
  settings.policy = "uniform";
  EXPECT_THAT(std::string(SetUpRun(settings).status().message()),
              HasSubstr("9 stages cannot be cut from the 6 layers of lenet"));
  settings.policy = "runnel";  // leaves three of them out
  EXPECT_TRUE(SetUpRun(settings).ok()) << SetUpRun(settings).status();
  settings = OnTwoWorkers("");
  settings.caps = {1};
  EXPECT_THAT(std::string(SetUpRun(settings).status().message()),
              HasSubstr("--caps 1: 1 caps for 2 stages"));
  settings = OnTwoWorkers("");
  settings.dataset = "photos";
  EXPECT_FALSE(SetUpRun(settings).ok());
}

TEST(RunSetup, SlotsAreThoseOfTheOptimizerThatNobodyNamed) {
  RunSettings settings = OnTwoWorkers("");
  EXPECT_EQ(SetUpRun(settings).value().format.slots.size(), 1u) << "the momentum";
  settings.training.ema = 0.9;
  EXPECT_EQ(SetUpRun(settings).value().format.slots.size(), 2u) << "and the average";
}

// Batch norms that train, of few samples.
TEST(RunSetup, SaysWhereMicroBatchesAreSmallForBatchNorms) {
  RunSettings settings;
  settings.model = "resnet8";
  settings.dataset = "cifar10";
  settings.local_workers = 2;
  settings.schedule = "sync_1f1b";
  settings.training.micro_batches = 4;
  const auto note = [&](int64_t batch_size) {
    settings.training.batch_size = batch_size;
    return SetUpRun(settings).value().note;
  };
  EXPECT_THAT(note(32), HasSubstr("batch norms see micro-batches of 8 samples"));
  EXPECT_EQ(note(64), "");
  settings.training.micro_batches = 1;
  EXPECT_EQ(note(8), "");
  settings.training.micro_batches = 4;
  settings.rewrites = {"freeze:4", "head:10"};
  EXPECT_EQ(note(32), "") << "the head alone trains";
  settings.rewrites.clear();
  settings.model = "lenet";
  settings.dataset = "mnist";
  EXPECT_EQ(note(32), "");
}

}  // namespace
}  // namespace runnel::run_setup_test
