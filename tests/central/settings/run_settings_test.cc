#include "central/settings/run_settings.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "central/settings/run_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/sample_model.h"

namespace runnel::run_settings_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every field as its row's example says: none has its default.
RunSettings AllSet() {
  RunSettings settings;
  for (const RunField& field : RunFields()) {
    const absl::Status status = SetFromText(field, field.flag.example, settings);
    EXPECT_TRUE(status.ok()) << field.flag.name << ": " << status;
  }
  return settings;
}

TEST(RunSettings, JsonRoundTrip) {
  for (const RunSettings& settings : {RunSettings(), AllSet()}) {
    const auto back = SettingsFromJson(SettingsToJson(settings));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == settings) << SettingsToJson(*back);
  }
}

TEST(RunSettings, EveryRowIsAFlagWithHelpExampleAndDefault) {
  const RunSettings defaults;
  const RunSettings all = AllSet();
  std::set<absl::string_view> names;
  for (const RunField& field : RunFields()) {
    SCOPED_TRACE(field.flag.name);
    EXPECT_TRUE(names.insert(field.flag.name).second);
    EXPECT_FALSE(field.flag.help.empty());
    EXPECT_FALSE(IsGiven(field, defaults));
    EXPECT_TRUE(IsGiven(field, all));
    EXPECT_FALSE(IsLeftOut(field, all));
    EXPECT_TRUE(CheckField(field, all).ok());
    EXPECT_TRUE(CheckField(field, defaults).ok());
    RunSettings again = defaults;
    EXPECT_TRUE(SetFromText(field, SettingText(field, all), again).ok());
    EXPECT_EQ(SettingText(field, again), SettingText(field, all));
  }
}

TEST(RunSettings, AllBitsOfARealAndOfASeedArePreserved) {
  RunSettings settings;
  settings.training.seed = 9007199254740993;  // no double
  settings.training.milestone_factor = 1.0 / 3;
  settings.data_dir = "/data/\xc3\xa9 \"quoted\"";
  EXPECT_TRUE(*SettingsFromJson(SettingsToJson(settings)) == settings);
}

TEST(RunSettings, WrongTextsNameFlagAndFix) {
  const struct {
    const char* flag;
    const char* text;
    const char* message;
  } kCases[] = {
      {"batch-size", "many", "--batch-size many: must be an integer"},
      {"batch-size", "-1", "--batch-size -1: must be at least 1"},
      {"lr", "0.1x", "--lr 0.1x: must be a number"},
      {"lr", "nan", "--lr nan: must be a finite number"},
      {"seed", "-1", "--seed -1: must be an integer of at least 0"},
      {"caps", "2,,x", "--caps 2,,x: must be integers"},
      {"caps", "2,0", "--caps 2,0: must be at least 1"},
      {"milestones", "-1", "--milestones -1: must be at least 1"},
      {"codec-forward", "0:mbq:2,0:mbq:3", "--codec-forward 0:mbq:2,0:mbq:3: "},
      {"codec-forward", "", "--codec-forward '': "},
      {"model", "", "--model '': must be given"},
      {"metrics-port", "-1", "--metrics-port -1: must be at least 0"},
      {"journal", "/data/\xe9t\xe9", "--journal /data/\\xe9t\\xe9: must be UTF-8"},
  };
  for (const auto& c : kCases) {
    for (const RunField& field : RunFields()) {
      if (field.flag.name != c.flag) continue;
      RunSettings settings;
      const absl::Status status = SetFromText(field, c.text, settings);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    }
  }
}

TEST(RunSettings, NoMilestonesAndTheModelsDiffer) {
  RunSettings none;
  none.training.milestones.clear();
  EXPECT_THAT(SettingsToJson(none), HasSubstr("\"milestones\":[]"));
  EXPECT_TRUE(SettingsFromJson(SettingsToJson(none))->training.milestones.empty());
  EXPECT_THAT(SettingsToJson(RunSettings()), ::testing::Not(HasSubstr("\"milestones\":")));
}

TEST(RunSettings, ConfigFileMaySayLittle) {
  const auto settings = SettingsFromJson(R"({"batch-size": 8, "lr": 1})");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->training.batch_size, 8);
  EXPECT_EQ(settings->training.learning_rate, 1.0);
  EXPECT_EQ(settings->model, "lenet");
}

// A record of an older release has no key of a later training setting: its run trained with what
// holds where the setting does nothing, not with the default of today.
TEST(RunSettings, RecordsOfOlderReleasesKeepTheirTraining) {
  const auto settings = SettingsFromJson(R"({"batch-size": 8, "milestones": [3]})");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->training.augment, "off");
  EXPECT_EQ(settings->training.stale_rate_steps, 0);
  EXPECT_EQ(settings->training.look_ahead, 0);
  EXPECT_EQ(RunSettings().training.augment, "");
  EXPECT_EQ(RunSettings().training.stale_rate_steps, -1);
}

TEST(RunSettings, SettingsOfEarlierReleasesKeepTheirMeaning) {
  const auto measured =
      SettingsFromJson(R"({"cost": "measured", "predictor": "mlp", "plan-mbps": 8.5})");
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->predictor, "");
  EXPECT_EQ(measured->links, "8.5");
  const auto predicted =
      SettingsFromJson(R"({"cost": "predicted", "predictor": "lut", "plan-mbps": 0.0})");
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  EXPECT_EQ(predicted->predictor, "lut");
  EXPECT_EQ(predicted->links, "");
}

TEST(RunSettings, BadJsonNamesTheKey) {
  const struct {
    const char* json;
    const char* message;
  } kCases[] = {
      {R"({"batch_size": 8})", "'batch_size' is not known"},
      {R"({"batch-size": "8"})", "'batch-size': needs an integer, has string"},
      {R"({"batch-size": 8.5})", "'batch-size': needs an integer"},
      {R"({"epochs": 18446744073709551615})", "'epochs': 18446744073709551615 is too large"},
      {R"({"seed": -1})", "'seed': needs an integer of at least 0"},
      {R"({"lr": true})", "'lr': needs a number"},
      {R"({"model": null})", "'model': needs a string"},
      {R"({"caps": 3})", "'caps': needs an array"},
      {R"({"caps": [1, "2"]})", "'caps': needs an integer"},
      {R"({"lr": 0.1,})", "JSON: "},
      {R"([1])", "needs a JSON object"},
      {"", "JSON: "},
  };
  for (const auto& c : kCases) {
    const auto settings = SettingsFromJson(c.json);
    ASSERT_FALSE(settings.ok()) << c.json;
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(settings.status().message()), HasSubstr(c.message));
  }
  const auto deep = SettingsFromJson(std::string(100000, '['));
  EXPECT_THAT(std::string(deep.status().message()), HasSubstr("nested too deeply"));
  const auto long_token = SettingsFromJson("\"" + std::string(100000, 'x'));
  EXPECT_LT(long_token.status().message().size(), 300u);
}

TEST(RunSettings, DefaultsComeFromTheModel) {
  const TrainingDefaults defaults = testing::SampleDefaults();
  const RunSettings filled = WithDefaults(RunSettings(), defaults, "digits", 4);
  EXPECT_EQ(filled.dataset, "digits");
  EXPECT_EQ(filled.epochs, defaults.epochs);
  EXPECT_EQ(filled.training.batch_size, defaults.batch_size);
  EXPECT_EQ(filled.training.eval_batch_size, defaults.batch_size);
  EXPECT_EQ(filled.training.micro_batches, 4);
  EXPECT_EQ(filled.training.learning_rate, defaults.learning_rate);
  EXPECT_EQ(filled.training.momentum, defaults.momentum);
  EXPECT_EQ(filled.training.weight_decay, defaults.weight_decay);
  EXPECT_EQ(filled.training.milestones, defaults.milestones);
  EXPECT_EQ(filled.training.milestone_factor, defaults.milestone_factor);
  EXPECT_TRUE(WithDefaults(AllSet(), defaults, "digits", 4) == AllSet());
  RunSettings none;
  none.training.milestones.clear();
  EXPECT_TRUE(WithDefaults(none, defaults, "digits", 4).training.milestones.empty());
}

// Milestones of 200 epochs, of which a run has less than a tenth, unless the user says how the rate goes.
TEST(RunSettings, AShortRunHasTheModelsShortRate) {
  TrainingDefaults defaults = testing::SampleDefaults();
  defaults.milestone_epochs = 200;
  defaults.short_rate = "one_cycle";
  const auto rate = [&](RunSettings settings) {
    return WithDefaults(std::move(settings), defaults, "digits", 1).training.rate;
  };
  RunSettings settings;
  settings.epochs = 19;
  EXPECT_EQ(rate(settings), "one_cycle");
  settings.epochs = 20;
  EXPECT_EQ(rate(settings), "milestones");
  settings.epochs = 2;
  RunSettings other = settings;
  other.training.milestones = {1};
  EXPECT_EQ(rate(other), "milestones");
  other = settings;
  other.training.warm_up_steps = 100;
  EXPECT_EQ(rate(other), "milestones");
  other = settings;
  other.training.rate = "cosine";
  EXPECT_EQ(rate(other), "cosine");
}

TEST(RunSettings, FloatsHaveTheModelsOptimizer) {
  TrainingDefaults defaults = testing::SampleDefaults();
  const auto optimizer = [&](const std::string& recipe, const std::string& given) {
    RunSettings settings;
    settings.recipe = recipe;
    settings.training.optimizer = given;
    const NumberFormat format = FormatOf(settings).value();
    return WithDefaults(settings, defaults, "digits", 1, format).training.optimizer;
  };
  EXPECT_EQ(optimizer("fp32", ""), "nag_stale");
  EXPECT_EQ(optimizer("bf16", ""), "nag_stale");
  EXPECT_EQ(optimizer("fp32", "sgd"), "sgd") << "the user's";
  EXPECT_EQ(optimizer("niti", ""), "sgd") << "integers";
  defaults.optimizer = "adamw";
  EXPECT_EQ(optimizer("fp32", ""), "adamw");
}

TEST(RunSettings, ALineSaysWhatARunDoes) {
  RunSettings settings;
  settings.epochs = 1;
  const auto text = [&](const std::string& recipe) {
    settings.recipe = recipe;
    const NumberFormat format = FormatOf(settings).value();
    return TrainingText(
        WithDefaults(settings, {.batch_size = 64, .learning_rate = 0.01}, "digits", 1, format),
        "lenet", format);
  };
  EXPECT_EQ(text("fp32"),
            "lenet on digits: 1 epoch, batch 64, fp32, nag_stale, rate 0.01");
  EXPECT_EQ(text("niti"), "lenet on digits: 1 epoch, batch 64, niti, gradient bits 2");
  settings.training.milestones = {15, 22};
  settings.training.warm_up_steps = 390;
  EXPECT_EQ(text("fp32"),
            "lenet on digits: 1 epoch, batch 64, fp32, nag_stale, rate 0.01 by milestones 15,22 "
            "behind 390 steps of warm-up");
}

TEST(RunSettings, TheModelsMilestonesFollowTheLengthOfTheRun) {
  const TrainingDefaults defaults = {.milestones = {60, 120, 160}, .milestone_epochs = 200};
  const auto milestones = [&](int64_t epochs) {
    RunSettings settings;
    settings.epochs = epochs;
    return WithDefaults(settings, defaults, "digits", 1).training.milestones;
  };
  EXPECT_THAT(milestones(200), ElementsAre(60, 120, 160));
  EXPECT_THAT(milestones(400), ElementsAre(120, 240, 320));
  EXPECT_THAT(milestones(30), ElementsAre(9, 18, 24));
  EXPECT_THAT(milestones(20), ElementsAre(6, 12, 16));
  EXPECT_THAT(milestones(19), ElementsAre()) << "under a tenth";
  const TrainingDefaults near = {.milestones = {1, 5, 6, 9}, .milestone_epochs = 10};
  RunSettings settings;
  settings.epochs = 2;
  EXPECT_THAT(WithDefaults(settings, near, "digits", 1).training.milestones, ElementsAre(1))
      << "1 falls on the start, 6 and 9 on the same epoch as 5";
}

TEST(RunSettings, CheckAcceptsWhatIsRight) {
  EXPECT_TRUE(CheckSettings(RunSettings()).ok()) << CheckSettings(RunSettings());
  RunSettings all = AllSet();
  // What rules out each other: of FP32 only, and only one of them; not without local workers.
  all.training.look_ahead = all.training.aggregate_every = 0;
  all.training.optimizer = RunSettings().training.optimizer;
  all.training.loss_scale = RunSettings().training.loss_scale;
  all.training.label_smoothing = 0;
  all.training.clip_norm = all.training.ema = 0;
  all.training.swa = RunSettings().training.swa;
  EXPECT_TRUE(CheckSettings(all).ok()) << CheckSettings(all);
  RunSettings plain;
  plain.local_workers = 0;
  plain.training.momentum = plain.training.learning_rate = plain.training.weight_decay = 0;
  EXPECT_TRUE(CheckSettings(plain).ok()) << CheckSettings(plain);
}

TEST(RunSettings, CheckNamesWhatLossesAveragesAndValidationCannotBe) {
  const struct {
    std::function<void(RunSettings&)> change;
    const char* message;
  } kCases[] = {
      {[](auto& s) { s.training.label_smoothing = 1; }, "--label-smoothing 1: must be below 1"},
      {[](auto& s) {
         s.recipe = "niti";
         s.training.label_smoothing = 0.1;
       },
       "--label-smoothing 0.1: recipe niti has a loss of integers"},
      {[](auto& s) { s.training.ema = 1; }, "--ema 1: must be below 1"},
      {[](auto& s) {
         s.recipe = "niti";
         s.training.ema = 0.9;
       },
       "--ema: recipe niti has integer weights"},
      {[](auto& s) { s.training.clip_norm = -1; }, "--clip-norm -1: must be at least 0"},
      {[](auto& s) {
         s.recipe = "niti";
         s.training.clip_norm = 0.5;
       },
       "--clip-norm 0.5: recipe niti has integer weights"},
      {[](auto& s) { s.training.swa = "soon"; }, "--swa soon: 'soon' is no START[@EVERY]"},
      {[](auto& s) {
         s.training.ema = 0.9;
         s.training.swa = "100";
       },
       "--swa: the run has --ema; a run has one average"},
      {[](auto& s) {
         s.recipe = "niti";
         s.training.swa = "100";
       },
       "--swa: recipe niti has integer weights"},
      {[](auto& s) { s.validation_share = 1; }, "--validation-share 1: must be below 1"},
      {[](auto& s) { s.validation_share = -0.1; }, "--validation-share -0.1: must be at least 0"},
      {[](auto& s) { s.validation_share = 0.1, s.eval_every = -1; },
       "--validation-share 0.1: needs evaluations, --eval-every is -1"},
  };
  for (const auto& c : kCases) {
    RunSettings settings;
    c.change(settings);
    EXPECT_THAT(std::string(CheckSettings(settings).message()), HasSubstr(c.message));
  }
}

TEST(RunSettings, CheckNamesFlagValueAndRule) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const struct {
    std::function<void(RunSettings&)> change;
    const char* message;
  } kCases[] = {
      {[](auto& s) { s.training.batch_size = 0; }, "--batch-size 0: must be at least 1"},
      {[](auto& s) { s.training.batch_size = -2; }, "--batch-size -2: must be at least 1"},
      {[](auto& s) { s.training.batch_size = int64_t{1} << 62; }, "must be at most 1000000000"},
      {[](auto& s) { s.epochs = 0; }, "--epochs 0: must be at least 1"},
      {[](auto& s) { s.training.micro_batches = 0; }, "--micro-batches 0: must be at least 1"},
      {[](auto& s) { s.max_batches = -1; }, "--max-batches -1: must be at least 0"},
      {[](auto& s) { s.eval_every = -2; }, "--eval-every -2: must be at least -1"},
      {[](auto& s) { s.training.eval_batch_size = 0; }, "--eval-batch-size 0: must be at least 1"},
      {[](auto& s) { s.barrier_every = -1; }, "--barrier-every -1: must be at least 0"},
      {[](auto& s) { s.replicate_every = -2; }, "--replicate-every -2: must be at least -1"},
      {[](auto& s) { s.training.learning_rate = kNan; }, "--lr nan: must be a finite number"},
      {[](auto& s) { s.training.learning_rate = kInf; }, "--lr inf: must be a finite number"},
      {[](auto& s) { s.training.learning_rate = -0.5; }, "--lr -0.5: must be at least 0"},
      {[](auto& s) { s.training.weight_decay = -0.1; }, "--weight-decay -0.1: must be at least 0"},
      {[](auto& s) { s.training.look_ahead = 1.5; }, "--look-ahead 1.5: must be at most 1"},
      {[](auto& s) { s.training.look_ahead = -0.5; }, "--look-ahead -0.5: must be at least 0"},
      {[](auto& s) { s.training.look_ahead = s.training.aggregate_every = 1; },
       "--aggregate-every 1: --look-ahead"},
      {[](auto& s) {
         s.recipe = "niti";
         s.training.look_ahead = 1;
       },
       "--look-ahead: recipe niti"},
      {[](auto& s) { s.training.momentum = 1; }, "--momentum 1: must be below 1"},
      {[](auto& s) { s.training.momentum = -0.1; }, "--momentum -0.1: must be at least 0"},
      {[](auto& s) { s.training.milestone_factor = kNan; }, "--milestone-factor nan"},
      {[](auto& s) { s.link_mbps = -1; }, "--link-mbps -1: must be at least 0"},
      {[](auto& s) { s.learning_budget = -5; }, "--learning-budget -5: must be at least 0"},
      {[](auto& s) { s.measure_noise = -2; }, "--measure-noise -2: must be at least -1"},
      {[](auto& s) { s.link_delay_ms = kNan; }, "--link-delay-ms nan"},
      {[](auto& s) { s.local_workers = -1; }, "--local-workers -1: must be at least 0"},
      {[](auto& s) { s.local_workers = 1 << 20; }, "--local-workers 1048576: must be at most 1024"},
      {[](auto& s) { s.workers = -3; }, "--workers -3: must be at least 0"},
      {[](auto& s) { s.workers = 1, s.local_workers = 0; }, "--workers 1: needs --local-workers"},
      {[](auto& s) { s.worker_threads = 0; }, "--worker-threads 0: must be at least 1"},
      {[](auto& s) { s.worker_timeout_s = 0; }, "--worker-timeout-s 0: must be at least 1"},
      {[](auto& s) { s.metrics_port = 65536; }, "--metrics-port 65536: must be at most 65535"},
      {[](auto& s) { s.metrics_port = -2; }, "--metrics-port -2: must be at least 0"},
      {[](auto& s) {
         s.caps = {2, 0};
       },
       "--caps 2,0: must be at least 1"},
      {[](auto& s) {
         s.caps = {1, 2};
       },
       "--caps 1,2: must not grow"},
      {[](auto& s) {
         s.training.milestones = {3, 3};
       },
       "--milestones 3,3: must be in ascending order"},
      {[](auto& s) { s.training.milestones = {0}; }, "--milestones 0: must be at least 1"},
      {[](auto& s) { s.model = ""; }, "--model '': must be given"},
  };
  for (const auto& c : kCases) {
    RunSettings settings;
    c.change(settings);
    const absl::Status status = CheckSettings(settings);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace runnel::run_settings_test
